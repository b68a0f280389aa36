"""Stands in for RocksDB in memory, with a disk that can lose what was not synced."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from rillnode.actors.log.memory import Faults
from rillnode.actors.log.rocks.tables import Changes, Cursors, Tables
from rillnode.codecs.errors import StoreError
from rillnode.node.simulation.rows import Rows

if TYPE_CHECKING:
    from pathlib import Path


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

    def checkpoint(self, path: "Path") -> None:
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
