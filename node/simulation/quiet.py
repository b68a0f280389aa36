"""The end of a run, when all faults are over: a rest, strangers, a node that starts again.

Clients stay connected and idle until what is unused has gone to sleep; then one entry more is
pushed to each log that somebody follows. Strangers come and never finish what they begin. At last a
node with peers is restarted: who dials it begins with the shortest pause, for nothing has failed
lately, and what is pushed meanwhile is there soon after it is back.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import Final

from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.limits import HANDSHAKE_SECONDS_MAX, MESSAGE_SECONDS_MAX
from rillnode.codecs.noise.handshake import DH_BYTES
from rillnode.codecs.noise.link import NoiseLink
from rillnode.node.simulated.history import History, Push, log_of
from rillnode.node.simulated.nodes import NOISE_PORT
from rillnode.node.simulated.part import SharedNodes
from rillnode.node.simulated.programs import CALM_SECONDS, REST_SECONDS, Program, payload_of
from rillnode.node.simulation.clients.readers import Follower
from rillnode.node.simulation.leftovers import remembered, subscriptions
from rillnode.node.simulation.world import Machine, NodeMachine, World

REST_PART: Final = 0.25
"""How many runs have a rest: its pings cost more than all else that happens in it."""

RESTED: Final = "rested"
ENTRY_BYTES: Final = 64


def rests(seed: object) -> bool:
    """Whether there is a rest in a run."""
    return Random(f"{seed} rest").random() < REST_PART


async def rest(world: World, history: History, programs: Iterable[Program], parts: int) -> None:
    """Let clients rest, and push to all who still follow."""
    programs = list(programs)
    for program in programs:
        program.rest()
    await asyncio.sleep(CALM_SECONDS)
    dials = world.network.dials.copy()
    await asyncio.sleep(REST_SECONDS)
    for name in world.network.dials - dials:
        history.broken("link-lost", f"{name} has to dial again, though nothing is wrong")
    followed = {one.node: one.log_name for one in programs if isinstance(one, Follower)}
    for name, machine in world.nodes.items():
        if log_of(name) in history.lost or not machine.ready:
            continue
        sessions = [one.machine.session for one in programs if one.node == name]
        known = sum(one.subscriptions_count for one in sessions if one is not None)
        kept = subscriptions(machine.node.observed)
        if kept != known:
            text = f"{name} has {kept} subscriptions of clients that have {known}"
            history.broken("left-over", text)
        for text in remembered(machine.node.observed.system):
            history.broken("left-over", f"{name} has {text}")
    # Only then: nodes of one log have what is under way because of each other's entries.
    for name, machine in world.nodes.items():
        if name in followed and log_of(name) not in history.lost and machine.ready:
            await world.on(machine, _push(machine, followed[name], history, parts))


async def _push(machine: NodeMachine, log: str, history: History, partitions: int) -> None:
    """Push one entry to each partition of a stream, from inside of a node."""
    stream = await machine.node.stream(log)
    for partition in range(partitions):
        payload = payload_of(f"{RESTED} {machine.name}", partition, ENTRY_BYTES)
        push = Push(RESTED, partition, (log, partition), history.now(), attempts=1)
        history.pushed({payload: push})
        history.confirmed([payload], [await stream.push(payload, partition=partition)])


AWAY_SECONDS: Final = 1.5
"""For how long nobody can dial it: a few attempts fail."""

BACK_SECONDS: Final = 6.0
"""From its start until all links are there again: the pause after some failures, and its end."""

OVERLAY_SECONDS: Final = 40.0
"""Within which an overlay is as it should be, without a node and with it again."""

LOOK_SECONDS: Final = 0.25

DIALLING_LOOK_SECONDS: Final = 0.02
"""A pause after a failure is longer."""


async def start_one_again(world: World, history: History, shared: SharedNodes | None) -> None:
    """End one node, start it again, and see that all is as before; where it is one of several."""
    has_peers = any(machine.config.peers for machine in world.nodes.values())
    if not has_peers and world.servers is None:
        return
    names = list(world.nodes)
    machine = world.nodes[world.network.random("who starts again").choice(names)]
    history.note(machine.name, "starts again")
    machine.end()
    back_at = world.now + AWAY_SECONDS
    await see_refused(world, history, machine, back_at)
    await asyncio.sleep(back_at - world.now)
    if shared is not None:
        await _until_right(world, history, shared.repaired, OVERLAY_SECONDS)
        await shared.push_aside(machine)
    world.boot(machine)

    async def not_linked() -> list[str]:
        return _not_linked(world)

    await _until_right(world, history, not_linked, BACK_SECONDS)
    if shared is not None:
        await _until_right(world, history, shared.missing, OVERLAY_SECONDS)


def _not_linked(world: World) -> list[str]:
    """Nodes that have not started, or have no link to a peer that they keep one to."""
    found = [f"{one.name} has not started again" for one in world.nodes.values() if not one.ready]
    if found:
        return found
    return [
        f"{one.name} has no link to {peer}"
        for one in world.nodes.values()
        for peer, status in one.node.observed.parts.peers.statuses().items()
        if status["state"] != "open"
    ]


async def _until_right(
    world: World, history: History, problems: Callable[[], Awaitable[list[str]]], seconds: float
) -> None:
    deadline = world.now + seconds
    while found := await problems():
        if world.now > deadline:
            history.broken("back-soon", f"{found[0]}, {seconds:.0f} s later")
            return
        await asyncio.sleep(LOOK_SECONDS)


ASK_SECONDS: Final = 30.0

DIALS_MAX: Final = 30
"""Attempts within the second or two: a few to each of some, as pauses grow."""


async def see_refused(world: World, history: History, away: NodeMachine, back_at: float) -> None:
    """Ask a node for who is away, through a node that dials it just now: that says so.

    Args:
        world: where it happens.
        history: of the run.
        away: the node that has ended.
        back_at: when it starts again; this returns before, or at about that time.
    """
    near = next(
        (
            machine
            for machine in world.nodes.values()
            if machine.ready and any(peer.name == away.name for peer in machine.config.peers)
        ),
        None,
    )
    if near is None:
        return

    def state() -> str:
        found: str = near.node.observed.parts.peers.statuses()[away.name]["state"]
        return found

    while state() != "dialling":
        if world.now > back_at - DIALLING_LOOK_SECONDS:
            return
        await asyncio.sleep(DIALLING_LOOK_SECONDS)
    dials = world.network.dials[near.name]
    asking = near.loop.create_task(_ask(near, away.name))
    failed = False
    while not asking.done() and world.now < back_at:
        if failed:
            text = f"{near.name} cannot reach {away.name}, and does not say so"
            history.broken("route-answer", text)
            break
        failed = state() == "failed"
        await asyncio.sleep(DIALLING_LOOK_SECONDS)
    near.loop.call_soon(asking.cancel)
    await asyncio.sleep(max(0.0, back_at - world.now))
    dials = world.network.dials[near.name] - dials
    if dials > DIALS_MAX:
        text = f"{near.name} dials {dials} times in a moment, though {away.name} is not there"
        history.broken("dialled-often", text)


async def _ask(machine: NodeMachine, away: str) -> None:
    try:
        client = machine.node.client
        await client.ask(f"peer/{away};echo", b"there?", timeout_seconds=ASK_SECONDS)
    except RillnodeError:
        return


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
