"""Checks that a small message behind large ones is still delivered.

What is over the mark up to which links and nodes hand on at once waits until the other side has
taken what is before it, and goes on then by itself: nothing else is sent over this link.
"""

import asyncio
from typing import Final

from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.limits import LINK_BUFFER_HIGH_BYTES
from rillnode.codecs.routing.routes import Route, WireMessage, local, parse_route
from rillnode.node.client.messages import OnMessage
from rillnode.node.client.session import Session
from rillnode.node.simulated.programs import Program
from rillnode.node.simulation.pipes import WINDOW_BYTES

MUCH_BYTES: Final = LINK_BUFFER_HIGH_BYTES + 2 * WINDOW_BYTES
"""One message: more than a connection has under way, and than what is held back for the rest."""

LITTLE: Final = b"little "

LITTLES: Final = 12
"""Small messages behind a large one: some come while that goes, and others when it has gone."""

GAP_SECONDS: Final = 0.01

MUCH_PART: Final = 0.03
"""How many lives of a client send so much: it costs as much as all else that one sends."""

LATER_SECONDS: Final = 5.0
"""From the beginning of a life on, at most."""


class MuchAtOnce:
    """One client's large message and the small one behind it, to its node's echo and another's.

    Args:
        program: the client.
        way: the route from its node to the other, as text; empty: the same.

    Attributes:
        waits: whether the small one has not come back from its own node, over a link that is there.
    """

    def __init__(self, program: Program, way: str) -> None:
        self._program = program
        self._ways = ("echo", f"{way}echo")
        self._random = program.share.world.network.random(f"much of {program.life}")
        self._session: Session | None = None
        self._came = asyncio.Event()
        self._sent = False

    @property
    def waits(self) -> bool:
        """Whether the small message may and must come still."""
        session = self._session
        return self._sent and session is not None and session.connected and not self._came.is_set()

    def begin(self, client: "asyncio.Task[None]") -> None:
        """Send, in few lives of a client; until the client's task is over."""
        if self._random.random() < MUCH_PART:
            sending = client.get_loop().create_task(self._send())
            client.add_done_callback(lambda _: sending.cancel())

    async def _send(self) -> None:
        program = self._program
        world, machine = program.share.world, program.machine
        node = world.nodes[program.node].identity.public_hex
        await asyncio.sleep(self._random.uniform(0.0, LATER_SECONDS))
        session = world.session(machine, program.node, identity=machine.identity, expected=node)
        try:
            await session.open()
            self._session = session
            for route in map(parse_route, self._ways):
                back = (local(session.messages.attach(self._taker())),)
                session.messages.send(route, bytes(MUCH_BYTES), back)
                await asyncio.sleep(0.0)  # in another turn: it goes out by itself
                session.messages.send(route, LITTLE + b"1", back)
                self._sent = True
                await self._came.wait()
                await self._send_on(session, route, back)
        except RillnodeError as error:
            program.share.history.note(program.name, "much is not sent", error.code)

    async def _send_on(self, session: Session, route: Route, back: Route) -> None:
        """Send more, by turns: all comes in its order."""
        session.messages.send(route, bytes(MUCH_BYTES), back)
        for number in range(2, LITTLES):
            session.messages.send(route, b"%b%d" % (LITTLE, number), back)
            await asyncio.sleep(GAP_SECONDS)

    def _taker(self) -> OnMessage:
        """Takes what comes back along one route."""
        last = 0

        def take(wire: WireMessage) -> None:
            nonlocal last
            if not wire.payload.startswith(LITTLE):
                return
            before, last = last, int(wire.payload.removeprefix(LITTLE))
            self._came.set()
            if last <= before:
                text = f"{self._program.name}: {last} comes back behind {before}"
                self._program.share.history.broken("route-order", text)

        return take
