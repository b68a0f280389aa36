"""A consumer: what it hands out, what counts as processed, and what is saved of that."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import permutations
from math import nan
from random import Random
from time import monotonic

import pytest
from hypothesis import given, strategies as st

from far_end import FarEnd
from iteration_support import read_impatiently
from rillnode.codecs import native
from rillnode.codecs.entries import Entry, EntryKind, encode_block, pack_body
from rillnode.codecs.errors import (
    ArgumentError,
    ConsumerError,
    ConsumerStopped,
    RequestError,
    StreamRemoved,
    StreamUnknown,
    TransportError,
)
from rillnode.codecs.routing.routes import WireMessage, local
from rillnode.node.client import consumer as consumer_module, group as group_module
from rillnode.node.client.blocking import BlockingConsumer
from rillnode.node.client.client import Client
from rillnode.node.client.consumer import Ack, Consumer, Ledger, Saving
from rillnode.node.client.loop_thread import LoopThread
from rillnode.node.client.session import Session
from rillnode.node.client.stream import Stream
from rillnode.node.testing.contract.base import until

SECONDS = 10.0


# The ledger ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class At:
    """An entry, as a ledger sees it."""

    partition: int
    index: int
    data: bytes = b""


def ledger_of(*entries: At, begin: int = 0) -> Ledger[At]:
    ledger: Ledger[At] = Ledger()
    for partition in {entry.partition for entry in entries}:
        ledger.assign(partition, begin)
    ledger.ready += entries
    return ledger


def test_a_position_goes_over_what_is_acknowledged_without_a_gap() -> None:
    for order in permutations(range(4)):
        ledger = ledger_of(*(At(0, index) for index in range(4)))
        handed = [ledger.hand() for _ in range(4)]
        done: set[int] = set()
        for index in order:
            ledger.ack(handed[index])
            done.add(index)
            prefix = next(at for at in range(5) if at not in done)
            assert ledger.positions == {0: prefix}
            assert ledger.in_flight == 4 - len(done)


def test_partitions_advance_each_for_itself() -> None:
    ledger = ledger_of(At(0, 0), At(1, 0), At(0, 1), At(1, 1))
    handed = [ledger.hand() for _ in range(4)]
    ledger.ack(handed[2])
    ledger.ack(handed[1])
    assert ledger.positions == {0: 0, 1: 1}
    ledger.ack(handed[0])
    assert ledger.positions == {0: 2, 1: 1}


def test_indexes_that_were_trimmed_are_no_gap() -> None:
    ledger = ledger_of(At(0, 5), At(0, 9), At(0, 10), begin=5)
    handed = [ledger.hand() for _ in range(3)]
    ledger.ack(handed[1])
    assert ledger.positions == {0: 5}
    ledger.ack(handed[0])
    assert ledger.positions == {0: 10}


def test_what_is_acknowledged_again_changes_nothing() -> None:
    ledger = ledger_of(*(At(0, index) for index in range(3)))
    handed = [ledger.hand() for _ in range(3)]
    for _ in range(2):
        ledger.ack(handed[1])
        assert (ledger.positions, ledger.in_flight) == ({0: 0}, 2)
    for _ in range(2):
        ledger.ack(handed[0])
        ledger.ack(handed[1])
        assert (ledger.positions, ledger.in_flight) == ({0: 2}, 1)


@pytest.mark.parametrize(
    "entry",
    [
        At(0, 7),  # was not handed out yet
        At(0, 4),  # is before where the consumer began
        At(1, 5),  # of a partition that it does not read
        At(0, 5, b"of another stream"),
    ],
)
def test_what_was_not_handed_out_is_refused(entry: At) -> None:
    ledger = ledger_of(At(0, 5), At(0, 6), At(0, 7), begin=5)
    handed = [ledger.hand() for _ in range(2)]
    with pytest.raises(ConsumerError, match="was not handed out by this consumer") as caught:
        ledger.ack(entry)
    assert caught.value.code == "consumer.foreign"
    assert (ledger.positions, ledger.in_flight) == ({0: 5}, 2)
    ledger.ack(handed[0])
    assert ledger.positions == {0: 6}


def test_all_that_was_handed_out_is_settled_also_what_was_partly_acknowledged() -> None:
    ledger = ledger_of(*(At(index % 2, index) for index in range(6)))
    handed = [ledger.hand() for _ in range(4)]
    ledger.ack(handed[2])
    ledger.hand()
    ledger.settle()
    assert (ledger.positions, ledger.in_flight) == ({0: 5, 1: 4}, 0)
    ledger.hand()
    ledger.settle()
    assert (ledger.positions, ledger.in_flight) == ({0: 5, 1: 6}, 0)


def test_a_partition_that_is_revoked_is_forgotten() -> None:
    ledger = ledger_of(At(0, 0), At(1, 0), At(0, 1), At(1, 1), At(0, 2))
    first, second, third = (ledger.hand() for _ in range(3))
    ledger.ack(third)
    ledger.revoke(0)
    assert (ledger.positions, ledger.in_flight) == ({1: 0}, 1)
    assert list(ledger.ready) == [At(1, 1)]
    with pytest.raises(ConsumerError):
        ledger.ack(first)
    ledger.ack(second)
    assert (ledger.positions, ledger.in_flight) == ({1: 1}, 0)
    ledger.assign(0, 1)
    assert ledger.positions == {0: 1, 1: 1}


@given(st.lists(st.sampled_from(["hand", "ack", "settle"]), max_size=60), st.integers(0, 2**32))
def test_a_position_never_goes_back_nor_past_what_is_not_processed(
    steps: list[str], seed: int
) -> None:
    """Whatever is handed out, acknowledged and settled, in whatever order."""
    random = Random(seed)
    ledger = ledger_of(*(At(number % 3, number // 3) for number in range(60)))
    open_ones: list[At] = []
    before = dict(ledger.positions)
    handed = [0, 0, 0]
    for step in steps:
        if step == "hand":
            open_ones.append(ledger.hand())
            handed[open_ones[-1].partition] = open_ones[-1].index + 1
        elif step == "settle":
            ledger.settle()
            open_ones.clear()
        elif open_ones:
            ledger.ack(open_ones.pop(random.randrange(len(open_ones))))
        assert ledger.in_flight == len(open_ones)
        for partition, position in ledger.positions.items():
            assert position >= before[partition]
            left = [entry.index for entry in open_ones if entry.partition == partition]
            assert position == min(left, default=handed[partition])
        before = dict(ledger.positions)


# A consumer and its node ---------------------------------------------------------------------


class Node(FarEnd):
    """A node with one stream, in the test's own hands: it grows when it is told to."""

    def __init__(self, partitions: int = 1) -> None:
        super().__init__()
        self.logs: list[list[bytes]] = [[] for _ in range(partitions)]
        self.saved: dict[int, int] = {}
        self.saves: list[tuple[int, int]] = []
        self.described = 0
        self.failing: dict[type[native.Request], str] = {}
        self.silent: set[type[native.Request]] = set()
        self.claims: list[list[tuple[int, int]]] = [[]]  # what a member is told, one by one
        self.joined = 0
        self.asked_to_renew: list[int] = []
        self.given: list[native.ReleaseGroupRequest] = []
        self.asleep = 0.0  # how long the client's machine has slept
        self._subscribed: dict[int, list[int]] = {}  # by id: partition, next index

    @property
    def subscriptions(self) -> int:
        return len(self._subscribed)

    def info(self) -> native.StreamInfo:
        partitions = [
            native.PartitionInfo(at, b"ST_%d" % at, 0, len(log), 0)
            for at, log in enumerate(self.logs)
        ]
        return native.StreamInfo("s", 0, "", None, None, None, partitions)

    def received(self, message: WireMessage) -> None:
        super().received(message)
        request = self.requests.pop()
        code = self.failing.get(type(request))
        if isinstance(request, native.BeatGroupRequest):
            self.asked_to_renew.append(request.request_id)
        if isinstance(request, native.ReleaseGroupRequest):
            self.given.append(request)
        if type(request) in self.silent:
            return
        if code is not None:
            self.answer(native.Failure(request.request_id, code, "why not", False, 0))
            return
        match request:
            case native.OpenRequest() | native.DescribeRequest():
                self.described += isinstance(request, native.DescribeRequest)
                self.answer(native.StreamResponse(request.request_id, self.info()))
            case native.LoadIndexRequest():
                index = self.saved.get(request.partition)
                self.answer(native.SavedIndexResponse(request.request_id, index))
            case native.SaveIndexRequest():
                self.saves.append((request.partition, request.index))
                index = max(self.saved.get(request.partition, 0), request.index)
                self.saved[request.partition] = index
                self.answer(native.SavedIndexResponse(request.request_id, index))
            case native.JoinGroupRequest():
                self.joined = request.request_id
                for held in self.claims:
                    said = [native.HeldPartition(*one) for one in held]
                    self.answer(native.GroupResponse(request.request_id, 1, said, []))
            case native.BeatGroupRequest():
                self.answer(native.GroupLeaseResponse(request.request_id, 2_000))
            case native.SaveGroupRequest():
                self.answer(native.SavedIndexResponse(request.request_id, request.index))
            case native.LeaveGroupRequest() | native.ReleaseGroupRequest():
                self.answer(native.DoneResponse(request.request_id))
            case native.SubscribeRequest():
                partition = int(message.onward_route[0].value.rpartition(b"_")[2])
                self._subscribed[request.request_id] = [partition, request.index]
                self.serve()
            case native.UnsubscribeRequest():
                self._subscribed.pop(request.request_id, None)
            case _:
                assert isinstance(request, native.CreditRequest)

    def grow(self, count: int, partition: int = 0) -> None:
        log = self.logs[partition]
        log += [b"%d" % at for at in range(len(log), len(log) + count)]
        self.serve()

    def serve(self) -> None:
        """Send each subscriber what it does not have, block by block."""
        for request_id, place in self._subscribed.items():
            partition, index = place
            log = self.logs[partition]
            for start in range(index, len(log), 7):
                items = log[start : start + 7]
                value = encode_block(
                    count=len(items), kind=EntryKind.BYTES, received_at=0, position=0,
                    body=pack_body(items),
                )  # fmt: skip
                blocks = [native.BlockItem(start, value)]
                self.answer(native.BlocksResponse(request_id, 0, len(log), blocks))
            if index == 0 and not log:
                self.answer(native.BlocksResponse(request_id, 0, 0, []))
            place[1] = len(log)

    def remove(self) -> None:
        for request_id in tuple(self._subscribed):
            self.answer(native.Failure(request_id, "stream.removed", "it is gone", False, 0))
        self._subscribed.clear()

    def cut(self) -> None:
        self._subscribed.clear()
        self.links[-1].close("cut")

    def answer(self, response: native.Response) -> None:
        route = self._back[response.request_id].return_route
        back = (local(b"SUB"),) if isinstance(response, native.BlocksResponse) else ()
        self.send(WireMessage(route, back, native.encode(response)))


Talk = Callable[[Node, Stream, Client], Awaitable[None]]


def with_node(talk: Talk, partitions: int = 1) -> None:
    async def main() -> None:
        node = Node(partitions)
        session = Session(node.connect, elapsed=lambda: monotonic() + node.asleep)
        await session.open()
        client = Client(session)
        async with asyncio.timeout(SECONDS):
            stream = await client.stream("s")
            await talk(node, stream, client)
            node.silent.clear()
            await client.close()

    asyncio.run(main())


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def indexes(entries: list[Entry]) -> list[int]:
    return [entry.index for entry in entries]


def test_an_entry_is_processed_when_the_next_is_asked_for() -> None:
    async def talk(node: Node, stream: Stream, client: Client) -> None:
        node.grow(3)
        async with stream.consumer("c") as consumer:
            async for entry in consumer:
                if entry.index == 2:
                    break
        assert node.saves == [(0, 2)]
        async with stream.consumer("c") as consumer:
            assert (await consumer.next()).index == 2
            with pytest.raises(TimeoutError, match="no entry has come in 0 s"):
                await consumer.next(timeout=0)
        assert node.saved == {0: 3}

    with_node(talk)


def test_the_entry_that_a_loop_is_left_at_may_be_acknowledged() -> None:
    async def talk(node: Node, stream: Stream, client: Client) -> None:
        node.grow(3)
        async with stream.consumer("c") as consumer:
            async for entry in consumer:
                if entry.index == 1:
                    consumer.ack(entry)
                    break
        assert node.saved == {0: 2}

    with_node(talk)


def test_an_explicit_consumer_saves_what_is_acknowledged_alone() -> None:
    async def talk(node: Node, stream: Stream, client: Client) -> None:
        node.grow(5)
        async with stream.consumer("c", ack="explicit") as consumer:
            entries = await consumer.batch(5)
            assert indexes(entries) == [0, 1, 2, 3, 4]
            for at in (3, 0, 1):
                consumer.ack(entries[at])
            await consumer.save()
            assert node.saves == [(0, 2)]
            consumer.ack(entries[4])
        assert node.saves == [(0, 2)]
        async with stream.consumer("c", ack="explicit") as consumer:
            assert indexes(await consumer.batch(9)) == [2, 3, 4]

    with_node(talk)


@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_is_in_flight_than_allowed(limit: int) -> None:
    async def talk(node: Node, stream: Stream, client: Client) -> None:
        node.grow(40)
        seen: list[int] = []
        most = 0
        async with stream.consumer("c", ack="explicit", max_in_flight=limit) as consumer:

            async def work() -> None:
                nonlocal most
                async for entry in consumer:
                    most = max(most, consumer.in_flight)
                    await asyncio.sleep(0.0001 * (entry.index % 3))
                    seen.append(entry.index)
                    consumer.ack(entry)
                    if len(seen) == 40:
                        consumer.stop()

            await asyncio.gather(*(work() for _ in range(5)))
            assert consumer.in_flight == 0
        assert sorted(seen) == list(range(40))
        assert most == limit
        assert node.saved == {0: 40}

    with_node(talk)


def test_who_acknowledges_nothing_is_told_so() -> None:
    async def talk(node: Node, stream: Stream, client: Client) -> None:
        node.grow(5)
        async with stream.consumer("c", ack="explicit", max_in_flight=2) as consumer:
            entries = await consumer.batch(5)
            assert indexes(entries) == [0, 1]
            with pytest.raises(TimeoutError, match="none of 2 entries in flight was acknowledged"):
                await consumer.next(timeout=0.01)
            assert await consumer.batch(5, timeout=0.01) == []
            waiting = asyncio.ensure_future(consumer.next())
            await settled()
            assert not waiting.done()
            consumer.ack(entries[1])
            assert (await waiting).index == 2
        assert node.saves == []

    with_node(talk)


def test_an_iteration_that_waits_for_acknowledgements_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(consumer_module, "FULL_SECONDS", 0.01)

    async def talk(node: Node, stream: Stream, client: Client) -> None:
        node.grow(5)
        async with stream.consumer("c", ack="explicit", max_in_flight=2) as consumer:
            entries = await consumer.batch(5)
            waiting = asyncio.ensure_future(consumer.next())
            await until(lambda: "nothing_acknowledged" in [record.msg for record in caplog.records])
            consumer.ack(entries[0])
            assert (await waiting).index == 2

    with_node(talk)


def test_a_partition_that_is_named_twice_is_read_once() -> None:
    async def talk(node: Node, stream: Stream, client: Client) -> None:
        for partition in range(2):
            node.grow(2, partition)
        async with stream.consumer("c", partitions=[1, 0, 1], ack="explicit") as consumer:
            await settled()
            entries = await consumer.batch(10)
            assert [(one.partition, one.index) for one in entries] == [
                (1, 0), (1, 1), (0, 0), (0, 1),
            ]  # fmt: skip
            for entry in entries:
                consumer.ack(entry)
        assert node.saved == {0: 2, 1: 2}

    with_node(talk, partitions=2)


@pytest.mark.parametrize("turns", range(6))
def test_an_end_that_is_cancelled_saves_all_the_same(turns: int) -> None:
    async def talk(node: Node, stream: Stream, client: Client) -> None:
        node.grow(3)

        async def use() -> None:
            async with stream.consumer("c") as consumer:
                await consumer.batch(3)
                await consumer.batch(1, timeout=0)
                using.cancel()  # at the next thing that waits
                await asyncio.sleep(0)

        using = asyncio.ensure_future(use())
        for _ in range(100):
            if using.cancelling():
                break
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        using.cancel()
        await asyncio.wait((using,))
        assert using.cancelled()
        await settled()
        assert node.saved == {0: 3}
        assert node.subscriptions == 0

    with_node(talk)


def test_a_batch_has_what_is_there() -> None:
    async def talk(node: Node, stream: Stream, client: Client) -> None:
        node.grow(20)
        async with stream.consumer("c") as consumer:
            await settled()
            assert indexes(await consumer.batch(16)) == list(range(16))
            assert consumer.in_flight == 16
            assert indexes(await consumer.batch(16)) == [16, 17, 18, 19]
            assert await consumer.batch(16, timeout=0.01) == []
            asking = asyncio.ensure_future(consumer.batch(16))
            await settled()
            node.grow(1)
            assert indexes(await asking) == [20]
        assert node.saved == {0: 20}

    with_node(talk)


def test_partitions_have_positions_of_their_own() -> None:
    async def talk(node: Node, stream: Stream, client: Client) -> None:
        node.saved = {1: 3}
        for partition in range(3):
            node.grow(5, partition)
        async with stream.consumer("c", partitions=[0, 1]) as consumer:
            await settled()
            assert consumer.lag == 7
            entries = await consumer.batch(100)
            assert [(one.partition, one.index) for one in entries] == [
                (0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 3), (1, 4),
            ]  # fmt: skip
            assert await consumer.batch(1, timeout=0) == []
            assert consumer.lag == 0
        assert node.saved == {0: 5, 1: 5}

    with_node(talk, partitions=3)


@pytest.mark.parametrize("ack", ["next", "explicit"])
def test_a_wait_may_be_cancelled_at_any_turn(ack: str) -> None:
    """In the opening, in a wait for entries, and over lost links: none is lost or comes twice."""

    async def talk(node: Node, stream: Stream, client: Client) -> None:
        found: list[Entry] = []
        consumer: Consumer[Entry] = stream.consumer("c", ack=ack)  # type: ignore[arg-type]
        for _ in range(10):
            node.grow(13)
            items, cancelled = await read_impatiently(consumer, 13)
            for entry in items if ack == "explicit" else ():
                consumer.ack(entry)
            found += items
            assert cancelled or len(found) > 13
            node.cut()
        assert indexes(found) == list(range(130))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.next(), 0.01)
        await consumer.aclose()
        assert node.saved == {0: 130}
        assert node.saves == sorted(node.saves)

    with_node(talk)


def test_a_batch_may_be_cancelled_at_any_turn() -> None:
    async def talk(node: Node, stream: Stream, client: Client) -> None:
        found: list[int] = []
        async with stream.consumer("c") as consumer:
            for turns in range(200):
                if turns % 12 == 0:
                    node.grow(11)
                asking = asyncio.ensure_future(consumer.batch(4, timeout=turns % 5 or None))
                for _ in range(turns % 7):
                    await asyncio.sleep(0)
                asking.cancel()
                await asyncio.wait((asking,))
                if not asking.cancelled():
                    found += indexes(asking.result())
            while batch := await consumer.batch(50, timeout=0.01):
                found += indexes(batch)
        assert found == list(range(11 * 17))
        assert node.saved == {0: 11 * 17}

    with_node(talk)


async def within_wait_for(consumer: Consumer[Entry], seconds: float) -> Entry:
    return await asyncio.wait_for(anext(consumer), seconds)


async def within_timeout(consumer: Consumer[Entry], seconds: float) -> Entry:
    async with asyncio.timeout(seconds):
        return await anext(consumer)


async def within_next(consumer: Consumer[Entry], seconds: float) -> Entry:
    return await consumer.next(timeout=seconds)


@pytest.mark.parametrize("take", [within_wait_for, within_timeout, within_next])
def test_a_timeout_of_any_kind_loses_nothing(
    take: Callable[[Consumer[Entry], float], Awaitable[Entry]],
) -> None:
    async def talk(node: Node, stream: Stream, client: Client) -> None:
        random, count = Random(3), 150
        found: list[int] = []
        timeouts = 0

        async def grow() -> None:
            for number in range(count):
                await asyncio.sleep(random.uniform(0.0, 0.002))
                node.grow(1)
                if number % 40 == 20:
                    node.cut()

        growing = asyncio.ensure_future(grow())
        async with stream.consumer("c", save_seconds=0.005) as consumer:
            while len(found) < count:
                try:
                    found.append((await take(consumer, random.uniform(0.0, 0.002))).index)
                except TimeoutError:
                    timeouts += 1
            with pytest.raises(TimeoutError):
                await take(consumer, 0.001)
        await growing
        assert found == list(range(count))
        assert timeouts > 10
        assert node.saved == {0: count}
        assert node.saves == sorted(node.saves)

    with_node(talk)


@pytest.mark.parametrize("turns", range(8))
def test_an_opening_may_be_cancelled(turns: int) -> None:
    async def talk(node: Node, stream: Stream, client: Client) -> None:
        node.grow(3)

        async def use() -> None:
            async with stream.consumer("c") as consumer:
                await consumer.next()
                await asyncio.Event().wait()

        using = asyncio.ensure_future(use())
        for _ in range(turns):
            await asyncio.sleep(0)
        using.cancel()
        await asyncio.wait((using,))
        await settled()
        assert node.subscriptions == 0
        assert node.saves == []

    with_node(talk)


def test_a_consumer_is_stopped_politely() -> None:
    async def talk(node: Node, stream: Stream, client: Client) -> None:
        node.grow(10)
        seen: list[int] = []
        async with stream.consumer("c") as consumer:
            async for entry in consumer:
                seen.append(entry.index)
                if entry.index == 4:
                    consumer.stop()
            for ask in (consumer.next(), consumer.batch(3), consumer.next(timeout=1)):
                with pytest.raises(ConsumerStopped):
                    await ask
        assert seen == [0, 1, 2, 3, 4]
        assert node.saved == {0: 5}
        await settled()
        assert node.subscriptions == 0

    with_node(talk)


def test_who_waits_is_told_of_the_stop_and_may_still_acknowledge() -> None:
    async def talk(node: Node, stream: Stream, client: Client) -> None:
        node.grow(3)
        for full in (False, True):
            limit = 3 if full else 100
            consumer = stream.consumer(f"c{full}", ack="explicit", max_in_flight=limit)
            node.saved.clear()
            async with consumer:
                entries = await consumer.batch(3)
                waiting = [asyncio.ensure_future(consumer.next()) for _ in range(2)]
                await settled()
                consumer.stop()
                results = await asyncio.gather(*waiting, return_exceptions=True)
                assert [type(one) for one in results] == [ConsumerStopped] * 2
                for entry in entries:
                    consumer.ack(entry)
            assert node.saved == {0: 3}

    with_node(talk)


def test_a_stop_also_ends_an_opening_that_gets_no_answer() -> None:
    async def talk(node: Node, stream: Stream, client: Client) -> None:
        node.silent.add(native.LoadIndexRequest)
        consumer = stream.consumer("c")
        asking = asyncio.ensure_future(anext(consumer))
        await settled()
        consumer.stop()
        with pytest.raises(StopAsyncIteration):
            await asking
        await consumer.aclose()
        assert node.subscriptions == 0

    with_node(talk)


def test_what_a_member_loses_and_gets_again_is_read_once() -> None:
    """Also with the same generation, and while it still looks where the partition begins."""

    async def talk(node: Node, stream: Stream, client: Client) -> None:
        node.claims = [[(0, 3)], [], [(0, 3)], [], [(0, 3), (1, 4)]]
        node.grow(5)
        node.grow(5, 1)
        async with stream.consumer("w", group=True, ack="explicit") as consumer:
            found: list[Entry] = []
            while len(found) < 10:
                found += await consumer.batch(10, timeout=1.0)
            assert sorted((one.partition, one.index) for one in found) == [
                (partition, index) for partition in range(2) for index in range(5)
            ]
            await settled()
            assert node.subscriptions == 2
            for entry in found:
                consumer.ack(entry)

    with_node(talk, partitions=2)


Take = Callable[[Consumer[Entry]], Awaitable[Entry]]


async def _next(consumer: Consumer[Entry]) -> Entry:
    return await consumer.next(timeout=SECONDS)


async def _batch(consumer: Consumer[Entry]) -> Entry:
    (entry,) = await consumer.batch(1, timeout=SECONDS)
    return entry


@pytest.mark.parametrize("take", [anext, _next, _batch])
@pytest.mark.parametrize("ack", ["next", "explicit"])
def test_a_member_whose_lease_is_over_hands_out_nothing(take: Take, ack: Ack) -> None:
    """What is here already waits, and comes once, when the node has said whose it is."""

    async def talk(node: Node, stream: Stream, client: Client) -> None:
        node.claims = [[(0, 3)]]
        node.grow(5)
        async with stream.consumer("w", group=True, ack=ack) as consumer:
            found = [await take(consumer), await take(consumer)]
            node.silent.add(native.BeatGroupRequest)
            node.asleep += 1.5
            found.append(await take(consumer))
            node.asleep += 0.5
            waiting = asyncio.ensure_future(take(consumer))
            node.grow(1)
            await settled()
            assert not waiting.done()
            node.silent.clear()
            found.append(await waiting)
            found += [await take(consumer), await take(consumer)]
            assert indexes(found) == [*range(6)]

    with_node(talk)


def test_what_has_gone_to_another_while_the_lease_was_over_is_not_handed_out() -> None:
    async def talk(node: Node, stream: Stream, client: Client) -> None:
        node.claims = [[(0, 3)]]
        node.grow(5)
        async with stream.consumer("w", group=True) as consumer:
            assert (await consumer.next()).index == 0
            node.silent.add(native.BeatGroupRequest)
            node.asleep += 60.0
            waiting = asyncio.ensure_future(consumer.next())
            await settled()
            node.saved[0] = 4
            node.answer(native.GroupResponse(node.joined, 5, [], []))
            node.answer(native.GroupResponse(node.joined, 7, [native.HeldPartition(0, 7)], []))
            node.silent.clear()
            assert (await waiting).index == 4

    with_node(talk)


def test_a_lease_begins_when_it_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    """However late the answer comes, it is worth no more; who waits finds in the log for what."""

    async def talk(node: Node, stream: Stream, client: Client) -> None:
        node.claims = [[(0, 3)]]
        node.grow(1)
        node.silent.add(native.BeatGroupRequest)
        async with stream.consumer("w", group=True) as consumer:
            await until(lambda: len(node.asked_to_renew) == 1)
            node.asleep += 1.9
            node.answer(native.GroupLeaseResponse(node.asked_to_renew[0], 2_000))
            assert await consumer.batch(1, timeout=0.05) == []
            assert [one.msg for one in caplog.records] == ["member_waits"]
            node.silent.clear()
            assert (await consumer.next()).index == 0

    with_node(talk)


def test_the_lease_of_a_lost_link_counts_no_more() -> None:
    async def talk(node: Node, stream: Stream, client: Client) -> None:
        node.claims = [[(0, 3)]]
        node.grow(2)
        async with stream.consumer("w", group=True) as consumer:
            assert (await consumer.next()).index == 0
            node.silent.add(native.BeatGroupRequest)
            node.cut()
            await until(lambda: not client.connected)
            await until(lambda: client.connected)
            await settled()
            assert await consumer.batch(1, timeout=0.05) == []
            node.silent.clear()
            assert (await consumer.next()).index == 1

    with_node(talk)


def test_what_is_given_up_is_not_taken_again_before_the_node_has_done_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be told to be the member's still, and go to another at any moment."""
    monkeypatch.setattr(group_module, "RETRY_SECONDS", 0.01)

    async def talk(node: Node, stream: Stream, client: Client) -> None:
        node.claims = [[(0, 3)]]
        node.grow(2)
        node.silent.add(native.ReleaseGroupRequest)
        async with stream.consumer("w", group=True, ack="explicit") as consumer:
            consumer.ack(await consumer.next())
            held = [native.HeldPartition(0, 3)]
            node.answer(native.GroupResponse(node.joined, 4, held, [0]))
            await until(lambda: len(node.given) == 1)
            node.answer(native.GroupResponse(node.joined, 5, held, []))
            await settled()
            assert consumer.partitions == ()
            # Where the node could not do it, it is asked again.
            request_id = node.given[0].request_id
            node.answer(native.Failure(request_id, "store.unreachable", "why not", True, 0))
            await until(lambda: len(node.given) == 2)
            # Or where it did not know the member yet, which has come over another link.
            request_id = node.given[1].request_id
            node.answer(native.Failure(request_id, "group.member", "why not", False, 0))
            await settled()
            node.answer(native.GroupResponse(node.joined, 5, held, []))
            await until(lambda: len(node.given) == 3)
            assert consumer.partitions == ()
            assert all(one.partitions == held for one in node.given)
            node.answer(native.GroupResponse(node.joined, 6, [native.HeldPartition(0, 6)], []))
            node.answer(native.DoneResponse(node.given[2].request_id))
            await until(lambda: consumer.partitions == (0,))
            node.silent.clear()

    with_node(talk)


@pytest.mark.parametrize("moved", [True, False])
def test_what_a_blocking_call_has_left_comes_only_while_it_is_the_members(moved: bool) -> None:
    """Who has given up waiting may come again much later."""
    loop, node = LoopThread(), Node()
    node.claims = [[(0, 3)]]

    async def begin() -> Consumer[Entry]:
        session = Session(node.connect, elapsed=lambda: monotonic() + node.asleep)
        await session.open()
        stream = await Client(session).stream("s")
        return await stream.consumer("w", group=True).__aenter__()

    async def go_on() -> None:
        node.grow(5)
        await until(lambda: consumer.in_flight == 1)
        if moved:
            node.saved[0] = 3
            node.answer(native.GroupResponse(node.joined, 5, [], []))
            node.answer(native.GroupResponse(node.joined, 7, [native.HeldPartition(0, 7)], []))
            await until(lambda: consumer.in_flight == 0)
        else:
            node.asleep += 60.0

    consumer = loop.run(begin())
    face = BlockingConsumer(consumer, loop)
    with pytest.raises(TimeoutError):
        face.next(timeout=0.05)
    loop.run(go_on())
    assert face.next(timeout=SECONDS).index == (3 if moved else 0)
    assert face.next(timeout=SECONDS).index == (4 if moved else 1)
    face.close()
    loop.stop()


def test_what_is_acknowledged_too_late_is_refused() -> None:
    async def talk(node: Node, stream: Stream, client: Client) -> None:
        node.grow(2)
        async with stream.consumer("c", ack="explicit") as consumer:
            entry = await consumer.next()
        with pytest.raises(ConsumerError) as caught:
            consumer.ack(entry)
        assert caught.value.code == "consumer.closed"
        assert await anext(consumer, None) is None
        with pytest.raises(ConsumerStopped):
            await consumer.next()
        assert node.saves == []

    with_node(talk)


def test_positions_are_saved_from_time_to_time() -> None:
    async def talk(node: Node, stream: Stream, client: Client) -> None:
        node.grow(3)
        async with stream.consumer("c", save_seconds=0.005) as consumer:
            for index in range(3):
                await consumer.next()
                while node.saved.get(0, 0) != index:
                    await asyncio.sleep(0.001)
            assert node.saves == [(0, 1), (0, 2)]
        assert node.saves == [(0, 1), (0, 2)]

    with_node(talk)


async def test_a_refused_position_keeps_no_other_from_being_saved() -> None:
    saved: dict[int, int] = {}
    errors: dict[int, Exception] = {0: RequestError("group.generation", "another member's")}

    async def save(partition: int, index: int) -> None:
        if partition in errors:
            raise errors[partition]
        saved[partition] = index

    saving = Saving({0: 1, 1: 2, 2: 3}, save)
    with pytest.raises(RequestError, match="another member's"):
        await saving.save()
    assert saved == {1: 2, 2: 3}
    # Where the node is away, no other is waited for in vain.
    errors[0] = TransportError("request.timeout", "the node is away")
    saved.clear()
    with pytest.raises(TransportError):
        await Saving({0: 1, 1: 2}, save).save()
    assert saved == {}
    errors.clear()
    await saving.save()
    assert saved == {0: 1}


@pytest.mark.parametrize("comes_again", [False, True])
async def test_what_is_lost_while_positions_are_saved_does_not_count_as_saved(
    comes_again: bool,
) -> None:
    """As where another member has had the partition meanwhile, and went on before it."""
    saved: list[tuple[int, int]] = []

    async def save(partition: int, index: int) -> None:
        saved.append((partition, index))
        if (partition, index) == (0, 5):
            saving.forget(1)
            del positions[1]
            if comes_again:
                positions[1] = 2
                saving.loaded(1, 2)

    positions = {0: 5, 1: 5}
    saving = Saving(positions, save)
    saving.loaded(1, 2)
    with pytest.raises(RequestError, match="another member's by now"):
        await saving.save()
    assert saved == [(0, 5)]
    positions[1] = 5
    await saving.save()
    assert saved == [(0, 5), (1, 5)]


async def test_what_is_saved_before_it_is_lost_is_not_missed() -> None:
    """As where a member gives a partition up, while it saves in another task."""

    async def save(partition: int, index: int) -> None:
        if partition == 0 and not given_up:
            given_up.append(index)
            await saving.save()
            saving.forget(1)
            del positions[1]

    given_up: list[int] = []
    positions = {0: 5, 1: 5}
    saving = Saving(positions, save)
    await saving.save()
    assert given_up == [5]


def test_the_end_is_asked_for_while_the_consumer_is_behind() -> None:
    async def talk(node: Node, stream: Stream, client: Client) -> None:
        node.grow(3)
        async with stream.consumer("c", save_seconds=0.002) as consumer:
            assert consumer.lag == 3
            # More than the node may send is not told by what comes.
            node.logs[0] += [b"x"] * 40
            await until(lambda: consumer.lag == 43)
            node.failing[native.DescribeRequest] = "stream.unknown"
            await asyncio.sleep(0.01)
            node.failing.clear()
            node.serve()
            while await consumer.batch(50, timeout=0.01):
                pass
            assert consumer.lag == 0
            asked = node.described
            await asyncio.sleep(0.02)
            assert node.described <= asked + 1

    with_node(talk)


def test_the_positions_of_a_removed_stream_are_not_saved() -> None:
    async def talk(node: Node, stream: Stream, client: Client) -> None:
        node.grow(3)
        async with stream.consumer("c") as consumer:
            assert len(await consumer.batch(3)) == 3
            assert await consumer.batch(3, timeout=0.01) == []
            node.remove()
            for _ in range(2):
                with pytest.raises(StreamRemoved):
                    await consumer.next()
        assert node.saves == []

    with_node(talk)


def test_an_error_of_the_block_counts_for_more_than_one_of_saving(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def use(stream: Stream, error: Exception | None) -> None:
        async with stream.consumer("c") as consumer:
            await consumer.batch(2)
            await consumer.next()
            if error is not None:
                raise error

    async def talk(node: Node, stream: Stream, client: Client) -> None:
        node.grow(3)
        node.failing[native.SaveIndexRequest] = "store.failed"
        with pytest.raises(LookupError):
            await use(stream, LookupError())
        assert "position_not_saved" in [record.msg for record in caplog.records]
        with pytest.raises(RequestError) as caught:
            await use(stream, None)
        assert caught.value.code == "store.failed"
        node.failing = {native.LoadIndexRequest: "stream.unknown"}
        with pytest.raises(StreamUnknown):
            await use(stream, None)

    with_node(talk)


def test_a_client_that_is_closed_first_saves_for_its_consumers() -> None:
    async def talk(node: Node, stream: Stream, client: Client) -> None:
        node.grow(3)
        consumer = stream.consumer("c")
        await consumer.next()
        await consumer.next()
        await client.close()
        assert node.saved == {0: 1}
        await consumer.next()  # was there already
        with pytest.raises(TransportError) as caught:
            await consumer.next()
        assert caught.value.code == "client.closed"
        with pytest.raises(TransportError):  # what was processed since cannot be saved
            await consumer.aclose()

    with_node(talk)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_in_flight": 0}, "max_in_flight is at least 1, not 0"),
        ({"save_seconds": 0}, "save_seconds is more than 0, not 0"),
        ({"ack": "late"}, 'ack is "next" or "explicit", not \'late\''),
    ],
)
def test_what_cannot_be_is_refused_at_once(options: dict[str, object], text: str) -> None:
    async def talk(_: Node, stream: Stream, __: Client) -> None:
        with pytest.raises(ConsumerError) as caught:
            stream.consumer("c", **options)  # type: ignore[arg-type]
        assert (caught.value.code, caught.value.text) == ("consumer.invalid", text)
        with pytest.raises(ConsumerError, match="a consumer has a name"):
            stream.consumer("")
        with pytest.raises(ArgumentError, match="save_seconds is a number of seconds, not nan"):
            stream.consumer("c", save_seconds=nan)
        async with stream.consumer("c") as consumer:
            with pytest.raises(ConsumerError, match="a batch has at least 1 entry, not 0"):
                await consumer.batch(0)

    with_node(talk)


def test_a_consumer_says_what_it_is() -> None:
    async def talk(node: Node, stream: Stream, client: Client) -> None:
        node.grow(3)
        consumer = stream.consumer("c")
        assert repr(consumer) == "<Consumer 'c' of 's': 0 in flight, lag 0>"
        async with consumer:
            await consumer.batch(2)
            assert repr(consumer) == "<Consumer 'c' of 's': 2 in flight, lag 3>"
            consumer.stop()
            assert repr(consumer) == "<Consumer 'c' of 's': stopped>"
        assert repr(consumer) == "<Consumer 'c' of 's': closed>"
        assert repr(stream) == "<Stream 's', partitions 1>"
        assert repr(client) == "<Client of a node: connected>"

    with_node(talk)
