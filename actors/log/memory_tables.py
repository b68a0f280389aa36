"""Applies and reads a MemoryLogStore's durable state in memory."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from rillnode.actors.log import (
    Append,
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
    OpenProducer,
    Operation,
    PutRecord,
    PutRecords,
    PutStream,
    Read,
    ReadExtents,
    ReadOperation,
    RemoveStream,
    SavedIndexKey,
    SaveIndex,
    StreamRecord,
    Trim,
    check_same,
    logs_of,
    removed_error,
)
from rillnode.actors.log.producers import numbers_for, open_producer
from rillnode.actors.log.records import beside_log, beside_stream
from rillnode.actors.log.rocks.layout import (
    INDEX,
    RUN_PREFIX,
    LogState,
    encode_record,
    indexed_keys,
    listed_run,
    merged,
    put_behind,
    saved_index_key,
    settle_double,
    split_key,
    utf8,
)
from rillnode.actors.log.rocks.retention import cut_index, first_since, oldest_ms
from rillnode.actors.log.rocks.stream_table import settled_record, unknown_stream
from rillnode.actors.log.rocks.tail import first_index_of, take_blocks
from rillnode.codecs.entries import Block, data_bytes, decode_header, encode_block, sizes_of


@dataclass(slots=True)
class _Log:
    state: LogState = field(default_factory=LogState)
    blocks: list[Block] = field(default_factory=list[Block])
    # With their indexes, in order where nothing was added since they were listed last.
    keys: list[bytes] = field(default_factory=list[bytes])
    # Those that lead to all entries of a block, each with their number.
    runs: list[tuple[bytes, int]] = field(default_factory=list[tuple[bytes, int]])


class MemoryTables:
    """Logs, streams, saved indexes and named values.

    Attributes:
        size: bytes of blocks and named values.
    """

    def __init__(self, first_id: int = 1, id_step: int = 1) -> None:
        self.size = 0
        self._logs: dict[int, _Log] = {}
        self._streams: dict[str, StreamRecord] = {}
        self._names: dict[int, str] = {}
        self._next_stream_id = first_id
        self._id_step = id_step
        self._indexes: dict[SavedIndexKey, int] = {}
        self._records: dict[str, bytes] = {}

    # Writes ----------------------------------------------------------------------------------

    def apply(self, operation: Operation) -> None:
        """Carry out a write and set its results."""
        match operation:
            case Append():
                self._append(operation)
            case Trim():
                self._trim(operation)
            case OpenProducer(log=log):
                open_producer(operation, self.state_of(log), self._put_record)
            case PutStream():
                self._put_stream(operation)
            case RemoveStream():
                self._remove_stream(operation)
            case SaveIndex():
                # Refuses what could not be stored.
                saved_index_key(operation.key)
                INDEX.pack(operation.index)
                check_same(operation, self._streams.get(operation.key.stream))
                self._indexes[operation.key] = operation.index
            case PutRecord(key=key, value=value):
                self._put_records([(key, value)])
            case PutRecords(records=records):
                self._put_records(records)
            case _:
                raise TypeError(f"{operation!r} is no write")

    def _append(self, operation: Append) -> None:
        self._check_there(operation.log)
        log = self._logs.get(operation.log) or _Log()
        state = log.state
        numbers = numbers_for(operation, state)
        if numbers is not None:
            stored = numbers.stored(operation, state.next_index)
            if stored is not None:
                settle_double(operation, stored, state)
                return
        # First all that wrong contents could make fail: a view goes on after them.
        if log.blocks:
            put_behind(operation, state.received_at)
        size = data_bytes(operation.count, operation.body, operation.flags)
        indexed = indexed_keys(operation.keys, state.next_index)
        value = encode_block(
            count=operation.count,
            kind=operation.kind,
            received_at=operation.received_at,
            position=state.next_position,
            body=operation.body,
            flags=operation.flags,
        )
        self._put_records(operation.records)
        self._logs[operation.log] = log
        if numbers is not None:
            numbers.add(operation, state.next_index, self._put_record)
        operation.first_index = state.next_index
        log.blocks.append(Block(state.next_index, value))
        log.keys += [key for key in indexed if not key.startswith(RUN_PREFIX)]
        log.runs += [
            (key[len(RUN_PREFIX) :], operation.count)
            for key in indexed
            if key.startswith(RUN_PREFIX)
        ]
        state.next_index += operation.count
        state.next_position += size
        state.received_at = operation.received_at
        operation.kept_bytes = state.next_position - state.first_position
        self.size += len(value)

    def _trim(self, operation: Trim) -> None:
        self._check_there(operation.log)
        log = self._logs.get(operation.log) or _Log()
        state = log.state
        find = partial(_block_at, log.blocks)
        cut = cut_index(operation, state, find)
        operation.trimmed = cut - state.first_index
        if operation.trimmed:
            kept = len(log.blocks)
            state.first_position = state.next_position
            if cut < state.next_index:
                block = find(cut)
                kept = log.blocks.index(block)
                before = sizes_of(block.value)[: cut - block.first_index]
                state.first_position = decode_header(block.value).position + sum(before)
            state.first_index = cut
            self.size -= sum(len(block.value) for block in log.blocks[:kept])
            del log.blocks[:kept]
            first = log.blocks[0].first_index if log.blocks else state.next_index
            log.keys = [key for key in log.keys if split_key(key)[1] >= first]
            log.runs = [(key, count) for key, count in log.runs if split_key(key)[1] >= first]
        operation.oldest_ms = oldest_ms(operation, state, find)
        operation.extent = state.extent()

    def _put_stream(self, operation: PutStream) -> None:
        known = self._streams.get(operation.record.name)
        record, is_new = settled_record(operation.record, known, self._next_stream_id)
        encode_record(record)  # refuses what could not be stored
        if is_new:
            self._next_stream_id += self._id_step
            self._names[record.id] = record.name
        self._streams[record.name] = operation.record = record

    def _remove_stream(self, operation: RemoveStream) -> None:
        record = self._streams.pop(operation.name, None)
        if record is None:
            raise unknown_stream(operation.name)
        del self._names[record.id]
        for log in logs_of(record.id, record.partitions):
            removed = self._logs.pop(log, None) or _Log()
            self.size -= sum(len(block.value) for block in removed.blocks)
            names = (beside_log(log), beside_stream(record.id))
            beside = [key for key in self._records if key.startswith(names)]
            self._put_records([(key, None) for key in beside])
        self._indexes = {
            key: index for key, index in self._indexes.items() if key.stream != record.name
        }
        operation.record = record

    def put_listed(self, name: str, record: StreamRecord | None) -> StreamRecord | None:
        """Have a stream listed that is not kept here, or listed no more; what was before."""
        was = self._streams.pop(name, None)
        if record is not None:
            self._streams[name] = record
        return was

    def _put_records(self, records: Sequence[tuple[str, bytes | None]]) -> None:
        for key, _ in records:
            utf8(key)
        for key, value in records:
            self.size -= len(self._records.pop(key, b""))
            if value is not None:
                self._records[key] = value
                self.size += len(value)

    def _put_record(self, name: str, value: bytes | None) -> None:
        self._put_records([(name, value)])

    def _check_there(self, log: int) -> None:
        stream_id = log >> 32
        if 0 < stream_id < self._next_stream_id and stream_id not in self._names:
            raise removed_error(stream_id)

    # Reads -----------------------------------------------------------------------------------

    def answer(self, operation: ReadOperation) -> None:
        """Set the results of a read."""
        match operation:
            case Read():
                self._read(operation)
            case Locate(log=log_number, at_ms=at_ms):
                log = self._logs.get(log_number) or _Log()
                first, end = log.state.first_index, log.state.next_index
                operation.index = first_since(at_ms, first, end, partial(_block_at, log.blocks))
            case FindStream():
                name = operation.name
                if name is None:
                    name = self._names.get(operation.id, "")
                operation.record = self._streams.get(name)
                if operation.record is not None:
                    operation.extents = self._extents(operation.record)
            case ListStreams():
                self._list_streams(operation)
            case ReadExtents(logs=logs):
                operation.extents = [self._extent(log) for log in logs]
            case LoadIndex():
                operation.index = self._indexes.get(operation.key)
            case ListIndexes():
                self._list_indexes(operation)
            case GetRecord():
                operation.value = self._records.get(operation.key)
            case GetRecords():
                operation.values = [self._records.get(key) for key in operation.keys]
            case HasRecords():
                operation.found = [key in self._records for key in operation.keys]
            case ListRecords():
                self._list_records(operation)
            case ListKeys():
                self._list_keys(operation)

    def end_of(self, log: int) -> int:
        """The index after a log's last entry. Raises StoreError: `stream.removed`."""
        self._check_there(log)
        found = self._logs.get(log)
        return 0 if found is None else found.state.next_index

    def state_of(self, log: int) -> LogState:
        """Where a log begins and ends, to be changed. Raises StoreError: `stream.removed`."""
        self._check_there(log)
        return self._logs.setdefault(log, _Log()).state

    def in_tail(self, operation: Read, blocks: int) -> bool:
        """Whether a read needs no more than the last `blocks` blocks of its log."""
        log = self._logs.get(operation.log)
        if log is None or operation.index > log.state.next_index:
            return False
        return not log.blocks or operation.index >= log.blocks[-blocks:][0].first_index

    def _read(self, operation: Read) -> None:
        log = self._logs.get(operation.log) or _Log()
        operation.extent = log.state.extent()
        index = max(operation.index, log.state.first_index)
        end = min(operation.until, log.state.next_index)
        if index < end:
            at = bisect_right(log.blocks, index, key=first_index_of) - 1
            take_blocks(operation, log.blocks, at, min(end, index + operation.entries_max))

    def _list_streams(self, operation: ListStreams) -> None:
        names = sorted(self._streams)
        for name in islice(names, bisect_right(names, operation.after), None):
            if name.startswith(operation.prefix):
                if operation.full:
                    operation.more = True
                    return
                record = self._streams[name]
                operation.take(record, [] if operation.names_only else self._extents(record))

    def _list_indexes(self, operation: ListIndexes) -> None:
        rows: Iterable[tuple[SavedIndexKey, int]] = sorted(self._indexes.items())
        after, stream = operation.after, operation.stream
        if after is not None:
            rows = (row for row in rows if row[0] > after)
        if stream:
            rows = (row for row in rows if row[0].stream == stream)
        operation.indexes.extend(islice(rows, operation.limit))

    def _list_keys(self, operation: ListKeys) -> None:
        log = self._logs.get(operation.log) or _Log()
        log.keys.sort()
        wanted = [
            key
            for key in (reversed(log.keys) if operation.reverse else log.keys)
            if operation.start <= key and (operation.end is None or key < operation.end)
        ]
        of_runs = [key for run in log.runs for key in listed_run(*run, operation)]
        operation.pairs = merged(operation, wanted, of_runs)

    def _list_records(self, operation: ListRecords) -> None:
        # Byte order of UTF-8 is the order of code points.
        keys = sorted(key for key in self._records if key.startswith(operation.prefix))
        first = bisect_right(keys, operation.after) if operation.after else 0
        wanted = keys[first : first + operation.limit]
        operation.records.extend((key, self._records[key]) for key in wanted)

    def _extents(self, record: StreamRecord) -> list[LogExtent]:
        return [self._extent(log) for log in logs_of(record.id, record.partitions)]

    def _extent(self, log: int) -> LogExtent:
        found = self._logs.get(log)
        return LogExtent() if found is None else found.state.extent()


def _block_at(blocks: list[Block], index: int) -> Block:
    return blocks[bisect_right(blocks, index, key=first_index_of) - 1]
