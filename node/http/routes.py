"""Routes on the page: those that there are, page by page, and one that is tried hop by hop."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from rillnode.codecs.errors import CodecError, RequestError
from rillnode.codecs.native import ROUTES_MAX
from rillnode.codecs.routing.routes import LOCAL, Address, format_route
from rillnode.node.client.client import Client
from rillnode.node.client.lookup import page
from rillnode.node.client.messages import as_route
from rillnode.node.client.round_trip import Hop, round_trips

_SECONDS: Final = 10.0

_CURSOR_CHARS_MAX: Final = 2 * 2_049


class Routes:
    """The routes of one node."""

    def __init__(self, client: Callable[[], Client]) -> None:
        self._client = client
        self._looking = asyncio.Lock()

    async def document(self, request: web.Request) -> dict[str, Any]:
        """The page that a request asks for: `pattern`, `kind`, and `after` of the page before.

        Raises:
            RequestError: it asks for none that can be; too much is asked at once.
        """
        if self._looking.locked():
            raise RequestError("route.busy", "Another page of routes is being made")
        query = request.query
        async with self._looking:
            rows, after = await page(
                self._client().messages, (), query.get("pattern", "*"), query.get("kind", ""),
                _cursor(query.get("after", "")), _SECONDS,
            )  # fmt: skip
        return {
            "routes": [msgspec.to_builtins(one) for one in rows],
            "next_after": after.hex() or None,
            "listed_max": ROUTES_MAX,
        }


def _cursor(text: str) -> bytes:
    try:
        if len(text) <= _CURSOR_CHARS_MAX:
            return bytes.fromhex(text)
    except ValueError:
        pass
    raise RequestError("http.after", "`after` is `next_after` of the page before")


WAIT_SECONDS: Final = 3.0
HOPS_MAX: Final = 8
"""Hops of a route that is tried. Own choice: each may take `WAIT_SECONDS`."""


async def probed(client: Client, text: str) -> dict[str, Any]:
    """Try a route such as `peer/core;echo`; ends at the first hop that fails.

    Only nodes and the worker `echo` are asked: nobody knows what a message does to another.

    Returns:
        The hops, each with `state`: `answers`, `failed` with a `reason`, or `worker`, not asked.

    Raises:
        RequestError: the text is no route, or one with too many hops.
    """
    try:
        route = as_route(text)
    except CodecError as error:
        raise RequestError(error.code, error.text) from None
    if not 0 < len(route) <= HOPS_MAX:
        raise RequestError("route.hops", f"A route has 1 to {HOPS_MAX} hops here")
    hops = [_described(hop) async for hop in round_trips(client.ask, route, WAIT_SECONDS)]
    return {"route": text, "hops": hops}


def _described(hop: Hop) -> dict[str, Any]:
    found: dict[str, Any] = {"address": _text(hop.address), "state": "worker"}
    found |= {"milliseconds": None, "reason": ""}
    if hop.failure is not None:
        found |= {"state": "failed", "reason": hop.failure.text}
    elif hop.seconds is not None:
        found |= {"state": "answers", "milliseconds": round(1_000 * hop.seconds, 3)}
    return found


def _text(address: Address) -> str:
    """An address as people write it: a local one without its type."""
    return format_route((address,)).removeprefix(f"{LOCAL}#")
