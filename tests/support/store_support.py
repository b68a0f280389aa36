"""Drives the stores of one node for tests, and has what is small or cut off."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from rillnode.actors.core.threads import SystemThreads
from rillnode.actors.log import ReadOperation
from rillnode.actors.log.memory import MemoryLogStore
from rillnode.actors.log.rocks.store import RocksLogStore
from rillnode.actors.log.rocks.tables import OpenTables, Tables, Tuning
from rillnode.node.testing.contract.stores.driver import (
    ANSWER_SECONDS,
    StoreDriver,
    ThreadedDriver,
)

R = TypeVar("R", bound=ReadOperation)

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


async def eventually(true: Callable[[], Awaitable[bool]]) -> None:
    """The same of what takes awaiting to find out."""
    async with asyncio.timeout(ANSWER_SECONDS):
        while not await true():
            await asyncio.sleep(0.02)


class MemoryDriver(StoreDriver):
    """Drives a MemoryLogStore by `flush`.

    Args:
        kind: the store's class.
    """

    def __init__(self, kind: type[MemoryLogStore] = MemoryLogStore) -> None:
        super().__init__()
        self._store = kind(complete=self.keep, on_health=self.hear)
        self._store.open()

    @property
    def store(self) -> MemoryLogStore:
        return self._store

    def settle(self, count: int) -> None:
        self.store.flush()

    def reopen(self) -> None:
        self.store.close()
        self.store.open()

    def crash(self) -> None:
        self.store.crash()
        self.store.open()


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

    def crash(self) -> None:
        """Go on with a copy of the files as they are now, which the store has not closed."""
        copy = self.path.with_name(f"{self.path.name}-crashed")
        shutil.copytree(self.path, copy)
        self._store.close()
        self.path = copy
        self._store = self.new_store()
        self._store.open()

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
