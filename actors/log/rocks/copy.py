"""A store on RocksDB as one that is copied, or copied into; see `copying`."""

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from rillnode.actors.log import StreamRecord
from rillnode.actors.log.copying import Piece
from rillnode.actors.log.directories import make_directory
from rillnode.actors.log.rocks.format import MIGRATIONS, check_copied, check_format, settle_format
from rillnode.actors.log.rocks.layout import (
    BLOCK_KEY,
    COPY_KEY,
    LOG_KEY,
    Change,
    LogState,
    block_keys_key,
    decode_keys,
    encode_keys,
    key_rows,
    logs_range,
)
from rillnode.actors.log.rocks.logs import block_at, block_here, hole_error, load_state, seek, step
from rillnode.actors.log.rocks.tables import Changes, Tables, Tuning, open_error
from rillnode.codecs.errors import StoreError


class RocksCopy:
    """The rows and logs of a store on RocksDB. Calls block for as long as the disk takes."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    @classmethod
    def source(cls, path: Path) -> "RocksCopy":
        """A store that is read, and not changed.

        Raises:
            StoreError: it is not readable, of another format, or a copy that is not finished.
        """
        tables = Tables(path, Tuning(), read_only=True)
        try:
            check_format(tables, path)
            check_copied(tables.record(COPY_KEY) is not None)
        except StoreError:
            tables.close()
            raise
        return cls(tables)

    @classmethod
    def target(cls, path: Path) -> "RocksCopy":
        """A store that is written, new or left by an earlier copy.

        Raises:
            StoreError: it cannot be opened, is in use, or is of another format.
        """
        try:
            make_directory(path)
        except OSError as error:
            raise open_error(path, error) from error
        tables = Tables(path, Tuning())
        try:
            settle_format(tables, path, MIGRATIONS)
        except StoreError:
            tables.close()
            raise
        return cls(tables)

    def close(self) -> None:
        """Let the files go."""
        self._tables.close()

    # What is there ---------------------------------------------------------------------------

    async def rows(self, prefix: bytes = b"") -> AsyncGenerator[tuple[bytes, bytes], None]:
        """The rows of the default family."""
        cursor = self._tables.cursors().records
        key = seek(cursor, prefix)
        while key is not None and key.startswith(prefix):
            value: bytes = cursor.value()
            yield key, value
            key = step(cursor)

    async def state(self, log: int) -> LogState:
        """Where a log begins and ends."""
        return load_state(self._tables.blocks_cursor(), log)

    async def pieces(self, log: int, index: int) -> AsyncGenerator[Piece, None]:
        """A log's blocks with their keys."""
        cursors = self._tables.cursors()
        state = load_state(cursors.blocks, log)
        index = max(index, state.first_index)
        if index >= state.next_index:
            return
        block = block_at(cursors.blocks, log, index)
        while True:
            keys_key = block_keys_key(log, block.first_index)
            listed = seek(cursors.keys, keys_key) == keys_key
            yield Piece(block, decode_keys(cursors.keys.value()) if listed else [])
            if block.next_index >= state.next_index:
                return
            key = BLOCK_KEY.pack(log, block.next_index)
            if step(cursors.blocks) != key:
                raise hole_error(log, block.next_index)
            block = block_here(cursors.blocks, key)

    # Writing ---------------------------------------------------------------------------------

    async def put_rows(self, changes: Sequence[Change]) -> None:
        """Write rows, durably."""
        records = self._tables.records
        self._write(Changes(puts=[(key, value, records) for key, value in changes]))

    async def prepare(self, streams: Sequence[StreamRecord]) -> None:
        """Return at once: ids are kept."""

    async def drop(self, record: StreamRecord) -> None:
        """Remove the logs of a stream."""
        logs = logs_range(record.id)
        tables = self._tables
        self._write(Changes(ranges=[(*logs, tables.blocks), (*logs, tables.keys)]))

    async def put(self, log: int, pieces: Sequence[Piece]) -> None:
        """Add blocks to the end of a log, durably."""
        tables, changes = self._tables, Changes()
        for block, keys in pieces:
            index = block.first_index
            changes.puts.append((BLOCK_KEY.pack(log, index), block.value, tables.blocks))
            if keys:
                rows = key_rows(log, keys, block.next_index - index)
                changes.puts += [(key, value, tables.keys) for key, value in rows]
                listed = encode_keys(keys)
                changes.puts.append((block_keys_key(log, index), listed, tables.keys))
        self._write(changes)

    async def begin_at(self, log: int, state: LogState) -> None:
        """Let a log begin where the source's does."""
        cursors, tables = self._tables.cursors(), self._tables
        if load_state(cursors.blocks, log).encode() == state.encode():
            return
        kept = state.first_index
        if kept < state.next_index:
            kept = block_at(cursors.blocks, log, kept).first_index
        changes = Changes()
        changes.puts.append((LOG_KEY.pack(log), state.encode(), tables.blocks))
        changes.ranges.append((BLOCK_KEY.pack(log, 0), BLOCK_KEY.pack(log, kept), tables.blocks))
        self._remove_keys(log, kept, changes)
        self._write(changes)

    def _remove_keys(self, log: int, kept: int, changes: Changes) -> None:
        """Remove the secondary keys of the blocks before `kept`, and their lists."""
        keys, prefix = self._tables.keys, LOG_KEY.pack(log)
        cursor = self._tables.cursors().keys
        row, end = seek(cursor, block_keys_key(log, 0)), block_keys_key(log, kept)
        while row is not None and row < end:
            removed = (*(prefix + key for key in decode_keys(cursor.value())), row)
            changes.puts += [(key, None, keys) for key in removed]
            row = step(cursor)

    def _write(self, changes: Changes) -> None:
        self._tables.write(changes)
        self._tables.sync()
