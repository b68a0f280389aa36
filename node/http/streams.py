"""Streams as the page shows them, read from the store: nothing here wakes a stream's actor."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from rillnode.actors.core.streams.context import stream_address
from rillnode.actors.core.streams.searching import SEARCH_ENTRIES, search
from rillnode.actors.engine.outside import Outside, Reply
from rillnode.actors.log import (
    FindStream,
    ListIndexes,
    ListStreams,
    Locate,
    LogExtent,
    Operation,
    Read,
    ReadOperation,
    SavedIndexKey,
    StreamRecord,
    log_id,
    logs_of,
)
from rillnode.codecs.entries import Entry, entries_of
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.where import Where
from rillnode.node.http.answers import Refusal
from rillnode.node.observation import Observation

READ_SECONDS: Final = 10.0
_SEARCHES: Final = 10
"""Looks of a search, each of a bounded number of entries: others have their turns between them."""

FRESH_SECONDS: Final = 0.9
"""A list of streams this old is made anew: whoever asks more often gets the same."""

ENTRIES_MAX: Final = 100
INDEXES_MAX: Final = 1_000

OperationT = TypeVar("OperationT", bound=ReadOperation)


class Consumer(NamedTuple):
    """A saved position, and how many entries are after it."""

    key: SavedIndexKey
    position: int
    lag: int


class Listed(NamedTuple):
    """Streams and consumers as they were at one moment.

    Attributes:
        at: monotonic seconds.
        streams: the first by name, each with the extents of its partitions.
        more: whether there are more of them.
        consumers: positions saved for these streams.
    """

    at: float
    streams: Sequence[tuple[StreamRecord, Sequence[LogExtent]]]
    more: bool
    consumers: Sequence[Consumer]


class Streams:
    """The streams of one node.

    Args:
        node: whose they are.
        streams_max: how many are listed.
        monotonic: the time by which rates are told, in seconds.
    """

    def __init__(
        self,
        node: Observation,
        streams_max: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._monotonic = monotonic
        self._streams_max = streams_max
        self._lock = asyncio.Lock()
        self._listed: Listed | None = None
        self._ends: dict[int, int] = {}
        self._rates: dict[int, float] = {}

    async def listed(self) -> Listed:
        """All that are listed, as they were a moment ago at most.

        Raises:
            Refusal: the node does not read its store now.
        """
        async with self._lock:
            now = self._monotonic()
            if self._listed is None or now - self._listed.at >= FRESH_SECONDS:
                fresh = await self._list(now)
                self._measure(self._listed, fresh)
                self._listed = fresh
            return self._listed

    async def document(self) -> dict[str, Any]:
        """The list as a JSON document."""
        listed = await self.listed()
        lags: dict[str, list[Consumer]] = {}
        for consumer in listed.consumers:
            lags.setdefault(consumer.key.stream, []).append(consumer)
        rows = [
            self._row(record, extents, lags.get(record.name, ()))
            for record, extents in listed.streams
        ]
        return {"streams": rows, "more": listed.more, "listed_max": self._streams_max}

    async def stream(self, name: str) -> dict[str, Any]:
        """One stream with its partitions and consumers.

        Raises:
            Refusal: there is none, or the store is not read now.
        """
        record, extents = await self._find(name)
        indexes = (await self._read(ListIndexes(stream=name, limit=INDEXES_MAX))).indexes
        consumers = _consumers(indexes, [(record, extents)])
        subscribers = self._node.subscribers
        return {
            **self._row(record, extents, consumers),
            "created_at": record.created_at,
            "retention": {
                "seconds": record.retention.seconds,
                "entries_max": record.retention.entries_max,
                "bytes_max": record.retention.bytes_max,
            },
            "extents": [
                {
                    "partition": partition,
                    "route": stream_address(name, partition).decode(),
                    "first_index": extent.first_index,
                    "next_index": extent.next_index,
                    "data_bytes": extent.data_bytes,
                    "subscribers": subscribers.of(log),
                }
                for partition, extent in enumerate(extents)
                for log in [log_id(record.id, partition)]
            ],
            "positions": [
                {
                    "client_id": one.key.client_id,
                    "partition": one.key.partition,
                    "index": one.position,
                    "lag": one.lag,
                }
                for one in consumers
            ],
        }

    async def entries(
        self, name: str, *, partition: int = 0, index: int | None = None, limit: int = ENTRIES_MAX
    ) -> list[Entry]:
        """At most `limit` entries of a partition from `index` on; None: its last ones.

        Raises:
            Refusal: there is no such stream or partition, or the store is not read now.
        """
        record, extent = await self._partition(name, partition)
        first = extent.next_index - limit if index is None else index
        return await self._entries(record, partition, max(first, extent.first_index), limit)

    async def index_at(self, name: str, partition: int, at_ms: int) -> int:
        """The index of a partition's first entry that came at a time or later; its end if none did.

        Raises:
            Refusal: as of `entries`.
        """
        record, _ = await self._partition(name, partition)
        return (await self._read(Locate(log=log_id(record.id, partition), at_ms=at_ms))).index

    async def matching(
        self, name: str, partition: int, index: int, limit: int, where: Where
    ) -> tuple[list[Entry], int]:
        """At most `limit` entries from `index` on that meet a condition, and how far it looked.

        Raises:
            Refusal: as of `entries`.
        """
        record, extent = await self._partition(name, partition)
        log, end = log_id(record.id, partition), extent.next_index
        found: list[Entry] = []
        for _ in range(_SEARCHES):
            if len(found) >= limit or index >= end:
                break
            read = await self._read(
                Read(log=log, index=index, until=end, entries_max=SEARCH_ENTRIES)
            )
            first = max(index, read.extent.first_index)
            look = search(read.blocks, where, first, end, limit - len(found))
            for block in look.blocks:
                found += entries_of(block, partition=partition)
            index = look.reached
        return found, index

    async def newer(self, name: str, ends: dict[int, int], limit: int) -> tuple[list[Entry], int]:
        """What has come to a stream since `ends`, at most the last `limit` of each partition.

        Args:
            name: the stream.
            ends: where each partition ended; brought up to date.
            limit: how many of each partition.

        Returns:
            The entries, and how many were left out.

        Raises:
            Refusal: there is no such stream, or the store is not read now.
        """
        record, extents = await self._find(name)
        found: list[Entry] = []
        skipped = 0
        for partition, extent in enumerate(extents):
            end = min(ends.get(partition, extent.next_index), extent.next_index)
            first = max(end, extent.next_index - limit, extent.first_index)
            if first < extent.next_index:
                found += await self._entries(record, partition, first, limit)
            skipped += first - end
            ends[partition] = max(extent.next_index, first)
        return found, skipped

    async def _entries(
        self, record: StreamRecord, partition: int, index: int, limit: int
    ) -> list[Entry]:
        read = await self._read(
            Read(log=log_id(record.id, partition), index=index, entries_max=limit)
        )
        found: list[Entry] = []
        for block in read.blocks:
            found += entries_of(block, partition=partition, first=index)
            if len(found) >= limit:
                break
        return found[:limit]

    async def _partition(self, name: str, partition: int) -> tuple[StreamRecord, LogExtent]:
        record, extents = await self._find(name)
        if not 0 <= partition < len(extents):
            raise Refusal(404, "stream.partition", f"{name} has no partition {partition}")
        return record, extents[partition]

    async def _find(self, name: str) -> tuple[StreamRecord, Sequence[LogExtent]]:
        found = await self._read(FindStream(name=name))
        if found.record is None:
            raise Refusal(404, "stream.unknown", f"There is no stream {name}")
        return found.record, found.extents

    async def _list(self, now: float) -> Listed:
        streams: list[tuple[StreamRecord, Sequence[LogExtent]]] = []
        page = ListStreams(more=True)
        while page.more and (room := self._streams_max - len(streams)):
            after = streams[-1][0].name if streams else ""
            page = await self._read(ListStreams(after=after, limit=room))
            streams += zip(page.records, page.extents, strict=True)
        indexes = (await self._read(ListIndexes(limit=INDEXES_MAX))).indexes
        return Listed(now, streams, page.more, _consumers(indexes, streams))

    def _measure(self, before: Listed | None, after: Listed) -> None:
        """Entries per second of each log since the list before."""
        ends = {
            log_id(record.id, partition): extent.next_index
            for record, extents in after.streams
            for partition, extent in enumerate(extents)
        }
        if before is not None and after.at > before.at:
            seconds = after.at - before.at
            self._rates = {
                log: (end - self._ends.get(log, end)) / seconds for log, end in ends.items()
            }
        self._ends = ends

    def _row(
        self, record: StreamRecord, extents: Sequence[LogExtent], consumers: Sequence[Consumer]
    ) -> dict[str, Any]:
        logs = logs_of(record.id, record.partitions)
        return {
            "name": record.name,
            "route": stream_address(record.name, 0).decode(),
            "owner": record.owner,
            "partitions": record.partitions,
            "entries": sum(one.next_index - one.first_index for one in extents),
            "next_index": sum(one.next_index for one in extents),
            "data_bytes": sum(one.data_bytes for one in extents),
            "entries_per_second": round(sum(self._rates.get(log, 0.0) for log in logs), 2),
            "subscribers": sum(map(self._node.subscribers.of, logs)),
            "consumers": len(consumers),
            "worst_lag": max((one.lag for one in consumers), default=None),
        }

    async def _read(self, operation: OperationT) -> OperationT:
        if self._node.state != "ready":
            raise Refusal(503, "node.state", f"The node is {self._node.state}")
        future: asyncio.Future[Operation] = asyncio.get_running_loop().create_future()
        operation.reply_to = Reply(_STORE, future)
        if not self._node.store.read(operation):
            try:
                async with asyncio.timeout(READ_SECONDS):
                    await future
            except TimeoutError:
                raise Refusal(503, "store.slow", "The store did not answer in time") from None
        error: RillnodeError | None = operation.error
        if error is not None:
            raise Refusal(421 if error.code == "store.elsewhere" else 503, error.code, error.text)
        return operation


_STORE: Final = Outside("store")


def _consumers(
    indexes: Sequence[tuple[SavedIndexKey, int]],
    streams: Sequence[tuple[StreamRecord, Sequence[LogExtent]]],
) -> list[Consumer]:
    """Those of these streams; of one that was trimmed past a position, what is left counts."""
    extents = {record.name: extents for record, extents in streams}
    return [
        Consumer(key, index, max(0, of[key.partition].next_index - index))
        for key, index in indexes
        if (of := extents.get(key.stream)) is not None and key.partition < len(of)
    ]
