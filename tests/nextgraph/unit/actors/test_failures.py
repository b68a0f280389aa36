"""What is under way when an actor fails: its request has one outcome, who follows misses nothing.

That each actor may fail at each of its messages is tried in `test_failing_once.py`.
"""

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import pytest

from coroutines import handed_by
from nextgraph_broker import INNER, TOPIC_A, Broker, Client, identity, pin, subscribe, with_broker
from nextgraph_nodes import OtherNode, with_nodes
from rillnode.actors.engine.faults import When
from rillnode.actors.log import Append, StoreHealth, WatchValues
from rillnode.actors.nextgraph.blocks import BlocksActor
from rillnode.actors.nextgraph.context import Table
from rillnode.actors.nextgraph.followers import Appended
from rillnode.actors.nextgraph.inbox import InboxActor
from rillnode.actors.nextgraph.overlay import OverlayActor
from rillnode.actors.nextgraph.records import name_of
from rillnode.actors.nextgraph.repairs import Repaired
from rillnode.actors.nextgraph.session import Asked, Gone
from rillnode.actors.nextgraph.topic import TopicActor
from rillnode.actors.nextgraph.topic_requests import Sync
from rillnode.actors.nextgraph.users import UsersActor
from rillnode.actors.nextgraph.wallets import WalletsActor
from rillnode.codecs.nextgraph.client import InboxReceive
from rillnode.codecs.nextgraph.external import ExtRequest, WalletGetExport
from rillnode.codecs.nextgraph.inbox import InboxBody, InboxMessage
from rillnode.codecs.nextgraph.requests import (
    BlocksExist,
    InboxPost,
    ObjectPin,
    ObjectUnpin,
    OpenRepo,
    RequestContent,
    TopicSyncReq,
    WalletPutExport,
    sign_inbox_register,
)
from rillnode.codecs.nextgraph.responses import ClientResponse
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.codecs.nextgraph.types import NIL_OVERLAY, OverlayId
from rillnode.testing import fail

near = handed_by(with_nodes)

FAILED: Final = (ResultCode.BROKER_ERROR, ResultCode.STORAGE_ERROR)


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


WHEN: Final[Sequence[When]] = ("before", "after")


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


async def test_what_is_too_much_for_an_actor_is_refused_and_may_be_asked_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Narrow(OverlayActor):
        stands_for = OverlayActor
        mailbox_messages_max = 2

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
