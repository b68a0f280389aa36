"""How long a node somewhere along a route takes to answer."""

import asyncio
from typing import Final, Protocol

from rillnode.codecs.errors import RequestError
from rillnode.codecs.ockam.routing import Route, local
from rillnode.node.client.messages import Answer

ECHO: Final = local("echo")
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
