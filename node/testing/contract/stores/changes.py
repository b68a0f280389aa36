"""Tests what every store promises of others' changes to its logs, even where there are none."""

from rillnode.actors.log import (
    AnyWatch,
    Append,
    FindStream,
    GetRecord,
    GetRecords,
    HasRecords,
    ListIndexes,
    ListRecords,
    ListStreams,
    LoadIndex,
    Lookup,
    PutRecord,
    PutRecords,
    PutStream,
    RemoveStream,
    SavedIndexKey,
    StreamRecord,
    Watch,
    WatchRecords,
    WatchValues,
)
from rillnode.node.testing.contract.stores.base import StoreBase
from rillnode.node.testing.contract.stores.driver import LOG, StoreDriver, append


class ChangesContract(StoreBase):
    """Changes by others."""

    def test_what_is_found_lasts_unless_others_may_change_it(self, driver: StoreDriver) -> None:
        for _ in range(2):
            lookups: list[Lookup] = [
                driver.read(FindStream(name="s")),
                driver.read(ListStreams()),
                driver.read(LoadIndex(key=SavedIndexKey("s", 0, "c"))),
                driver.read(ListIndexes()),
                driver.read(GetRecord(key="k")),
                driver.read(GetRecords(keys=["k"])),
                driver.read(HasRecords(keys=["k"])),
                driver.read(ListRecords(prefix="k")),
            ]
            assert {lookup.lasts for lookup in lookups} == {not self.has_others}
            driver.write(PutRecord(key="k", value=b"1"))
        assert bool(driver.store.describe()) == self.has_others

    def test_what_a_store_does_itself_is_no_news(self, driver: StoreDriver) -> None:
        watches: list[AnyWatch] = [WatchRecords(), WatchValues(prefix=""), Watch(log=LOG, index=5)]
        for watch in watches:
            driver.store.watch(watch)
        record = driver.write(PutStream(record=StreamRecord(name="s"))).record
        driver.write(PutStream(record=record))
        driver.write(PutRecord(key="a", value=b"1"))
        driver.write(PutRecords(records=[("a", None), ("b", b"2")]))
        driver.write(Append(log=LOG, count=1, body=append(b"0").body, records=[("c", b"3")]))
        driver.write(RemoveStream(name="s"))
        assert not any(watch in driver.completed for watch in watches)

    def test_a_watch_is_left_open_when_the_store_is_closed(self, driver: StoreDriver) -> None:
        watches: list[AnyWatch] = [WatchRecords(), WatchValues(prefix=""), Watch(log=LOG)]
        for watch in watches:
            driver.store.watch(watch)
        driver.store.close()
        assert driver.completed == []
        driver.reopen()
        driver.write(append(b"0"))
        assert not any(watch in driver.completed for watch in watches)
