"""Producers and consumers at several nodes of one log, and the proof of what they were promised.

Producers change the node when one fails them, and go on under their name behind what the next node
says is stored: so an entry is there once when it was confirmed, and at most once if not. Consumers
read each partition from its beginning, also at changing nodes.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from node_processes import NodeProcess
from rillnode.codecs.errors import RillnodeError
from rillnode.node.client import Client, connect

STREAM: Final = "load"
PARTITIONS: Final = 3
PRODUCERS: Final = 6
TOGETHER: Final = 8
"""Entries that a producer has unconfirmed at one time."""

ENTRY_BYTES: Final = 200

NEVER: Final = ("store.lost", "store.incomplete", "store.corrupt", "store.foreign", "store.differs")
"""What nobody may be told, whatever happens to machines."""

PATIENCE_SECONDS: Final = 25.0
"""Without an answer for so long a node is left for the next one."""


@dataclass
class Record:
    """A record of one producer's pushes, and of their confirms.

    Attributes:
        tried: the numbers that were pushed.
        confirms: index by number.
    """

    partition: int
    tried: set[int] = field(default_factory=set[int])
    confirms: dict[int, int] = field(default_factory=dict[int, int])


class Load:
    """Pushes and reads until `stop`; `check` then compares everything with the log.

    Args:
        nodes: where.
        pause_seconds: of each producer, after what it has pushed together.
    """

    def __init__(self, nodes: Sequence[NodeProcess], *, pause_seconds: float = 0.0) -> None:
        self._nodes = nodes
        self._pause_seconds = pause_seconds
        self._records = [Record(number % PARTITIONS) for number in range(PRODUCERS)]
        self._seen: list[list[list[bytes]]] = []
        self._stop = asyncio.Event()
        self._producing: list[asyncio.Task[None]] = []
        self._consuming: list[asyncio.Task[None]] = []

    @property
    def confirmed(self) -> int:
        """Entries confirmed so far, by all producers."""
        return sum(len(record.confirms) for record in self._records)

    async def start(self) -> None:
        """Create the stream; begin."""
        async with connected(self._nodes[0]) as client:
            await client.stream(STREAM, partitions=PARTITIONS)
        self._producing = [
            asyncio.create_task(self._produce(number, record))
            for number, record in enumerate(self._records)
        ]
        for number in range(2):
            seen: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
            self._seen.append(seen)
            self._consuming += [
                asyncio.create_task(self._consume(number + partition, partition, entries))
                for partition, entries in enumerate(seen)
            ]

    async def progress(self, entries: int = 60, *, seconds: float = 240.0) -> None:
        """Wait until every partition has so many confirmed entries more."""
        wanted = [self._of_partition(number) + entries for number in range(PARTITIONS)]
        async with asyncio.timeout(seconds):
            while any(self._of_partition(n) < count for n, count in enumerate(wanted)):
                for task in (*self._producing, *self._consuming):
                    if task.done():
                        task.result()
                await asyncio.sleep(0.05)

    async def stop(self) -> None:
        """End the producers; then let the consumers read to the end."""
        self._stop.set()
        await asyncio.gather(*self._producing)

    async def check(self) -> None:
        """Hold all that was promised against the log, as each node has it."""
        logs = await self._same_logs()
        await self._until_read(logs)
        for seen in self._seen:
            assert seen == logs, "a consumer has seen another log"
        for number, record in enumerate(self._records):
            _check_producer(number, record, logs[record.partition])
        entries = {data for log in logs for data in log}
        tried = {_entry(n, one) for n, rec in enumerate(self._records) for one in rec.tried}
        assert entries <= tried, "an entry is there that nobody pushed"

    async def _same_logs(self) -> list[list[bytes]]:
        """The log of each partition; a node may have to hear of a tail that was never confirmed."""
        async with asyncio.timeout(120.0):
            while True:
                found = [
                    [await self._log(partition, node) for partition in range(PARTITIONS)]
                    for node in self._nodes
                ]
                for one in found[1:]:
                    for log, other in zip(found[0], one, strict=True):
                        common = min(len(log), len(other))
                        assert log[:common] == other[:common], "two nodes have different entries"
                if all(one == found[0] for one in found):
                    return found[0]

    def _of_partition(self, partition: int) -> int:
        return sum(len(one.confirms) for one in self._records if one.partition == partition)

    async def _until_read(self, logs: list[list[bytes]]) -> None:
        async with asyncio.timeout(120.0):
            while any(
                len(entries) < len(log)
                for seen in self._seen
                for entries, log in zip(seen, logs, strict=True)
            ):
                for task in self._consuming:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.05)
        for task in self._consuming:
            task.cancel()
        await asyncio.gather(*self._consuming, return_exceptions=True)

    async def _log(self, partition: int, node: NodeProcess) -> list[bytes]:
        """A partition as a node has it, which may have to hear of the last entries first."""
        found: list[bytes] = []
        last = max(
            (max(one.confirms.values()) for one in self._records
             if one.partition == partition and one.confirms), default=-1,
        )  # fmt: skip
        async with asyncio.timeout(120.0):
            while True:
                try:
                    async with connected(node) as client:
                        await _read_to(client, partition, last, found)
                    return found
                except RillnodeError as error:
                    if not error.retryable:
                        raise
                await asyncio.sleep(0.5)

    # Producers and consumers -----------------------------------------------------------------

    async def _produce(self, number: int, record: Record) -> None:
        at = number
        while not self._stop.is_set():
            with _bearable():
                async with connected(self._nodes[at % len(self._nodes)]) as client:
                    await self._push(client, number, record)
            at += 1
            await asyncio.sleep(0.1)

    async def _push(self, client: Client, number: int, record: Record) -> None:
        """Push behind what is stored until something fails, or the end."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            stream = await client.stream(STREAM)
            producer = await stream.producer(f"p{number}", partition=record.partition)
        failed, first = False, 0 if producer.last_sequence is None else producer.last_sequence + 1
        assert first > max(record.confirms, default=-1), "what was confirmed is forgotten"
        while not (failed or self._stop.is_set()):
            numbers = range(first, first + TOGETHER)
            pushed: list[asyncio.Future[int]] = []
            for one in numbers:
                record.tried.add(one)
                pushed.append(producer.push_nowait(_entry(number, one), sequence=one))
            await asyncio.wait(pushed, timeout=PATIENCE_SECONDS)
            last = -1
            for one, future in zip(numbers, pushed, strict=True):
                if not future.done():
                    failed = True
                    continue
                error = future.exception()
                if error is None:
                    assert future.result() > last, "the order of one producer's pushes"
                    last = future.result()
                    record.confirms[one] = last
                elif isinstance(error, RillnodeError) and error.code not in NEVER:
                    failed = True
                else:
                    raise error
            first += TOGETHER
            if self._pause_seconds:
                await asyncio.sleep(self._pause_seconds)

    async def _consume(self, at: int, partition: int, seen: list[bytes]) -> None:
        while True:
            with _bearable():
                async with connected(self._nodes[at % len(self._nodes)]) as client:
                    await self._read(client, partition, seen)
            at += 1
            await asyncio.sleep(0.1)

    async def _read(self, client: Client, partition: int, seen: list[bytes]) -> None:
        stream = await client.stream(STREAM)
        batches = stream.batches(start=len(seen), partitions=[partition])
        try:
            while True:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    batch = await anext(batches)
                for entry in batch:
                    assert entry.index == len(seen), "a consumer's entries are not in order"
                    seen.append(entry.data)
        finally:
            await batches.aclose()


async def _read_to(client: Client, partition: int, last: int, found: list[bytes]) -> None:
    """Add entries from where `found` ends, up to `last` at least, and to the log's end."""
    stream = await client.stream(STREAM)
    while True:
        entries = await stream.pull(len(found), 1_000, partition=partition)
        indexes = [entry.index for entry in entries]
        assert indexes == list(range(len(found), len(found) + len(entries)))
        found += [entry.data for entry in entries]
        if not entries and len(found) > last:
            return
        if not entries:
            await asyncio.sleep(0.1)


def _entry(number: int, one: int) -> bytes:
    return (b"%d %d" % (number, one)).ljust(ENTRY_BYTES)


def _check_producer(number: int, record: Record, log: list[bytes]) -> None:
    counts = Counter(log)
    for one, index in record.confirms.items():
        assert log[index] == _entry(number, one), "a confirmed entry is lost"
    assert all(counts[_entry(number, one)] <= 1 for one in record.tried), "an entry is there twice"


@contextmanager
def _bearable() -> Generator[None]:
    """Pass over what a fault may do to a client."""
    try:
        yield
    except TimeoutError:
        pass
    except RillnodeError as error:
        if error.code in NEVER:
            raise


@asynccontextmanager
async def connected(node: NodeProcess) -> AsyncGenerator[Client]:
    """A client of one node, which is given up where it does not answer."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        client = await connect(
            node.url, key_file=node.key_file, node_identity=node.identity, reconnect=False
        )
    try:
        yield client
    finally:
        with suppress(RillnodeError, TimeoutError):
            await asyncio.wait_for(client.close(), 5.0)
