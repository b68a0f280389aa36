"""An application over HTTP, of a plug-in: its errors are alike, and it ends with its node."""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler

from rillnode.codecs.errors import CodecError, RequestError, RillnodeError
from rillnode.codecs.next_steps import step_of
from rillnode.node.http.answers import HEADERS, Refusal, json_answer, refusal_of
from rillnode.node.http.requests import cors_headers

STATUSES: Final = {
    code: status
    for status, codes in {
        400: "entries.header_name entries.headers entries.key index.invalid input.format input.key "
        "stream.invalid",
        403: "quota.bytes quota.streams stream.signed_only",
        404: "address.unknown sink.unknown stream.partition stream.unknown",
        409: "index.kept",
        410: "stream.removed",
        413: "entries.many entries.size",
        421: "store.elsewhere",
        429: "quota.rate",
        503: "node.draining",
        504: "request.timeout",
    }.items()
    for code in codes.split()
}
"""The HTTP status of codes; of other refusals it is 400, of what the node cannot do now 503."""

_UNREAD: Final = frozenset({"http.broken", "http.slow", "http.too_large"})
"""After these nobody knows where the next request begins."""

Routes = Mapping[tuple[str, str], Callable[[web.Request], Awaitable[web.StreamResponse]]]
"""What is done, by method and path; HEAD is done as GET."""


def status_of(error: RillnodeError, statuses: Mapping[str, int] = STATUSES) -> int:
    """The HTTP status of a refusal, by its code, or by whose fault it is."""
    theirs = isinstance(error, CodecError | RequestError) and not error.retryable
    return statuses.get(error.code, 400 if theirs else 503)


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
        """The application, to be served: once more after `stop`, too, by a node that starts again."""
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

    def problem(self, error: RillnodeError | Refusal) -> dict[str, Any]:
        """An error as a document: status, code, text, and what to do about it."""
        found: dict[str, Any] = {"code": error.code, "text": str(error)}
        if isinstance(error, Refusal):
            found["status"] = error.status
        else:
            found["text"] = error.text
            found["status"] = status_of(error, self._statuses)
        found.update((key, value) for key, value in error.context.items() if key == "indexes")
        return {**found, "next": step_of(error.code) or "try again"}

    def refused(self, error: RillnodeError | Refusal, headers: Mapping[str, str]) -> web.Response:
        """Why a request was not done."""
        document = self.problem(error)
        found = json_answer(document, document["status"], "problem+json", **headers)
        if found.status == 401:
            found.headers["WWW-Authenticate"] = "Bearer"
        if found.status in (429, 503):
            seconds = 0.0 if isinstance(error, Refusal) else error.retry_seconds
            found.headers["Retry-After"] = str(max(1, math.ceil(seconds)))
        if error.code in _UNREAD:
            found.force_close()
        return found

    @web.middleware
    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer errors, unknown paths and methods alike."""
        self._requests += 1
        headers: dict[str, str] = {}
        error: RillnodeError | Refusal
        try:
            cors_headers(request, self._origins, self._shown)
            if self._stopping:
                raise RequestError("node.draining", "The node is stopping", retryable=True)
            return await handler(request)
        except web.HTTPException as wrong:
            if "Allow" in wrong.headers:
                headers["Allow"] = wrong.headers["Allow"] + ",OPTIONS"
                if request.method == "OPTIONS":
                    return web.Response(status=204, headers=headers)
            error = refusal_of(wrong, self._listed)
        except (RillnodeError, Refusal) as refusal:
            error = refusal
        finally:
            self._requests -= 1
        self.refusals[error.code] += 1
        return self.refused(error, headers)

    async def _dress(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(HEADERS)
        with suppress(Refusal):
            response.headers.update(cors_headers(request, self._origins, self._shown))
