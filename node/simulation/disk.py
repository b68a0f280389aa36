"""A host's disk: what outlives the processes that open it, and its faults."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from random import Random
from typing import Final, Literal

from rillnode.actors.log import (
    Append,
    Complete,
    LogStore,
    OnHealth,
    Read,
    ReadOperation,
    WriteOperation,
)
from rillnode.actors.log.memory import Faults, MemoryLogStore
from rillnode.actors.ports import Clock
from rillnode.codecs.errors import StoreError
from rillnode.node.simulation.loop import ProcessLoop
from rillnode.node.simulation.scenario import DiskTable

SLOW_FACTOR: Final = 200.0
"""How much longer a sync of a slow disk takes: 0.4 s for one of 2 ms."""

_SYNC_SIGMA: Final = 0.5

OnSubmit = Callable[[WriteOperation], None]

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
        self.on_submit: OnSubmit | None = None
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

    @abstractmethod
    def close(self) -> None:
        """All is over: end what works on it."""

    @abstractmethod
    def replace(self) -> bool:
        """A new disk, with nothing on it; returns whether what was confirmed is lost by that."""

    @abstractmethod
    def look(self, operation: ReadOperation) -> None:
        """Answer a read now, for who only watches: nothing is completed, counted or called."""

    @abstractmethod
    def rows(self, table: Table) -> Rows:
        """What stands in one of the tables of the real store, in the order of keys."""

    @abstractmethod
    def show_on(self) -> None:
        """Let `look` answer from now on as the disk is now, whatever happens to it."""

    @property
    @abstractmethod
    def durable_bytes(self) -> int:
        """Bytes that stand on it."""

    @abstractmethod
    def spoil(self, reads: int) -> None:
        """Let so many of the next reads find a block whose checksum is wrong."""

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

    def close(self) -> None:
        """Nothing works on it."""

    def replace(self) -> bool:
        """A new disk, with nothing on it."""
        self._store = SimulatedStore(self)
        return True

    def look(self, operation: ReadOperation) -> None:
        """Answer a read now, for who only watches."""
        self._store.look(operation)

    def rows(self, table: Table) -> Rows:
        """Nothing: it has no tables."""
        return ()

    def show_on(self) -> None:
        """It does so as it is: nothing happens to a disk without tables."""

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
