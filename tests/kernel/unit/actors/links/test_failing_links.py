"""A failure in the actor of a link, a peer or a channel: what it costs, and what it does not.

At the other side of each link is a client, or another node, that does as always.
"""

# What a link's actor is sent is its own business.
# pyright: reportPrivateUsage=false

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from thespian.actors import ChildActorExited

from actor_support import run
from channel_support import KEY
from core_support import Core
from coroutines import handed_by, run_with
from link_support import ManualClock
from rillnode.actors.core.access import VERBS, Grant
from rillnode.actors.core.delivery import Delivery, Handled
from rillnode.actors.core.links import connection, dialling
from rillnode.actors.core.links.connection import (
    SLICE_FRAMES,
    UNHANDLED_SECONDS,
    ConnectionActor,
    ConnectionEvents,
    Drain,
    PeerContext,
)
from rillnode.actors.core.links.dialling import (
    FORGET_SECONDS,
    DialledEvents,
    PeerActor,
    PeerSettings,
    PeerStatus,
    StopPeer,
)
from rillnode.actors.core.links.directory import PeerDirectory
from rillnode.actors.core.links.link_actor import Closed, Received
from rillnode.actors.core.pauses import PAUSE_SECONDS_MAX
from rillnode.actors.core.rights import RightsChanged
from rillnode.actors.core.streams.subscription import SubscriptionActor
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.faults import FAULTS, Fault, When
from rillnode.actors.engine.lifecycle import Finish
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.actors.engine.worker import Variant, Worker
from rillnode.actors.ockam import channel
from rillnode.actors.ockam.answering import AnsweringActor, echo
from rillnode.actors.ockam.channel import ChannelActor, ChannelContext
from rillnode.actors.ockam.channel_listener import ADDRESSES, ChannelListener
from rillnode.codecs import native
from rillnode.codecs.errors import RillnodeError, TransportError
from rillnode.codecs.limits import LINK_BUFFER_HIGH_BYTES
from rillnode.codecs.routing.routes import WireMessage, local
from rillnode.node.client import Client
from rillnode.node.client.session import Session
from rillnode.node.ockam.client.channel import SecureChannel
from rillnode.testing import PlantedFailure, message_types
from rillnode.transports.links import LinkEvents
from rillnode.transports.memory import MemoryLink, connect_memory

ECHO = "echo"


@contextmanager
def planted(
    actor_class: type[Worker], kind: type, when: When, *, times: int = 1
) -> Generator[Fault]:
    """As `rillnode.testing.fail`, and where an actor ends its part of a pump (`Finish`)."""
    fault = Fault(actor_class, kind, times, when, PlantedFailure)
    FAULTS.append(fault)
    try:
        yield fault
    finally:
        FAULTS.remove(fault)


def each_failure(*actor_classes: type[Worker]) -> pytest.MarkDecorator:
    """Run a test for each way in which actors of these classes may fail."""
    found = [
        pytest.param(one, kind, when, id=f"{one.__name__}-{kind.__name__.strip('_')}-{when}")
        for one in actor_classes
        for kind in (
            *(message_types(one) or ()),
            *(() if one.finish is Worker.finish else (Finish,)),
        )
        for when in ("before", "after")
    ]
    return pytest.mark.parametrize(("actor_class", "kind", "when"), found)


class Slow(Worker):
    """Is done with what it gets when its test says so."""

    def __init__(self, done: asyncio.Event) -> None:
        self._done = done

    async def handle(self, message: Any, sender: object) -> None:
        await self._done.wait()


class House:
    """A node's core, with links in memory."""

    def __init__(self, system: AsyncioSystemBase, clock: ManualClock) -> None:
        core = self.core = Core(system, clock)
        self.context = PeerContext(
            system, core.router, core.store, core.access, core.context.entropy
        )
        self.links: list[MemoryLink] = []
        core.access.add(Grant(who="friend", streams="*", may=frozenset(VERBS)))
        core.router.register(b"echo", system.spawn(lambda: AnsweringActor(core.router, echo)))
        self.slow_done = asyncio.Event()
        core.router.register(b"slow", system.spawn(lambda: Slow(self.slow_done)))

    async def connect(self, events: LinkEvents) -> object:
        """Open a link to this node; its own end is kept in `links`."""
        near, far = connect_memory(
            events,
            ConnectionEvents(self.context, prefix=b"MEM_"),
            dialling_principal="friend",
            accepting_principal="node",
            post=asyncio.get_running_loop().call_soon,
            clock=self.core.clock,
        )
        self.links.append(far)
        return near

    async def client(self) -> tuple[Client, Session]:
        session = Session(self.connect)
        await session.open()
        await self.core.settle()
        return Client(session), session

    @property
    def connections(self) -> list[Cell]:
        """The actors of its links, oldest first."""
        return list(self.context.open)

    def cells(self, actor_class: type[Worker]) -> int:
        """How many actors there are of a class."""
        stats = self.core.system.stats().get(f"{actor_class.__module__}.{actor_class.__qualname__}")
        return 0 if stats is None else stats.cells

    async def until(self, condition: Callable[[], object], *, passing: float = 0.0) -> None:
        """Let happen what may, and so much time pass at a step, until something holds."""
        async with asyncio.timeout(20):
            while not condition():
                self.core.clock.advance(passing)
                await self.core.settle()
                await asyncio.sleep(0.001)


async def outcome(asking: Awaitable[Any]) -> Any:
    """The answer's payload, or the code of the error that there is instead."""
    try:
        async with asyncio.timeout(10):
            return (await asking).payload
    except RillnodeError as error:
        return error.code


# Connections -------------------------------------------------------------------------------------


@dataclass
class Victim:
    """A client whose link's actor fails."""

    house: House
    client: Client
    session: Session
    cell: Cell
    asked: list[tuple[Awaitable[Any], bytes]] = field(
        default_factory=list[tuple[Awaitable[Any], bytes]]
    )

    def ask(self, payload: bytes) -> None:
        """Ask something that is to be answered, whatever befalls the link."""
        self.asked.append((asyncio.ensure_future(self.client.ask(ECHO, payload)), payload))

    @property
    def system(self) -> AsyncioSystemBase:
        return self.house.core.system


async def _received(victim: Victim) -> None:
    await victim.client.send("nowhere", b"x")


async def _answered(victim: Victim) -> None:
    victim.ask(b"x")


async def _much_read(victim: Victim) -> None:
    for _ in range(SLICE_FRAMES + 1):
        await victim.client.send(ECHO, b"x")


async def _slow_worker(victim: Victim) -> None:
    await victim.client.send("slow", b"x")
    await victim.house.core.settle()
    await victim.client.send(ECHO, b"x")
    await victim.house.core.settle()
    victim.house.core.clock.advance(UNHANDLED_SECONDS)


async def _drained(victim: Victim) -> None:
    link = cast(MemoryLink, victim.session._link)
    link.pause_reading()
    victim.ask(bytes(LINK_BUFFER_HIGH_BYTES + 1))
    await victim.house.core.settle()
    link.resume_reading()


async def _closed(victim: Victim) -> None:
    cast(MemoryLink, victim.session._link).close("as it wants to")


async def _drain(victim: Victim) -> None:
    victim.system.post(victim.cell, Drain())


async def _stopped(victim: Victim) -> None:
    described = cast(ConnectionActor, victim.cell.instance).described(b"")
    assert described.stop is not None
    described.stop()


async def _rights_changed(victim: Victim) -> None:
    victim.system.post(victim.cell, RightsChanged())


CONNECTION: dict[type, Callable[[Victim], Awaitable[None]]] = {
    Received: _received,
    Delivery: _answered,
    Finish: _answered,
    Handled: _much_read,
    connection._Continue: _slow_worker,
    connection._Drained: _drained,
    connection._Stop: _stopped,
    Closed: _closed,
    Drain: _drain,
    RightsChanged: _rights_changed,
}


@each_failure(ConnectionActor)
async def test_a_connection_that_fails_costs_its_link(
    system: AsyncioSystemBase, clock: ManualClock, actor_class: type[Worker], kind: type, when: When
) -> None:
    house = House(system, clock)
    client, session = await house.client()
    (cell,) = house.connections
    other, other_session = await house.client()
    other_link = other_session._link
    stream = await client.stream("s")
    following = stream.tail(start="start")
    entries = [asyncio.ensure_future(anext(following))]
    await house.core.settle()
    assert house.cells(SubscriptionActor) == 1

    victim = Victim(house, client, session, cell)
    with planted(actor_class, kind, when) as fault:
        await CONNECTION[kind](victim)
        await house.until(lambda: fault.hits)
    house.slow_done.set()
    await house.until(lambda: cell.exited and session.connected, passing=0.01)

    # Whoever waits is answered over the next link, and what was followed goes on.
    for asking, payload in victim.asked:
        assert await outcome(asking) == payload
    assert await outcome(client.ask(ECHO, b"next")) == b"next"
    await (await other.stream("s")).push(b"entry")
    assert (await entries[0]).data == b"entry"
    # Nothing is left of the link, and the other one is as it was.
    assert other_session._link is other_link
    assert len(house.connections) == 2
    assert house.cells(ConnectionActor) == 2
    assert house.cells(SubscriptionActor) == 1
    assert session.unasked <= session.unanswered
    own = [one for one in house.core.router.table if one.startswith((b"MEM_", b"SUB_"))]
    assert len(own) == 3
    await following.aclose()
    for one in (client, other):
        await one.close()


async def test_who_sends_over_a_link_whose_actor_fails_is_told_once(
    system: AsyncioSystemBase, clock: ManualClock
) -> None:
    house = House(system, clock)
    client, session = await house.client()
    other, _ = await house.client()
    at_client = session.messages.attach(lambda _: None)
    (link, _) = (one for one in house.core.router.table if one.startswith(b"MEM_"))
    route = (local(link), local(at_client))
    with planted(ConnectionActor, Delivery, "before"):
        asked = [asyncio.ensure_future(other.ask(route, b"%d" % nth)) for nth in range(3)]
        # All three are one batch, and fail together.
        assert [await outcome(one) for one in asked] == ["actor.failed"] * 3
    await house.until(lambda: session.connected)
    assert await outcome(other.ask(route, b"later")) == "address.unknown"
    for one in (client, other):
        await one.close()


async def test_what_waits_for_a_link_whose_actor_fails_is_told_that_it_has_ended(
    system: AsyncioSystemBase, clock: ManualClock
) -> None:
    house = House(system, clock)
    client, _ = await house.client()
    other, other_session = await house.client()
    cell, other_cell = house.connections
    link, other_link = (cast(ConnectionActor, one.instance) for one in (cell, other_cell))
    told: list[WireMessage] = []
    back = (other_link._own, local(other_session.messages.attach(told.append)))
    with planted(ConnectionActor, RightsChanged, "before"):
        system.post(cell, RightsChanged())
        waiting = WireMessage((link._own, local("x")), back, b"waits")
        house.core.router.route(other_link.origin, [waiting])
        await house.until(lambda: cell.exited)
    await house.core.settle()
    (failure,) = [native.decode_response(one.payload) for one in told]
    assert isinstance(failure, native.Failure)
    assert (failure.code, failure.retryable) == ("actor.stopped", True)
    for one in (client, other):
        await one.close()


def always(actor: Callable[..., Worker]) -> Variant:
    """Makes these actors, whatever class is asked for."""

    def variant(_: type[Worker]) -> Callable[..., Worker]:
        return actor

    return variant


async def test_a_link_whose_actor_cannot_be_made_is_closed_with_what_it_brings(
    system: AsyncioSystemBase, clock: ManualClock
) -> None:
    house = House(system, clock)

    def cannot(*_: object) -> Worker:
        raise PlantedFailure

    made = house.context
    house.context = replace(made, actor=always(cannot))
    client, session = await house.client()
    asked = asyncio.ensure_future(client.ask(ECHO, b"x"))
    await house.until(lambda: not session.connected)
    house.context = made
    assert await outcome(asked) == b"x"
    await client.close()


async def test_a_link_that_has_no_room_for_answers_is_closed_and_all_is_asked_again(
    system: AsyncioSystemBase, clock: ManualClock
) -> None:
    class Small(ConnectionActor):
        mailbox_messages_max = 3

    house = House(system, clock)
    made = house.context
    house.context = replace(made, actor=always(Small))
    client, session = await house.client()
    house.context = made
    (cell,) = house.connections
    link = cast(ConnectionActor, cell.instance)
    for nth in range(5):
        answer = ((link._own, local("nobody")), b"%d" % nth)
        house.core.router.reply(link.origin, b"other", [answer])
    asked = asyncio.ensure_future(client.ask(ECHO, b"x"))
    await house.until(lambda: cell.exited and session.connected)
    assert await outcome(asked) == b"x"
    assert house.core.router.undelivered["busy"] == 2
    await client.close()


# Peers -------------------------------------------------------------------------------------------


class Road:
    """A node that has another one as its peer, a client of it, and the way between the two."""

    client: Client
    near_link: MemoryLink
    far_link: MemoryLink

    def __init__(self, house: House, far: House, *, kept: bool, passing: bool) -> None:
        self.house = house
        self.far = far
        self.down = self.ended = False
        self.may_dial = True
        self.dialled = 0
        self.asked: list[asyncio.Task[Any]] = []
        self.status = PeerStatus("far", "memory")
        self.peers = PeerDirectory(house.context, b"peer/", lambda _address, _origin: True)
        self.settings = PeerSettings(
            name="far",
            prefix=b"MEM_C_",
            dial=self._dial,
            kept=kept,
            may_dial=lambda: self.may_dial,
            on_end=self._end if passing else None,
        )
        self.peers.add(b"peer/far", self.settings, self.status)

    def _dial(
        self, events: DialledEvents, on_failure: Callable[[RillnodeError], None]
    ) -> asyncio.TimerHandle:
        self.dialled += 1
        return asyncio.get_running_loop().call_later(0.0, self._connect, events, on_failure)

    def _connect(self, events: DialledEvents, on_failure: Callable[[RillnodeError], None]) -> None:
        if self.down:
            on_failure(TransportError("link.refused", "nothing listens there"))
            return
        near, far = connect_memory(
            events,
            ConnectionEvents(self.far.context, prefix=b"MEM_"),
            dialling_principal="friend",
            accepting_principal="far",
            post=asyncio.get_running_loop().call_soon,
            clock=self.house.core.clock,
        )
        self.near_link, self.far_link = near, far

    def _end(self) -> None:
        self.ended = True
        self.peers.remove(b"peer/far")

    @property
    def cell(self) -> Cell:
        found = self.house.core.router.lookup(b"peer/far")
        assert found is not None
        return found

    def ask(self, payload: bytes) -> "asyncio.Task[Any]":
        self.asked.append(
            asyncio.get_running_loop().create_task(
                outcome(self.client.ask("peer/far;echo", payload, timeout_seconds=1.0))
            )
        )
        return self.asked[-1]

    async def settle(self, *, passing: float = 0.0) -> None:
        self.house.core.clock.advance(passing)
        for _ in range(5):
            await self.house.core.settle()
            await self.far.core.settle()
            await asyncio.sleep(0.001)


async def _sent(road: Road) -> None:
    road.ask(b"x")


async def _unreachable(road: Road) -> None:
    road.down = True
    road.far_link.close("down")
    await road.settle(passing=2.0)
    road.ask(b"x")
    await road.settle()


async def _pause_over(road: Road) -> None:
    road.down = True
    road.far_link.close("down")
    await road.settle(passing=2.0)
    road.ask(b"x")
    await road.settle()
    road.down = False
    road.house.core.clock.advance(1.0)


async def _link_lost(road: Road) -> None:
    road.far_link.close("gone")


async def _opened(road: Road) -> None:
    road.far_link.close("gone")
    await road.settle(passing=2.0)
    road.ask(b"x")


async def _link_drained(road: Road) -> None:
    road.far_link.pause_reading()
    road.ask(bytes(LINK_BUFFER_HIGH_BYTES + 1))
    await road.settle()
    road.ask(b"waits")
    await road.settle()
    road.far_link.resume_reading()


async def _stop(road: Road) -> None:
    road.may_dial = False
    road.house.core.system.post(road.cell, StopPeer())


async def _unused(road: Road) -> None:
    road.far_link.close("unused")
    await road.settle(passing=2.0)
    road.house.core.clock.advance(FORGET_SECONDS)


PEER: dict[type, Callable[[Road], Awaitable[None]]] = {
    Delivery: _sent,
    dialling.Opened: _opened,
    dialling._Drained: _link_drained,
    dialling._Lost: _link_lost,
    dialling._Failed: _unreachable,
    dialling._PauseOver: _pause_over,
    StopPeer: _stop,
    dialling._Forget: _unused,
}


ANSWERS = frozenset(
    (
        b"first",
        b"x",
        b"waits",
        bytes(LINK_BUFFER_HIGH_BYTES + 1),
        "actor.failed",
        "peer.unreachable",
        "message.timeout",  # of what was sent over a link that is lost nobody knows anything
    )
)


def with_road(
    test: Callable[[Road], Awaitable[None]], *, kept: bool = False, passing: bool = False
) -> None:
    """Run a test with two nodes; one is the other's peer, and has a client."""

    async def main(system: AsyncioSystemBase, clock: ManualClock) -> None:
        house, far = House(system, clock), House(AsyncioSystemBase(clock=clock), clock)
        road = Road(house, far, kept=kept, passing=passing)
        road.client, session = await house.client()
        await test(road)
        await road.client.close()
        assert session.unasked <= session.unanswered
        await far.core.system.shutdown()

    run(main)


road = handed_by(with_road)


@each_failure(PeerActor)
def test_a_peer_that_fails_costs_what_is_under_way_to_it(
    actor_class: type[Worker], kind: type, when: When
) -> None:
    async def test(road: Road) -> None:
        assert await road.ask(b"first") == b"first"
        with planted(actor_class, kind, when) as fault:
            await PEER[kind](road)
            await road.house.until(lambda: fault.hits)
        await road.settle()
        road.down = False
        await road.settle(passing=1.0)
        if kind is StopPeer:
            # It is started anew, and knows that it is not to dial; links that are open may stay.
            dialled = road.dialled
            road.far_link.close("the node is stopping")
            await road.settle(passing=20.0)
            assert (road.dialled, road.status.state) == (dialled, "stopped")
        for asking in road.asked:
            assert await asking in ANSWERS  # each has its one outcome
        if road.ended:
            road.peers.add(b"peer/far", road.settings, road.status)
        if kind is not StopPeer:
            again = road.ask(b"next")
            await road.settle(passing=1.0)
            assert await again == b"next"
            # One link, that both sides have, beside the client's.
            assert len(road.house.connections) == 2
            assert len(road.far.connections) == 1
            assert (road.status.state, road.status.links) == ("open", 1)
        assert road.status.waiting == 0
        assert road.house.cells(PeerActor) <= 1
        assert road.house.cells(ConnectionActor) == len(road.house.connections)
        assert road.far.cells(ConnectionActor) == len(road.far.connections)

    with_road(test, passing=kind is dialling._Forget)


async def test_a_peer_that_is_given_up_is_made_anew_after_a_pause(road: Road) -> None:
    with planted(PeerActor, Delivery, "before", times=100) as fault:
        for _ in range(PeerActor.restarts_max + 1):
            assert await road.ask(b"x") == "actor.failed"
        assert await road.ask(b"x") == "actor.busy"
        assert fault.hits == PeerActor.restarts_max + 1
    await road.settle(passing=0.1)
    assert await road.ask(b"next") == b"next"
    assert len(road.far.connections) == 1


async def fail_at_the_end_of_a_link(road: Road) -> None:
    with planted(PeerActor, dialling._Lost, "before") as fault:
        road.far_link.close("gone")
        await road.house.until(lambda: fault.hits)
    await road.settle()


@run_with(kept=True)
async def test_a_peer_that_is_kept_is_dialled_again_after_its_actor_was_given_up(
    road: Road,
) -> None:
    await road.settle()
    assert road.status.state == "open"
    for _ in range(PeerActor.restarts_max + 1):
        await fail_at_the_end_of_a_link(road)
    assert (road.far.connections, road.status.state) == ([], "stopped")
    await road.settle(passing=PAUSE_SECONDS_MAX)
    await road.settle(passing=1.0)
    assert road.status.state == "open"
    assert len(road.far.connections) == 1


@run_with(kept=True)
async def test_a_peer_that_is_kept_is_not_looked_after_when_its_system_has_ended(
    road: Road, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(seconds: float, callback: object) -> None:
        raise AssertionError("somebody waits still")

    await road.settle()
    clock, base = road.house.core.clock, road.house.core.system
    await road.client.close()
    await base.shutdown()
    assert clock.timers
    with monkeypatch.context() as patch:
        patch.setattr(clock, "call_later", never)
        clock.advance(PAUSE_SECONDS_MAX)


# Secure channels ---------------------------------------------------------------------------------


class Tunnel:
    """A node with a listener of secure channels, and a client that opens them."""

    client: Client

    def __init__(self, house: House) -> None:
        self.house = house
        core = house.core
        self.context = ChannelContext(
            system=core.system,
            router=core.router,
            access=core.access,
            entropy=core.context.entropy,
            key=KEY,
            allow=frozenset(),
            handshake_seconds=10.0,
            idle_seconds=60.0,
            channels_max=3,
            channels_per_connection_max=3,
        )
        listener = core.system.spawn(lambda: ChannelListener(self.context))
        for address in ADDRESSES:
            core.router.register(address, listener)

    async def open(self) -> SecureChannel:
        return await SecureChannel.open(self.client, "SC_listener", timeout_seconds=1.0)

    async def echo(self, channel: SecureChannel, payload: bytes) -> Any:
        return await outcome(channel.ask("echo", payload, timeout_seconds=1.0))


async def _channel_used(tunnel: Tunnel, channel: SecureChannel) -> None:
    assert await tunnel.echo(channel, b"x") in (b"x", "actor.failed", "message.timeout")


async def _channel_begun(tunnel: Tunnel, _: SecureChannel) -> None:
    with suppress(RillnodeError):
        await tunnel.echo(await tunnel.open(), b"x")


async def _time_passed(tunnel: Tunnel, _: SecureChannel) -> None:
    tunnel.house.core.clock.advance(60.0)


async def _channel_rights_changed(tunnel: Tunnel, _: SecureChannel) -> None:
    (cell,) = tunnel.context.open
    tunnel.house.core.system.post(cell, RightsChanged())


async def _channel_ended(tunnel: Tunnel, _: SecureChannel) -> None:
    (cell,) = tunnel.context.open
    tunnel.house.core.system.exit(cell)


CHANNEL: dict[tuple[type[Worker], type], Callable[[Tunnel, SecureChannel], Awaitable[None]]] = {
    (ChannelActor, Delivery): _channel_used,
    (ChannelActor, channel.Begin): _channel_begun,
    (ChannelActor, channel._Late): _time_passed,
    (ChannelActor, channel._Look): _time_passed,
    (ChannelActor, RightsChanged): _channel_rights_changed,
    (ChannelListener, Delivery): _channel_begun,
    (ChannelListener, ChildActorExited): _channel_ended,
}


@each_failure(ChannelActor, ChannelListener)
async def test_a_channel_that_fails_ends_alone(
    system: AsyncioSystemBase, clock: ManualClock, actor_class: type[Worker], kind: type, when: When
) -> None:
    house = House(system, clock)
    tunnel = Tunnel(house)
    tunnel.client, session = await house.client()
    (link,) = house.connections
    first = await tunnel.open()
    assert await tunnel.echo(first, b"first") == b"first"
    with planted(actor_class, kind, when) as fault:
        await CHANNEL[actor_class, kind](tunnel, first)
        await house.until(lambda: fault.hits)
    await house.core.settle()

    # All that may be open is: nothing is left of those that have failed.
    for cell in list(tunnel.context.open):
        system.exit(cell)
    await house.core.settle()
    assert house.cells(ChannelActor) == 0
    assert tunnel.context.open == {}
    assert not tunnel.context.per_connection
    assert not [
        one for one in house.core.router.table if one.startswith(b"SC_") and one != b"SC_listener"
    ]
    opened = [await tunnel.open() for _ in range(tunnel.context.channels_max)]
    for nth, one in enumerate(opened):
        assert await tunnel.echo(one, b"%d" % nth) == b"%d" % nth
    # The link that carried it has seen nothing of that.
    assert house.connections == [link]
    assert await outcome(tunnel.client.ask(ECHO, b"y")) == b"y"
    assert session.unasked <= session.unanswered
    await tunnel.client.close()
    await house.core.settle()
    assert house.cells(ChannelActor) == 0 or house.connections
