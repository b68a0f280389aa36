"""Messages along routes, many in a row: they come back in their order, each once.

Those that end at the client's own node come back all, for as long as its link is there and no actor
is made to fail at them. Of those that go on to another node some may be lost with the link between,
and nobody sends them again; but whatever waits on the way for a link goes on in the order in which
it came.
"""

import asyncio
from collections import Counter
from typing import Final

from rillnode.actors.core.links.connection import SLICE_FRAMES
from rillnode.codecs import native
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.routing.routes import Route, WireMessage, local, parse_route
from rillnode.node.client.session import Session
from rillnode.node.simulated.history import History
from rillnode.node.simulated.world import World

PAUSE_SECONDS: Final = 3.0
"""Between two trains, on average."""

GAP_SECONDS: Final = 0.01
"""Between two parts of a train: they are handed on one by one, and may wait together."""

TRAIN_PARTS: Final = 2

FIRST_MESSAGES: Final = SLICE_FRAMES + 8
"""To the client's own node, at the beginning: more than a node hands on at once."""

FIRST_CHANCE: Final = 0.1
"""Of those, for one life of a client: they cost as much as all that follows."""


class RouteOrder:
    """One client's messages along a route to its node's echo, and along one to another's.

    Args:
        session: to the client's own node; open.
        way: the route from there to the other node, as text; empty: the same.
        name: of the client.
    """

    def __init__(
        self, session: Session, way: str, name: str, world: World, history: History
    ) -> None:
        self._session = session
        self._name = name
        self._history = history
        self._random = world.network.random(f"trains of {name}")
        self._sent, self._came = Counter[bytes](), Counter[bytes]()
        attach = session.messages.attach
        self._routes: dict[bytes, tuple[Route, Route]] = {
            b"near": (parse_route("echo"), (local(attach(self._take)),)),
            b"far": (parse_route(f"{way}echo"), (local(attach(self._take)),)),
        }

    def begin(self, client: "asyncio.Task[None]") -> None:
        """Send trains until the client's task or its session is over."""
        sending = client.get_loop().create_task(self._send_trains())
        client.add_done_callback(lambda _: sending.cancel())

    async def _send_trains(self) -> None:
        try:
            if self._random.random() < FIRST_CHANCE:
                for _ in range(FIRST_MESSAGES):
                    self._send(b"near")
            while True:
                await asyncio.sleep(self._random.uniform(0.0, 2 * PAUSE_SECONDS))
                self._send(b"near")
                for _ in range(TRAIN_PARTS):
                    self._send(b"far")
                    await asyncio.sleep(GAP_SECONDS)
        except RillnodeError as error:
            self._history.note(self._name, "no more in order", error.code)

    def _send(self, where: bytes) -> None:
        self._sent[where] += 1
        route, back = self._routes[where]
        self._session.messages.send(route, b"%b %d" % (where, self._sent[where]), back)

    def _take(self, wire: WireMessage) -> None:
        if native.is_native(wire.payload):
            return  # a node's word that something could not be handed on
        where, _, digits = wire.payload.partition(b" ")
        before, number = self._came[where], int(digits)
        self._came[where] = number
        lacking = where == b"near" and number > before + 1 and not self._history.failed
        if number <= before or lacking:
            text = f"{self._name}: {number} comes back along the {where.decode()} route"
            self._history.broken("route-order", f"{text} behind {before}")
