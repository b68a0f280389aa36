"""Decides which web pages may use the listener, its REST interface and its WebSocket.

Programs send no `Origin` and may. A browser sends that of the page which asks; without this check
any page could act, as anybody, on a node that only its user's machine reaches.
"""

from collections.abc import Set

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from rillnode.codecs.errors import RequestError
from rillnode.node.streamr.rest.answers import error_answer


def admits(origins: Set[str], origin: str | None) -> bool:
    """Whether who asks is no page, or one of `origins`; `*` among them stands for all."""
    return origin is None or bool(origins & {"*", origin})


def origin_check(origins: Set[str]) -> Middleware:
    """Answers the requests of all other pages with 403."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if admits(origins, request.headers.get("Origin")):
            return await handler(request)
        text = "Pages of this origin may not ask: it is not among the listener's `origins`"
        return error_answer(RequestError("streamr.origin", text))

    return check
