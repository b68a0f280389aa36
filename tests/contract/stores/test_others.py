"""Tests every store's contract about others: stores on the same logs, where there can be any."""

from functools import partial
from pathlib import Path

import pytest

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
    PutRecord,
    PutRecords,
    PutStream,
    Read,
    RemoveStream,
    SavedIndexKey,
    SaveIndex,
    StreamRecord,
    Watch,
    WatchRecords,
    WatchValues,
    log_id,
    version_of,
)
from rillnode.actors.log.records import beside_log, beside_stream
from rillnode.codecs.errors import StoreError
from rillnode.node.testing.contract.stores.driver import LOG, StoreDriver, append, texts, wait_until
from rillnode.node.testing.contract.stores.on_engine import EngineDriver
from store_support import RocksDriver

KEY = SavedIndexKey("s", 0, "c")


def code_of(operation: Append | PutRecords | SaveIndex) -> str:
    return "" if operation.error is None else operation.error.code


def test_what_is_found_lasts_where_there_can_be_no_others(
    driver: StoreDriver, tmp_path: Path
) -> None:
    lookups = (
        FindStream(name="s"),
        ListStreams(),
        LoadIndex(key=KEY),
        ListIndexes(),
        GetRecord(key="k"),
        GetRecords(keys=["k"]),
        HasRecords(keys=["k"]),
        ListRecords(prefix="k"),
    )
    other = driver.other(tmp_path / "other") if isinstance(driver, EngineDriver) else None
    for _ in range(2):
        assert {driver.read(lookup).lasts for lookup in lookups} == {other is None}
        driver.write(PutRecord(key="k", value=b"1"))
    assert bool(driver.store.describe()) == (other is not None)
    if isinstance(driver, RocksDriver):
        with pytest.raises(StoreError) as caught:
            RocksDriver(driver.path)
        assert caught.value.code == "store.locked"
    if other is not None:
        other.end()


def test_what_a_store_does_itself_is_no_news(driver: StoreDriver) -> None:
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


def test_a_watch_is_left_open_when_the_store_is_closed(driver: StoreDriver) -> None:
    watches: list[AnyWatch] = [WatchRecords(), WatchValues(prefix=""), Watch(log=LOG)]
    for watch in watches:
        driver.store.watch(watch)
    driver.store.close()
    assert driver.completed == []
    driver.reopen()
    driver.write(append(b"0"))
    assert not any(watch in driver.completed for watch in watches)


def test_others_entries_are_told_and_read(driver: StoreDriver, other: StoreDriver) -> None:
    replaced = Watch(log=LOG)
    other.store.watch(replaced)
    expected: list[bytes] = []
    for number in range(4):
        watch = Watch(log=LOG, index=2 * number)
        other.store.watch(watch)
        expected.append(b"%d" % len(expected))
        assert driver.write(append(expected[-1])).first_index == 2 * number
        other.settle(1)
        assert other.completed[-1] is watch
        assert watch.next_index == 2 * number + 1
        assert texts(other) == expected
        # There is no index twice, whoever appends.
        expected.append(b"%d" % len(expected))
        assert other.write(append(expected[-1])).first_index == 2 * number + 1
        wait_until(partial(_reads, driver, expected))
    # What is there already is told at once, too.
    late = Watch(log=LOG, index=3)
    other.store.watch(late)
    other.settle(1)
    assert late.next_index == len(expected)
    assert replaced not in other.completed


def _reads(driver: StoreDriver, expected: list[bytes]) -> bool:
    return texts(driver) == expected


def test_others_streams_are_told(driver: StoreDriver, other: StoreDriver) -> None:
    watch = WatchRecords()
    other.store.watch(watch)
    record = driver.write(PutStream(record=StreamRecord(name="s"))).record
    other.settle(1)
    assert (watch.changed, watch.removed) == ([record], [])
    driver.write(RemoveStream(name="s"))
    watch = WatchRecords()
    other.store.watch(watch)
    other.settle(1)
    assert (watch.changed, watch.removed) == ([], [record])
    assert other.read(FindStream(name="s")).record is None


def test_others_values_are_told(driver: StoreDriver, other: StoreDriver) -> None:
    pending, elsewhere = WatchValues(prefix="a/"), WatchValues(prefix="b/")
    other.store.watch(pending)
    other.store.watch(elsewhere)
    driver.write(PutRecord(key="a/1", value=b"x" * 100))
    other.settle(1)
    assert pending.changed == [("a/1", b"x" * 100)]
    # What comes while nobody watches is told of later; of one name the last.
    driver.write(PutRecords(records=[("a/1", None), ("a/2", b"2"), ("c/1", b"?")]))
    driver.write(PutRecord(key="a/2", value=b"3"))
    driver.write(PutRecord(key="b/1", value=b"b"))
    other.settle(1)
    assert elsewhere.changed == [("b/1", b"b")]
    watch = WatchValues(prefix="a/")
    other.store.watch(watch)
    other.settle(1)
    assert watch.changed == [("a/1", None), ("a/2", b"3")]
    watch = WatchValues(prefix="a/")
    other.store.watch(watch)
    other.write(PutRecord(key="a/3", value=b"mine"))
    driver.write(PutRecord(key="a/4", value=b"theirs"))
    other.settle(1)
    assert watch.changed == [("a/4", b"theirs")]


def test_the_highest_of_several_positions_is_saved_and_read_at_once(
    driver: StoreDriver, other: StoreDriver
) -> None:
    for number in range(5, 25):
        saver, reader = (driver, other) if number % 2 else (other, driver)
        saver.write(SaveIndex(key=KEY, index=number))
        assert reader.read(LoadIndex(key=KEY)).index == number
        behind = reader.write(SaveIndex(key=KEY, index=number - 1))
        assert (behind.error, behind.index) == (None, number)


def test_what_follows_from_a_value_that_is_another_by_now_is_not_written(
    driver: StoreDriver, other: StoreDriver
) -> None:
    driver.write(PutRecord(key="k", value=b"1"))
    seen = other.read(GetRecord(key="k"))
    assert (seen.value, other.read(GetRecord(key="none")).version) == (b"1", 0)
    assert other.read(ListRecords(prefix="k")).versions == [seen.version]
    driver.write(PutRecord(key="k", value=b"2"))
    late = PutRecords(records=[("l", b"late")], seen=[("k", seen.version)])
    assert code_of(other.write(late)) == "store.fenced"
    assert other.read(GetRecord(key="l")).value is None
    seen = other.read(GetRecord(key="k"))
    fresh = PutRecords(records=[("k", b"3")], seen=[("k", seen.version), ("l", 0)])
    assert code_of(other.write(fresh)) == ""
    assert driver.read(GetRecord(key="k")).value == b"3"


def test_an_append_that_follows_from_a_value_is_one_with_its_change(
    driver: StoreDriver, other: StoreDriver
) -> None:
    stream = PutStream(record=StreamRecord(name="s"))
    assert driver.write(stream).error is None
    log = log_id(stream.record.id, 0)
    key = f"{beside_log(log)}k"

    def following(version: int, value: bytes) -> Append:
        operation = append(value, log=log)
        operation.records, operation.follows = [(key, value)], [(key, version)]
        return operation

    assert code_of(driver.write(following(0, b"1"))) == ""
    seen = other.read(GetRecord(key=key))
    assert seen.version == version_of(b"1")
    assert code_of(other.write(following(0, b"no"))) == "store.fenced"
    assert code_of(other.write(following(seen.version, b"2"))) == ""
    assert code_of(driver.write(following(seen.version, b"no"))) == "store.fenced"
    assert driver.read(GetRecord(key=key)).value == b"2"
    assert driver.read(Read(log=log)).extent.next_index == 2


def test_a_position_that_follows_from_a_value_that_is_another_by_now_is_not_saved(
    driver: StoreDriver, other: StoreDriver
) -> None:
    made = driver.write(PutStream(record=StreamRecord(name=KEY.stream)))
    name = f"{beside_stream(made.record.id)}worker"
    driver.write(PutRecord(key=name, value=b"1"))
    seen = [(name, other.read(GetRecord(key=name)).version)]
    assert other.write(SaveIndex(key=KEY, index=5, seen=seen)).index == 5
    driver.write(PutRecord(key=name, value=b"2"))
    assert code_of(other.write(SaveIndex(key=KEY, index=9, seen=seen))) == "store.fenced"
    assert driver.read(LoadIndex(key=KEY)).index == 5


def test_an_append_that_follows_from_less_than_others_have_appended_is_refused(
    driver: StoreDriver, other: StoreDriver
) -> None:
    def following(seen: int, data: bytes) -> Append:
        operation = append(data)
        operation.seen = seen
        return operation

    assert code_of(driver.write(following(0, b"0"))) == ""
    # What a store has appended itself it knows.
    assert code_of(driver.write(following(0, b"1"))) == ""
    assert code_of(other.write(following(1, b"no"))) == "store.fenced"
    assert code_of(other.write(following(2, b"2"))) == ""
    assert code_of(driver.write(following(2, b"no"))) == "store.fenced"
    assert code_of(driver.write(following(3, b"3"))) == ""
    wait_until(lambda: texts(other) == [b"0", b"1", b"2", b"3"])
