"""Two stores on one engine: what one does, the other sees, and nothing that it has not seen."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from rillnode.actors.log import (
    Append,
    FindStream,
    GetRecord,
    ListRecords,
    ListStreams,
    LoadIndex,
    PutRecord,
    PutRecords,
    PutStream,
    RemoveStream,
    Retention,
    SavedIndexKey,
    SaveIndex,
    StreamRecord,
    Trim,
    log_id,
)
from rillnode.actors.log.shared.memory_log import MemoryServers
from rillnode.actors.log.shared.placement import CATALOGUE, Placement
from rillnode.actors.log.watch import AnyWatch, Watch, WatchRecords, WatchValues
from shared_support import SharedDriver
from store_support import StoreDriver, append, texts, wait_until

SHARDS = 4
KEY = SavedIndexKey("s", 0, "c")

FAR = next(name for name in map(str, range(100)) if Placement(SHARDS).of_stream(name) != CATALOGUE)
"""A stream that does not lie in the shard that every node has."""

Two = tuple[SharedDriver, SharedDriver]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    servers = MemoryServers(os.urandom(16))
    one = SharedDriver(servers, tmp_path / "one", view="memory", shards=SHARDS)
    other = SharedDriver(servers, tmp_path / "other", view="memory", shards=SHARDS, beside=one)
    yield one, other
    other.end()
    one.end()


def code_of(operation: Append | PutRecords | PutStream) -> str:
    return "" if operation.error is None else operation.error.code


def made(driver: StoreDriver, name: str = FAR) -> StreamRecord:
    return driver.write(PutStream(record=StreamRecord(name=name))).record


def begun(driver: SharedDriver, watch: AnyWatch) -> None:
    driver.shared_watch(watch)


def followed(driver: SharedDriver, watch: AnyWatch) -> None:
    begun(driver, watch)
    driver.settle(1)
    assert watch.error is None


def has(driver: SharedDriver, log: int, expected: list[bytes]) -> bool:
    return texts(driver, log) == expected


def test_what_one_appends_the_other_reads(two: Two) -> None:
    one, other = two
    log = log_id(made(one).id, 0)
    expected: list[bytes] = []
    for number in range(5):
        expected.append(b"%d" % number)
        (one, other)[number % 2].write(append(expected[-1], log=log))
        for driver in two:
            wait_until(partial(has, driver, log, expected))
    one.write(Trim(log=log, before=4))
    wait_until(lambda: texts(other, log) == [b"4"])
    one.write(RemoveStream(name=FAR))
    wait_until(lambda: other.read(FindStream(name=FAR)).record is None)
    assert code_of(other.write(append(b"never", log=log))) == "stream.removed"


def test_who_watches_a_log_is_told_of_each_growth(two: Two) -> None:
    one, other = two
    log = log_id(made(one).id, 0)
    for number in range(10):
        watch = Watch(log=log, index=number)
        begun(other, watch)
        if number % 2:
            one.write(append(b"%d" % number, log=log))
            other.settle(1)
        else:
            other.store.submit(append(b"%d" % number, log=log))
            other.settle(2)
        assert watch.next_index == number + 1
    removed, closed = Watch(log=log, index=10), Watch(log=log_id(999, 0))
    begun(other, removed)
    begun(other, closed)
    one.write(RemoveStream(name=FAR))
    other.settle(1)
    assert removed.error is not None
    assert removed.error.code == "stream.removed"
    other.store.close()
    other.settle(1)
    assert closed.error is not None
    assert closed.error.code == "store.closed"


@pytest.mark.parametrize("has_view", [False, True])
def test_who_watches_records_is_told_of_streams_wherever_they_lie(two: Two, has_view: bool) -> None:
    one, other = two
    record = made(one)
    watch = WatchRecords()
    followed(other, watch)
    assert watch.changed == [record]
    if has_view:
        assert texts(other, log_id(record.id, 0)) == []
    kept = msgspec.structs.replace(record, retention=Retention(entries_max=5))
    one.write(PutStream(record=kept))
    watch = WatchRecords()
    followed(other, watch)
    assert watch.changed == [kept]
    one.write(RemoveStream(name=FAR))
    watch = WatchRecords()
    followed(other, watch)
    assert (watch.changed, watch.removed) == ([], [kept])
    # Its own changes are no news.
    watch = WatchRecords()
    begun(other, watch)
    mine = other.write(PutStream(record=StreamRecord(name="mine"))).record
    again = made(one)
    other.settle(1)
    assert watch.changed == [again]
    assert mine != again


def test_who_watches_values_is_told_of_those_of_others(two: Two) -> None:
    one, other = two
    pending, elsewhere = WatchValues(prefix="a/"), WatchValues(prefix="b/")
    begun(other, pending)
    begun(other, elsewhere)
    one.write(PutRecord(key="a/1", value=b"x" * 100))
    other.settle(1)
    assert pending.changed == [("a/1", b"x" * 100)]
    # What comes while nobody watches is told of later; of one name the last.
    one.write(PutRecords(records=[("a/1", None), ("a/2", b"2"), ("c/1", b"?")]))
    one.write(PutRecord(key="a/2", value=b"3"))
    one.write(PutRecord(key="b/1", value=b"b"))
    other.settle(1)
    assert elsewhere.changed == [("b/1", b"b")]
    watch = WatchValues(prefix="a/")
    followed(other, watch)
    assert watch.changed == [("a/1", None), ("a/2", b"3")]
    watch = WatchValues(prefix="a/")
    begun(other, watch)
    other.write(PutRecord(key="a/3", value=b"mine"))
    one.write(PutRecord(key="a/4", value=b"theirs"))
    other.settle(1)
    assert watch.changed == [("a/4", b"theirs")]


def test_the_highest_of_several_positions_is_saved_and_read_at_once(two: Two) -> None:
    one, other = two
    for number in range(5, 25):
        saver, reader = (one, other) if number % 2 else (other, one)
        saver.write(SaveIndex(key=KEY, index=number))
        assert reader.read(LoadIndex(key=KEY)).index == number
        behind = reader.write(SaveIndex(key=KEY, index=number - 1))
        assert (behind.error, behind.index) == (None, number)


def test_what_follows_from_a_value_that_is_another_by_now_is_not_written(two: Two) -> None:
    one, other = two
    one.write(PutRecord(key="k", value=b"1"))
    seen = other.read(GetRecord(key="k"))
    assert (seen.value, other.read(GetRecord(key="none")).version) == (b"1", 0)
    assert other.read(ListRecords(prefix="k")).versions == [seen.version]
    one.write(PutRecord(key="k", value=b"2"))
    late = PutRecords(records=[("l", b"late")], seen=[("k", seen.version)])
    assert code_of(other.write(late)) == "store.fenced"
    assert other.read(GetRecord(key="l")).value is None
    seen = other.read(GetRecord(key="k"))
    fresh = PutRecords(records=[("k", b"3")], seen=[("k", seen.version), ("l", 0)])
    assert code_of(other.write(fresh)) == ""
    assert one.read(GetRecord(key="k")).value == b"3"


def test_an_append_that_follows_from_less_than_others_have_appended_is_refused(two: Two) -> None:
    one, other = two
    log = log_id(made(one).id, 0)

    def following(seen: int, data: bytes) -> Append:
        operation = append(data, log=log)
        operation.seen = seen
        return operation

    assert code_of(one.write(following(0, b"0"))) == ""
    # What this store has appended itself it knows.
    assert code_of(one.write(following(0, b"1"))) == ""
    assert code_of(other.write(following(1, b"no"))) == "store.fenced"
    assert code_of(other.write(following(2, b"2"))) == ""
    assert code_of(one.write(following(2, b"no"))) == "store.fenced"
    assert code_of(one.write(following(3, b"3"))) == ""
    wait_until(lambda: texts(other, log) == [b"0", b"1", b"2", b"3"])


def test_of_two_that_make_one_stream_one_does(two: Two) -> None:
    one, other = two
    put = PutStream(record=StreamRecord(name=FAR))
    made(one)
    assert code_of(other.write(put)) == "store.exists"
    wait_until(lambda: [row.name for row in other.read(ListStreams()).records] == [FAR])


def test_what_lies_in_several_shards_is_not_written_as_one(two: Two) -> None:
    one, _ = two
    log = log_id(made(one).id, 0)
    operation = append(b"0", log=log)
    operation.records = [("k", b"1")]
    assert code_of(one.write(operation)) == "store.scattered"


def test_what_is_trimmed_at_hand_opens_no_view(two: Two) -> None:
    one, other = two
    log = log_id(made(one).id, 0)
    one.write_all([append(b"%d" % number, log=log) for number in range(10)])
    limits = Retention(entries_max=5)
    left = other.write(Trim(log=log, retention=limits, at_hand=True))
    assert (left.error, left.trimmed) == (None, 0)
    assert {view["shard"] for view in other.shared.describe()["views"]} == {CATALOGUE}
    assert one.write(Trim(log=log, retention=limits, at_hand=True)).trimmed == 5
