"""Failures: whichever actor fails at whatever it takes, each request has one outcome.

The next one succeeds, who follows misses nothing, and nothing is left of connections that ended.
"""

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any, Final

import pytest

from core_support import Peer
from coroutines import handed_by
from nextgraph_broker import (
    INNER,
    OUTER,
    READ_ONLY,
    TOPIC_A,
    TOPIC_B,
    Broker,
    Client,
    Wire,
    identity,
    pin,
    subscribe,
    with_broker,
)
from nextgraph_nodes import OtherNode, with_nodes
from rillnode.actors.core.links.connection import Drain
from rillnode.actors.engine.faults import When
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import Append, StoreHealth, WatchValues
from rillnode.actors.nextgraph.blocks import BlocksActor
from rillnode.actors.nextgraph.connection import BrokerEvents, ConnectionActor
from rillnode.actors.nextgraph.context import Table
from rillnode.actors.nextgraph.desk import DeskActor
from rillnode.actors.nextgraph.followers import Appended
from rillnode.actors.nextgraph.inbox import InboxActor
from rillnode.actors.nextgraph.names import topic_stream
from rillnode.actors.nextgraph.outer import OuterActor
from rillnode.actors.nextgraph.overlay import OverlayActor
from rillnode.actors.nextgraph.reader import ReaderActor
from rillnode.actors.nextgraph.records import Letters, Wallet, name_of, pack
from rillnode.actors.nextgraph.repairs import Repaired, RepairsActor
from rillnode.actors.nextgraph.session import Asked, Gone
from rillnode.actors.nextgraph.topic import TopicActor
from rillnode.actors.nextgraph.topic_requests import Sync
from rillnode.actors.nextgraph.users import UsersActor
from rillnode.actors.nextgraph.wallets import WalletsActor
from rillnode.codecs import native
from rillnode.codecs.limits import (
    HANDSHAKE_SECONDS_MAX,
    NEXTGRAPH_WALLET_SECONDS,
    STORE_PENDING_HIGH_BYTES,
)
from rillnode.codecs.nextgraph.admin import AdminRequest, ListUsers, sign_admin_request
from rillnode.codecs.nextgraph.blocks import Block, BlockContent, block_id
from rillnode.codecs.nextgraph.client import ClientEvent, ClientMessage, InboxReceive
from rillnode.codecs.nextgraph.events import Event
from rillnode.codecs.nextgraph.external import ExportedWallet, ExtRequest, WalletGetExport
from rillnode.codecs.nextgraph.inbox import LETTER, InboxBody, InboxMessage
from rillnode.codecs.nextgraph.messages import encode_message
from rillnode.codecs.nextgraph.requests import (
    BlocksExist,
    BlocksGet,
    BlocksPut,
    CommitGet,
    InboxPost,
    ObjectDel,
    ObjectPin,
    ObjectUnpin,
    OpenRepo,
    RequestContent,
    TopicSyncReq,
    TopicUnsub,
    WalletPutExport,
    sign_inbox_register,
)
from rillnode.codecs.nextgraph.responses import ClientResponse, TopicSyncRes
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.codecs.nextgraph.types import NIL_OVERLAY, InnerOverlay, OuterOverlay, OverlayId
from rillnode.testing import fail, message_types

near = handed_by(with_nodes)

CLASSES: Final[Sequence[type[Worker]]] = (
    BlocksActor,
    ConnectionActor,
    DeskActor,
    InboxActor,
    OuterActor,
    OverlayActor,
    ReaderActor,
    RepairsActor,
    TopicActor,
    UsersActor,
    WalletsActor,
)

FAILED: Final = (ResultCode.BROKER_ERROR, ResultCode.STORAGE_ERROR)
IDLE_SECONDS: Final = 200.0
"""After which nothing is left of what nobody uses, but wallets."""


class Panic(BaseException):
    """As native code raises it."""


class User:
    """Asks again what has failed, on another connection where need be: once must be enough."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.broker = broker
        self.name = name
        self.lost = 0
        self._client: Client | None = None

    async def client(self) -> Client:
        """A connection that is open."""
        client = self._client
        if client is None or client.wire.closed is not None:
            self.lost += client is not None
            for _ in range(2):
                self.leave()
                client = self._client = self.broker.peer(self.name)
                await client.settle()
                if client.wire.closed is None:
                    break
            assert client is not None
            assert client.wire.closed is None
            assert client.said, "not admitted"
            client.said.clear()
        return client

    async def ask(self, overlay: OverlayId, content: RequestContent) -> list[tuple[int, Any]]:
        """Ask until the answer says something else than that it has failed."""
        for _ in range(2):
            client = await self.client()
            number = client.post(overlay, content)
            await client.settle()
            self.broker.core.clock.advance(0.01)
            await client.settle()
            answers = client.answers(number)
            last = [one for one in answers if one[0] != ResultCode.PARTIAL_CONTENT]
            if client.wire.closed is not None:
                assert len(last) <= 1
                continue
            assert len(last) == 1, f"{content} has {len(last)} outcomes"
            assert answers[-1] == last[0]
            if last[0][0] not in FAILED:
                return answers
        raise AssertionError(f"{content} fails again")

    async def result(self, overlay: OverlayId, content: RequestContent) -> int:
        """As `ask`, of what has one answer."""
        ((result, _),) = await self.ask(overlay, content)
        return result

    async def say(self, event: ClientEvent) -> None:
        """Say what has no answer."""
        client = await self.client()
        message = encode_message(ClientMessage(NIL_OVERLAY, event))
        client.events.messages_received([client.dialogue.seal(message)])
        await client.settle()

    async def heard(self) -> list[Any]:
        """What was forwarded on the connection that there is."""
        client = await self.client()
        await client.settle()
        return [one for one in client.heard() if not isinstance(one, ClientResponse)]

    def leave(self) -> None:
        """Be gone."""
        if self._client is not None:
            self._client.leave()
            self._client = None


async def events_of(user: User) -> list[Event]:
    answers = await user.ask(INNER, TopicSyncReq(TOPIC_A.public_key, [], [], None))
    contents = [content.item for _, content in answers if isinstance(content, TopicSyncRes)]
    return [item for item in contents if isinstance(item, Event)]


class Day:
    """Everything that a broker's actors are for, once."""

    def __init__(self, broker: Broker, other: OtherNode, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker = broker
        self.other = other
        self.monkeypatch = monkeypatch
        self.alice, self.bob, self.carol = [User(broker, one) for one in ("alice", "bob", "carol")]
        self.events: list[Event] = []
        self.seen: list[Event] = []
        self._guests: list[Client] = []

    async def guest(self, purpose: AdminRequest | ExtRequest) -> Client:
        """Somebody comes for something else than as a client."""
        guest = await self.broker.visit(purpose)
        self._guests.append(guest)
        return guest

    async def visit(self, purpose: AdminRequest | ExtRequest) -> Any:
        """What is answered to somebody, who comes again if need be."""
        for _ in range(2):
            guest = await self.guest(purpose)
            assert guest.said or guest.wire.closed is not None, "no outcome"
            if guest.said and guest.said[0].result not in FAILED:
                return guest.said[0]
        raise AssertionError(f"{purpose} fails again")

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, bit by bit."""
        for _ in range(3):
            await self.broker.core.settle()
            self.broker.core.clock.advance(seconds / 3)
        await self.broker.core.settle()

    async def go(self) -> None:
        """Do all of it."""
        self.broker.core.changes.append(self.broker.changed)
        await self.repos()
        await self.publishing()
        await self.reading()
        await self.blocks()
        await self.letters()
        await self.wallets()
        await self.visitors()
        await self.topics_that_end()
        await self.pass_time(IDLE_SECONDS)
        await self.check()
        await self.end()

    async def repos(self) -> None:
        alice, bob, carol = self.alice, self.bob, self.carol
        assert await alice.result(INNER, pin(TOPIC_A, expose=True)) == ResultCode.OK
        assert await bob.result(INNER, pin(reads=[TOPIC_A])) == ResultCode.OK
        reads = pin(access=READ_ONLY, reads=[TOPIC_A])
        assert await carol.result(OUTER, reads) == ResultCode.OK
        repo = pin().hash
        assert await carol.result(OUTER, TopicUnsub(TOPIC_A.public_key, repo)) == ResultCode.OK
        # What there is not is forgotten after a while.
        unknown = InnerOverlay(b"?" * 32), OuterOverlay(b"?" * 32)
        for overlay in unknown:
            result = await alice.result(overlay, BlocksExist([b"?" * 32]))
            assert result == ResultCode.OVERLAY_NOT_FOUND
        none = BlocksGet([b"?" * 32], False, b"?" * 32)
        assert await alice.result(INNER, none) == ResultCode.TOPIC_NOT_FOUND

    async def publishing(self) -> None:
        for number in range(3):
            event, _ = (await self.alice.client()).event(b"%d" % number)
            assert await self.alice.result(INNER, event) == ResultCode.OK
            self.events.append(event)
            theirs = (await self.alice.client()).event(b"theirs %d" % number)
            await self.other.publish(theirs)
            self.events.append(theirs[0])
        self.seen += await self.bob.heard()

    async def reading(self) -> None:
        assert await events_of(self.bob) == self.events
        event = self.events[0]
        commit = block_id(event.content.blocks[0])
        answers = await self.bob.ask(INNER, CommitGet(commit, TOPIC_A.public_key))
        assert answers[-1][0] == ResultCode.END_OF_STREAM

    async def blocks(self) -> None:
        contents = [BlockContent(None, [], Random(n).randbytes(80_000)) for n in range(4)]
        made = [Block(None, content) for content in contents]
        ids = [block_id(block) for block in made]
        alice = self.alice
        assert await alice.result(INNER, BlocksPut(made)) == ResultCode.OK
        answers = await self.bob.ask(INNER, BlocksGet(ids, False, None))
        assert [content for _, content in answers[:-1]] == made
        for request in (ObjectPin(ids[0]), ObjectUnpin(ids[0]), ObjectDel(ids[0])):
            result = await alice.result(INNER, request)
            # It may have been done, and only its answer been lost.
            assert result in (ResultCode.OK, ResultCode.NOT_FOUND)
        system = self.broker.core.system
        system.post(self.broker.context.repairs, StoreHealth(writable=True))
        await self.pass_time(2.0)
        ((_, content),) = await alice.ask(INNER, BlocksExist(ids))
        assert content.found == ids[1:]
        store = type(self.broker.core.store)
        with self.monkeypatch.context() as patch:
            patch.setattr(store, "pending_bytes", STORE_PENDING_HIGH_BYTES + 1)
            client = await alice.client()
            client.post(INNER, BlocksExist(ids))
            await client.settle()
        await self.pass_time(1.0)
        await client.settle()
        assert client.wire.closed is not None or len(client.answers(client.ids)) == 1

    async def letters(self) -> None:
        inbox = identity("inbox")

        def letter(text: bytes) -> InboxMessage:
            return InboxMessage(InboxBody(INNER, inbox.public_key, None, None, text), None, [])

        carol = self.carol
        assert await self.alice.result(NIL_OVERLAY, InboxPost(letter(b"1"), None)) == ResultCode.OK
        register = sign_inbox_register(inbox, INNER, b"c" * 32)
        assert await carol.result(NIL_OVERLAY, register) == ResultCode.OK
        for _ in range(3):
            await carol.say(ClientEvent.INBOX_POP_REQUEST)
        place = f"inner-{INNER.id.hex()}", inbox.public_key
        for number in (1, 2):
            value = LETTER.encode(letter(b"theirs"))
            kept = name_of("letter", *place, f"{number:016x}"), value
            letters = Letters(first=1, next=number + 1, size=number * len(value))
            await self.other.put(kept, (name_of("letters", *place), pack(letters)))
        assert await carol.result(NIL_OVERLAY, register) == ResultCode.OK
        assert await self.alice.result(NIL_OVERLAY, InboxPost(letter(b"2"), None)) == ResultCode.OK
        heard = [one for one in await carol.heard() if isinstance(one, InboxReceive)]
        texts = {one.msg.body.msg for one in heard}
        if carol.lost == 0:
            assert texts == {b"1", b"theirs", b"2"}
        carol.leave()
        await self.broker.core.settle()

    async def wallets(self) -> None:
        one, two, three = [bytes([n]) * 32 for n in range(3)]
        put = WalletPutExport(b"wallet", one, False)
        assert await self.alice.result(NIL_OVERLAY, put) == ResultCode.OK
        fetched = await self.visit(ExtRequest(0, WalletGetExport(one, False)))
        assert fetched.result in (ResultCode.OK, ResultCode.NOT_FOUND)
        # Somebody waits for what is left here, elsewhere, and never.
        for number in range(2):
            visitor = await self.guest(ExtRequest(0, WalletGetExport(two, True)))
            if number:
                wallet = pack(Wallet(expires_at=2**53, content=b"theirs"))
                waits = name_of("rendezvous", two)
                await self.other.put((name_of("wallet", two), wallet), (waits, None))
            else:
                given = WalletPutExport(b"ours", two, True)
                result = await self.alice.result(NIL_OVERLAY, given)
                assert result in (ResultCode.OK, ResultCode.NOT_FOUND)
            await visitor.settle()
            assert visitor.said or visitor.wire.closed
        late = await self.guest(ExtRequest(0, WalletGetExport(three, True)))
        assert await self.alice.result(NIL_OVERLAY, put) == ResultCode.OK
        await self.pass_time(NEXTGRAPH_WALLET_SECONDS + 1.0)
        await late.settle()
        assert late.said or late.wire.closed
        # And it is all as before.
        assert await self.alice.result(NIL_OVERLAY, put) == ResultCode.OK
        again = await self.visit(ExtRequest(0, WalletGetExport(one, False)))
        assert again.content == ExportedWallet(b"wallet")

    async def visitors(self) -> None:
        request = sign_admin_request(ListUsers(True), identity("user alice"))
        await self.visit(request)
        desk = self.broker.core.peer()
        made = await invitation(desk) or await invitation(desk)
        assert made is not None
        wire = Wire()
        silent = BrokerEvents(self.broker.context)
        silent.link_opened(wire)
        await self.pass_time(HANDSHAKE_SECONDS_MAX + 1.0)
        assert wire.closed is not None
        silent.link_closed("gone")
        dave = User(self.broker, "dave")
        client = await dave.client()
        name = name_of("user", identity("user dave").public_key)
        await self.other.put((name, None))
        await self.other.put((name, None))
        assert client.wire.closed is not None
        dave.leave()

    async def topics_that_end(self) -> None:
        alice, core = self.alice, self.broker.core
        assert await alice.result(INNER, subscribe(TOPIC_B, publisher=True)) == ResultCode.OK
        stream = topic_stream(INNER.id, TOPIC_B.public_key)
        (done,) = await core.peer().ask("stream", native.RemoveRequest(1, stream))
        assert isinstance(done, native.DoneResponse)
        await self.pass_time(3.0)
        event, _ = (await alice.client()).event(b"gone", topic=TOPIC_B)
        assert await alice.result(INNER, event) == ResultCode.TOPIC_NOT_FOUND

    async def check(self) -> None:
        """Whoever was connected all the time has heard everything; nothing is lost or doubled."""
        event, _ = (await self.alice.client()).event(b"last")
        assert await self.alice.result(INNER, event) == ResultCode.OK
        self.events.append(event)
        assert await events_of(self.bob) == self.events
        self.seen += await self.bob.heard()
        if self.bob.lost == 0:
            assert self.seen == self.events

    async def end(self) -> None:
        """Nothing is left of anybody."""
        context, system = self.broker.context, self.broker.core.system
        for cell in tuple(context.connections):
            system.post(cell, Drain())
        await self.broker.core.settle()
        for user in (self.alice, self.bob, self.carol):
            user.leave()
        for guest in self._guests:
            guest.leave()
        await self.broker.core.settle()
        await self.pass_time(IDLE_SECONDS)
        assert not context.connections
        assert not context.sessions
        assert not context.feeds
        for table in (context.overlays, context.outers, context.topics, context.blocks):
            assert not table.awake
        inboxes = context.inboxes.instance
        assert not vars(inboxes)["_readers"].inboxes
        kinds = system.stats()
        for actor in (ConnectionActor, ReaderActor):
            left = kinds[f"{actor.__module__}.{actor.__qualname__}"]
            assert left.cells == 0


async def invitation(desk: Peer) -> bytes | None:
    """What the desk answers, where that is an invitation."""
    desk.answers.clear()
    desk.send("nextgraph", b"{}")
    await desk.core.settle()
    (answer,) = desk.answers
    return answer.payload if b'"error":null' in answer.payload else None


def cases() -> list[Any]:
    found = list[Any]()
    for actor in CLASSES:
        for message in message_types(actor) or ():
            name = f"{actor.__name__}-{message.__name__}"
            found += [pytest.param(actor, message, when, id=f"{name}-{when}") for when in WHEN]
    return found


WHEN: Final[Sequence[When]] = ("before", "after")


@pytest.mark.parametrize(("actor", "message", "when"), cases())
async def test_an_actor_that_fails_once_costs_one_request(
    near: Broker,
    other: OtherNode,
    actor: type[Worker],
    message: type,
    when: When,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with fail(actor, message, when=when) as fault:
        await Day(near, other, monkeypatch).go()
    assert fault.hits == 1, "nothing of this kind has come"


async def test_all_is_well_without_failures(
    near: Broker, other: OtherNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    await Day(near, other, monkeypatch).go()


# What is under way when an instance goes ---------------------------------------------------------


@contextmanager
def held_appends(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Generator[list[Append]]:
    """Let the store come to no event before the end."""
    store, held = broker.core.store, list[Append]()
    submit = store.submit

    def later(operation: Any) -> None:
        if isinstance(operation, Append):
            held.append(operation)
        else:
            submit(operation)

    with monkeypatch.context() as patch:
        patch.setattr(store, "submit", later)
        yield held
    for operation in held:
        store.submit(operation)


@pytest.mark.parametrize("message", [Sync, Gone, Repaired])
async def test_events_on_their_way_are_answered_and_forwarded_by_the_next_instance(
    broker: Broker, message: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, phone, bob = [User(broker, name) for name in ("alice", "alice", "bob")]
    for user in (alice, phone, bob):
        assert await user.result(INNER, pin(TOPIC_A)) == ResultCode.OK
    device, other = await alice.client(), await phone.client()
    event, commit = device.event(b"on its way")
    with held_appends(broker, monkeypatch) as held, fail(TopicActor, message) as fault:
        numbers = device.post(INNER, event), other.post(INNER, event)
        await device.settle()
        (_,) = held
        gone = await broker.client("carol")
        await gone.pin(reads=[TOPIC_A])
        gone.leave()
        system = broker.core.system
        system.post(broker.context.repairs, StoreHealth(writable=True))
        sync = TopicSyncReq(TOPIC_A.public_key, [], [], None)
        assert await bob.result(INNER, sync) == ResultCode.TOPIC_NOT_FOUND
        assert fault.hits == 1
        # The new instance knows that it is on its way, and hands it to the log once.
        third = await broker.client("alice")
        again = third.post(INNER, event)
        await third.settle()
        (_,) = held
        assert not device.said
        assert not other.said
    for client, number in zip((device, other, third), (*numbers, again), strict=True):
        await client.settle()
        assert [result for result, _ in client.answers(number)] == [ResultCode.OK]
    assert await bob.heard() == [event]
    ((_, content),) = await bob.ask(INNER, subscribe(TOPIC_A))
    assert (content.known_heads, content.commits_nbr) == ([commit], 1)


async def test_an_actor_that_is_given_up_is_made_again_and_its_followers_miss_nothing(
    broker: Broker,
) -> None:
    alice, bob = await broker.client("alice"), await broker.client("bob")
    await alice.pin(TOPIC_A)
    await bob.pin(reads=[TOPIC_A])
    first = broker.context.topics.cell((INNER.id, TOPIC_A.public_key))
    sync = TopicSyncReq(TOPIC_A.public_key, [], [], None)
    with fail(TopicActor, Sync, times=TopicActor.restarts_max + 1):
        for _ in range(TopicActor.restarts_max + 1):
            assert await bob.result(INNER, sync) == ResultCode.BROKER_ERROR
    assert first.exited
    event, _ = alice.event()
    assert await alice.result(INNER, event) == ResultCode.OK
    await bob.settle()
    assert bob.heard() == [event]
    bob.leave()
    await broker.core.settle()
    assert len(broker.context.topics) == 1
    assert not broker.context.feeds


@pytest.mark.parametrize("when", WHEN)
async def test_an_event_whose_end_nobody_looks_at_is_forwarded_all_the_same(
    broker: Broker, when: When
) -> None:
    alice, bob = await broker.client("alice"), await broker.client("bob")
    await alice.pin(TOPIC_A)
    await bob.pin(reads=[TOPIC_A])
    event, _ = alice.event()
    with fail(TopicActor, Appended, when=when):
        told = ResultCode.OK if when == "after" else ResultCode.BROKER_ERROR
        assert await alice.result(INNER, event) == told
    await bob.settle()
    assert bob.heard() == [event]
    assert await alice.result(INNER, event) == ResultCode.OK
    await bob.settle()
    assert bob.heard() == []


def test_a_request_that_was_answered_has_no_other_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = BlocksActor._unpin  # pyright: ignore[reportPrivateUsage]

    async def breaks(self: BlocksActor, asked: Asked, one: bytes) -> None:
        await answers(self, asked, one)
        raise RuntimeError("a bug behind the answer")

    async def test(broker: Broker) -> None:
        client = await broker.client()
        await client.pin(TOPIC_A)
        event, commit = client.event()
        for request in (event, ObjectPin(commit)):
            assert await client.result(INNER, request) == ResultCode.OK
        monkeypatch.setattr(BlocksActor, "_unpin", breaks)
        answers = await client.ask(INNER, ObjectUnpin(commit))
        assert [result for result, _ in answers] == [ResultCode.OK]
        assert await client.result(INNER, BlocksExist([])) == ResultCode.OK

    with_broker(test)


async def test_news_of_other_nodes_reach_the_next_instance(near: Broker, other: OtherNode) -> None:
    client = await near.client("dave")
    name = name_of("user", identity("user dave").public_key)
    with fail(UsersActor, WatchValues) as fault:
        await other.put((name, None))
    assert fault.hits == 1
    assert client.wire.closed is not None
    again = await near.client("erin")
    await other.put((name_of("user", identity("user erin").public_key), None))
    assert again.wire.closed is not None


@contextmanager
def held_reads(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Generator[list[Any]]:
    """Let the store find nothing before the end."""
    store, held = broker.core.store, list[Any]()

    def later(operation: Any) -> bool:
        held.append(operation)
        return False

    with monkeypatch.context() as patch:
        patch.setattr(store, "read", later)
        yield held
    for operation in held:
        if store.read(operation):
            broker.core.complete(operation)


async def test_what_is_asked_of_an_actor_that_ends_may_be_asked_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = [await broker.client(str(number)) for number in range(3)]
    with held_reads(broker, monkeypatch):
        numbers = [client.post(INNER, BlocksExist([])) for client in clients]
        for client in clients:
            await client.settle()
        broker.core.system.exit(broker.context.overlays.cell(INNER.id))
        await broker.core.settle()
    for client, number in zip(clients, numbers, strict=True):
        await client.settle()
        answers = [result for result, _ in client.answers(number)]
        assert answers == [ResultCode.STORAGE_ERROR]
        again = await client.result(INNER, BlocksExist([]))
        assert again == ResultCode.OVERLAY_NOT_FOUND


def test_what_is_too_much_for_an_actor_is_refused_and_may_be_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Narrow(OverlayActor):
        stands_for = OverlayActor
        mailbox_messages_max = 2

    async def test(broker: Broker) -> None:
        context, system = broker.context, broker.core.system
        context.overlays = Table(lambda key: system.spawn(partial(Narrow, context, key)))
        clients = [await broker.client(str(number)) for number in range(5)]
        with held_reads(broker, monkeypatch):
            numbers = [clients[0].post(INNER, BlocksExist([]))]
            await clients[0].settle()
            numbers += [client.post(INNER, BlocksExist([])) for client in clients[1:]]
            for client in clients:
                await client.settle()
        results = list[int]()
        for client, number in zip(clients, numbers, strict=True):
            await client.settle()
            results += [result for result, _ in client.answers(number)]
            again = await client.result(INNER, BlocksExist([]))
            assert again == ResultCode.OVERLAY_NOT_FOUND
        served, refused = ResultCode.OVERLAY_NOT_FOUND, ResultCode.STORAGE_ERROR
        assert results == [served, served, served, refused, refused]

    with_broker(test)


async def test_who_waits_for_a_wallet_is_told_where_that_is_forgotten(broker: Broker) -> None:
    one = b"?" * 32
    waits = await broker.visit(ExtRequest(0, WalletGetExport(one, True)))
    assert waits.said == []
    client = await broker.client()
    put = WalletPutExport(b"wallet", b"!" * 32, False)
    with fail(WalletsActor, Asked):
        assert await client.result(NIL_OVERLAY, put) == ResultCode.BROKER_ERROR
    await waits.settle()
    assert [response.result for response in waits.said] == [ResultCode.BROKER_ERROR]
    given = WalletPutExport(b"wallet", one, True)
    assert await client.result(NIL_OVERLAY, given) == ResultCode.NOT_FOUND
    assert await client.result(NIL_OVERLAY, put) == ResultCode.OK


async def test_what_is_open_and_who_reads_an_inbox_outlive_a_failure(broker: Broker) -> None:
    client = await broker.client()
    opened = pin(TOPIC_A)
    request = OpenRepo(opened.hash, opened.overlay, [], 0, [], opened.rw_topics)
    assert await client.result(INNER, request) == ResultCode.OK
    inbox = identity("inbox")
    register = sign_inbox_register(inbox, INNER, b"c" * 32)
    assert await client.result(NIL_OVERLAY, register) == ResultCode.OK
    for actor in (OverlayActor, InboxActor):
        overlay = INNER if actor is OverlayActor else NIL_OVERLAY
        asked: RequestContent = BlocksExist([]) if actor is OverlayActor else register
        with fail(actor, Asked):
            assert await client.result(overlay, asked) == ResultCode.BROKER_ERROR
    event, _ = client.event()
    assert await client.result(INNER, event) == ResultCode.OK
    letter = InboxMessage(InboxBody(INNER, inbox.public_key, None, None, b"text"), None, [])
    sender = await broker.client("bob")
    assert await sender.result(NIL_OVERLAY, InboxPost(letter, None)) == ResultCode.OK
    await client.settle()
    assert client.heard() == [InboxReceive(letter, False)]


@pytest.mark.parametrize("error", [asyncio.CancelledError, Panic])
async def test_what_is_no_exception_is_a_failure_all_the_same(
    broker: Broker, error: type[BaseException]
) -> None:
    client = await broker.client()
    await client.pin(TOPIC_A)
    with fail(OverlayActor, Asked, error=error):
        assert await client.result(INNER, BlocksExist([])) == ResultCode.BROKER_ERROR
    assert await client.result(INNER, BlocksExist([])) == ResultCode.OK
