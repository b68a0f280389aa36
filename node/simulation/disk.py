"""A host's disk: what outlives the processes that open it, and its faults."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Final, Literal

from rillnode.actors.log import (
    Append,
    Complete,
    LogStore,
    OnHealth,
    Operation,
    Read,
    ReadOperation,
    WriteOperation,
)
from rillnode.actors.log.memory import Faults, MemoryLogStore
from rillnode.actors.log.rocks.reads import answer
from rillnode.actors.log.rocks.store import RocksLogStore
from rillnode.actors.log.rocks.tables import Cursors, Tuning
from rillnode.actors.ports import Clock
from rillnode.codecs.errors import StoreError
from rillnode.node.simulation.database import Database, SimulatedTables
from rillnode.node.simulation.loop import ProcessLoop
from rillnode.node.simulation.scenario import DiskTable
from rillnode.node.simulation.threads import SimulatedThreads

SLOW_FACTOR: Final = 200.0
"""How much longer a sync of a slow disk takes: 0.4 s for one of 2 ms."""

_SYNC_SIGMA: Final = 0.5

Table = Literal["blocks", "keys", "records"]

Rows = Sequence[tuple[bytes, bytes]]
"""Keys and values."""


class Disk(ABC):
    """The disk of one machine, and the store on it.

    Attributes:
        faults: how it behaves.
        slow: how much longer than usual a sync takes.
        on_submit: is called with each write when it is submitted.
    """

    def __init__(self, table: DiskTable, make_random: Callable[[], Random]) -> None:
        self.faults = Faults(repair_seconds=table.repair_seconds)
        self.slow = 1.0
        self.on_submit: Callable[[WriteOperation], None] | None = None
        self._table = table
        self._make_random = make_random

    @cached_property
    def random(self) -> Random:
        """What is chance on this disk; made when needed."""
        return self._make_random()

    @abstractmethod
    def make_store(
        self, loop: ProcessLoop, clock: Clock, complete: Complete, on_health: OnHealth
    ) -> LogStore:
        """The store, for a process that begins."""

    @abstractmethod
    def crash(self) -> None:
        """The process ends without closing; how much of what was not synced is there is chance."""

    def close(self) -> None:
        """All is over: end what works on it."""
        return

    @abstractmethod
    def replace(self) -> bool:
        """A new disk, with nothing on it; returns whether what was confirmed is lost by that."""

    @abstractmethod
    def look(self, operation: ReadOperation) -> None:
        """Answer a read now, for who only watches: nothing is completed, counted or called."""

    def rows(self, table: Table) -> Rows:
        """What stands in one of the tables of the real store, in the order of keys."""
        return ()

    def show_on(self) -> None:
        """Let `look` answer from now on as the disk is now, whatever happens to it."""
        return

    @property
    @abstractmethod
    def durable_bytes(self) -> int:
        """Bytes that stand on it."""

    def spoil(self, reads: int) -> None:
        """Let so many of the next reads find a block whose checksum is wrong."""
        return

    def sync_seconds(self) -> float:
        """How long the next sync takes; 0 where syncs take no time."""
        seconds = self._table.sync_ms / 1_000
        return seconds and seconds * self.random.lognormvariate(0.0, _SYNC_SIGMA) * self.slow

    def repair(self) -> None:
        """End all faults that last."""
        self.faults.capacity_bytes = None
        self.faults.failing_syncs = 0
        self.slow = 1.0
        self.spoil(0)


class MemoryDisk(Disk):
    """With a store in memory, which works without threads."""

    def __init__(self, table: DiskTable, make_random: Callable[[], Random]) -> None:
        super().__init__(table, make_random)
        self._store = SimulatedStore(self)

    def make_store(
        self, loop: ProcessLoop, clock: Clock, complete: Complete, on_health: OnHealth
    ) -> LogStore:
        """The store, for a process that begins."""
        self._store.attach(loop, clock, complete, on_health)
        return self._store

    def crash(self) -> None:
        """The process ends without closing; how much of the group under way is there is chance.

        Nothing of it may be, or all, or, as after a torn write, whole operations up to some point.
        """
        self._store.crash(surviving=self.random.randrange(self._store.waiting_count + 1))

    def replace(self) -> bool:
        """A new disk, with nothing on it."""
        self._store = SimulatedStore(self)
        return True

    def look(self, operation: ReadOperation) -> None:
        """Answer a read now, for who only watches."""
        self._store.look(operation)

    @property
    def durable_bytes(self) -> int:
        """Bytes that stand on it."""
        return self._store.durable_bytes

    def spoil(self, reads: int) -> None:
        """Let so many of the next reads find a block whose checksum is wrong."""
        self._store.bad_reads = reads


class SimulatedStore(MemoryLogStore):
    """A memory store that one process after the other opens.

    Attributes:
        bad_reads: so many of the next reads find a block whose checksum is wrong.
    """

    def __init__(self, disk: Disk) -> None:
        super().__init__(complete=lambda _: None, on_health=lambda _: None, faults=disk.faults)
        self.bad_reads = 0
        self._disk = disk

    def attach(
        self, loop: ProcessLoop, clock: Clock, complete: Complete, on_health: OnHealth
    ) -> None:
        """Work for another process."""
        self._post = loop.call_soon
        self._clock = clock
        self._complete = complete
        self._on_health = on_health

    @property
    def waiting_count(self) -> int:
        """Writes of the group under way, or of the next where none is."""
        return len(self._group or self._writes)

    @property
    def durable_bytes(self) -> int:
        """Bytes that stand on the disk."""
        return self._durable.size

    def submit(self, operation: WriteOperation) -> None:
        """Queue a write; how long its group's sync takes is chance."""
        disk = self._disk
        if disk.on_submit is not None:
            disk.on_submit(operation)
        if isinstance(operation, Append) and (seconds := disk.sync_seconds()):
            self.faults.sync_seconds = seconds
        super().submit(operation)

    def read(self, operation: ReadOperation) -> bool:
        """Answer, or find that what is on the disk is not what was written."""
        if not self.bad_reads or not isinstance(operation, Read):
            return super().read(operation)
        self.bad_reads -= 1
        operation.error = StoreError("store.read", "a block's checksum is wrong: check the disk")
        assert self._post is not None
        complete = self._complete
        self._post(lambda: complete((operation,)))
        return False


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
        store.disk = self
        return store

    def _tuning(self) -> Tuning:
        pick, seconds = self.random.choice, self.faults.repair_seconds
        return Tuning(
            group_bytes_max=pick((1_000, 100_000, 8_388_608)),
            slice_bytes_max=pick((300, 5_000, 1_048_576)),
            memtable_bytes=pick((1_000, 67_108_864)),
            tail_bytes_max=pick((2_000, 50_000, 33_554_432)),
            logs_max=pick((1, 3, 32_768)),
            packed_bytes_max=2_000,
            repair_seconds_min=seconds,
            repair_seconds_max=seconds,
        )

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

    disk: RocksDisk

    def submit(self, operation: WriteOperation) -> None:
        """Queue a write."""
        if self.disk.on_submit is not None:
            self.disk.on_submit(operation)
        super().submit(operation)

    def _prepare(self) -> None:
        """There is no directory."""
