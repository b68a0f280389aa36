"""Looks through a stream's entries for people: filtered, from an index or a time on, either way.

All of it is bounded: a request looks at so many entries and bytes, and tells where to go on.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from aiohttp import web

from rillnode.actors.core.streams.searching import SEARCH_BYTES, SEARCH_ENTRIES
from rillnode.codecs.entries import Entry
from rillnode.codecs.errors import CodecError, RequestError
from rillnode.codecs.times import milliseconds_of
from rillnode.codecs.where import Where
from rillnode.node.entry_lines import line_formatter
from rillnode.node.http.answers import HEADERS, number_of, time_of
from rillnode.node.http.entries import entry_row
from rillnode.node.http.streams import ENTRIES_MAX, Streams

LOOK_ENTRIES: Final = 500
"""Entries that are read at a time."""

LOOKED_ENTRIES_MAX: Final = 10_000
LOOKED_BYTES_MAX: Final = 33_554_432
"""Entries and bytes that one request looks at. Own choice: a quarter of a second."""

DOWNLOAD_ENTRIES_MAX: Final = 10_000
DOWNLOAD_BYTES_MAX: Final = 67_108_864

LINES_SECONDS_MAX: Final = 300.0
"""How long a client may take to read them."""

TEXT_CHARS_MAX: Final = 1_024

_line: Final = line_formatter("json")


class Filter:
    """The conditions on entries that are shown: a text, a key, and a condition's.

    Args:
        query: `text`, in upper or lower case; `key`, exactly; `where`, as `codecs.where` has it.

    Raises:
        RequestError: it is none.
    """

    def __init__(self, query: Mapping[str, str]) -> None:
        text, key, where = (query.get(name, "") for name in ("text", "key", "where"))
        if max(len(text), len(key)) > TEXT_CHARS_MAX:
            raise RequestError("http.text", f"text and key have at most {TEXT_CHARS_MAX:,} letters")
        self._text = text.encode("utf-8", "surrogateescape").lower()
        self._key = key.encode("utf-8", "surrogateescape")
        self._where = Where(where) if where else None
        self.empty: Final = not (text or key or where)

    def matches(self, entry: Entry) -> bool:
        """Whether an entry is to be shown."""
        if self._key and not self._has_key(entry):
            return False
        if self._text and self._text not in entry.data.lower():
            return False
        return self._where is None or self._where.matches(entry)

    async def each(self, entries: Sequence[Entry]) -> AsyncIterator[tuple[Entry, bool]]:
        """Each of some entries, and whether it is to be shown; the loop turns in between."""
        steps = 1 if self._where is None else max(1, self._where.steps)
        looked = size = 0
        for entry in entries:
            looked += steps
            size += len(entry.data)
            if looked > SEARCH_ENTRIES or size > SEARCH_BYTES:
                await asyncio.sleep(0)
                looked = size = 0
            yield entry, self.matches(entry)

    def _has_key(self, entry: Entry) -> bool:
        try:
            return entry.key == self._key
        except CodecError:  # its data is damaged
            return False


class Found(NamedTuple):
    """The result of a look through a partition.

    Attributes:
        entries: those that match, ascending.
        looked: how many were looked at.
        first: the index from which on they were looked at; what is older lies before it.
        reached: the index behind the last of them.
    """

    entries: list[Entry]
    looked: int
    first: int
    reached: int


async def entries_document(
    streams: Streams, name: str, query: Mapping[str, str], now_ms: int
) -> dict[str, Any]:
    """Entries as rows, and where to go on either way.

    Args:
        streams: the node's.
        name: the stream.
        query: `partition`; `index` or `since`: from there on; `before`: those before that index;
            none of them: the last ones; `limit`; and what `Filter` takes.
        now_ms: the time, against which `since=1h` is meant.

    Raises:
        RequestError: there is no such stream or partition, or the query asks for what cannot be.
    """
    partition = number_of(query, "partition", 0)
    limit = min(number_of(query, "limit", ENTRIES_MAX), ENTRIES_MAX)
    wanted = Filter(query)
    extent = await streams.extent(name, partition)
    index = await _begin(streams, name, partition, query, now_ms)
    if index is not None:
        found = await _forwards(streams, name, partition, index, limit, wanted)
    else:
        before = min(number_of(query, "before", extent.next_index), extent.next_index)
        found = await _backwards(streams, name, partition, before, limit, wanted)
    return {
        "entries": [entry_row(entry) for entry in found.entries],
        "looked": found.looked,
        "first_index": extent.first_index,
        "next_index": extent.next_index,
        "before": found.first,
        "reached": found.reached,
    }


async def lines(
    streams: Streams, name: str, query: Mapping[str, str], now_ms: int
) -> AsyncIterator[bytes]:
    """Entries as lines of JSON with all of their data, from where a query says or the first on.

    Raises:
        RequestError: as `entries_document`.
    """
    partition = number_of(query, "partition", 0)
    limit = min(number_of(query, "limit", DOWNLOAD_ENTRIES_MAX), DOWNLOAD_ENTRIES_MAX)
    wanted = Filter(query)
    await streams.extent(name, partition)
    index = await _begin(streams, name, partition, query, now_ms) or 0
    size = looked = 0
    while limit and size < DOWNLOAD_BYTES_MAX and looked < LOOKED_ENTRIES_MAX:
        found = await streams.entries(name, partition=partition, index=index, limit=LOOK_ENTRIES)
        if not found:
            return
        looked += len(found)
        index = found[-1].index + 1
        told = list[bytes]()
        async for entry, matches in wanted.each(found):
            if matches:
                told.append(_line(entry))
            if len(told) == limit:
                break
        block = b"".join(told)
        limit -= len(told)
        size += len(block)
        yield block


async def sent_lines(request: web.Request, found: AsyncIterator[bytes]) -> web.StreamResponse:
    """Send lines as they are found; what is refused before the first is an answer of its own.

    Raises:
        RequestError: as `lines`.
    """
    first = await anext(found, b"")
    headers = {**HEADERS, "Content-Type": "application/x-ndjson"}
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    try:
        async with asyncio.timeout(LINES_SECONDS_MAX):
            await response.write(first)
            async for block in found:
                await response.write(block)
    except (RequestError, TimeoutError, ConnectionError):
        # An end that never comes tells that there is less than was asked for, if anybody is left.
        if request.transport is not None:
            request.transport.abort()
    return response


async def _forwards(
    streams: Streams, name: str, partition: int, index: int, limit: int, wanted: Filter
) -> Found:
    matching: list[Entry] = []
    looked = size = 0
    first: int | None = None
    while looked < LOOKED_ENTRIES_MAX and size < LOOKED_BYTES_MAX and len(matching) < limit:
        step = limit - len(matching) if wanted.empty else LOOK_ENTRIES
        found = await streams.entries(name, partition=partition, index=index, limit=step)
        if not found:
            break
        first = found[0].index if first is None else first
        async for entry, matches in wanted.each(found):
            looked += 1
            size += len(entry.data)
            index = entry.index + 1
            if matches:
                matching.append(entry)
                if len(matching) == limit:
                    break
    return Found(matching, looked, index if first is None else first, index)


async def _backwards(
    streams: Streams, name: str, partition: int, before: int, limit: int, wanted: Filter
) -> Found:
    matching: list[Entry] = []
    looked = size = 0
    reached = before
    step_max = LOOK_ENTRIES
    while looked < LOOKED_ENTRIES_MAX and size < LOOKED_BYTES_MAX and len(matching) < limit:
        step = min(step_max, limit - len(matching)) if wanted.empty else step_max
        start = max(0, before - step)
        found = await streams.entries(name, partition=partition, index=start, limit=before - start)
        if not found or found[0].index >= before:
            break
        if found[-1].index < before - 1:  # they are so large that fewer were read
            step_max = max(1, step // 4)
            continue
        async for entry, matches in wanted.each(found[::-1]):
            looked += 1
            size += len(entry.data)
            before = entry.index
            if matches:
                matching.append(entry)
                if len(matching) == limit:
                    break
    return Found(matching[::-1], looked, before, reached)


async def _begin(
    streams: Streams, name: str, partition: int, query: Mapping[str, str], now_ms: int
) -> int | None:
    """Where a query wants to begin: at an index, a time, or what comes later of both."""
    index = number_of(query, "index", None)
    if "since" not in query:
        return index
    milliseconds, ago = milliseconds_of(time_of(query, "since"))
    at_ms = max(0, now_ms - milliseconds) if ago else milliseconds
    return max(index or 0, await streams.index_at(name, partition, at_ms))


HOUR_SECONDS: Final = 3_600
HOUR_POINTS: Final = 60
LOCATES_MAX: Final = 244
"""Places looked for in one hour's history: a minute each of four partitions, or fewer of more."""

PARTITIONS_MAX: Final = 20
HISTORY_SECONDS_MAX: Final = 5.0


async def hour(
    streams: Streams,
    name: str,
    now_ms: int,
    monotonic: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Entries and bytes that came to a stream in the last hour, in equal parts of it.

    Where each part begins is looked for in each partition, and the headers of the blocks there tell
    how many bytes the log had then: nothing is kept for this, and a stream of any size costs the
    same. Of a stream with many partitions the parts are longer, and only the first are counted.

    Raises:
        RequestError: there is no such stream, the store is not read now, or it is too slow.
    """
    partitions = await streams.partitions(name)
    counted = min(partitions, PARTITIONS_MAX)
    points = min(HOUR_POINTS, LOCATES_MAX // counted - 1)
    step = HOUR_SECONDS * 1_000 // points
    begin = now_ms - points * step
    entries, sizes = [0] * points, [0] * points
    deadline = monotonic() + HISTORY_SECONDS_MAX
    for partition in range(counted):
        before: tuple[int, int] | None = None
        for point in range(points + 1):
            if monotonic() > deadline:
                raise RequestError("store.slow", "The store is too slow to look through an hour")
            at = begin + point * step
            here = await streams.place(name, partition, at if point < points else None)
            if before is not None:
                entries[point - 1] += here[0] - before[0]
                sizes[point - 1] += max(0, here[1] - before[1])
            before = here
    return {
        "begin_at": begin,
        "period_seconds": step / 1_000,
        "entries": entries,
        "bytes": sizes,
        "partitions": partitions,
        "partitions_counted": counted,
    }
