"""A disk with the store of this machine's nodes on it: the real one, but for RocksDB itself."""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Final

from rillnode.actors.log import (
    Complete,
    LogStore,
    OnHealth,
    Operation,
    ReadOperation,
    WriteOperation,
)
from rillnode.actors.log.rocks.reads import answer
from rillnode.actors.log.rocks.store import RocksLogStore
from rillnode.actors.log.rocks.tables import Cursors, Tuning
from rillnode.actors.ports import Clock
from rillnode.node.simulation.database import Database, SimulatedTables
from rillnode.node.simulation.disk import Disk, MemoryDisk, OnSubmit, Rows, Table
from rillnode.node.simulation.loop import ProcessLoop
from rillnode.node.simulation.scenario import DiskTable
from rillnode.node.simulation.threads import SimulatedThreads

_DIRECTORY: Final = Path("/simulated/store")
"""Errors name it. It is the same wherever a simulation runs: a relative one would not be."""

LATE_PART: Final = 0.1
"""How many disks have threads that are late: others run before they tell what they have done."""

LATE_SECONDS: Final = 0.02
"""How late, at most."""


class RocksDisk(Disk):
    """With a RocksLogStore, whose threads are simulated and whose database is in memory.

    The sizes by which it groups, slices, keeps and forgets are chance, and mostly far below the
    usual ones: so a small scenario comes to what else needs gigabytes.
    """

    def __init__(self, table: DiskTable, make_random: Callable[[], Random]) -> None:
        super().__init__(table, make_random)
        self._database = Database(self.faults)
        self._threads: SimulatedThreads | None = None
        self._shown: Cursors | None = None
        late = Random(f"{make_random().random()} late")
        self._late = late if late.random() < LATE_PART else None

    def make_store(
        self, loop: ProcessLoop, clock: Clock, complete: Complete, on_health: OnHealth
    ) -> LogStore:
        """The store, for a process that begins."""
        threads = self._threads = SimulatedThreads(loop)
        database = self._database

        def wait() -> None:
            threads.sleep(self.sync_seconds())

        def tell(operations: Sequence[Operation]) -> None:
            if self._late is not None:
                threads.sleep(self._late.choice((0.0, self._late.uniform(0.0, LATE_SECONDS))))
            complete(operations)

        def open_tables(_: Path, __: Tuning) -> SimulatedTables:
            database.open()
            return SimulatedTables(database, wait)

        store = _Store(
            _DIRECTORY,
            complete=tell,
            on_health=on_health,
            tuning=self._tuning(),
            open_tables=open_tables,
            threads=threads,
        )
        store.on_submit = self._submitted
        return store

    def _tuning(self) -> Tuning:
        pick, seconds = self.random.choice, self.faults.repair_seconds
        return Tuning(
            group_bytes_max=pick((1_000, 100_000, 8_388_608)),
            slice_bytes_max=pick((300, 5_000, 1_048_576)),
            memtable_bytes=pick((1_000, 67_108_864)),
            tail_bytes_max=pick((2_000, 50_000, 33_554_432)),
            logs_max=pick((1, 3, 32_768)),
            repair_seconds_min=seconds,
            repair_seconds_max=seconds,
        )

    def _submitted(self, operation: WriteOperation) -> None:
        if self.on_submit is not None:
            self.on_submit(operation)

    def crash(self) -> None:
        """The process ends without closing; how much of what was not synced is there is chance.

        A group is written in slices: each is there or not, and none without those before it.
        """
        self.close()
        self._database.lose(self.random.randrange(self._database.unsynced + 1))
        self._database.refuse(0)

    def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.kill()

    def replace(self) -> bool:
        """A new disk, with nothing on it."""
        self._database = Database(self.faults)
        return True

    def look(self, operation: ReadOperation) -> None:
        """Answer a read now, for who only watches."""
        answer(operation, self._shown or self._database.cursors(checked=False))

    def show_on(self) -> None:
        """Let `look` answer from now on as the disk is now."""
        self._shown = self._database.cursors(checked=False)

    def rows(self, table: Table) -> Rows:
        """What stands in one of the tables, in the order of keys."""
        return self._database.rows(table)

    @property
    def durable_bytes(self) -> int:
        """Bytes that stand on it."""
        return self._database.size

    def spoil(self, reads: int) -> None:
        """Let so many of the next reads find a block whose checksum is wrong."""
        self._database.bad_reads = reads


def make_disk(table: DiskTable, make_random: Callable[[], Random]) -> Disk:
    """The disk that a scenario asks for."""
    kind = RocksDisk if table.store == "rocks" else MemoryDisk
    return kind(table, make_random)


class _Store(RocksLogStore):
    """One that needs no directory, and tells of what is submitted."""

    on_submit: OnSubmit

    def submit(self, operation: WriteOperation) -> None:
        """Queue a write."""
        self.on_submit(operation)
        super().submit(operation)

    def _prepare(self) -> None:
        """There is no directory."""
