"""What a store promises beyond the others, it says, and does; what it does not promise, it says."""

from pathlib import Path

import pytest

from rillnode.actors.log import (
    Capability,
    FindStream,
    GetRecord,
    ListRecords,
    ListStreams,
    LoadIndex,
    SavedIndexKey,
)
from rillnode.actors.log.rocks.checkpoint import Checkpointing
from rillnode.actors.log.watch import SharedStore
from rillnode.codecs.errors import StoreError
from shared_support import JetStreamDriver, OnLoopDriver, SharedDriver
from store_support import MemoryDriver, RocksDriver, StoreDriver, append


def test_what_a_store_can_do_beyond_the_others_has_a_name(driver: StoreDriver) -> None:
    capabilities = driver.store.capabilities
    assert (Capability.CHECKPOINT in capabilities) == isinstance(driver.store, Checkpointing)
    assert (Capability.SHARED in capabilities) == isinstance(driver.store, SharedStore)
    expected: dict[type[StoreDriver], set[Capability]] = {
        MemoryDriver: {Capability.POWER_CUT},
        RocksDriver: {Capability.CHECKPOINT, Capability.POWER_CUT},
        SharedDriver: {Capability.SHARED, Capability.POWER_CUT},
        JetStreamDriver: {Capability.SHARED, Capability.POWER_CUT},
    }
    assert capabilities == expected[type(driver)]


def test_what_is_found_lasts_where_there_can_be_no_others(driver: StoreDriver) -> None:
    lookups = (
        FindStream(name="s"),
        ListStreams(),
        LoadIndex(key=SavedIndexKey("s", 0, "c")),
        GetRecord(key="k"),
        ListRecords(prefix="k"),
    )
    found = {driver.read(lookup).lasts for lookup in lookups}
    assert found == {Capability.SHARED not in driver.store.capabilities}


def test_a_store_that_is_not_shared_is_opened_once(driver: StoreDriver) -> None:
    shared = Capability.SHARED in driver.store.capabilities
    assert shared == isinstance(driver, OnLoopDriver)
    if isinstance(driver, RocksDriver):
        with pytest.raises(StoreError) as caught:
            RocksDriver(driver.path)
        assert caught.value.code == "store.locked"


def test_a_shared_store_gives_no_index_twice(driver: StoreDriver, tmp_path: Path) -> None:
    if not isinstance(driver, OnLoopDriver):
        assert Capability.SHARED not in driver.store.capabilities
        return
    other: OnLoopDriver
    if isinstance(driver, SharedDriver):
        other = SharedDriver(driver.servers, tmp_path / "other", shards=1, beside=driver)
    else:
        assert isinstance(driver, JetStreamDriver)
        other = JetStreamDriver(driver.server, driver.prefix, tmp_path / "other", shards=1)
    first = [driver.write(append(b"one")), other.write(append(b"two"))]
    assert [operation.first_index for operation in first] == [0, 1]
    assert driver.write(append(b"three")).first_index == 2
    assert [entry.data for entry in driver.entries()] == [b"one", b"two", b"three"]
    other.end()
