"""Groups of consumers under faults: no entry is skipped, none that was saved comes to another."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Final

import pytest

from rillnode import Entry, RillnodeError, Stream
from rillnode.node.simulation.scenario import FaultKind
from rillnode.testing import Network

PARTITIONS: Final = 6
ENTRIES: Final = 40
"""To each partition."""

QUIET_SECONDS: Final = 120.0
"""Virtual time within which all entries have come to somebody, once there are no more faults."""


class Book:
    """What all members have been given, and what was confirmed to them as saved."""

    def __init__(self) -> None:
        self.given: Counter[tuple[int, int]] = Counter()
        self.saved: Counter[int] = Counter()
        self.broken: list[str] = []
        self.has: dict[str, tuple[int, ...]] = {}
        self.done = False

    def give(self, worker: str, entry: Entry) -> None:
        """A member is given an entry: nobody has saved that it is processed."""
        if entry.index < self.saved[entry.partition]:
            saved = self.saved[entry.partition]
            self.broken.append(
                f"{worker} is given {entry.partition}:{entry.index}, saved is {saved}"
            )
        self.given[entry.partition, entry.index] += 1

    async def work(self, network: Network, worker: str, node: str) -> None:
        """Be a member that saves often, until all is done."""
        while not self.done:
            try:
                async with await network.client(node) as client:
                    await self._consume(worker, await client.stream("s", partitions=PARTITIONS))
            except RillnodeError:
                await asyncio.sleep(0.5)

    async def _consume(self, worker: str, stream: Stream) -> None:
        acked: dict[int, int] = {}

        def lost(partitions: Sequence[int]) -> None:
            for partition in partitions:
                acked.pop(partition, None)

        consumer = stream.consumer("g", group=True, ack="explicit", on_revoked=lost)
        async with consumer:
            while not self.done:
                self.has[worker] = consumer.partitions
                for entry in await consumer.batch(3, timeout=0.5):
                    self.give(worker, entry)
                    await asyncio.sleep(0.01)
                    if entry.partition in consumer.partitions:
                        consumer.ack(entry)
                        acked[entry.partition] = entry.index + 1
                before = dict(acked)
                await consumer.save()
                for partition, index in before.items():
                    if acked.get(partition) == index:  # it was not lost meanwhile
                        self.saved[partition] = max(self.saved[partition], index)

    async def whole(self) -> None:
        """Wait until every entry has come to somebody."""
        async with asyncio.timeout(QUIET_SECONDS):
            every = {(number, nth) for number in range(PARTITIONS) for nth in range(ENTRIES)}
            while not every <= self.given.keys():
                await asyncio.sleep(0.1)

    async def close(self) -> None:
        """Let all members leave."""
        self.done = True
        await asyncio.sleep(3.0)

    def holders(self, *workers: str) -> list[int]:
        """The partitions that these have."""
        return sorted(number for worker in workers for number in self.has[worker])


async def push_all(network: Network, node: str) -> None:
    """Push until each partition has as many entries; what fails is pushed again."""
    left = Counter(dict.fromkeys(range(PARTITIONS), ENTRIES))
    async with await network.client(node) as client:
        while left:
            with suppress(RillnodeError):
                stream = await client.stream("s", partitions=PARTITIONS)
                for partition in tuple(left):
                    await stream.push(b"x", partition=partition)
                    left -= Counter((partition,))
            await asyncio.sleep(0.2)


async def share_again(book: Book) -> None:
    """See that two members have all partitions after a while, and let them leave."""
    await asyncio.sleep(10.0)
    assert book.holders("w0", "w1") == [*range(PARTITIONS)]
    await book.close()


def judge(network: Network, book: Book, scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario: no rule of groups is broken by it, and no other."""
    network.run(scenario)
    assert book.broken == []
    assert network.problems() == []


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2))])
@pytest.mark.parametrize(
    ("shared", "kinds"),
    [
        (False, ("kill", "power_cut", "clog", "kill_client", "disk_failing")),
        (False, ("actor",)),
        (True, ("kill", "pause", "clog", "kill_client", "log_cut", "log_unanswered")),
        (True, ("pause", "partition", "one_way", "clock_jump", "log_cut", "log_slow")),
        (True, ("actor", "log_unanswered", "log_delayed", "kill")),
    ],
    ids=["one node", "actors", "shared log", "late news", "late writes"],
)
def test_nothing_is_skipped_and_nothing_saved_comes_again(
    shared: bool, kinds: Sequence[FaultKind], seed: int
) -> None:
    book = Book()
    with Network(seed=seed, shared=shared) as network:
        nodes = ("a", "b") if shared else ("a",)
        for name in nodes:
            network.add_node(name)

        async def scenario() -> None:
            for number in range(4):
                worker = f"w{number}"
                network.start(worker, book.work, network, worker, nodes[number % len(nodes)])
            async with network.faults(*kinds, count=6, seconds=20.0):
                await push_all(network, "a")
            await book.whole()
            async with asyncio.timeout(QUIET_SECONDS):
                while book.holders("w0", "w1", "w2", "w3") != list(range(PARTITIONS)):
                    await asyncio.sleep(0.1)
            await book.close()

        judge(network, book, scenario())


def test_what_a_node_of_a_shared_log_had_moves_when_it_dies() -> None:
    book = Book()
    with Network(seed=3, shared=True) as network:
        for name in ("a", "b"):
            network.add_node(name)

        async def scenario() -> None:
            for worker, node in (("w0", "a"), ("w1", "b")):
                network.start(worker, book.work, network, worker, node)
            await push_all(network, "a")
            await asyncio.sleep(1.0)
            assert book.holders("w0", "w1") == list(range(PARTITIONS))
            assert len(book.has["w0"]) == len(book.has["w1"]) == PARTITIONS // 2
            kept = set(book.has["w0"])
            network.cut_power("b")
            await asyncio.sleep(3.5)
            assert book.holders("w0") == list(range(PARTITIONS))
            network.restart("b")
            await asyncio.sleep(20.0)
            assert book.holders("w0", "w1") == list(range(PARTITIONS))
            assert len(kept.intersection(book.has["w0"])) >= 1
            await book.close()

        judge(network, book, scenario())


async def take_slowly(network: Network, worker: str, node: str, book: Book) -> None:
    """Be a member that looks at each entry for long, and leaves it to its client to save."""
    async with await network.client(node) as client:
        stream = await client.stream("s", partitions=PARTITIONS)
        async with stream.consumer("g", group=True, ack="explicit") as consumer:
            while not book.done:
                book.has[worker] = consumer.partitions
                for entry in await consumer.batch(1, timeout=0.5):
                    book.give(worker, entry)
                    await asyncio.sleep(0.05)
                    if entry.partition in consumer.partitions:
                        consumer.ack(entry)


@contextmanager
def paused(network: Network, worker: str) -> Generator[None]:
    network.pause(worker)
    yield
    network.resume(worker)


@pytest.mark.parametrize(
    "stands",
    [pytest.param(Network.partition, marks=pytest.mark.long), paused],
    ids=["link", "process"],
)
def test_what_others_have_saved_while_a_member_stands_still_comes_to_it_no_more(
    stands: Callable[[Network, str], AbstractContextManager[None]],
) -> None:
    """The member has much at hand, and does not hear that its node is gone."""
    book = Book()
    with Network(seed=5, shared=True) as network:
        for name in ("a", "b"):
            network.add_node(name)

        async def scenario() -> None:
            await push_all(network, "a")
            network.start("w0", take_slowly, network, "w0", "b", book)
            await asyncio.sleep(1.0)
            network.start("w1", book.work, network, "w1", "a")
            await asyncio.sleep(1.5)
            assert len(book.has["w0"]) == PARTITIONS // 2
            with stands(network, "w0"):
                network.cut_power("b")
                await book.whole()
                assert book.holders("w1") == [*range(PARTITIONS)]
                before = book.given.total()
                await asyncio.sleep(3.0)
                assert book.given.total() == before
            network.restart("b")
            await share_again(book)

        judge(network, book, scenario())


@pytest.mark.parametrize("stands", ["log", "node"])
def test_who_has_heard_of_a_node_too_late_takes_nothing_from_its_members(stands: str) -> None:
    """A node reads nothing of the log for a while, and another's member hears nothing either.

    It has told that it is well just before, and the other node was about to.
    """
    book = Book()
    with Network(seed=7, shared=True) as network:
        for name in ("a", "b"):
            network.add_node(name)
        disk: Any = network._world.nodes["a"].disk  # pyright: ignore[reportPrivateUsage]

        async def scenario() -> None:
            await push_all(network, "a")
            network.start("w0", take_slowly, network, "w0", "b", book)
            await asyncio.sleep(1.35)
            network.start("w1", book.work, network, "w1", "a")
            await asyncio.sleep(2.15)
            assert len(book.has["w0"]) == PARTITIONS // 2
            if stands == "log":
                disk.harm_log("log_cut", 1.0)
            else:
                network.pause("a")
            await asyncio.sleep(1.7)
            with network.partition("w0"):
                disk.heal_log()
                network.resume("a")
                for _ in range(18):
                    assert len(book.has["w1"]) <= PARTITIONS // 2
                    await asyncio.sleep(0.1)
            await share_again(book)

        judge(network, book, scenario())
