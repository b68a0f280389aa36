"""A host's disk: a store in memory that outlives the processes that open it, and its faults."""

from collections.abc import Callable
from functools import cached_property
from random import Random
from typing import Final

from rillnode.actors.ports import Clock
from rillnode.actors.storage import (
    Append,
    Complete,
    LogStore,
    OnHealth,
    Read,
    ReadOperation,
    WriteOperation,
)
from rillnode.actors.storage.memory import Faults, MemoryLogStore
from rillnode.codecs.errors import StoreError
from rillnode.node.simulation.loop import ProcessLoop
from rillnode.node.simulation.scenario import DiskTable

SLOW_FACTOR: Final = 200.0
"""How much longer a sync of a slow disk takes: 0.4 s for one of 2 ms."""

_SYNC_SIGMA: Final = 0.5


class Disk:
    """The disk of one machine.

    Attributes:
        store: what the processes of the host open, one after the other.
    """

    def __init__(self, table: DiskTable, make_random: Callable[[], Random]) -> None:
        self._table = table
        self._make_random = make_random
        self.store = self._new_store()

    @cached_property
    def _random(self) -> Random:
        """What is chance on this disk; made when needed."""
        return self._make_random()

    def make_store(
        self, loop: ProcessLoop, clock: Clock, complete: Complete, on_health: OnHealth
    ) -> LogStore:
        """The store, for a process that begins."""
        self.store.attach(loop, clock, complete, on_health)
        return self.store

    def crash(self) -> None:
        """The process ends without closing; how much of the group under way is there is chance.

        Nothing of it may be, or all, or, as after a torn write, whole operations up to some point.
        """
        self.store.crash(surviving=self._random.randrange(self.store.waiting_count + 1))

    def replace(self) -> None:
        """A new disk, with nothing on it."""
        self.store = self._new_store()

    def repair(self) -> None:
        """End all faults that last."""
        faults = self.store.faults
        faults.capacity_bytes = None
        faults.failing_syncs = 0
        self.store.slow = 1.0
        self.store.bad_reads = 0

    def _new_store(self) -> "SimulatedStore":
        return SimulatedStore(self._table, lambda: self._random)


class SimulatedStore(MemoryLogStore):
    """A memory store that one process after the other opens.

    Attributes:
        slow: how much longer than usual a sync takes.
        bad_reads: so many of the next reads find a block whose checksum is wrong.
        on_submit: is called with each write when it is submitted.
    """

    def __init__(self, table: DiskTable, random: Callable[[], Random]) -> None:
        super().__init__(
            complete=lambda _: None,
            on_health=lambda _: None,
            faults=Faults(repair_seconds=table.repair_seconds),
        )
        self.slow = 1.0
        self.bad_reads = 0
        self.on_submit: Callable[[WriteOperation], None] | None = None
        self._sync_seconds = table.sync_ms / 1_000
        self._random = random

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
        if self.on_submit is not None:
            self.on_submit(operation)
        if self._sync_seconds and isinstance(operation, Append):
            spread = self._random().lognormvariate(0.0, _SYNC_SIGMA)
            self.faults.sync_seconds = self._sync_seconds * spread * self.slow
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
