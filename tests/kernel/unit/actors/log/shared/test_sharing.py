"""Two stores on one engine: what one does, the other sees, and nothing that it has not seen."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from memory_site import MemorySite
from rillnode.actors.log import (
    Append,
    FindStream,
    ListStreams,
    PutRecords,
    PutStream,
    RemoveStream,
    Retention,
    StreamRecord,
    Trim,
    WatchRecords,
    log_id,
)
from rillnode.actors.log.shared.placement import CATALOGUE, Placement
from rillnode.node.testing.contract.stores.driver import StoreDriver, append, texts, wait_until
from rillnode.node.testing.contract.stores.on_engine import EngineDriver
from shared_support import memory_view

SHARDS = 4

FAR = next(name for name in map(str, range(100)) if Placement(SHARDS).of_stream(name) != CATALOGUE)
"""A stream that does not lie in the shard that every node has."""

Two = tuple[EngineDriver, EngineDriver]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    site = MemorySite()
    site.make()
    one = EngineDriver(site.again, tmp_path / "one", view=memory_view, shards=SHARDS)
    other = one.other(tmp_path / "other")
    yield one, other
    other.end()
    one.end()


def code_of(operation: Append | PutRecords | PutStream) -> str:
    return "" if operation.error is None else operation.error.code


def made(driver: StoreDriver, name: str = FAR) -> StreamRecord:
    return driver.write(PutStream(record=StreamRecord(name=name))).record


def test_what_one_trims_and_removes_the_other_does_not_have(two: Two) -> None:
    one, other = two
    log = log_id(made(one).id, 0)
    one.write_all([append(b"%d" % number, log=log) for number in range(5)])
    one.write(Trim(log=log, before=4))
    wait_until(lambda: texts(other, log) == [b"4"])
    one.write(RemoveStream(name=FAR))
    wait_until(lambda: other.read(FindStream(name=FAR)).record is None)
    assert code_of(other.write(append(b"never", log=log))) == "stream.removed"


@pytest.mark.parametrize("has_view", [False, True])
def test_who_watches_records_is_told_of_streams_wherever_they_lie(two: Two, has_view: bool) -> None:
    one, other = two
    record = made(one)
    watch = WatchRecords()
    other.store.watch(watch)
    other.settle(1)
    assert watch.changed == [record]
    if has_view:
        assert texts(other, log_id(record.id, 0)) == []
    kept = msgspec.structs.replace(record, retention=Retention(entries_max=5))
    one.write(PutStream(record=kept))
    watch = WatchRecords()
    other.store.watch(watch)
    other.settle(1)
    assert watch.changed == [kept]
    one.write(RemoveStream(name=FAR))
    watch = WatchRecords()
    other.store.watch(watch)
    other.settle(1)
    assert (watch.changed, watch.removed) == ([], [kept])
    # Its own changes are no news.
    watch = WatchRecords()
    other.store.watch(watch)
    mine = other.write(PutStream(record=StreamRecord(name="mine"))).record
    again = made(one)
    other.settle(1)
    assert watch.changed == [again]
    assert mine != again


def test_of_two_that_make_one_stream_one_does(two: Two) -> None:
    one, other = two
    put = PutStream(record=StreamRecord(name=FAR))
    made(one)
    assert code_of(other.write(put)) == "store.exists"
    wait_until(lambda: [row.name for row in other.read(ListStreams()).records] == [FAR])


def test_what_is_trimmed_at_hand_opens_no_view(two: Two) -> None:
    one, other = two
    log = log_id(made(one).id, 0)
    one.write_all([append(b"%d" % number, log=log) for number in range(10)])
    limits = Retention(entries_max=5)
    left = other.write(Trim(log=log, retention=limits, at_hand=True))
    assert (left.error, left.trimmed) == (None, 0)
    assert {view["shard"] for view in other.store.describe()["views"]} == {CATALOGUE}
    assert one.write(Trim(log=log, retention=limits, at_hand=True)).trimmed == 5
