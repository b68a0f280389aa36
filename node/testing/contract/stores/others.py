"""Tests what stores on the same logs promise of each other."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from rillnode.actors.log import (
    Append,
    FindStream,
    GetRecord,
    ListRecords,
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
from rillnode.node.testing.contract.stores.base import StoreBase
from rillnode.node.testing.contract.stores.doubles import numbered, opened, told
from rillnode.node.testing.contract.stores.driver import LOG, StoreDriver, append, texts, wait_until

KEY = SavedIndexKey("s", 0, "c")


def code_of(operation: Append | PutRecords | SaveIndex) -> str:
    """The code of a refusal; "": it was none."""
    return "" if operation.error is None else operation.error.code


def _reads(driver: StoreDriver, expected: list[bytes]) -> bool:
    return texts(driver) == expected


class OthersContract(StoreBase):
    """Stores on the same logs."""

    has_others = True

    @pytest.fixture
    def other(self, driver: StoreDriver, tmp_path: Path) -> Iterator[StoreDriver]:
        """Another one that is open on the same logs."""
        beside = driver.other(tmp_path / "other")
        yield beside
        beside.end()

    def test_others_entries_are_told_and_read(
        self, driver: StoreDriver, other: StoreDriver
    ) -> None:
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

    def test_others_streams_are_told(self, driver: StoreDriver, other: StoreDriver) -> None:
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

    def test_others_values_are_told(self, driver: StoreDriver, other: StoreDriver) -> None:
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
        self, driver: StoreDriver, other: StoreDriver
    ) -> None:
        for number in range(5, 25):
            saver, reader = (driver, other) if number % 2 else (other, driver)
            saver.write(SaveIndex(key=KEY, index=number))
            assert reader.read(LoadIndex(key=KEY)).index == number
            behind = reader.write(SaveIndex(key=KEY, index=number - 1))
            assert (behind.error, behind.index) == (None, number)

    def test_what_follows_from_a_value_that_is_another_by_now_is_not_written(
        self, driver: StoreDriver, other: StoreDriver
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
        self, driver: StoreDriver, other: StoreDriver
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
        self, driver: StoreDriver, other: StoreDriver
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
        self, driver: StoreDriver, other: StoreDriver
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

    def test_all_that_share_a_log_know_doubles(
        self, driver: StoreDriver, other: StoreDriver
    ) -> None:
        """A client goes to another node, and sends again."""
        first = [numbered(number) for number in range(3)]
        driver.write_all(first)
        driver.write(append(b"other"))
        again = [numbered(number) for number in range(4)]
        other.write_all(again)
        assert [one.first_index for one in again] == [0, 1, 2, 4]
        back = [driver.write(numbered(number)) for number in range(4)]
        assert [one.first_index for one in back] == [0, 1, 2, 4]
        here, there = opened(driver), opened(other)
        assert there.epoch > here.epoch
        late = driver.write(numbered(0, producer=b"m7", epoch=here.epoch))
        assert told(late) == ("producer.fenced", None)
        assert other.write(numbered(0, producer=b"m7", epoch=there.epoch)).first_index == 5
        assert len(texts(other)) == 6

    def test_appends_of_several_under_way_at_once(
        self, driver: StoreDriver, other: StoreDriver
    ) -> None:
        """The same blocks by two nodes at one time: one of each counts, wherever it came from."""
        here = [numbered(number) for number in range(20)]
        there = [numbered(number) for number in range(20)]
        for one, two in zip(here, there, strict=True):
            driver.store.submit(one)
            other.store.submit(two)
        driver.settle(20)
        other.settle(20)
        assert [one.first_index for one in here] == list(range(20))
        assert [one.first_index for one in there] == list(range(20))
        assert all(one.is_double is not two.is_double for one, two in zip(here, there, strict=True))
        assert texts(driver) == [b"p %d" % number for number in range(20)]
