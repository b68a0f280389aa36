"""The view of a shard on RocksDB: the store of one node, with frames in place of its own writes.

It is not synced: all that it holds is in the log, or in a snapshot, and can be had again. What is
on the disk after a crash is the state at some operation of some frame, and says at which.
"""

import asyncio
import os
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from rillnode.actors.core.threads import SYSTEM_THREADS, Threads
from rillnode.actors.log import (
    Complete,
    OnHealth,
    Operation,
    RemoveStream,
    SavedIndexKey,
    written_bytes,
)
from rillnode.actors.log.rocks.commit import GroupCommit
from rillnode.actors.log.rocks.layout import (
    INDEX,
    LOG_KEY,
    LogState,
    decode_record,
    encode_record,
    record_key,
    saved_index_key,
    stream_key,
)
from rillnode.actors.log.rocks.logs import seek, step
from rillnode.actors.log.rocks.store import RocksLogStore
from rillnode.actors.log.rocks.tables import Changes, Tables, Tuning
from rillnode.actors.log.rocks.tail import TailCache
from rillnode.actors.log.rocks.view import DurableView
from rillnode.actors.log.shared.applying import (
    IDENTITY_KEY,
    PROGRESS_KEY,
    WRONG,
    Applier,
    ApplyFrame,
    Progress,
    check_empty,
)
from rillnode.actors.log.shared.frames import BeginLog, PutListing, SharedOperation
from rillnode.codecs.errors import StoreError

VIEW_TUNING: Final = Tuning(
    memtable_bytes=16_777_216,
    wal_bytes_max=67_108_864,
    cache_bytes=8_388_608,
    tail_bytes_max=16_777_216,
    readers=1,
)
"""There are as many views as shards in use: each is smaller than the store of one node."""

SMALL_BYTES: Final = 16_384
"""What a frame on the loop may hold of entries and values. Own choice: a tenth of a millisecond."""


class UnsyncedTables(Tables):
    """Tables whose writes reach the disk when they do."""

    def sync(self) -> None:
        """Return at once."""


class ViewCommit(GroupCommit):
    """Carries out groups of frames.

    Every write has with it how far the view is then, so that a crash between two of them leaves
    it at the operation that the second one would have begun with.
    """

    def __init__(
        self,
        shard: int,
        shards: int,
        tables: Tables,
        view: DurableView,
        tail: TailCache,
        tuning: Tuning,
    ) -> None:
        self._first_id, self._id_step = shard or shards, shards
        super().__init__(tables, view, tail, tuning)
        # Records that are planned and not written yet.
        self._planned: dict[bytes, bytes | None] = {}
        # Not itself: a ring would keep handles, and with them the database, when it has failed.
        self._applier = Applier(weakref.proxy(self), shard, shards)
        self._written_progress = self._applier.progress

    def _plan(self, operation: Operation) -> None:
        if isinstance(operation, ApplyFrame):
            self._applier.apply(operation)
        else:
            super()._plan(operation)

    def _remove_stream(self, operation: RemoveStream) -> None:
        self._plan_removal(operation)
        # It is written as soon as it is settled: what comes next looks for it in the database.
        self._slice_bytes = self._slice_bytes_max

    def _put(self, key: bytes, value: bytes | None) -> None:
        self._planned[key] = value
        super()._put(key, value)

    def _write_slice(self) -> None:
        progress = self._applier.progress
        if progress != self._written_progress:
            self._put(PROGRESS_KEY, progress.encode())
        super()._write_slice()
        self._written_progress = progress
        self._planned.clear()

    # What a frame is carried out on ----------------------------------------------------------

    def row(self, key: bytes) -> bytes | None:
        """A record as it is planned, by its key in the database."""
        if key in self._planned:
            return self._planned[key]
        return self._tables.record(key)

    def put_row(self, key: bytes, value: bytes | None) -> None:
        """Plan to change one."""
        self._put(key, value)

    def rows(self, prefix: bytes) -> Sequence[tuple[bytes, bytes]]:
        """Rows of the database; asked for when nothing is planned."""
        cursor = self._tables.cursors().records
        found: list[tuple[bytes, bytes]] = []
        key = seek(cursor, prefix)
        while key is not None and key.startswith(prefix):
            found.append((key, cursor.value()))
            key = step(cursor)
        return found

    def log_end(self, log: int) -> int:
        """The index after a log's last entry."""
        return self._state(log).next_index

    def saved_index(self, key: SavedIndexKey) -> int | None:
        """A position that is saved."""
        row = self.row(saved_index_key(key))
        return None if row is None else INDEX.unpack(row)[0]

    def value(self, name: str) -> bytes | None:
        """A named value."""
        return self.row(record_key(name))

    def carry_out(self, operation: SharedOperation) -> None:
        """Plan an operation, or nothing of it."""
        changes = self._changes
        puts, ranges = len(changes.puts), len(changes.ranges)
        try:
            if isinstance(operation, PutListing):
                record, key = operation.record, stream_key(operation.name)
                if record is None and (was := self.row(key)) is not None:
                    operation.was = decode_record(was)
                self._put(key, None if record is None else encode_record(record))
            elif isinstance(operation, BeginLog):
                self._begin_log(operation)
            else:
                super()._plan(operation)
        except WRONG:
            if self._changes is changes:
                del changes.puts[puts:], changes.ranges[ranges:]
                records = self._tables.records
                self._planned = {key: row for key, row, of in changes.puts if of is records}
            raise

    def settled(self) -> None:
        """Write what is planned, where it is much."""
        if self._slice_bytes >= self._slice_bytes_max:
            self._write_slice()

    def _begin_log(self, operation: BeginLog) -> None:
        state = self._state(operation.log)
        check_empty(operation, state)
        index, position = operation.index, operation.position
        row = LogState(index, index, position, position).encode()  # first: it may be none
        state.first_index = state.next_index = index
        state.first_position = state.next_position = position
        self._changes.puts.append((LOG_KEY.pack(operation.log), row, self._tables.blocks))
        self._touched[operation.log] = state


class RocksView(RocksLogStore):
    """A LogStore on RocksDB that takes frames, and says how far it is.

    Args:
        path: its directory.
        identity: which view of which log it is.
        shard, shards: likewise.
        complete: told of what is carried out; called from any thread.
        on_health: told whether it carries frames out.
        threads: makes its threads.
        on_loop: carry small frames out on the loop of who gives them, which saves two hand-overs
            between threads; a view waits for no sync.

    Attributes:
        progress: how far it was when its tables were opened last.
        tables: as they were opened last, for who copies.
    """

    tables: Tables

    def __init__(
        self,
        path: str | os.PathLike[str],
        identity: bytes,
        shard: int,
        shards: int,
        *,
        complete: Complete,
        on_health: OnHealth,
        threads: Threads = SYSTEM_THREADS,
        on_loop: bool = False,
    ) -> None:
        self.progress = Progress()
        self._identity = identity
        self._is_small = False
        super().__init__(
            path,
            complete=complete,
            on_health=on_health,
            tuning=VIEW_TUNING,
            open_tables=UnsyncedTables,
            make_commit=partial(ViewCommit, shard, shards),
            threads=threads,
            at_turns_end=self._soon if on_loop else None,
        )

    def apply(self, frame: ApplyFrame) -> None:
        """Queue a frame; it is completed, as a write is, when it is carried out."""
        self._is_small = sum(map(written_bytes, frame.operations)) <= SMALL_BYTES
        self._writer.submit(frame)

    def _soon(self, work: Callable[[], None]) -> bool:
        """Carry small frames out on the loop, where that need not wait for a disk."""
        if self._is_small:
            asyncio.get_running_loop().call_soon(work)
        return self._is_small

    def _open_tables(self) -> Tables:
        tables = self.tables = super()._open_tables()
        identity = tables.record(IDENTITY_KEY)
        if identity is None:
            tables.write(Changes(puts=[(IDENTITY_KEY, self._identity, tables.records)]))
        elif identity != self._identity:
            tables.close()
            raise StoreError(
                "store.foreign",
                f"{self._path} is a view of another log: give this node another data_dir, or "
                "delete that directory",
                retryable=False,
                path=str(self._path),
            )
        self.progress = Progress.decode(tables.record(PROGRESS_KEY))
        return tables
