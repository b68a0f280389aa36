"""Stands in for RocksDB in memory, with a disk that can lose what was not synced."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, cast
from weakref import WeakSet

from rillnode.actors.log.memory import Faults
from rillnode.actors.log.rocks.tables import Changes, Cursors, Tables
from rillnode.codecs.errors import StoreError

Version = tuple[int, bytes | None]
"""The number of a write, and what it has written; None: it has deleted the row."""


class Rows:
    """One table: keys in the order of their bytes, as a database keeps them.

    Each write has a number. A row keeps what was written to it under which number for as long as a
    cursor may ask, so that a view costs nothing to make and does not see what is written after it.

    Attributes:
        size: bytes of all values, as written last.
    """

    def __init__(self) -> None:
        self.size = 0
        self._keys: list[bytes] = []
        self._versions: dict[bytes, list[Version]] = {}
        self._touched: dict[bytes, None] = {}
        self._cursors: WeakSet[Cursor] = WeakSet()

    def put(self, key: bytes, value: bytes | None, number: int) -> None:
        """Write a row under a number that is not below any before; None deletes it."""
        versions = self._versions.get(key)
        if versions is None:
            if value is None:
                return
            versions = self._versions[key] = []
            insort(self._keys, key)
        before = versions[-1][1] if versions else None
        self.size += len(value or b"") - len(before or b"")
        versions.append((number, value))
        self._touched[key] = None

    def delete_range(self, begin: bytes, end: bytes, number: int) -> None:
        """Delete all rows from `begin` on, before `end`."""
        keys = self._keys
        for key in keys[bisect_left(keys, begin) : bisect_left(keys, end)]:
            self.put(key, None, number)

    def value(self, key: bytes, number: int) -> bytes | None:
        """What a row held after the write of this number."""
        for written, value in reversed(self._versions.get(key, ())):
            if written <= number:
                return value
        return None

    def items(self, number: int) -> list[tuple[bytes, bytes]]:
        """All rows as they were after the write of this number, in the order of keys."""
        found = [(key, self.value(key, number)) for key in self._keys]
        return [(key, value) for key, value in found if value is not None]

    def revert(self, number: int) -> None:
        """Undo all writes after this number that were made since `settle`."""
        for key in self._touched:
            versions = self._versions[key]
            self.size -= len(versions[-1][1] or b"")
            while versions and versions[-1][0] > number:
                versions.pop()
            if versions:
                self.size += len(versions[-1][1] or b"")
            else:
                self._drop(key)
        self._touched.clear()

    def settle(self, number: int) -> None:
        """Forget what nobody can ask for any more: writes up to this number are not undone."""
        oldest = min((cursor.number for cursor in self._cursors), default=number)
        if oldest < number:
            return
        for key in self._touched:
            versions = self._versions[key]
            del versions[:-1]
            if versions[0][1] is None:
                self._drop(key)
        self._touched.clear()

    def _drop(self, key: bytes) -> None:
        del self._versions[key], self._keys[bisect_left(self._keys, key)]

    def cursor(self, number: int, check: Callable[[], None]) -> "Cursor":
        """A view of the table after the write of this number; `check` may fail what is read."""
        cursor = Cursor(self, self._keys, number, check)
        self._cursors.add(cursor)
        return cursor


class Cursor:
    """A place in a table as it was; has what the store uses of RocksDB's iterators."""

    __slots__ = ("__weakref__", "_check", "_key", "_keys", "_rows", "number")

    def __init__(
        self, rows: Rows, keys: list[bytes], number: int, check: Callable[[], None]
    ) -> None:
        self._rows = rows
        self._keys = keys
        self._check = check
        self._key: bytes | None = None
        self.number = number

    def seek(self, key: bytes) -> None:
        """Move to the first row at or after a key."""
        self._move(bisect_left(self._keys, key), 1)

    def seek_for_prev(self, key: bytes) -> None:
        """Move to the last row at or before a key."""
        self._move(bisect_right(self._keys, key) - 1, -1)

    def seek_to_first(self) -> None:
        """Move to the first row."""
        self._move(0, 1)

    def next(self) -> None:
        """Move to the next row."""
        if self._key is not None:
            self._move(bisect_right(self._keys, self._key), 1)

    def prev(self) -> None:
        """Move to the row before."""
        if self._key is not None:
            self._move(bisect_left(self._keys, self._key) - 1, -1)

    def valid(self) -> bool:
        """Whether it is at a row."""
        return self._key is not None

    def status(self) -> None:
        """Raise what has gone wrong: nothing has."""

    def key(self) -> bytes | None:
        """The key of its row, if it is at one."""
        return self._key

    def value(self) -> bytes | None:
        """What its row holds, if it is at one.

        Raises:
            Exception: what is on the disk is not what was written.
        """
        self._check()
        return None if self._key is None else self._rows.value(self._key, self.number)

    def _move(self, at: int, step: int) -> None:
        keys, rows, number = self._keys, self._rows, self.number
        while 0 <= at < len(keys):
            if rows.value(keys[at], number) is not None:
                self._key = keys[at]
                return
            at += step
        self._key = None


REFUSALS: Final = 3
"""How often a disk that has failed cannot be opened again at first: less often than this."""


class Database:
    """A database on one disk, and what was written there and not synced yet.

    Attributes:
        faults: how the disk behaves.
        bad_reads: so many of the next blocks that are read have a wrong checksum.
    """

    def __init__(self, faults: Faults) -> None:
        self.blocks, self.keys, self.records = Rows(), Rows(), Rows()
        self.faults = faults
        self.bad_reads = 0
        self._refusals = 0
        self._written = self._synced = 0

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return self.blocks.size + self.keys.size + self.records.size

    @property
    def unsynced(self) -> int:
        """Writes that a loss of power may undo."""
        return self._written - self._synced

    def cursors(self, *, checked: bool = True) -> Cursors:
        """A view of all that was written, or, unchecked, of what would survive."""
        number = self._written if checked else self._synced
        check = self._check if checked else _trust
        # By shape they are what the binding has.
        return Cursors(
            cast(Any, self.blocks.cursor(number, check)),
            cast(Any, self.keys.cursor(number, check)),
            cast(Any, self.records.cursor(number, check)),
        )

    def rows(self, table: Literal["blocks", "keys", "records"]) -> list[tuple[bytes, bytes]]:
        """What of a table would survive, in the order of keys."""
        one: Rows = getattr(self, table)
        return one.items(self._synced)

    def record(self, key: bytes) -> bytes | None:
        """A small value as written last."""
        return self.records.value(key, self._written)

    def write(self, changes: Changes) -> None:
        """Apply changes, whole."""
        self._written += 1
        for begin, end, rows in changes.ranges:
            cast(Any, rows).delete_range(begin, end, self._written)
        for key, value, rows in changes.puts:
            cast(Any, rows).put(key, value, self._written)

    def sync(self) -> None:
        """Make durable what was written.

        Raises:
            OSError: the disk did not.
        """
        faults = self.faults
        if faults.failing_syncs > 0:
            faults.failing_syncs -= 1
            raise OSError("IO error: While fdatasync: the disk failed")
        if faults.capacity_bytes is not None and self.size > faults.capacity_bytes:
            raise OSError("IO error: No space left on device")
        self._synced = self._written
        for rows in (self.blocks, self.keys, self.records):
            rows.settle(self._synced)

    def open(self) -> None:
        """Open it, in the process that runs on.

        Raises:
            StoreError: the disk has failed lately, and is not itself again yet.
        """
        if self._refusals:
            self._refusals -= 1
            raise StoreError("store.unreadable", "the disk has failed", retryable=False)

    def refuse(self, times: int) -> None:
        """Let it not be opened so often."""
        self._refusals = times

    def lose(self, surviving: int) -> None:
        """Undo what was not synced, but for its first writes."""
        self._written = self._synced = self._synced + min(surviving, self.unsynced)
        for rows in (self.blocks, self.keys, self.records):
            rows.revert(self._synced)

    def _check(self) -> None:
        if self.bad_reads:
            self.bad_reads -= 1
            raise OSError("Corruption: block checksum mismatch")


def _trust() -> None:
    """Nothing is wrong."""


class SimulatedTables(Tables):
    """An open database.

    Args:
        database: what stands on the disk.
        wait: lets the time pass that a sync takes.
    """

    def __init__(self, database: Database, wait: Callable[[], None]) -> None:
        self._database = database
        self._wait = wait
        self._failed = False
        self._closed = False
        self.blocks = cast(Any, database.blocks)
        self.keys = cast(Any, database.keys)
        self.records = cast(Any, database.records)

    def cursors(self) -> Cursors:
        """Everything written so far, synced or not."""
        return self._database.cursors()

    def blocks_cursor(self) -> Any:
        """The blocks written so far, synced or not."""
        return self._database.cursors().blocks

    def records_cursor(self) -> Any:
        """Likewise the small values."""
        return self._database.cursors().records

    def record(self, key: bytes) -> bytes | None:
        """A small value as written last, synced or not."""
        return self._database.record(key)

    def write(self, changes: Changes) -> None:
        """Apply changes, whole."""
        self._check()
        self._database.write(changes)

    def sync(self) -> None:
        """Return once everything written would survive a power cut."""
        self._check()
        self._wait()
        try:
            self._database.sync()
        except OSError:
            self._failed = True
            raise

    def flush_blocks(self) -> None:
        """There is nothing to be moved."""

    def checkpoint(self, path: Path) -> None:
        """Copies are not simulated."""
        raise StoreError("store.checkpoint", "a simulated store is not copied", path=str(path))

    def has_room(self) -> bool:
        """Whether the disk is not full any more."""
        return self._database.faults.capacity_bytes is None

    def close(self) -> None:
        """Let go; after a failed sync some of what it should have kept may be there or not."""
        if not self._closed:
            self._closed = True
            kept = self._database.faults.surviving if self._failed else self._database.unsynced
            self._database.lose(kept)
            if self._failed:
                self._database.refuse(self._database.faults.surviving % REFUSALS)

    def _check(self) -> None:
        """RocksDB takes no more writes once one has failed."""
        if self._failed or self._closed:
            raise OSError("IO error: the database is closed, or its disk has failed")
