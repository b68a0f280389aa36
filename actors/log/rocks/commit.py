"""One group of writes: planned into changes, written in slices, made durable by one sync."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from rillnode.actors.log import (
    Append,
    Checkpoint,
    OpenProducer,
    Operation,
    PutRecord,
    PutRecords,
    PutStream,
    RemoveStream,
    SaveIndex,
    StreamRecord,
    Trim,
    check_same,
    logs_of,
    removed_error,
)
from rillnode.actors.log.directories import make_directory
from rillnode.actors.log.producers import numbers_for, open_producer
from rillnode.actors.log.records import beside_log, beside_stream
from rillnode.actors.log.rocks.layout import (
    BLOCK_KEY,
    INDEX,
    LOG_KEY,
    NEXT_STREAM_KEY,
    NUMBER,
    LogState,
    block_keys_key,
    decode_keys,
    decode_record,
    encode_keys,
    encode_record,
    indexed_keys,
    key_rows,
    logs_range,
    put_behind,
    record_key,
    records_range,
    saved_index_key,
    saved_index_range,
    settle_double,
    stream_id_key,
    stream_key,
    utf8,
)
from rillnode.actors.log.rocks.logs import LogTable, block_at, block_position, seek, step
from rillnode.actors.log.rocks.retention import BlockAt, cut_index, oldest_ms
from rillnode.actors.log.rocks.stream_table import settled_record, unknown_stream
from rillnode.actors.log.rocks.tables import Changes, Tables, Tuning, full_error, is_full
from rillnode.actors.log.rocks.tail import TailCache
from rillnode.actors.log.rocks.view import DurableView
from rillnode.codecs.entries import Block, data_bytes, encode_block
from rillnode.codecs.errors import StoreError

REST_BYTES_MIN: Final = 1_048_576
"""Less than that is not worth a table of its own. Own choice."""

_GONE_MAX: Final = 65_536
"""Streams that were made and removed since one was forgotten. Own choice: 6 MB."""

_CHANGE_BYTES: Final = 100
"""What a small change counts for beside its value."""


class Rest(Operation, eq=False):
    """Begin to write as tables what was written since the last one, unless that is little.

    What comes meanwhile does not wait for it.
    """


class GroupCommit:
    """Carries out groups of writes on open tables; belongs to the writer thread.

    It lives until a write or sync fails: what it knows is then ahead of what is durable.
    """

    _first_id = _id_step = 1
    """Which ids new streams get."""

    def __init__(self, tables: Tables, view: DurableView, tail: TailCache, tuning: Tuning) -> None:
        self._tables = tables
        self._view = view
        self._tail = tail
        self._slice_bytes_max = tuning.slice_bytes_max
        self._trimmed_bytes_max = tuning.memtable_bytes
        self._logs = LogTable(tables, tuning.logs_max, tuning.packed_bytes_max)
        stored = tables.record(NEXT_STREAM_KEY)
        self._next_stream_id: int = NUMBER.unpack(stored)[0] if stored else self._first_id
        # Streams with lower ids stand in the database, unless they were removed.
        self._written_stream_id = self._next_stream_id
        # Of streams from here on, made since this was, all logs are known that have anything; and
        # which of them were removed.
        self._known_from = self._next_stream_id
        self._gone: set[int] = set()
        self._changes = Changes()
        self._slice_bytes = 0
        self._trimmed_bytes = 0
        self._written_bytes = 0  # since the store has rested
        self._written = False
        # What the group has planned and the database does not show yet.
        self._streams: dict[str, StreamRecord] = {}
        self._blocks: dict[int, list[Block]] = {}
        self._touched: dict[int, LogState] = {}
        self._removed: list[int] = []

    def run(self, group: Sequence[Operation]) -> None:
        """Set the results of a group's operations; they are durable when this returns.

        Raises:
            Exception: a write or the sync failed; this object is of no more use.
        """
        for operation in group:
            try:
                self._plan(operation)
            except StoreError as error:
                # Without its traceback, whose frames hold cursors: they keep the database open.
                operation.error = error.with_traceback(None)
            if self._slice_bytes >= self._slice_bytes_max:
                self._write_slice()
        self._write_slice()
        if self._written:
            self._tables.sync()
            self._view.thaw()
            self._written = False
            self._free_space()
        self._tail.commit(self._blocks, self._touched)
        for log in self._removed:
            self._tail.forget(log)
        self._removed = []
        self._blocks = {}
        self._touched = {}
        self._streams = {}
        self._logs.age()
        if self._logs.has_forgotten or len(self._gone) > _GONE_MAX:
            self._logs.has_forgotten, self._known_from = False, self._next_stream_id
            self._gone.clear()

    def _plan(self, operation: Operation) -> None:
        if isinstance(operation, Append):
            self._append(operation)
        elif isinstance(operation, SaveIndex):
            key = saved_index_key(operation.key)
            if operation.created_at:
                check_same(operation, self._stream(operation.key.stream))
            self._put(key, INDEX.pack(operation.index))
        elif isinstance(operation, Trim):
            self._trim(operation)
        elif isinstance(operation, OpenProducer):
            open_producer(operation, self._state(operation.log), self._put_record)
            self._logs.note(operation.log)
        elif isinstance(operation, PutStream):
            self._put_stream(operation)
        elif isinstance(operation, RemoveStream):
            self._remove_stream(operation)
        elif isinstance(operation, PutRecord):
            self._put(record_key(operation.key), operation.value)
        elif isinstance(operation, Checkpoint):
            # What was submitted before is part of it.
            self._write_slice()
            self._copy_to(operation.path)
        elif isinstance(operation, PutRecords):
            self._put_records(operation.records)
        elif isinstance(operation, Rest):
            self._rest()

    def _append(self, operation: Append) -> None:
        log, body = operation.log, operation.body
        state = self._state(log)
        first_index = state.next_index
        numbers = numbers_for(operation, state)
        if numbers is not None:
            stored = numbers.stored(operation, first_index)
            if stored is not None:
                settle_double(operation, stored, state)
                return
        # First all that wrong contents could make fail: a view goes on after them.
        if first_index > state.first_index:
            put_behind(operation, state.received_at)
        size = data_bytes(operation.count, body, operation.flags)
        indexed = indexed_keys(operation.keys, first_index) if operation.keys else ()
        value = encode_block(
            count=operation.count,
            kind=operation.kind,
            received_at=operation.received_at,
            position=state.next_position,
            body=body,
            flags=operation.flags,
        )
        if operation.records:
            self._put_records(operation.records)
        puts = self._changes.puts
        puts.append((BLOCK_KEY.pack(log, first_index), value, self._tables.blocks))
        if indexed:
            self._put_keys(log, indexed, first_index, operation.count)
        if numbers is not None:
            numbers.add(operation, first_index, self._put_record)
            self._logs.note(log)
        operation.first_index = first_index
        state.next_index = first_index + operation.count
        state.next_position += size
        state.received_at = operation.received_at
        operation.kept_bytes = state.next_position - state.first_position
        self._touched[log] = state
        blocks = self._blocks.get(log)
        if blocks is None:
            self._blocks[log] = [Block(first_index, value)]
        else:
            blocks.append(Block(first_index, value))
        self._slice_bytes += len(value)

    def _put_keys(self, log: int, indexed: Sequence[bytes], first_index: int, count: int) -> None:
        puts, family = self._changes.puts, self._tables.keys
        puts += [(key, value, family) for key, value in key_rows(log, indexed, count)]
        puts.append((block_keys_key(log, first_index), encode_keys(indexed), family))
        self._slice_bytes += sum(2 * len(key) + _CHANGE_BYTES for key in indexed)

    def _trim(self, operation: Trim) -> None:
        # Blocks of the same group must be in the database, where they are looked for.
        self._write_slice()
        log = operation.log
        state = self._state(log)
        find = partial(block_at, self._tables.blocks_cursor(), log)
        cut = cut_index(operation, state, find)
        operation.trimmed = cut - state.first_index
        if operation.trimmed:
            self._cut(log, state, cut, find)
        operation.oldest_ms = oldest_ms(operation, state, find)
        operation.extent = state.extent()

    def _cut(self, log: int, state: LogState, cut: int, find: BlockAt) -> None:
        """Drop the blocks that end at or before `cut`, the new first index."""
        oldest = find(state.first_index).first_index
        kept, position = cut, state.next_position
        if cut < state.next_index:
            block = find(cut)
            kept, position = block.first_index, block_position(block, cut)
        if oldest < kept:
            span = (BLOCK_KEY.pack(log, oldest), BLOCK_KEY.pack(log, kept), self._tables.blocks)
            self._changes.ranges.append(span)
        self._trimmed_bytes += position - state.first_position
        state.first_index, state.first_position = cut, position
        self._changes.puts.append((LOG_KEY.pack(log), state.encode(), self._tables.blocks))
        self._touched[log] = state
        self._cut_keys(log, kept)

    def _cut_keys(self, log: int, kept: int) -> None:
        """Drop the secondary keys of the blocks before `kept`, each block's list after its keys.

        After a crash in between, the rest of them lead to entries that are no more.
        """
        prefix, family = LOG_KEY.pack(log), self._tables.keys
        end = block_keys_key(log, kept)
        cursor = self._tables.cursors().keys
        row = seek(cursor, block_keys_key(log, 0))
        while row is not None and row < end:
            for key in (*(prefix + key for key in decode_keys(cursor.value())), row):
                self._changes.puts.append((key, None, family))
                self._slice_bytes += _CHANGE_BYTES
            if self._slice_bytes >= self._slice_bytes_max:
                self._write_slice()
            row = step(cursor)

    def _free_space(self) -> None:
        """Let deletions of much data reach the disk soon, though nothing more may be written.

        A compaction frees the space, and knows only of deletions that stand in a table.
        """
        if self._trimmed_bytes >= self._trimmed_bytes_max:
            self._tables.flush_blocks()
            self._trimmed_bytes = 0

    def _rest(self) -> None:
        self._write_slice()
        if self._written_bytes >= REST_BYTES_MIN:
            self._tables.flush_all()
            self._written_bytes = 0

    def _put_stream(self, operation: PutStream) -> None:
        key = stream_key(operation.record.name)
        known = self._stream(operation.record.name)
        record, is_new = settled_record(operation.record, known, self._next_stream_id)
        stored = encode_record(record)
        if is_new:
            self._next_stream_id += self._id_step
            self._put(stream_id_key(record.id), utf8(record.name))
        self._put(key, stored)
        self._streams[record.name] = operation.record = record

    def _remove_stream(self, operation: RemoveStream) -> None:
        self._plan_removal(operation)
        self._write_slice()

    def _plan_removal(self, operation: RemoveStream) -> None:
        # What was planned before must be in the database, where all of it is deleted as one write.
        self._write_slice()
        record = self._stream(operation.name)
        if record is None:
            raise unknown_stream(operation.name)
        for log in logs_of(record.id, record.partitions):
            state = self._state(log)
            self._trimmed_bytes += state.next_position - state.first_position
            self._logs.forget(log)
            self._removed.append(log)
            self._changes.ranges.append((*records_range(beside_log(log)), self._tables.records))
        tables, changes = self._tables, self._changes
        logs = logs_range(record.id)
        changes.ranges += [
            (*logs, tables.blocks),
            (*logs, tables.keys),
            (*saved_index_range(record.name), tables.records),
            (*records_range(beside_stream(record.id)), tables.records),
        ]
        self._put(stream_key(record.name), None)
        self._put(stream_id_key(record.id), None)
        self._streams.pop(record.name, None)
        if record.id >= self._known_from:
            self._gone.add(record.id)
        operation.record = record

    def _stream(self, name: str) -> StreamRecord | None:
        """A stream's record as planned last."""
        planned = self._streams.get(name)
        if planned is not None:
            return planned
        stored = self._tables.record(stream_key(name))
        return None if stored is None else decode_record(stored)

    def _state(self, log: int) -> LogState:
        """A log's state, to be changed as planned.

        Raises:
            StoreError: `stream.removed`.
        """
        state = self._logs.find(log)
        if state is not None:
            return state
        stream_id = log >> 32
        if self._known_from <= stream_id < self._next_stream_id:
            if stream_id in self._gone or (self._next_stream_id - stream_id) % self._id_step:
                raise removed_error(stream_id)
            return self._logs.begin(log)
        written = 0 < stream_id < self._written_stream_id
        if written and self._tables.record(stream_id_key(stream_id)) is None:
            raise removed_error(stream_id)
        return self._logs.load(log)

    def _put_records(self, records: Sequence[tuple[str, bytes | None]]) -> None:
        # Every name first: a wrong one must leave nothing of the others.
        for key, value in [(record_key(key), value) for key, value in records]:
            self._put(key, value)

    def _put_record(self, name: str, value: bytes | None) -> None:
        self._put(record_key(name), value)

    def _put(self, key: bytes, value: bytes | None) -> None:
        self._changes.puts.append((key, value, self._tables.records))
        self._slice_bytes += _CHANGE_BYTES + (0 if value is None else len(value))

    def _copy_to(self, path: Path) -> None:
        """Carry out a Checkpoint.

        Raises:
            StoreError: the directory is there already, or the disk did not take it.
            Exception: what was written before could not be synced.
        """
        # Outside of what follows: when this fails, what else was written is lost, too.
        self._tables.sync()
        try:
            make_directory(path.parent)
            self._tables.checkpoint(path)
        except Exception as error:
            if is_full(str(error)):
                raise full_error(path.parent) from error
            text = f"no copy of the store could be made in {path}: {error}"
            raise StoreError("store.checkpoint", text, path=str(path)) from error

    def _write_slice(self) -> None:
        """Put what is planned into memory: the interpreter is held for as long as that takes."""
        changes = self._changes
        if not changes.puts and not changes.ranges:
            return
        if self._written_stream_id != self._next_stream_id:
            self._put(NEXT_STREAM_KEY, NUMBER.pack(self._next_stream_id))
        if not self._written:
            self._view.freeze()
            self._written = True
        self._tables.write(changes)
        self._written_stream_id = self._next_stream_id
        self._written_bytes += self._slice_bytes
        self._changes = Changes()
        self._slice_bytes = 0


MakeCommit = Callable[[Tables, DurableView, TailCache, Tuning], GroupCommit]
"""Makes what carries out groups of writes on tables that were opened."""
