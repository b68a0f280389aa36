"""An application over HTTP, of a plug-in: its errors are alike, and it ends with its node."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from rillnode.codecs.errors import RequestError, RillnodeError
from rillnode.node.http.answers import (
    HEADERS,
    STATUSES,
    allowed,
    problem,
    refusal_of,
    refused,
)
from rillnode.node.http.requests import cors_headers

Routes = Mapping[tuple[str, str], Callable[[web.Request], Awaitable[web.StreamResponse]]]
"""What is done, by method and path; HEAD is done as GET."""


class Api:
    """One application.

    Args:
        routes: what it serves.
        origins: of pages that may use it, see `cors_headers`.
        shown: names of headers that pages may see.
        statuses: the HTTP status of codes of its own.
        listed: where to see which paths there are.

    Attributes:
        refusals: what was refused, by code.
    """

    def __init__(
        self,
        routes: Routes,
        *,
        origins: Collection[str],
        shown: str,
        statuses: Mapping[str, int],
        listed: str,
    ) -> None:
        self._routes = routes
        self._origins = origins
        self._shown = shown
        self._statuses = {**STATUSES, **statuses}
        self._listed = listed
        self._stopping = False
        self._requests = 0
        self.refusals = Counter[str]()

    def app(self) -> web.Application:
        """The application, to be served; after `stop`, too, by a node that starts again."""
        self._stopping = False
        app = web.Application(middlewares=[self._answered])
        app.on_response_prepare.append(self._dress)
        for (method, path), handler in self._routes.items():
            app.router.add_route(method, path, handler)
            if method == "GET":
                app.router.add_route("HEAD", path, handler)
        return app

    def stop(self) -> None:
        """Take nothing more."""
        self._stopping = True

    async def drained(self, seconds: float) -> None:
        """Wait until all that was asked is answered, or for this long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._requests:
                    await asyncio.sleep(0.01)

    def problem(self, error: RillnodeError) -> dict[str, Any]:
        """An error as a document, with the statuses of the application's own codes."""
        return problem(error, self._statuses)

    @web.middleware
    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer errors, unknown paths and methods alike."""
        self._requests += 1
        headers: dict[str, str] = {}
        try:
            cors_headers(request, self._origins, self._shown)
            if self._stopping:
                raise RequestError("node.draining", "The node is stopping", retryable=True)
            return await handler(request)
        except web.HTTPException as wrong:
            if headers := allowed(wrong):
                headers["Allow"] += ",OPTIONS"
                if request.method == "OPTIONS":
                    return web.Response(status=204, headers=headers)
            error: RillnodeError = refusal_of(wrong, self._listed)
        except RillnodeError as refusal:
            error = refusal
        finally:
            self._requests -= 1
        self.refusals[error.code] += 1
        return refused(error, self._statuses, **headers)

    async def _dress(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(HEADERS)
        with suppress(RequestError):
            response.headers.update(cors_headers(request, self._origins, self._shown))
