"""Measures how long the nodes along a route take to answer."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, Protocol

from rillnode.codecs.errors import ActorError, RequestError
from rillnode.codecs.routing.routes import LOCAL, Address, Route, local
from rillnode.node.client.messages import Answer

ECHO: Final = local("echo")
_PEERS: Final = b"peer/"
_PING: Final = b"\x00"


class Ask(Protocol):
    """Sends a message and waits for what comes back; see `Client.ask`."""

    async def __call__(self, route: Route, payload: bytes, *, timeout_seconds: float) -> Answer:
        """Ask."""
        ...


async def round_trip(ask: Ask, route: Route, timeout_seconds: float) -> float:
    """Ask the last hop of a route whether it answers; return the round trip's seconds.

    Nodes answer a ping of their connection (rillnode, Ockam of 2021) or have a worker `echo`
    (Ockam since); both are tried, and the first answer counts.

    Raises:
        RequestError, ActorError, TransportError: as `Client.ask`.
    """
    loop = asyncio.get_running_loop()
    started = loop.time()
    routes = [route] if route[-1] == ECHO else [route, (*route, ECHO)]
    asks = [loop.create_task(ask(one, _PING, timeout_seconds=timeout_seconds)) for one in routes]
    try:
        for first in asyncio.as_completed(asks):
            try:
                await first
            except RequestError as error:
                # A node without `echo` says so; the other answer may still come.
                if error.code != "address.unknown" or all(task.done() for task in asks):
                    raise
            else:
                break
    finally:
        for task in asks:
            task.cancel()
        await asyncio.gather(*asks, return_exceptions=True)
    return loop.time() - started


@dataclass(frozen=True, slots=True)
class Hop:
    """One hop of a route, and what became of asking it.

    Attributes:
        seconds: the round trip to it and back; None where it has not answered, or was not asked.
        failure: why it has not answered; None where it has, or was not asked.
    """

    address: Address
    seconds: float | None = None
    failure: RequestError | ActorError | None = None


async def round_trips(ask: Ask, route: Route, timeout_seconds: float) -> AsyncIterator[Hop]:
    """Ask the nodes of a route one by one, each through those before it.

    Of workers only `echo` is asked: nobody knows what a message does to another. The first hop that
    does not answer within `timeout_seconds` is the last that comes.

    Raises:
        TransportError: as `Client.ask`.
    """
    for nth, address in enumerate(route, 1):
        if not (_is_node(address) or address == ECHO):
            yield Hop(address)
            continue
        try:
            took = await round_trip(ask, route[:nth], timeout_seconds)
        except (RequestError, ActorError) as error:
            yield Hop(address, failure=error)
            return
        yield Hop(address, took)


def _is_node(address: Address) -> bool:
    """Whether a hop leads to another node, as its form tells."""
    return address.type != LOCAL or address.value.startswith(_PEERS)
