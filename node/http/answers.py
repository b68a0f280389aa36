"""Makes the answers of the `http` listener alike."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from aiohttp import web

from rillnode.codecs.next_steps import step_of

HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}

EVENTS: Final = "text/event-stream"
NUMBER_MAX: Final = 10**18 - 1


class Refusal(Exception):
    """A request that is not done: status and what to do about it, for people."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        self.context: dict[str, Any] = {}


def json_answer(
    document: object, status: int = 200, kind: str = "json", **headers: str
) -> web.Response:
    """A document as JSON."""
    body, media = msgspec.json.encode(document), f"application/{kind}"
    headers = {**HEADERS, **headers}
    return web.Response(body=body, status=status, content_type=media, headers=headers)


async def begun_events(request: web.Request) -> web.StreamResponse:
    """An answer of server-sent events that has begun; no proxy is to gather them."""
    headers = {**HEADERS, "Content-Type": EVENTS, "X-Accel-Buffering": "no"}
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    return response


def event(name: str, document: object) -> bytes:
    """A document as a server-sent event."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(document))


def refused(refusal: Refusal) -> web.Response:
    """Why a request was not done."""
    document = {"error": refusal.code, "text": str(refusal), "next": step_of(refusal.code)}
    answer = json_answer(document, refusal.status)
    if refusal.status == 401:
        answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


@web.middleware
async def answered(
    request: web.Request,
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> web.StreamResponse:
    """Answer refusals, unknown paths and methods as all else: in JSON, with what to do."""
    try:
        return await handler(request)
    except Refusal as refusal:
        return refused(refusal)
    except web.HTTPException as error:
        answer = refused(refusal_of(error, "/v1 lists what there is"))
        answer.headers.update(
            (name, value) for name, value in error.headers.items() if name == "Allow"
        )
        return answer


def refusal_of(error: web.HTTPException, listed: str) -> Refusal:
    """What the HTTP library refuses, as other refusals are told.

    Args:
        error: the library's.
        listed: where to see which paths there are.

    Raises:
        HTTPException: it is none of these.
    """
    match error:
        case web.HTTPNotFound():
            return Refusal(404, "http.path", f"Nothing is here: {listed}")
        case web.HTTPMethodNotAllowed():
            text = f"Send {' or '.join(sorted(error.allowed_methods))}"
            return Refusal(405, "http.method", text)
        case _:
            raise error


def number(request: web.Request, name: str, default: int, most: int = NUMBER_MAX) -> int:
    """A number of the query; raises as `number_of`."""
    return number_of(request.query, name, default, most)


def number_of(query: Mapping[str, str], name: str, default: int, most: int = NUMBER_MAX) -> int:
    """A number of a query.

    Raises:
        Refusal: 400, it is none, or more than `most`.
    """
    text = query.get(name)
    if text is None:
        return default
    if text.isascii() and text.isdigit() and len(text) <= 18 and int(text) <= most:
        return int(text)
    raise Refusal(400, "http.number", f"{name} is a number of at most {most:,}")
