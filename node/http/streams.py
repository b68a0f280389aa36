"""Streams as the page shows them, read from the store: nothing here wakes a stream's actor."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nlargest
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from rillnode.actors.core.groups.registry import GroupView
from rillnode.actors.core.streams.context import stream_address
from rillnode.actors.engine.outside import Outside, Reply
from rillnode.actors.log import (
    PAGE_STREAMS,
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
from rillnode.codecs.entries import Entry, decode_header, entries_of, sizes_of
from rillnode.codecs.errors import RequestError, RillnodeError
from rillnode.node.http.answers import number_of
from rillnode.node.observation import Observation, group_row

READ_SECONDS: Final = 10.0
FRESH_SECONDS: Final = 0.9
"""A list of streams this old is made anew: whoever asks more often gets the same."""

FRESH_SECONDS_MAX: Final = 5.0
LIST_SHARE: Final = 0.01
"""A list that takes long is made less often, so that it takes this part of the time, but not less
often than that."""

LISTED_MAX: Final = 10_000
"""Streams that are listed, searched and sorted. Own choice: they are gone through in 0.1 s."""

LOGS_LISTED_MAX: Final = 4 * LISTED_MAX
"""Partitions that they have together, at most so many more than those of one page of them."""

INDEXES_LISTED_MAX: Final = LISTED_MAX
"""Consumers' positions that are compared with them."""

ROWS: Final = 100
ROWS_MAX: Final = 500
"""Streams in one document: as many as are given where nobody says, and the most of them."""

SEARCH_CHARS_MAX: Final = 256
ENTRIES_MAX: Final = 100
INDEXES_MAX: Final = 1_000
AGES_MAX: Final = 50
"""Consumers of one stream of which it is told for how long their first unread entry waits."""

GROWTH_SECONDS: Final = 5.0
GROWTHS: Final = 3
"""A lag grows that has been larger after each of so many such times, one after the other."""

CONSUMERS_SHOWN: Final = 200
"""Positions in one document of all streams' consumers, those that are behind most."""

SORTS: Final = ("name", "rate", "lag", "bytes", "entries", "age")

OperationT = TypeVar("OperationT", bound=ReadOperation)


class View(NamedTuple):
    """The choice and order of the streams in a document.

    Attributes:
        search: what their names contain, in upper or lower case.
        sort: one of `SORTS`.
        descending: whether the largest come first.
        offset: how many are left out before the first.
        limit: how many there are at most.
    """

    search: str = ""
    sort: str = "name"
    descending: bool = False
    offset: int = 0
    limit: int = ROWS


def view_of(query: Mapping[str, str]) -> View:
    """The view that a request asks for.

    Raises:
        RequestError: it asks for none that can be.
    """
    search, sort = query.get("search", ""), query.get("sort", "name")
    descending = query.get("descending", "false")
    if len(search) > SEARCH_CHARS_MAX:
        raise RequestError("http.search", f"search has at most {SEARCH_CHARS_MAX} characters")
    if sort not in SORTS:
        raise RequestError("http.sort", f"sort is one of {', '.join(SORTS)}")
    if descending not in ("true", "false"):
        raise RequestError("http.descending", "descending is true or false")
    limit = min(number_of(query, "limit", ROWS), ROWS_MAX)
    return View(search, sort, descending == "true", number_of(query, "offset", 0), limit)


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
        by_stream: the same, by the streams' names.
    """

    at: float
    streams: Sequence[tuple[StreamRecord, Sequence[LogExtent]]]
    more: bool
    consumers: Sequence[Consumer]
    by_stream: Mapping[str, Sequence[Consumer]]


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
        self._fresh_seconds = FRESH_SECONDS
        self._ends: dict[int, int] = {}
        self._rates: dict[int, float] = {}
        self._lags = Lags()
        self._ages: dict[tuple[int, int], int] = {}

    async def listed(self, seconds: float = 0.0) -> Listed:
        """All that are listed, as they were a moment ago at most, or `seconds`.

        Raises:
            RequestError: the node does not read its store now.
        """
        async with self._lock:
            now = self._monotonic()
            if self._listed is None or now - self._listed.at >= max(seconds, self._fresh_seconds):
                fresh = await self._list(now)
                self._measure(self._listed, fresh)
                self._listed = fresh
                share = (self._monotonic() - now) / LIST_SHARE
                self._fresh_seconds = max(FRESH_SECONDS, min(share, FRESH_SECONDS_MAX))
            return self._listed

    async def document(self, view: View | None = None) -> dict[str, Any]:
        """The list as a JSON document: a page of all streams that are listed."""
        view = view or View()
        listed = await self.listed()
        search = view.search.casefold()
        chosen = [one for one in listed.streams if search in one[0].name.casefold()]
        if view.sort != "name" or view.descending:
            chosen.sort(key=self._sorting(view.sort, listed), reverse=view.descending)
        members: Counter[str] = Counter()
        for view_of_group in self._node.consumer_groups:
            members[view_of_group.stream] += len(view_of_group.state.members)
        rows = [
            self._row(record, extents, listed.by_stream.get(record.name, ()), members[record.name])
            for record, extents in chosen[view.offset : view.offset + view.limit]
        ]
        return {
            "streams": rows,
            "total": len(chosen),
            "offset": view.offset,
            "limit": view.limit,
            "more": listed.more,
            "listed_max": self._streams_max,
        }

    def _sorting(
        self, sort: str, listed: Listed
    ) -> Callable[[tuple[StreamRecord, Sequence[LogExtent]]], Any]:
        """By what the streams are sorted."""
        match sort:
            case "rate":
                return lambda one: self._rates.get(one[0].id, 0.0)
            case "lag":
                consumers = listed.by_stream
                return lambda one: max((c.lag for c in consumers.get(one[0].name, ())), default=-1)
            case "bytes":
                return lambda one: sum(extent.data_bytes for extent in one[1])
            case "entries":
                return lambda one: sum(extent.next_index for extent in one[1])
            case "age":
                return lambda one: -one[0].created_at
            case _:
                return lambda one: one[0].name

    async def stream(self, name: str) -> dict[str, Any]:
        """One stream with its partitions and consumers.

        Raises:
            RequestError: there is none, or the store is not read now.
        """
        await self.listed(FRESH_SECONDS_MAX)  # for its rate, and which lags grow
        record, extents = await self._find(name)
        indexes = (await self._read(ListIndexes(stream=name, limit=INDEXES_MAX))).indexes
        consumers = _consumers(indexes, [(record, extents)])
        ages = await self._ages_of(record, consumers)
        groups = [view for view in self._node.consumer_groups if view.stream == name]
        subscribers = self._node.subscribers
        return {
            **self._row(
                record, extents, consumers, sum(len(view.state.members) for view in groups)
            ),
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
            "positions": self._positions(consumers, groups, ages),
            "queues": [msgspec.to_builtins(one) for one in self._node.queues if one.stream == name],
            "groups": [group_row(view) for view in groups],
        }

    async def consumers(self) -> dict[str, Any]:
        """Consumers of all streams that are listed, those that are behind most, and groups.

        Raises:
            RequestError: the store is not read now.
        """
        consumers = (await self.listed()).consumers
        groups = self._node.consumer_groups
        worst = nlargest(CONSUMERS_SHOWN, consumers, key=lambda one: one.lag)
        return {
            "positions": self._positions(worst, groups, {}),
            "total": len(consumers),
            "groups": [group_row(view) for view in groups],
        }

    def _positions(
        self,
        consumers: Iterable[Consumer],
        groups: Iterable[GroupView],
        ages: Mapping[SavedIndexKey, int],
    ) -> list[dict[str, Any]]:
        members = _members(groups)
        return [
            {
                "stream": one.key.stream,
                "client_id": one.key.client_id,
                "partition": one.key.partition,
                "index": one.position,
                "lag": one.lag,
                "lag_since": ages.get(one.key),
                "growing": self._lags.grows(one.key),
                "member": members.get(one.key),
            }
            for one in consumers
        ]

    async def _ages_of(
        self, record: StreamRecord, consumers: Sequence[Consumer]
    ) -> dict[SavedIndexKey, int]:
        """When the first unread entry came, in ms since 1970; of those that are behind most."""
        behind = sorted((one for one in consumers if one.lag), key=lambda one: -one.lag)[:AGES_MAX]
        found: dict[SavedIndexKey, int] = {}
        for one in behind:
            place = log_id(record.id, one.key.partition), one.position
            at = self._ages.get(place)
            if at is None:
                read = await self._read(Read(log=place[0], index=place[1], entries_max=1))
                if not read.blocks:
                    continue
                at = decode_header(read.blocks[0].value).received_at
                if read.blocks[0].first_index <= place[1]:  # trimmed past it, another will be first
                    self._ages[place] = at
            found[one.key] = at
        while len(self._ages) > INDEXES_MAX:
            del self._ages[next(iter(self._ages))]
        return found

    async def entries(self, name: str, *, partition: int, index: int, limit: int) -> list[Entry]:
        """At most `limit` entries of a partition from `index` on, but one where there is one.

        Raises:
            RequestError: there is no such stream or partition, or the store is not read now.
        """
        record, extent = await self._partition(name, partition)
        return await self._entries(record, partition, max(index, extent.first_index), limit)

    async def extent(self, name: str, partition: int) -> LogExtent:
        """Where a partition begins and ends; raises as `entries`."""
        return (await self._partition(name, partition))[1]

    async def partitions(self, name: str) -> int:
        """How many a stream has; raises as `stream`."""
        return (await self._find(name))[0].partitions

    async def place(self, name: str, partition: int, at_ms: int | None) -> tuple[int, int]:
        """The index at which a time lies, None: the end, and the bytes that the log had by then.

        What is read is the header of the block there, which the index begins unless the log was
        trimmed within it.

        Raises:
            RequestError: as `entries`.
        """
        record, extent = await self._partition(name, partition)
        log, index = log_id(record.id, partition), extent.next_index
        if at_ms is not None:
            index = (await self._read(Locate(log=log, at_ms=at_ms))).index
        if index < extent.next_index:
            blocks = (await self._read(Read(log=log, index=index, entries_max=1))).blocks
            return index, decode_header(blocks[0].value).position if blocks else 0
        blocks = (await self._read(Read(log=log, index=max(0, index - 1), entries_max=1))).blocks
        if not blocks:
            return index, 0
        return index, decode_header(blocks[0].value).position + sum(sizes_of(blocks[0].value))

    async def index_at(self, name: str, partition: int, at_ms: int) -> int:
        """The index of a partition's first entry that came at a time or later; its end if none did.

        Raises:
            RequestError: as of `entries`.
        """
        record, _ = await self._partition(name, partition)
        return (await self._read(Locate(log=log_id(record.id, partition), at_ms=at_ms))).index

    async def newer(self, name: str, ends: dict[int, int], limit: int) -> tuple[list[Entry], int]:
        """What has come to a stream since `ends`, at most the last `limit` of each partition.

        Args:
            name: the stream.
            ends: where each partition ended; brought up to date.
            limit: how many of each partition.

        Returns:
            The entries, and how many were left out.

        Raises:
            RequestError: there is no such stream, or the store is not read now.
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
            raise RequestError("stream.partition", f"{name} has no partition {partition}")
        return record, extents[partition]

    async def _find(self, name: str) -> tuple[StreamRecord, Sequence[LogExtent]]:
        found = await self._read(FindStream(name=name))
        if found.record is None:
            raise RequestError("stream.unknown", f"There is no stream {name}")
        return found.record, found.extents

    async def _list(self, now: float) -> Listed:
        streams: list[tuple[StreamRecord, Sequence[LogExtent]]] = []
        logs = 0
        page = ListStreams(more=True)
        while page.more and logs < LOGS_LISTED_MAX and (room := self._streams_max - len(streams)):
            after = streams[-1][0].name if streams else ""
            page = await self._read(ListStreams(after=after, limit=min(room, PAGE_STREAMS)))
            streams += zip(page.records, page.extents, strict=True)
            logs += page.logs
        consumers = _consumers(await self._indexes(), streams)
        by_stream: dict[str, list[Consumer]] = {}
        for one in consumers:
            by_stream.setdefault(one.key.stream, []).append(one)
        return Listed(now, streams, page.more, consumers, by_stream)

    async def _indexes(self) -> list[tuple[SavedIndexKey, int]]:
        """Consumers' positions, the first of them."""
        found: list[tuple[SavedIndexKey, int]] = []
        while len(found) < INDEXES_LISTED_MAX:
            after = found[-1][0] if found else None
            page = (await self._read(ListIndexes(after=after, limit=INDEXES_MAX))).indexes
            found += page
            if len(page) < INDEXES_MAX:
                break
        return found

    def _measure(self, before: Listed | None, after: Listed) -> None:
        """Entries per second of each stream since the list before, and which lags have grown."""
        ends = {
            record.id: sum(extent.next_index for extent in extents)
            for record, extents in after.streams
        }
        if before is not None and after.at > before.at:
            seconds = after.at - before.at
            self._rates = {
                stream: (end - self._ends.get(stream, end)) / seconds
                for stream, end in ends.items()
            }
        self._ends = ends
        self._lags.compare(after.at, after.consumers)

    def _row(
        self,
        record: StreamRecord,
        extents: Sequence[LogExtent],
        consumers: Sequence[Consumer],
        members: int,
    ) -> dict[str, Any]:
        logs = logs_of(record.id, record.partitions)
        worst = max(consumers, key=lambda one: one.lag, default=None)
        return {
            "name": record.name,
            "route": stream_address(record.name, 0).decode(),
            "owner": record.owner,
            "created_at": record.created_at,
            "partitions": record.partitions,
            "entries": sum(one.next_index - one.first_index for one in extents),
            "next_index": sum(one.next_index for one in extents),
            "data_bytes": sum(one.data_bytes for one in extents),
            "entries_per_second": round(self._rates.get(record.id, 0.0), 2),
            "subscribers": sum(map(self._node.subscribers.of, logs)),
            "members": members,
            "consumers": len(consumers),
            "worst_lag": worst and worst.lag,
            "worst_consumer": worst and worst.key.client_id,
            "lag_growing": worst is not None and self._lags.grows(worst.key),
        }

    async def _read(self, operation: OperationT) -> OperationT:
        if self._node.state != "ready":
            raise RequestError("node.state", f"The node is {self._node.state}")
        future: asyncio.Future[Operation] = asyncio.get_running_loop().create_future()
        operation.reply_to = Reply(_STORE, future)
        if not self._node.store.read(operation):
            try:
                async with asyncio.timeout(READ_SECONDS):
                    await future
            except TimeoutError:
                raise RequestError("store.slow", "The store did not answer in time") from None
        error: RillnodeError | None = operation.error
        if error is not None:
            raise RequestError(error.code, error.text, retryable=error.retryable)
        return operation


_STORE: Final = Outside("store")


class Lags:
    """The consumers that fall behind: their lag was larger each time that it was looked at."""

    def __init__(self) -> None:
        self._at = float("-inf")
        self._seen: dict[SavedIndexKey, tuple[int, int]] = {}

    def compare(self, now: float, consumers: Sequence[Consumer]) -> None:
        """Take the lags of now, if it is time."""
        if now - self._at < GROWTH_SECONDS:
            return
        self._at, before = now, self._seen
        self._seen = {}
        for key, _, lag in consumers:
            last, rises = before.get(key, (lag, 0))
            self._seen[key] = lag, rises + 1 if lag > last else 0

    def grows(self, key: SavedIndexKey) -> bool:
        """Whether a consumer falls behind."""
        return self._seen.get(key, (0, 0))[1] >= GROWTHS


def _members(groups: Iterable[GroupView]) -> dict[SavedIndexKey, str]:
    """The beginning of the id of who has a partition, by the group's position in it."""
    return {
        SavedIndexKey(view.stream, partition, view.name): hold.member[:8]
        for view in groups
        for partition, hold in view.state.holds.items()
    }


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
