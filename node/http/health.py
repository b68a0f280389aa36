"""Health for machines.

/livez      200 as long as the event loop turns
/readyz     200, or 503 with the reasons: starting, draining, store, sinks; ?verbose lists all
/healthz    the same as /readyz, for those who look for that name
"""

from collections.abc import Sequence
from typing import Protocol

from aiohttp import web

from rillnode.node.http.answers import HEADERS
from rillnode.node.plugin import Check


class Checked(Protocol):
    """A source of health checks."""

    def checks(self) -> Sequence[Check]:
        """All checks, at any time between start and stop."""
        ...


def add_health(app: web.Application, node: Checked) -> None:
    """Serve a node's health."""

    async def livez(_: web.Request) -> web.Response:
        return _plain("ok\n")

    async def readyz(request: web.Request) -> web.Response:
        return _readiness(node.checks(), verbose="verbose" in request.query)

    app.router.add_get("/livez", livez)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/healthz", readyz)


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
    return web.Response(text=text, status=status, headers=HEADERS)
