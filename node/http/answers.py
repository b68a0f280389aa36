"""Makes the answers of the `http` listener alike."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from aiohttp import web

HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Refusal(Exception):
    """A request that is not done: status and what to do about it, for people."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.code = code


def json_answer(document: Any, status: int = 200) -> web.Response:
    """A document as JSON."""
    return web.Response(
        body=msgspec.json.encode(document),
        status=status,
        content_type="application/json",
        headers=HEADERS,
    )


def refused(refusal: Refusal) -> web.Response:
    """Why a request was not done."""
    answer = json_answer({"error": refusal.code, "text": str(refusal)}, refusal.status)
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
    except web.HTTPNotFound:
        return refused(Refusal(404, "http.path", "Nothing is here: /v1 lists what there is"))
    except web.HTTPMethodNotAllowed as error:
        text = f"Send {' or '.join(sorted(error.allowed_methods))}"
        answer = refused(Refusal(405, "http.method", text))
        answer.headers["Allow"] = error.headers["Allow"]
        return answer


def number(request: web.Request, name: str, default: int) -> int:
    """A number of the query, of at most 18 digits."""
    return number_of(request.query, name, default)


def number_of(query: Mapping[str, str], name: str, default: int) -> int:
    """A number of a query, of at most 18 digits.

    Raises:
        Refusal: 400, it is none.
    """
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise Refusal(400, "http.number", f"{name} is a number")
    return int(text)
