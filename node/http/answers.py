"""Makes the answers of listeners that speak HTTP alike: documents, events, and refusals."""

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import web

from rillnode.codecs.errors import CodecError, RequestError, RillnodeError
from rillnode.codecs.next_steps import step_of
from rillnode.codecs.times import Time, parse_time

D = TypeVar("D", int, None)

HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}

EVENTS: Final = "text/event-stream"
NUMBER_MAX: Final = 10**18 - 1


STATUSES: Final = {
    code: status
    for status, codes in {
        400: "input.format input.key",
        401: "console.session http.token",
        403: "console.proxy console.ticket http.cross_site http.host http.no_token http.origin "
        "quota.bytes quota.streams stream.signed_only",
        404: "address.unknown http.path sink.unknown stream.partition stream.unknown",
        405: "http.method",
        406: "http.accept",
        408: "http.slow",
        409: "index.kept",
        410: "stream.removed",
        411: "http.length",
        413: "entries.many entries.size http.too_large once.size",
        415: "http.type",
        421: "store.elsewhere",
        422: "once.other",
        429: "console.busy quota.rate route.busy",
        503: "http.readers node.draining node.state store.slow",
        504: "request.timeout",
    }.items()
    for code in codes.split()
}
"""The HTTP status of codes; of other refusals it is 400, of what the node cannot do now 503."""

_UNREAD: Final = frozenset({"http.broken", "http.slow", "http.too_large"})
"""After these nobody knows where the next request begins."""


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


def status_of(error: RillnodeError, statuses: Mapping[str, int] = STATUSES) -> int:
    """The HTTP status of a refusal, by its code, or by whose fault it is."""
    theirs = isinstance(error, CodecError | RequestError) and not error.retryable
    return statuses.get(error.code, 400 if theirs else 503)


def problem(error: RillnodeError, statuses: Mapping[str, int] = STATUSES) -> dict[str, Any]:
    """An error as a document: code, text, status, what is stored all the same, and what to do."""
    found: dict[str, Any] = {"code": error.code, "text": error.text}
    found["status"] = status_of(error, statuses)
    found.update((key, value) for key, value in error.context.items() if key == "indexes")
    return {**found, "next": step_of(error.code) or "try again"}


def refused(
    error: RillnodeError, statuses: Mapping[str, int] = STATUSES, **headers: str
) -> web.Response:
    """Why a request was not done."""
    document = problem(error, statuses)
    found = json_answer(document, document["status"], "problem+json", **headers)
    if found.status == 401:
        found.headers["WWW-Authenticate"] = "Bearer"
    if found.status in (429, 503):
        found.headers["Retry-After"] = str(max(1, math.ceil(error.retry_seconds)))
    if error.code in _UNREAD:
        found.force_close()
    return found


@web.middleware
async def answered(
    request: web.Request,
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> web.StreamResponse:
    """Answer refusals, unknown paths and methods as all else: in JSON, with what to do."""
    try:
        return await handler(request)
    except CodecError:  # of the node's own data
        raise
    except RillnodeError as error:
        return refused(error)
    except web.HTTPException as error:
        refusal = refusal_of(error, "/v1 lists what there is")
        return refused(refusal, STATUSES, **allowed(error))


def allowed(error: web.HTTPException) -> dict[str, str]:
    """The header that tells which methods there are, of what the HTTP library refuses for its."""
    return {name: value for name, value in error.headers.items() if name == "Allow"}


def refusal_of(error: web.HTTPException, listed: str) -> RequestError:
    """What the HTTP library refuses, as other refusals are told.

    Args:
        error: the library's.
        listed: where to see which paths there are.

    Raises:
        HTTPException: it is none of these.
    """
    match error:
        case web.HTTPNotFound():
            return RequestError("http.path", f"Nothing is here: {listed}")
        case web.HTTPMethodNotAllowed():
            text = f"Send {' or '.join(sorted(error.allowed_methods))}"
            return RequestError("http.method", text)
        case _:
            raise error


def time_of(query: Mapping[str, str], name: str) -> Time:
    """A time that is in a query, where its `+` may have come unencoded; raises as `parse_time`."""
    return parse_time(query[name].replace(" ", "+"))


def number(request: web.Request, name: str, default: D, most: int = NUMBER_MAX) -> int | D:
    """A number of the query; raises as `number_of`."""
    return number_of(request.query, name, default, most)


def number_of(query: Mapping[str, str], name: str, default: D, most: int = NUMBER_MAX) -> int | D:
    """A number of a query, or the default where there is none.

    Raises:
        RequestError: `http.number`, it is none, or more than `most`.
    """
    text = query.get(name)
    if text is None:
        return default
    if text.isascii() and text.isdigit() and len(text) <= 18 and int(text) <= most:
        return int(text)
    raise RequestError("http.number", f"{name} is a number of at most {most:,}")
