"""One group of writes: planned into changes, written in slices, made durable by one sync."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from rillnode.actors.storage import (
    Append,
    PutStream,
    SaveIndex,
    StreamRecord,
    Trim,
    WriteOperation,
)
from rillnode.actors.storage.layout import (
    BLOCK_KEY,
    INDEX,
    LOG_KEY,
    NEXT_STREAM_KEY,
    NUMBER,
    LogState,
    decode_record,
    encode_record,
    record_key,
    saved_index_key,
    stream_id_key,
    stream_key,
    utf8,
)
from rillnode.actors.storage.logs import LogTable, block_at, block_position
from rillnode.actors.storage.retention import BlockAt, cut_index
from rillnode.actors.storage.tables import Changes, Tables, Tuning
from rillnode.actors.storage.tail import TailCache
from rillnode.actors.storage.view import DurableView
from rillnode.codecs.entries import Block, data_bytes, encode_block
from rillnode.codecs.errors import StoreError

_CHANGE_BYTES: Final = 100
"""What a small change counts for beside its value."""


class GroupCommit:
    """Carries out groups of writes on open tables; belongs to the writer thread.

    It lives until a write or sync fails: what it knows is then ahead of what is durable.
    """

    def __init__(self, tables: Tables, view: DurableView, tail: TailCache, tuning: Tuning) -> None:
        self._tables = tables
        self._view = view
        self._tail = tail
        self._slice_bytes_max = tuning.slice_bytes_max
        self._trimmed_bytes_max = tuning.memtable_bytes
        self._logs = LogTable(tables, tuning.logs_max)
        stored = tables.record(NEXT_STREAM_KEY)
        self._next_stream_id: int = NUMBER.unpack(stored)[0] if stored else 1
        self._changes = Changes()
        self._slice_bytes = 0
        self._trimmed_bytes = 0
        self._written = False
        # What the group has planned and the database does not show yet.
        self._streams: dict[str, StreamRecord] = {}
        self._blocks: list[tuple[int, Block]] = []
        self._touched: dict[int, LogState] = {}

    def run(self, group: Sequence[WriteOperation]) -> None:
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
        self._blocks = []
        self._touched = {}
        self._streams = {}
        self._logs.age()

    def _plan(self, operation: WriteOperation) -> None:
        if isinstance(operation, Append):
            self._append(operation)
        elif isinstance(operation, SaveIndex):
            key = saved_index_key(operation.key)
            self._put(key, INDEX.pack(operation.index))
        elif isinstance(operation, Trim):
            self._trim(operation)
        elif isinstance(operation, PutStream):
            self._put_stream(operation)
        else:
            self._put(record_key(operation.key), operation.value)

    def _append(self, operation: Append) -> None:
        log, body = operation.log, operation.body
        state = self._logs.get(log)
        first_index = state.next_index
        value = encode_block(
            count=operation.count,
            kind=operation.kind,
            received_at=operation.received_at,
            position=state.next_position,
            body=body,
            flags=operation.flags,
        )
        puts = self._changes.puts
        puts.append((BLOCK_KEY.pack(log, first_index), value, self._tables.blocks))
        for key, pair_value in operation.keys:
            puts.append((LOG_KEY.pack(log) + key, pair_value, self._tables.keys))
        operation.first_index = first_index
        state.next_index = first_index + operation.count
        state.next_position += data_bytes(operation.count, body, operation.flags)
        self._touched[log] = state
        self._blocks.append((log, Block(first_index, value)))
        self._slice_bytes += len(value) + _CHANGE_BYTES * len(operation.keys)

    def _trim(self, operation: Trim) -> None:
        # Blocks of the same group must be in the database, where they are looked for.
        self._write_slice()
        log = operation.log
        state = self._logs.get(log)
        find = partial(block_at, self._tables.blocks_cursor(), log)
        cut = cut_index(operation, state, find)
        operation.trimmed = cut - state.first_index
        if operation.trimmed:
            self._cut(log, state, cut, find)
        if operation.keys_before:
            prefix = LOG_KEY.pack(log)
            keys = (prefix, prefix + operation.keys_before, self._tables.keys)
            self._changes.ranges.append(keys)
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

    def _free_space(self) -> None:
        """Let deletions of much data reach the disk soon, though nothing more may be written.

        A compaction frees the space, and knows only of deletions that stand in a table.
        """
        if self._trimmed_bytes >= self._trimmed_bytes_max:
            self._tables.flush_blocks()
            self._trimmed_bytes = 0

    def _put_stream(self, operation: PutStream) -> None:
        record = operation.record
        key = stream_key(record.name)
        utf8(record.owner)
        known = self._streams.get(record.name)
        if known is None:
            stored = self._tables.record(key)
            known = None if stored is None else decode_record(stored)
        if record.id:
            if known is None or known.id != record.id:
                raise StoreError(
                    "store.unknown",
                    f"no stream has the name {record.name!r} and the id {record.id}",
                    retryable=False,
                )
        elif known is not None:
            raise StoreError(
                "store.exists", f"a stream {record.name!r} exists already", retryable=False
            )
        else:
            record = msgspec.structs.replace(record, id=self._next_stream_id)
            self._next_stream_id += 1
            self._put(NEXT_STREAM_KEY, NUMBER.pack(self._next_stream_id))
            self._put(stream_id_key(record.id), utf8(record.name))
        self._put(key, encode_record(record))
        self._streams[record.name] = operation.record = record

    def _put(self, key: bytes, value: bytes | None) -> None:
        self._changes.puts.append((key, value, self._tables.records))
        self._slice_bytes += _CHANGE_BYTES + (0 if value is None else len(value))

    def _write_slice(self) -> None:
        """Put what is planned into memory: the interpreter is held for as long as that takes."""
        changes = self._changes
        if not changes.puts and not changes.ranges:
            return
        if not self._written:
            self._view.freeze()
            self._written = True
        self._tables.write(changes)
        self._changes = Changes()
        self._slice_bytes = 0
