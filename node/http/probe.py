"""The page's route probe: the nodes of a route asked one by one, as `rillnode route probe` does."""

from typing import Any, Final

from rillnode.codecs.errors import ActorError, CodecError, RequestError
from rillnode.codecs.ockam.routing import LOCAL, Address, format_route
from rillnode.node.client.client import Client
from rillnode.node.client.messages import as_route
from rillnode.node.client.round_trip import ECHO, round_trip
from rillnode.node.http.answers import Refusal
from rillnode.node.peers import ADDRESS_PREFIX

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
    hops: list[dict[str, Any]] = []
    for nth, address in enumerate(route):
        hop: dict[str, Any] = {"address": _text(address), "state": "worker"}
        hop |= {"milliseconds": None, "reason": ""}
        hops.append(hop)
        if not (_is_node(address) or address == ECHO):
            continue
        try:
            took = await round_trip(client.ask, route[: nth + 1], WAIT_SECONDS)
        except (RequestError, ActorError) as error:
            hop |= {"state": "failed", "reason": error.text}
            break
        hop |= {"state": "answers", "milliseconds": round(1_000 * took, 3)}
    return {"route": text, "hops": hops}


def _is_node(address: Address) -> bool:
    return address.type != LOCAL or address.value.startswith(ADDRESS_PREFIX)


def _text(address: Address) -> str:
    """An address as people write it: a local one without its type."""
    return format_route((address,)).removeprefix(f"{LOCAL}#")
