"""The answers to reads, out of cursors over what is durable."""

from collections.abc import Callable, Iterator
from functools import partial

from rocksdict import RdictIter

from rillnode.actors.log import (
    FIRST_KEY,
    FindStream,
    GetRecord,
    GetRecords,
    HasRecords,
    ListIndexes,
    ListKeys,
    ListRecords,
    ListStreams,
    LoadIndex,
    Locate,
    LogExtent,
    Read,
    ReadExtents,
    ReadOperation,
    StreamRecord,
    logs_of,
)
from rillnode.actors.log.rocks.layout import (
    BLOCK_KEY,
    INDEX,
    LOG_KEY,
    NUMBER,
    RECORD_PREFIX,
    RUN_PREFIX,
    SAVED_INDEX_PREFIX,
    STREAM_PREFIX,
    decode_record,
    decode_saved_index_key,
    listed_run,
    merged,
    record_key,
    saved_index_key,
    saved_index_prefix,
    stream_id_key,
    stream_key,
)
from rillnode.actors.log.rocks.logs import (
    block_at,
    block_here,
    hole_error,
    load_state,
    seek,
    seek_back,
    step,
    step_back,
)
from rillnode.actors.log.rocks.retention import first_since
from rillnode.actors.log.rocks.tables import Cursors
from rillnode.codecs.entries import Block


def answer(operation: ReadOperation, cursors: Cursors) -> None:
    """Set the results of a read.

    Raises:
        StoreError: a log is damaged.
        Exception: RocksDB could not read.
    """
    match operation:
        case Read():
            _read(cursors.blocks, operation)
        case Locate(log=log, at_ms=at_ms):
            state = load_state(cursors.blocks, log)
            find = partial(block_at, cursors.blocks, log)
            operation.index = first_since(at_ms, state.first_index, state.next_index, find)
        case FindStream():
            _find_stream(cursors, operation)
        case ListStreams():
            _list_streams(cursors, operation)
        case ReadExtents(logs=logs):
            operation.extents = [load_state(cursors.blocks, log).extent() for log in logs]
        case LoadIndex():
            stored = _value(cursors.records, saved_index_key(operation.key))
            operation.index = None if stored is None else INDEX.unpack(stored)[0]
        case ListIndexes():
            _list_indexes(cursors.records, operation)
        case GetRecord():
            operation.value = _value(cursors.records, record_key(operation.key))
        case GetRecords():
            operation.values = [_value(cursors.records, record_key(key)) for key in operation.keys]
        case HasRecords():
            keys = map(record_key, operation.keys)
            operation.found = [seek(cursors.records, key) == key for key in keys]
        case ListRecords():
            _list_records(cursors.records, operation)
        case ListKeys():
            _list_keys(cursors.keys, operation)


def _read(cursor: RdictIter, operation: Read) -> None:
    log = operation.log
    state = load_state(cursor, log)
    operation.extent = state.extent()
    index = max(operation.index, state.first_index)
    end = min(operation.until, state.next_index)
    if index >= end:
        return
    end = min(end, index + operation.entries_max)
    block = block_at(cursor, log, index)
    size = len(block.value)
    operation.blocks.append(block)
    while block.next_index < end and size < operation.bytes_max:
        block = _block_after(cursor, log, block)
        size += len(block.value)
        if size > operation.bytes_max:
            return
        operation.blocks.append(block)


def _block_after(cursor: RdictIter, log: int, block: Block) -> Block:
    key = BLOCK_KEY.pack(log, block.next_index)
    if step(cursor) != key:
        raise hole_error(log, block.next_index)
    return block_here(cursor, key)


def _list_keys(cursor: RdictIter, operation: ListKeys) -> None:
    prefix = LOG_KEY.pack(operation.log)
    start = prefix + max(operation.start, FIRST_KEY)
    end = LOG_KEY.pack(operation.log + 1) if operation.end is None else prefix + operation.end
    key, move = _first_row(cursor, start, end, reverse=operation.reverse)
    keys: list[bytes] = []
    while key is not None and start <= key < end and len(keys) < operation.limit:
        keys.append(key[len(prefix) :])
        key = move(cursor)
    operation.pairs = merged(operation, keys, _list_runs(cursor, operation))


def _list_runs(cursor: RdictIter, operation: ListKeys) -> list[bytes]:
    """What a listing may want of keys that lead to all entries of a block."""
    log = LOG_KEY.pack(operation.log)
    prefix = log + RUN_PREFIX
    start = prefix + operation.start
    end = log + FIRST_KEY if operation.end is None else prefix + operation.end
    # The last one that begins before the listing may reach into it.
    before = seek_back(cursor, start)
    lowest = before if before is not None and before.startswith(prefix) else start
    key, move = _first_row(cursor, lowest, end, reverse=operation.reverse)
    found: list[bytes] = []
    while key is not None and lowest <= key < end and len(found) < operation.limit:
        (count,) = NUMBER.unpack(cursor.value())
        found += listed_run(key[len(prefix) :], count, operation)
        key = move(cursor)
    return found


def _first_row(
    cursor: RdictIter, start: bytes, end: bytes, *, reverse: bool
) -> tuple[bytes | None, Callable[[RdictIter], bytes | None]]:
    """Where rows from `start` to below `end` begin, and what goes on to the next one."""
    if not reverse:
        return seek(cursor, start), step
    key = seek_back(cursor, end)
    return step_back(cursor) if key == end else key, step_back


def _find_stream(cursors: Cursors, operation: FindStream) -> None:
    name = operation.name
    key = None if name is None else stream_key(name)
    if key is None:
        stored_name = _value(cursors.records, stream_id_key(operation.id))
        if stored_name is None:
            return
        key = STREAM_PREFIX + stored_name
    stored = _value(cursors.records, key)
    if stored is not None:
        operation.record = decode_record(stored)
        operation.extents = _extents(cursors.blocks, operation.record)


def _list_streams(cursors: Cursors, operation: ListStreams) -> None:
    prefix = stream_key(operation.prefix)
    # No name continues `after` with less than a zero byte: that is the first key past it.
    after = stream_key(operation.after) + b"\0" if operation.after else prefix
    for _, value in _rows(cursors.records, max(prefix, after), prefix, operation.limit + 1):
        if operation.full:
            operation.more = True
            return
        record = decode_record(value)
        wanted = not operation.names_only
        operation.take(record, _extents(cursors.blocks, record) if wanted else [])


def _list_indexes(cursor: RdictIter, operation: ListIndexes) -> None:
    one = operation.stream
    prefix = saved_index_prefix(one) if one else SAVED_INDEX_PREFIX
    after = saved_index_key(operation.after) + b"\0" if operation.after else prefix
    for key, value in _rows(cursor, max(prefix, after), prefix, operation.limit):
        (index,) = INDEX.unpack(value)
        operation.indexes.append((decode_saved_index_key(key), index))


def _list_records(cursor: RdictIter, operation: ListRecords) -> None:
    prefix = record_key(operation.prefix)
    after = record_key(operation.after) + b"\0" if operation.after else prefix
    for key, value in _rows(cursor, max(prefix, after), prefix, operation.limit):
        operation.records.append((key[len(RECORD_PREFIX) :].decode(), value))


def _extents(cursor: RdictIter, record: StreamRecord) -> list[LogExtent]:
    logs = logs_of(record.id, record.partitions)
    return [load_state(cursor, log).extent() for log in logs]


def _value(cursor: RdictIter, key: bytes) -> bytes | None:
    if seek(cursor, key) != key:
        return None
    value: bytes = cursor.value()
    return value


def _rows(
    cursor: RdictIter, start: bytes, prefix: bytes, limit: int
) -> Iterator[tuple[bytes, bytes]]:
    key = seek(cursor, start)
    for _ in range(limit):
        if key is None or not key.startswith(prefix):
            return
        yield key, cursor.value()
        key = step(cursor)
