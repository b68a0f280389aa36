"""The page's route probe: the nodes of a route asked one by one, as `rillnode route probe` does."""

from typing import Any, Final

from rillnode.codecs.errors import CodecError
from rillnode.codecs.routing.routes import LOCAL, Address, format_route
from rillnode.node.client.client import Client
from rillnode.node.client.messages import as_route
from rillnode.node.client.round_trip import Hop, round_trips
from rillnode.node.http.answers import Refusal

WAIT_SECONDS: Final = 3.0
HOPS_MAX: Final = 8
"""Hops of a route that is tried. Own choice: each may take `WAIT_SECONDS`."""


async def probed(client: Client, text: str) -> dict[str, Any]:
    """Try a route such as `peer/core;echo`; ends at the first hop that fails.

    Only nodes and the worker `echo` are asked: nobody knows what a message does to another.

    Returns:
        The hops, each with `state`: `answers`, `failed` with a `reason`, or `worker`, not asked.

    Raises:
        Refusal: the text is no route, or one with too many hops.
    """
    try:
        route = as_route(text)
    except CodecError as error:
        raise Refusal(400, error.code, error.text) from None
    if not 0 < len(route) <= HOPS_MAX:
        raise Refusal(400, "route.hops", f"A route has 1 to {HOPS_MAX} hops here")
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
