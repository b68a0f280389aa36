"""Helps tests of stores: a store driven step by step, whichever it is."""

import asyncio
import queue
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from rillnode.actors.core.threads import SystemThreads
from rillnode.actors.log import (
    Append,
    LogStore,
    Operation,
    Read,
    ReadOperation,
    StoreHealth,
    WriteOperation,
    log_id,
)
from rillnode.actors.log.memory import MemoryLogStore
from rillnode.actors.log.rocks.store import RocksLogStore
from rillnode.actors.log.rocks.tables import OpenTables, Tables, Tuning
from rillnode.codecs.entries import Entry, entries_of, pack_body

LOG = log_id(1, 0)
ANSWER_SECONDS = 120.0

SMALL = Tuning(
    group_bytes_max=262_144,
    slice_bytes_max=16_384,
    memtable_bytes=1_048_576,
    wal_bytes_max=4_194_304,
    cache_bytes=1_048_576,
    tail_bytes_max=1_048_576,
    logs_max=64,
    packed_bytes_max=16_384,
    repair_seconds_min=0.01,
    repair_seconds_max=0.05,
)
"""Everything a store does at its limits happens early."""

R = TypeVar("R", bound=ReadOperation)
W = TypeVar("W", bound=WriteOperation)


def append(*items: bytes, log: int = LOG, at: int = 0) -> Append:
    """An append of plain entries."""
    return Append(log=log, count=len(items), body=pack_body(items), received_at=at)


class CutError(Exception):
    """Stands for the end of the process."""


def cut_after(steps: int) -> Callable[[int], None]:
    """What takes the progress of a copy, and cuts it off when it was told of so many steps."""
    left = [steps]

    def on_bytes(size: int) -> None:
        left[0] -= 1
        if not left[0]:
            raise CutError

    return on_bytes


def wait_until(reached: Callable[[], bool]) -> None:
    """Look again and again until something is so."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def eventually(true: Callable[[], Awaitable[bool]]) -> None:
    """The same of what takes awaiting to find out."""
    async with asyncio.timeout(ANSWER_SECONDS):
        while not await true():
            await asyncio.sleep(0.02)


class StoreDriver(ABC):
    """Does one thing after the other with a store, and keeps what it tells."""

    def __init__(self) -> None:
        self.completed: list[Operation] = []
        self.groups: list[int] = []
        self.healths: list[StoreHealth] = []

    def write(self, operation: W) -> W:
        """Submit one write and wait for it."""
        self.write_all([operation])
        return operation

    def write_all(self, operations: Sequence[WriteOperation]) -> None:
        """Submit writes together and wait for all."""
        for operation in operations:
            self.store.submit(operation)
        self.settle(len(operations))

    def read(self, operation: R) -> R:
        """Read and wait for the answer."""
        if not self.store.read(operation):
            self.settle(1)
        assert operation.error is None, operation.error
        return operation

    def entries(self, log: int = LOG, index: int = 0, until: int = 2**64 - 1) -> list[Entry]:
        """All entries from an index on, block by block, each checked to be the next one."""
        found: list[Entry] = []
        while True:
            read = self.read(Read(log=log, index=index, until=until))
            index = max(index, read.extent.first_index)
            if not read.blocks:
                assert index >= min(until, read.extent.next_index)
                return found
            for block in read.blocks:
                some = entries_of(block, first=index, until=until)
                assert [entry.index for entry in some] == list(range(index, index + len(some)))
                index += len(some)
                found += some

    def _complete(self, operations: Sequence[Operation]) -> None:
        self.groups.append(len(operations))
        self.completed += operations

    def other(self, directory: Path) -> "StoreDriver | None":
        """Another store that is open on the same logs; None where there can be none."""
        del directory
        return None

    def end(self) -> None:
        """Close the store for good."""
        self.store.close()

    def hear(self, health: StoreHealth) -> None:
        """Take a change of health; from any thread."""
        self.healths.append(health)

    @property
    @abstractmethod
    def store(self) -> LogStore:
        """The store as it is open now."""

    @abstractmethod
    def settle(self, count: int) -> None:
        """Wait until so many more operations are complete."""

    @abstractmethod
    def reopen(self) -> None:
        """Close and open."""

    @abstractmethod
    def disk_read(self, operation: R) -> R:
        """Read without the tail cache."""


def texts(driver: StoreDriver, log: int = LOG) -> list[bytes]:
    """The data of all entries of a log."""
    return [entry.data for entry in driver.entries(log)]


class MemoryDriver(StoreDriver):
    """Drives a MemoryLogStore by `flush`."""

    def __init__(self) -> None:
        super().__init__()
        self._store = MemoryLogStore(complete=self._complete, on_health=self.hear)
        self._store.open()

    @property
    def store(self) -> MemoryLogStore:
        return self._store

    def settle(self, count: int) -> None:
        self.store.flush()

    def reopen(self) -> None:
        self.store.close()
        self.store.open()

    def disk_read(self, operation: R) -> R:
        return self.read(operation)


class ThreadedDriver(StoreDriver):
    """Drives a store that has threads, and waits for them."""

    def __init__(self) -> None:
        super().__init__()
        self.told: queue.SimpleQueue[Sequence[Operation]] = queue.SimpleQueue()
        self._store = self.new_store()
        self._store.open()

    @property
    def store(self) -> LogStore:
        return self._store

    def settle(self, count: int) -> None:
        while count > 0:
            operations = self.told.get(timeout=ANSWER_SECONDS)
            count -= len(operations)
            self._complete(operations)
        assert count == 0

    def reopen(self) -> None:
        self._store.close()
        self._store = self.new_store()
        self._store.open()

    def disk_read(self, operation: R) -> R:
        self.reopen()
        return self.read(operation)

    @abstractmethod
    def new_store(self) -> LogStore:
        """A store that is not open yet, which hands what is complete to `told`."""


class RocksDriver(ThreadedDriver):
    """Drives a RocksLogStore.

    Attributes:
        ended: the names of its threads that have ended without being asked.
        turns: what is to be done at the end of the test's turn; None: it has none.
    """

    def __init__(
        self,
        path: Path,
        tuning: Tuning = SMALL,
        open_tables: OpenTables = Tables,
        *,
        has_turns: bool = False,
    ) -> None:
        self.path = path
        self.ended: list[str] = []
        self.turns: list[Callable[[], None]] | None = [] if has_turns else None
        self._tuning = tuning
        self._open_tables = open_tables
        super().__init__()

    @property
    def store(self) -> RocksLogStore:
        assert isinstance(self._store, RocksLogStore)
        return self._store

    def new_store(self) -> RocksLogStore:
        return RocksLogStore(
            self.path,
            complete=self.take,
            on_health=self.hear,
            tuning=self._tuning,
            open_tables=self._open_tables,
            threads=SystemThreads(lambda name, _: self.ended.append(name)),
            at_turns_end=self._at_turns_end,
        )

    def _at_turns_end(self, work: Callable[[], None]) -> bool:
        if self.turns is None:
            return False
        self.turns.append(work)
        return True

    def end_turn(self) -> None:
        """Do what was left to the end of the turn."""
        while self.turns:
            self.turns.pop()()

    def settle(self, count: int) -> None:
        self.end_turn()
        super().settle(count)

    def take(self, operations: Sequence[Operation]) -> None:
        """Take what is complete; from any thread."""
        self.told.put(operations)
