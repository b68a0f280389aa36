"""NextGraph's clients at two nodes of one store: they share topics, repos, blocks and users."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from nats_support import SHARDS, NatsServer, needs_nats, on_jetstream
from nextgraph_document import ACCESS, ALICE, BRANCH, INNER, REPO, STORE, TOPIC, commit, identity
from nodes import node_config
from rillnode import nextgraph
from rillnode.actors.log import PutRecord, PutRecords, WriteOperation
from rillnode.actors.log.shared.store import SharedLogStore
from rillnode.actors.nextgraph import publication, topic as topic_module
from rillnode.actors.nextgraph.names import topic_stream
from rillnode.actors.nextgraph.records import name_of
from rillnode.codecs.entries import Entry
from rillnode.codecs.errors import HandshakeError, RequestError, TransportError
from rillnode.codecs.nextgraph.events import Event
from rillnode.codecs.nextgraph.responses import TopicSubRes
from rillnode.node.keys.files import write_key
from rillnode.node.nextgraph.client.client import Client
from rillnode.node.nextgraph.client.subscription import Subscription
from rillnode.node.nextgraph.config import NextgraphListener, nextgraph_key_file
from rillnode.node.runtime import Node
from shared_support import JetStreamDriver
from store_support import eventually

pytestmark = needs_nats

SECONDS: Final = 60.0
BROKER: Final = identity("broker")
BOB: Final = identity("bob")


class Brokers:
    """Nodes of one store, which clients take for one broker: they have one key."""

    def __init__(self, directory: Path, nats: NatsServer, stack: AsyncExitStack) -> None:
        self._directory = directory
        self._nats = nats
        self._stack = stack

    async def node(self, name: str, *, invited: bool = False) -> Node:
        """Start a node."""
        listener = NextgraphListener(
            listen="127.0.0.1:0", registration="invitation" if invited else "open"
        )
        config = on_jetstream(node_config(self._directory / name), self._nats)
        config = config.having(listener)
        write_key(nextgraph_key_file(config), BROKER)
        return await self._stack.enter_async_context(Node(config))


def run(
    test: Callable[[Brokers], Coroutine[Any, Any, None]], directory: Path, nats: NatsServer
) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(SECONDS), AsyncExitStack() as stack:
            await test(Brokers(directory, nats, stack))

    asyncio.run(bounded())


def url_of(node: Node) -> str:
    return f"ws://{node.addresses()['nextgraph']}"


@asynccontextmanager
async def client(
    node: Node, user: nextgraph.Identity = ALICE, **options: Any
) -> AsyncGenerator[Client]:
    async with await nextgraph.connect(
        url_of(node), broker=BROKER.public_key, user=user, **options
    ) as one:
        yield one


async def pinned(one: Client) -> TopicSubRes:
    (topic,) = await one.pin(REPO, ACCESS, publish=[TOPIC])
    return topic


async def put(one: Client, made: nextgraph.Object, *, seen_by: Client) -> None:
    await one.put_blocks(INNER, made.blocks)

    async def is_put() -> bool:
        ids = [nextgraph.block_id(block) for block in made.blocks]
        return not (await seen_by.find_blocks(INNER, ids)).missing

    await eventually(is_put)


async def followed(one: Client) -> Subscription:
    await pinned(one)
    return await one.subscribe(INNER, REPO, TOPIC.public_key)


async def synced(one: Client) -> list[Event]:
    return [event async for event in one.sync(INNER, TOPIC.public_key)]


async def silent(events: Subscription) -> bool:
    try:
        async with asyncio.timeout(0.3):
            await anext(events)
    except TimeoutError:
        return True
    return False


class HeldBack:
    """Holds back the first deletion, or the first pin, of an object, before its node writes it."""

    def __init__(self, submit: Callable[[SharedLogStore, WriteOperation], None]) -> None:
        self._submit = submit
        self.deletion = self.pin = False
        self.begun = asyncio.Event()
        self.go_on: Callable[[], None] = self.begun.clear

    def submit(self, store: SharedLogStore, operation: WriteOperation) -> None:
        """Stands for the stores' own."""
        if isinstance(operation, PutRecords) and not self.begun.is_set():
            deletes = any(value is None for _, value in operation.records)
            pins = any(name.startswith(name_of("object", "")) for name, _ in operation.records)
            if (self.deletion and deletes) or (self.pin and pins):
                self.go_on = partial(self._submit, store, operation)
                self.begun.set()
                return
        self._submit(store, operation)


@pytest.fixture
def held_back(monkeypatch: pytest.MonkeyPatch) -> HeldBack:
    held = HeldBack(SharedLogStore.submit)

    def submit(store: SharedLogStore, operation: WriteOperation) -> None:
        held.submit(store, operation)

    monkeypatch.setattr(SharedLogStore, "submit", submit)
    return held


def file_of(size: int) -> nextgraph.Object:
    content = bytes(range(250)) * (size // 250)
    key = nextgraph.convergence_key(STORE, b"s" * 32)
    return nextgraph.split_object(content, key, block_bytes=4_096)


# Topics --------------------------------------------------------------------------------------


def test_what_is_published_at_one_node_is_followed_at_the_other_once_and_in_order(
    nats: NatsServer, tmp_path: Path
) -> None:
    async def test(brokers: Brokers) -> None:
        a, b = await brokers.node("a"), await brokers.node("b")
        async with client(a) as laptop, client(a) as tablet, client(b) as phone:
            ours = [await followed(one) for one in (laptop, tablet, phone)]
            sent: list[Event] = []
            for number in range(20):
                writer = (laptop, phone)[number % 2]
                made = commit(b"%d" % number)
                sent.append((await writer.publish(INNER, TOPIC, BRANCH, made)).event)
            by = {laptop: sent[1::2], tablet: sent, phone: sent[0::2]}
            for one, events in zip(by, ours, strict=True):
                assert [await anext(events) for _ in by[one]] == by[one]
            assert all(await asyncio.gather(*map(silent, ours)))

    run(test, tmp_path, nats)


def test_both_publish_at_once_and_all_have_the_order_of_the_log(
    nats: NatsServer, tmp_path: Path
) -> None:
    async def test(brokers: Brokers) -> None:
        a, b = await brokers.node("a"), await brokers.node("b")
        async with client(a) as laptop, client(b) as phone, client(a) as one, client(b) as other:
            readers = [await followed(reader) for reader in (one, other)]
            await pinned(laptop)
            await pinned(phone)

            async def publish(writer: Client, name: bytes) -> list[Event]:
                made = [commit(name + b"%d" % number) for number in range(20)]
                return [(await writer.publish(INNER, TOPIC, BRANCH, one)).event for one in made]

            theirs = await asyncio.gather(publish(laptop, b"laptop"), publish(phone, b"phone"))
            count = sum(map(len, theirs))
            assert count == 40
            got = [[await anext(events) for _ in range(count)] for events in readers]
            assert got[0] == got[1]
            for published in theirs:
                assert [event for event in got[0] if event in published] == published
            for reader in (one, other):
                # Without parents, they are sent in the order of the log.
                assert await synced(reader) == got[0]
            assert all(await asyncio.gather(*map(silent, readers)))

    run(test, tmp_path, nats)


def test_who_was_away_syncs_at_another_node_what_the_first_one_took(
    nats: NatsServer, tmp_path: Path
) -> None:
    async def test(brokers: Brokers) -> None:
        a, b = await brokers.node("a"), await brokers.node("b")
        async with client(a) as laptop:
            async with client(b) as phone:
                # Known at the other node, without anything in it.
                await pinned(phone)
            await pinned(laptop)
            heads: list[bytes] | None = None
            sent: list[Event] = []
            for number in range(5):
                made = commit(b"%d" % number, heads)
                heads = [made.reference.id]
                sent.append((await laptop.publish(INNER, TOPIC, BRANCH, made)).event)
            async with client(b) as phone:

                async def whole() -> bool:
                    topic = await pinned(phone)
                    return (topic.known_heads, topic.commits_nbr) == (heads, 5)

                await eventually(whole)
                assert await synced(phone) == sent
                assert heads is not None
                found = await phone.get_commit(INNER, heads[0], topic=TOPIC.public_key)
                assert found == sent[-1].content.blocks
                # One that is there is not stored again.
                name = topic_stream(INNER.id, TOPIC.public_key)
                await phone.publish(INNER, TOPIC, BRANCH, commit(b"0"))
                (partition,) = (await b.client.describe(name)).partitions
                assert partition.next_index == 5

    run(test, tmp_path, nats)


def test_a_device_goes_on_at_another_node_when_its_own_is_lost(
    nats: NatsServer, tmp_path: Path
) -> None:
    async def test(brokers: Brokers) -> None:
        b = await brokers.node("b")
        async with client(b) as phone:
            events = await followed(phone)
            async with AsyncExitStack() as lost:
                a = await Brokers(tmp_path, nats, lost).node("a")
                async with client(a) as laptop:
                    await pinned(laptop)
                    first = await laptop.publish(INNER, TOPIC, BRANCH, commit(b"1"))
            async with client(b) as laptop:
                topic = await pinned(laptop)
                assert topic.commits_nbr == 1
                second = await laptop.publish(INNER, TOPIC, BRANCH, commit(b"2", topic.known_heads))
                # What was not answered is sent again; it is no news to anybody.
                again = await laptop.publish(INNER, TOPIC, BRANCH, commit(b"1"))
                assert (second.new, again.new) == (True, False)
                assert await synced(laptop) == [first.event, second.event]
            assert [await anext(events), await anext(events)] == [first.event, second.event]
            assert await silent(events)

    run(test, tmp_path, nats)


def test_a_topic_that_nobody_follows_costs_a_node_nothing(
    nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_into: list[bytes] = []

    def stored_event(entry: Entry) -> tuple[Event, bytes, list[bytes]]:
        looked_into.append(entry.data)
        return publication.stored_event(entry)

    monkeypatch.setattr(topic_module, "stored_event", stored_event)

    async def test(brokers: Brokers) -> None:
        a, b = await brokers.node("a"), await brokers.node("b")
        name = topic_stream(INNER.id, TOPIC.public_key)
        async with client(a) as laptop:
            await pinned(laptop)
        async with client(a) as laptop, client(b, identity("bob")) as phone:
            # Who has pinned a topic before may publish on it, and does not follow it now.
            events = await followed(phone)
            await laptop.publish(INNER, TOPIC, BRANCH, commit(b"0"))
            await anext(events)
            assert looked_into
            await phone.unsubscribe(INNER, REPO, TOPIC.public_key)
            looked_into.clear()
            for number in range(1, 10):
                await laptop.publish(INNER, TOPIC, BRANCH, commit(b"%d" % number))

            async def is_there() -> bool:
                (partition,) = (await b.client.describe(name)).partitions
                return partition.next_index == 10

            await eventually(is_there)
            assert looked_into == []

    run(test, tmp_path, nats)


# What is kept beside topics ------------------------------------------------------------------


def test_what_is_pinned_and_put_at_one_node_is_there_at_the_other(
    nats: NatsServer, tmp_path: Path
) -> None:
    content = bytes(100_000)
    key = nextgraph.convergence_key(STORE, b"s" * 32)
    made = nextgraph.split_object(content, key, block_bytes=4_096)

    async def test(brokers: Brokers) -> None:
        a, b = await brokers.node("a"), await brokers.node("b")
        async with client(a) as laptop, client(b) as phone:
            assert await phone.pin_status(INNER, REPO) is None
            await pinned(laptop)

            async def is_pinned() -> bool:
                return await phone.pin_status(INNER, REPO) is not None

            async def is_gone() -> bool:
                return not await is_pinned()

            await eventually(is_pinned)
            # The right to publish has come with it.
            await phone.publish(INNER, TOPIC, BRANCH, commit(b"1"))
            await put(laptop, made, seen_by=phone)
            blocks = {
                nextgraph.block_id(block): block
                async for block in phone.get_blocks(INNER, [made.reference.id], children=True)
            }
            assert (
                nextgraph.join_object(made.reference, blocks, content_bytes_max=len(content))
                == content
            )
            await laptop.unpin(INNER, REPO)
            await eventually(is_gone)
            with pytest.raises(RequestError) as refused:
                await phone.publish(INNER, TOPIC, BRANCH, commit(b"2"))
            assert refused.value.code == "nextgraph.access_denied"

    run(test, tmp_path, nats)


@pytest.mark.parametrize("also", ["pins", "puts"])
def test_what_gets_another_holder_while_it_is_deleted_stays(
    nats: NatsServer, tmp_path: Path, held_back: HeldBack, also: str
) -> None:
    async def test(brokers: Brokers) -> None:
        a, b = await brokers.node("a"), await brokers.node("b")
        async with client(a) as laptop, client(b, BOB) as phone:
            # The longer one begins as the other one does.
            short, long = (file_of(size) for size in (40_000, 60_000))
            for one in (laptop, phone):
                await pinned(one)
            await put(laptop, short, seen_by=phone)
            held_back.deletion = True
            deleting = asyncio.create_task(laptop.objects.delete(INNER, short.reference.id))
            await held_back.begun.wait()
            if also == "pins":
                kept = short
                await phone.objects.pin(INNER, short.reference.id)
                held_back.go_on()
                with pytest.raises(RequestError) as refused:
                    await deleting
                assert refused.value.code == "nextgraph.access_denied"
            else:
                kept = long
                await phone.put_blocks(INNER, long.blocks)
                held_back.go_on()
                await deleting
            ids = [nextgraph.block_id(block) for block in kept.blocks]
            assert (await laptop.find_blocks(INNER, ids)).missing == []

    run(test, tmp_path, nats)


def test_what_is_deleted_while_it_is_pinned_is_not_pinned(
    nats: NatsServer, tmp_path: Path, held_back: HeldBack
) -> None:
    async def test(brokers: Brokers) -> None:
        a, b = await brokers.node("a"), await brokers.node("b")
        async with client(a) as laptop, client(b, BOB) as phone:
            made = file_of(40_000)
            for one in (laptop, phone):
                await pinned(one)
            await put(laptop, made, seen_by=phone)
            held_back.pin = True
            pinning = asyncio.create_task(phone.objects.pin(INNER, made.reference.id))
            await held_back.begun.wait()
            await laptop.objects.delete(INNER, made.reference.id)
            held_back.go_on()
            for refused in (pinning, phone.objects.unpin(INNER, made.reference.id)):
                with pytest.raises(RequestError) as error:
                    await refused
                assert error.value.code == "nextgraph.not_found"

    run(test, tmp_path, nats)


def test_devices_that_change_a_pin_at_two_nodes_at_once_lose_nothing_of_it(
    nats: NatsServer, tmp_path: Path
) -> None:
    topics = [identity(f"topic {number}") for number in range(24)]

    async def test(brokers: Brokers) -> None:
        a, b = await brokers.node("a"), await brokers.node("b")
        async with client(a) as laptop, client(b) as phone:

            async def pin(one: Client, some: list[nextgraph.Identity]) -> None:
                for topic in some:
                    await one.pin(REPO, ACCESS, publish=[topic])

            await asyncio.gather(pin(laptop, topics[:12]), pin(phone, topics[12:]))
            wanted = {one.public_key for one in topics}

            async def are_pinned() -> bool:
                status = await laptop.pin_status(INNER, REPO)
                assert status is not None
                return {topic.topic for topic in status.topics} == wanted

            await eventually(are_pinned)

    run(test, tmp_path, nats)


def test_an_invitation_is_good_once_at_all_nodes(nats: NatsServer, tmp_path: Path) -> None:
    async def test(brokers: Brokers) -> None:
        nodes = [await brokers.node(name, invited=True) for name in "ab"]

        async def join(node: Node, user: nextgraph.Identity, code: bytes) -> str:
            try:
                async with client(node, user, invitation=code):
                    return "joined"
            except HandshakeError as refused:
                return refused.code

        for number in range(3):
            answer = await nodes[0].client.ask("nextgraph", b"{}")
            code = bytes.fromhex(json.loads(answer.payload)["code"])
            await asyncio.sleep(0.02)  # both are to know of it
            users = [identity(f"user {number} {name}") for name in "ab"]
            came = await asyncio.gather(*map(join, nodes, users, [code] * 2))
            assert sorted(came) == ["joined", "nextgraph.invitation_required"]
            for node in nodes:
                late = await join(node, identity("stranger"), code)
                assert late == "nextgraph.invitation_required"

    run(test, tmp_path, nats)


def test_a_user_that_is_removed_elsewhere_is_disconnected(nats: NatsServer, tmp_path: Path) -> None:
    async def test(brokers: Brokers) -> None:
        a = await brokers.node("a")
        elsewhere = JetStreamDriver(nats, "rillnode", tmp_path / "elsewhere", shards=SHARDS)
        async with client(a) as phone, client(a, identity("bob")) as other:
            events = await followed(phone)
            await pinned(other)
            expel = PutRecord(key=name_of("user", ALICE.public_key), value=None)
            await asyncio.to_thread(elsewhere.write, expel)
            with pytest.raises(TransportError):
                await anext(events)
            await pinned(other)
        await asyncio.to_thread(elsewhere.end)

    run(test, tmp_path, nats)


# Letters and wallets -------------------------------------------------------------------------


def test_letters_and_wallets_go_from_node_to_node(nats: NatsServer, tmp_path: Path) -> None:
    box, outer, meeting = identity("box"), ACCESS.outer, b"m" * 32

    async def test(brokers: Brokers) -> None:
        a, b = await brokers.node("a"), await brokers.node("b")
        async with client(a, identity("bob")) as writer, client(b) as reader:
            await writer.inboxes.post(outer, box.public_key, b"early")
            inbox = await reader.inboxes.register(outer, box)
            await reader.inboxes.fetch()  # which sees all that was confirmed before
            letter = await anext(inbox)
            assert (letter.msg.body.msg, letter.from_queue) == (b"early", True)
            for number in range(10):
                await writer.inboxes.post(outer, box.public_key, b"%d" % number)
            letters = [await anext(inbox) for _ in range(10)]
            assert [one.msg.body.msg for one in letters] == [b"%d" % n for n in range(10)]
            assert not any(one.from_queue for one in letters)

            fetch = partial(nextgraph.fetch_wallet, broker=BROKER.public_key, rendezvous=meeting)

            async def found(node: Node) -> bytes:
                try:
                    return await fetch(url_of(node))
                except RequestError as refused:
                    return refused.code.encode()

            # A wallet that is left at one node is fetched once, at whichever.
            for _ in range(3):
                await writer.leave_wallet(b"sealed", meeting)
                came = await asyncio.gather(found(b), found(a))
                assert sorted(came) == [b"nextgraph.not_found", b"sealed"]
            # At a rendezvous, who waits is at another node than who comes.
            waiting = asyncio.create_task(fetch(url_of(b), waits=True))
            while not waiting.done():
                with suppress(RequestError):  # until the other one is there
                    await writer.leave_wallet(b"handed over", meeting, waits=True)
                await asyncio.sleep(0.01)
            assert await waiting == b"handed over"
            assert [await found(a), await found(b)] == [b"nextgraph.not_found"] * 2

    run(test, tmp_path, nats)
