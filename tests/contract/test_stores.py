"""Tests stores: each is held to what all promise."""

from contextlib import AbstractContextManager, nullcontext
from math import inf
from pathlib import Path

import pytest

from memory_site import MemorySite
from rillnode.actors.log.rocks import logs, writer
from rillnode.node.testing.contract.stores.on_engine import EngineDriver
from rillnode.testing.contract import (
    SharedLogSite,
    SharedStoreContract,
    StoreContract,
    StoreDriver,
    StoreOnEngineContract,
)
from shared_support import memory_view
from store_support import MemoryDriver, RocksDriver


class TestMemory(StoreContract):
    def open_store(self, directory: Path) -> StoreDriver:
        return MemoryDriver()


class TestRocks(StoreContract):
    def open_store(self, directory: Path) -> StoreDriver:
        return RocksDriver(directory)


class TestRocksCommittedAtTheEndOfTurns(StoreContract):
    @pytest.fixture(autouse=True)
    def however_slow_the_disk_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writer, "HERE_SECONDS_MAX", inf)
        monkeypatch.setattr(writer, "STALL_SECONDS", inf)

    @pytest.fixture(autouse=True)
    def little_in_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(logs, "NOTED_MAX", 4)

    def open_store(self, directory: Path) -> StoreDriver:
        return RocksDriver(directory, has_turns=True)


class TestSharedWithViewsOnDisk(StoreOnEngineContract):
    @classmethod
    def servers(cls, directory: Path) -> AbstractContextManager[SharedLogSite]:
        return nullcontext(MemorySite())


class TestSharedWithViewsInMemory(SharedStoreContract):
    def open_store(self, directory: Path) -> StoreDriver:
        site = MemorySite()
        site.make()
        return EngineDriver(site.again, directory, view=memory_view, shards=1)
