"""The answers to reads of what is in the journal."""

import asyncio
from collections.abc import Awaitable, Callable

from rillnode.actors.storage import (
    FindStream,
    GetRecord,
    GetRecords,
    HasRecords,
    ListIndexes,
    ListRecords,
    ListStreams,
    LoadIndex,
    LogExtent,
    StreamRecord,
    logs_of,
)
from rillnode.actors.storage.jetstream.catalog import prefix_end
from rillnode.actors.storage.jetstream.journal import Journal
from rillnode.actors.storage.layout import (
    INDEX,
    RECORD_PREFIX,
    SAVED_INDEX_PREFIX,
    STREAM_PREFIX,
    LogState,
    decode_record,
    decode_saved_index_key,
    record_key,
    saved_index_key,
    saved_index_prefix,
    saved_index_range,
    stream_id_key,
    stream_key,
)

LookUp = (
    FindStream
    | ListStreams
    | LoadIndex
    | ListIndexes
    | GetRecord
    | GetRecords
    | HasRecords
    | ListRecords
)
StateOf = Callable[[int], Awaitable[LogState]]
"""Where a log begins and ends."""


async def look_up(operation: LookUp, journal: Journal, state_of: StateOf) -> None:
    """Set the results of a look-up.

    Raises:
        StoreError: a message is damaged.
        UnansweredError: no answer came.
    """
    catalog = journal.catalog
    match operation:
        case FindStream():
            await _find_stream(operation, journal, state_of)
        case ListStreams():
            await _list_streams(operation, journal, state_of)
        case LoadIndex():
            stored = catalog.value(saved_index_key(operation.key))
            operation.index = None if stored is None else INDEX.unpack(stored)[0]
        case ListIndexes():
            _list_indexes(operation, journal)
        case GetRecord():
            key = record_key(operation.key)
            operation.value, operation.version = await journal.versioned(key)
        case GetRecords():
            asked = (journal.value(record_key(key)) for key in operation.keys)
            operation.values = list(await asyncio.gather(*asked))
        case HasRecords():
            operation.found = [catalog.row(record_key(key)) is not None for key in operation.keys]
        case ListRecords():
            await _list_records(operation, journal)


async def _find_stream(operation: FindStream, journal: Journal, state_of: StateOf) -> None:
    catalog = journal.catalog
    if operation.name is not None:
        key = stream_key(operation.name)
    else:
        name = catalog.value(stream_id_key(operation.id))
        if name is None:
            return
        key = STREAM_PREFIX + name
    stored = catalog.value(key)
    if stored is not None:
        operation.record = decode_record(stored)
        operation.extents = await _extents(operation.record, state_of)


async def _list_streams(operation: ListStreams, journal: Journal, state_of: StateOf) -> None:
    prefix = stream_key(operation.prefix)
    # No name continues `after` with less than a zero byte: that is the first key past it.
    after = stream_key(operation.after) + b"\0" if operation.after else prefix
    while True:
        keys = _keys(journal, prefix, after, operation.limit + 1)
        for key in keys:
            stored = journal.catalog.value(key)
            if stored is None:
                continue  # removed while the extents of those before it were read
            if operation.full:
                operation.more = True
                return
            record = decode_record(stored)
            operation.take(record, await _extents(record, state_of))
        if len(keys) <= operation.limit:
            return
        after = keys[-1] + b"\0"


def _list_indexes(operation: ListIndexes, journal: Journal) -> None:
    one = operation.stream
    prefix = saved_index_prefix(one) if one else SAVED_INDEX_PREFIX
    end = saved_index_range(one)[1] if one else prefix_end(prefix)
    after = saved_index_key(operation.after) + b"\0" if operation.after else prefix
    for key in journal.catalog.keys(max(prefix, after), end, operation.limit):
        stored = journal.catalog.value(key)
        if stored is not None:
            operation.indexes.append((decode_saved_index_key(key), INDEX.unpack(stored)[0]))


async def _list_records(operation: ListRecords, journal: Journal) -> None:
    prefix = record_key(operation.prefix)
    after = record_key(operation.after) + b"\0" if operation.after else prefix
    for key in _keys(journal, prefix, after, operation.limit):
        value, version = await journal.versioned(key)
        if value is not None:
            operation.records.append((key[len(RECORD_PREFIX) :].decode(), value))
            operation.versions.append(version)


def _keys(journal: Journal, prefix: bytes, after: bytes, limit: int) -> list[bytes]:
    return list(journal.catalog.keys(max(prefix, after), prefix_end(prefix), limit))


async def _extents(record: StreamRecord, state_of: StateOf) -> list[LogExtent]:
    logs = logs_of(record.id, record.partitions)
    return [state.extent() for state in await asyncio.gather(*map(state_of, logs))]
