"""Drives a store step by step, whichever it is."""

import queue
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

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
from rillnode.codecs.entries import Entry, entries_of, pack_body

LOG: Final = log_id(1, 0)
"""The log that most tests write to."""

ANSWER_SECONDS: Final = 120.0
"""What takes longer hangs. Machines that test are busy."""

R = TypeVar("R", bound=ReadOperation)
W = TypeVar("W", bound=WriteOperation)


def append(*items: bytes, log: int = LOG, at: int = 0) -> Append:
    """An append of plain entries."""
    return Append(log=log, count=len(items), body=pack_body(items), received_at=at)


def wait_until(reached: Callable[[], bool]) -> None:
    """Look again and again until something is so."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class StoreDriver(ABC):
    """Does one thing after the other with a store, and keeps what it tells.

    The store is made to tell `hear` of its health, and what is complete is handed to `keep` before
    `settle` returns.

    Attributes:
        completed: what is complete, in that order.
        groups: how many were completed together each time.
        healths: what was told of the store's health.
    """

    def __init__(self) -> None:
        self.completed: list[Operation] = []
        self.groups: list[int] = []
        self.healths: list[StoreHealth] = []

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
    def crash(self) -> None:
        """Open what the end of the store's process, machine or power would leave.

        Nothing is under way then. What only the store's memory has is gone, or is not used.
        """

    def other(self, directory: Path) -> "StoreDriver":
        """Another store that is open on the same logs: only of stores that are shared.

        Args:
            directory: where it may keep what is its own; it is not there yet.
        """
        raise NotImplementedError

    def end(self) -> None:
        """Close the store for good."""
        self.store.close()

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

    def twice(self) -> Iterator[None]:
        """Have something read twice, then from a store that has just been opened."""
        yield
        self.reopen()
        yield

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

    def keep(self, operations: Sequence[Operation]) -> None:
        """Keep what is complete; on the test's thread."""
        self.groups.append(len(operations))
        self.completed += operations

    def hear(self, health: StoreHealth) -> None:
        """Take a change of health; from any thread."""
        self.healths.append(health)


def texts(driver: StoreDriver, log: int = LOG) -> list[bytes]:
    """The data of all entries of a log."""
    return [entry.data for entry in driver.entries(log)]


class ThreadedDriver(StoreDriver):
    """Drives a store that has threads, and waits for them.

    Attributes:
        told: what was complete together, in that order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.told: queue.SimpleQueue[Sequence[Operation]] = queue.SimpleQueue()
        self._store = self.new_store()
        self._store.open()

    @property
    def store(self) -> LogStore:
        """What `new_store` has made last."""
        return self._store

    def settle(self, count: int) -> None:
        """Wait for what `take` is given."""
        while count > 0:
            operations = self.told.get(timeout=ANSWER_SECONDS)
            count -= len(operations)
            self.keep(operations)
        assert count == 0

    def reopen(self) -> None:
        """Close the store, and open a new one on the same data."""
        self._store.close()
        self._store = self.new_store()
        self._store.open()

    @abstractmethod
    def new_store(self) -> LogStore:
        """A store that is not open yet, and is told to hand what is complete to `take`."""

    def take(self, operations: Sequence[Operation]) -> None:
        """Take what is complete; from any thread."""
        self.told.put(operations)
