"""Tests that what a store has confirmed is there after a crash."""

from rillnode.actors.log import (
    FindStream,
    GetRecords,
    ListKeys,
    LoadIndex,
    LogExtent,
    PutRecord,
    PutRecords,
    Read,
    RemoveStream,
    SavedIndexKey,
    SaveIndex,
    Trim,
    log_id,
)
from rillnode.node.testing.contract.stores.base import StoreBase
from rillnode.node.testing.contract.stores.doubles import numbered, opened, told
from rillnode.node.testing.contract.stores.driver import LOG, StoreDriver, append, texts
from rillnode.node.testing.contract.stores.removal import assert_gone, assert_whole, filled


class CrashesContract(StoreBase):
    """A confirm means durable."""

    def test_what_was_confirmed_outlives_a_crash(self, driver: StoreDriver) -> None:
        stream = filled(driver, "s")
        log, key = log_id(stream.id, 0), SavedIndexKey("s", 0, "c")
        entry = append(b"c", log=log)
        entry.keys, entry.records = [(b"late", 0)], [("beside", b"1")]
        driver.write(entry)
        driver.write(Trim(log=log, before=1))
        driver.write(SaveIndex(key=key, index=7))
        driver.write(PutRecord(key="a", value=b"2"))
        driver.write(PutRecords(records=[("b", b"3"), ("a", None)]))
        for _ in range(2):
            driver.crash()
            assert driver.read(FindStream(name="s")).record == stream
            assert driver.read(Read(log=log)).extent == LogExtent(1, 3, 1_001)
            assert texts(driver, log) == [b"b" * 1_000, b"c"]
            assert (b"late", 2) in driver.read(ListKeys(log=log)).pairs
            assert driver.read(LoadIndex(key=key)).index == 7
            found = driver.read(GetRecords(keys=["beside", "a", "b"])).values
            assert found == [b"1", None, b"3"]
        assert driver.write(append(b"d", log=log)).first_index == 3

    def test_a_removal_that_was_confirmed_outlives_a_crash(self, driver: StoreDriver) -> None:
        gone, kept = filled(driver, "s"), filled(driver, "t")
        driver.write(RemoveStream(name="s"))
        driver.crash()
        assert_gone(driver, gone)
        assert_whole(driver, kept)
        late = driver.write(append(b"late", log=log_id(gone.id, 0)))
        assert late.error is not None
        assert late.error.code == "stream.removed"
        assert filled(driver, "s").id > kept.id

    def test_doubles_are_known_after_a_crash(self, driver: StoreDriver) -> None:
        first = opened(driver)
        driver.write(numbered(0, b"a", b"b"))
        driver.write(numbered(0, producer=b"m7", epoch=first.epoch))
        second = opened(driver)
        driver.crash()
        assert driver.write(numbered(0, b"a", b"b")).first_index == 0
        late = numbered(1, producer=b"m7", epoch=first.epoch)
        assert told(driver.write(late)) == ("producer.fenced", None)
        again = driver.write(numbered(0, producer=b"m7", epoch=second.epoch))
        assert told(again) == ("producer.stale", 2)
        assert driver.read(Read(log=LOG)).extent.next_index == 3
