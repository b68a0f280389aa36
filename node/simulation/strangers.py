"""Strangers that connect to a node and say nothing, or never finish what they begin.

No client does that, and none is harmed by one of them: but each that a node bears for ever takes
a connection and memory, until there are none for others.
"""

import asyncio
from typing import Final

from rillnode.codecs.limits import HANDSHAKE_SECONDS_MAX, MESSAGE_SECONDS_MAX
from rillnode.codecs.noise.handshake import DH_BYTES
from rillnode.codecs.noise.link import NoiseLink
from rillnode.node.simulated.history import History
from rillnode.node.simulated.nodes import NOISE_PORT
from rillnode.node.simulation.world import Machine, NodeMachine, World

STRANGERS_PART: Final = 0.1
"""How many runs have some, when all clients have gone."""

DRIP_SECONDS: Final = 5.0
"""A byte comes so often: who sends it is not silent."""

LATE_SECONDS: Final = 10.0
"""What a node may take longer than its limits, for it does not look all the time."""

_RECORD: Final = b"\x40\x00"
"""The length of a record: of that much nobody sends one byte each time within a limit."""


class Stranger(asyncio.Protocol):
    """One connection that never finishes what it begins.

    Args:
        codec: with it he proves who he is, and then begins a record; None: he begins nothing.
        drips: byte by byte, from the handshake on.

    Attributes:
        over: set when the node has ended the connection.
    """

    def __init__(self, codec: NoiseLink | None, *, drips: bool = False) -> None:
        self._codec = codec
        self._drips = drips
        self._transport: asyncio.WriteTransport
        self._left = b""
        self.over = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        if self._codec is not None:
            begun = self._codec.start()
            if self._drips:
                self._left = begun
                self._drip()
            else:
                transport.write(begun)

    def data_received(self, data: bytes) -> None:
        """Go on with the handshake; behind it a record is begun."""
        codec = self._codec
        if codec is None or self._left:
            return
        codec.receive(data)
        self._transport.write(codec.take_output())
        if codec.established:
            self._codec, self._left = None, _RECORD + bytes(1_000)
            self._drip()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self.over.set()

    def _drip(self) -> None:
        if self._left and not self.over.is_set():
            self._transport.write(self._left[:1])
            self._left = self._left[1:]
            asyncio.get_running_loop().call_later(DRIP_SECONDS, self._drip)


async def see_strangers_off(world: World, history: History, machine: Machine, node: str) -> None:
    """Have strangers come to a node in some runs: it ends their connections in time.

    Args:
        world: where it happens, in quiet.
        history: of the run.
        machine: of a client that has ended; its next process is the strangers'.
        node: where they come to.
    """
    random = world.network.random("strangers come")
    if random.random() >= STRANGERS_PART or not world.nodes[node].ready:
        return
    world.boot(machine)
    await world.on(machine, _come(history, machine, world.nodes[node]))
    machine.end()


async def _come(history: History, machine: Machine, node: NodeMachine) -> None:
    def codec() -> NoiseLink:
        there, ephemeral = node.identity.public_hex, machine.entropy(DH_BYTES)
        return NoiseLink.initiator(machine.identity, node_identity=there, ephemeral=ephemeral)

    for what, stranger, seconds in (
        ("says nothing", Stranger(None), HANDSHAKE_SECONDS_MAX),
        ("is slow to say who he is", Stranger(codec(), drips=True), HANDSHAKE_SECONDS_MAX),
        ("never ends a record", Stranger(codec()), MESSAGE_SECONDS_MAX),
    ):
        await machine.loop.create_connection(lambda one=stranger: one, node.name, NOISE_PORT)
        try:
            async with asyncio.timeout(seconds + LATE_SECONDS):
                await stranger.over.wait()
        except TimeoutError:
            history.broken("left-over", f"{node.name} bears for ever who {what}")
