"""The node's `http` listener: health for machines, state as JSON, a page of links.

/livez      200 as long as the event loop turns
/readyz     200, or 503 with the reasons: starting, draining, store, sinks; ?verbose lists all
/healthz    the same as /readyz, for those who look for that name
/v1/status  the node's state, JSON
/           a list of these
"""

import errno
import ssl
from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec
from aiohttp import web

from rillnode.codecs.errors import ConfigError, TransportError
from rillnode.node.config import HttpListener, ListenAddress

_SHUTDOWN_SECONDS: Final = 2.0
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


class StatusListener:
    """The bound listener."""

    def __init__(self, runner: web.AppRunner, address: ListenAddress) -> None:
        self._runner = runner
        self.address = address

    async def close(self) -> None:
        """Stop listening; requests under way get a moment to finish."""
        await self._runner.cleanup()


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


async def listen_status(node: Observed, table: HttpListener) -> StatusListener:
    """Bind the `http` listener and serve a node's pages.

    Raises:
        ConfigError: the TLS certificate or its key cannot be used.
        TransportError: the address cannot be bound.
    """
    context = _tls(table)
    host, port = table.address
    runner = web.AppRunner(status_app(node), access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=context).start()
    except OSError as error:
        await runner.cleanup()
        code = "listen.in_use" if error.errno == errno.EADDRINUSE else "listen.failed"
        raise TransportError(
            code,
            f"http.listen {table.address} cannot be bound: {error.strerror or error}: "
            "choose another address or stop what listens there",
        ) from error
    bound = runner.addresses[0]
    return StatusListener(runner, ListenAddress(bound[0], bound[1]))


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


def _tls(table: HttpListener) -> ssl.SSLContext | None:
    if table.tls_cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(table.tls_cert, table.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            "config.tls", f"http.tls_cert: {table.tls_cert} cannot be used: {error}"
        ) from None
    return context
