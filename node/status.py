"""The node's `http` listener: health for machines, state as JSON, a page of links.

/livez      200 as long as the event loop turns
/readyz     200, or 503 with the reasons: starting, draining, store, sinks; ?verbose lists all
/healthz    the same as /readyz, for those who look for that name
/v1/status  the node's state, JSON
/           a list of these
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec
from aiohttp import web

from rillnode.node.config import HttpListener
from rillnode.node.tls import tls_context
from rillnode.transports.web import WebServer, listen_web

_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_PAGES: Final = {
    "/livez": "whether the node is alive",
    "/readyz?verbose": "whether the node is ready, check by check",
    "/v1/status": "the node's state as JSON",
}


class Check(Protocol):
    """One thing that must be right for the node to be ready."""

    @property
    def name(self) -> str:
        """What was looked at."""
        ...

    @property
    def ok(self) -> bool:
        """Whether it is right."""
        ...

    @property
    def reason(self) -> str:
        """Why it is not."""
        ...


class Observed(Protocol):
    """What the listener needs of a node."""

    def checks(self) -> Sequence[Check]:
        """All checks, at any time between start and stop."""
        ...

    def status(self) -> dict[str, Any]:
        """A document that JSON can express."""
        ...


def status_app(node: Observed) -> web.Application:
    """The pages of one node, to be served by any aiohttp runner."""

    async def livez(_: web.Request) -> web.Response:
        return _plain("ok\n")

    async def readyz(request: web.Request) -> web.Response:
        return _readiness(node.checks(), verbose="verbose" in request.query)

    async def status(_: web.Request) -> web.Response:
        body = msgspec.json.encode(node.status())
        return web.Response(body=body, content_type="application/json", headers=_HEADERS)

    async def index(_: web.Request) -> web.Response:
        links = "".join(
            f'<li><a href="{path}">{path}</a> {text}</li>' for path, text in _PAGES.items()
        )
        body = f"<!doctype html><title>rillnode</title><h1>rillnode</h1><ul>{links}</ul>\n"
        return web.Response(text=body, content_type="text/html", headers=_HEADERS)

    app = web.Application()
    app.router.add_get("/", index)
    app.router.add_get("/livez", livez)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/healthz", readyz)
    app.router.add_get("/v1/status", status)
    return app


async def listen_status(node: Observed, table: HttpListener) -> WebServer:
    """Bind the `http` listener and serve a node's pages.

    Raises:
        ConfigError: the TLS certificate or its key cannot be used.
        TransportError: the address cannot be bound.
    """
    return await listen_web(status_app(node), *table.address, tls=tls_context(table, "http"))


def _readiness(checks: Sequence[Check], *, verbose: bool) -> web.Response:
    failed = [check for check in checks if not check.ok]
    shown = checks if verbose else failed
    lines = [
        f"[+] {check.name}\n" if check.ok else f"[-] {check.name}: {check.reason}\n"
        for check in shown
    ]
    lines.append("not ready\n" if failed else "ok\n")
    return _plain("".join(lines), status=503 if failed else 200)


def _plain(text: str, status: int = 200) -> web.Response:
    return web.Response(text=text, status=status, headers=_HEADERS)
