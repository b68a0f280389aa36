"""Tests that watchers are told once of what others did, and of logs also what this node has."""

from collections.abc import Sequence

from rillnode.actors.log import (
    Append,
    Operation,
    PutRecord,
    PutRecords,
    PutStream,
    RemoveStream,
    StreamRecord,
    Watch,
    WatchRecords,
    WatchValues,
    log_id,
)
from rillnode.actors.log.shared.applying import ApplyFrame
from rillnode.actors.log.shared.frames import PutListing, SharedOperation
from rillnode.actors.log.shared.watching import Watching
from rillnode.codecs.errors import StoreError

LOG = log_id(3, 0)
RECORD = StreamRecord(name="s", id=3)


class Told:
    def __init__(self) -> None:
        self.told: list[Operation] = []
        self.watching = Watching(self.take)

    def take(self, operations: Sequence[Operation]) -> None:
        self.told += operations

    def land(self, *operations: SharedOperation, is_own: bool = False) -> None:
        self.watching.landed(ApplyFrame(sequence=1, operations=operations), is_own=is_own)


def test_a_log_that_grows_is_told_whoever_has_appended() -> None:
    told = Told()
    near, far = Watch(log=LOG, index=4), Watch(log=LOG, index=9)
    told.watching.add(near)
    assert list(told.watching.logs) == [LOG]
    told.land(Append(log=LOG, count=5, first_index=0), is_own=True)
    assert told.told == [near]
    assert near.next_index == 5
    told.watching.add(far)
    told.land(Append(log=LOG, count=4, first_index=5))
    assert told.told == [near]
    told.land(Append(log=LOG, count=1, first_index=9))
    assert told.told == [near, far]
    assert not told.watching.logs


def test_a_later_watch_of_a_log_takes_the_place_of_one_before() -> None:
    told = Told()
    first, later = Watch(log=LOG, index=4), Watch(log=LOG)
    told.watching.add(first)
    told.watching.add(later)
    told.land(Append(log=LOG, count=5, first_index=0))
    assert told.told == [later]
    assert not told.watching.logs


def test_what_was_refused_is_no_news() -> None:
    told = Told()
    for watch in (Watch(log=LOG), WatchRecords(), WatchValues(prefix="")):
        told.watching.add(watch)
    error = StoreError("store.fenced", "")
    told.land(
        Append(log=LOG, count=1, first_index=0, error=error),
        PutRecords(records=[("a", b"")], error=error),
        PutStream(record=RECORD, error=error),
        RemoveStream(record=RECORD, error=error),
        PutListing(record=RECORD, error=error),
    )
    assert not told.told


def test_logs_that_are_removed_are_watched_no_longer() -> None:
    told = Told()
    watch, other = Watch(log=LOG), Watch(log=log_id(4, 0))
    told.watching.add(watch)
    told.watching.add(other)
    told.land(RemoveStream(name="s", record=RECORD), is_own=True)
    assert told.told == []
    assert list(told.watching.logs.values()) == [other]


def test_streams_of_others_are_told_with_what_came_before() -> None:
    told = Told()
    told.land(PutStream(record=RECORD), is_own=True)
    told.land(PutStream(record=RECORD))
    first = WatchRecords()
    told.watching.add(first)
    assert told.told == [first]
    assert (list(first.changed), list(first.removed)) == ([RECORD], [])
    second = WatchRecords()
    told.watching.add(second)
    assert told.told == [first]
    told.land(RemoveStream(name="s", record=RECORD))
    assert (list(second.changed), list(second.removed)) == ([], [RECORD])


def test_values_are_told_by_prefix_and_the_last_of_each() -> None:
    told = Told()
    a, b = WatchValues(prefix="a"), WatchValues(prefix="b")
    told.watching.add(a)
    told.watching.add(b)
    told.land(PutRecords(records=[("a1", b"1"), ("a1", b"2"), ("c", b"")]))
    assert told.told == [a]
    assert list(a.changed) == [("a1", b"2")]
    told.land(PutRecord(key="a2", value=None))
    told.land(PutRecord(key="a3", value=b""), is_own=True)
    told.land(Append(log=LOG, count=1, first_index=0, records=[("a4", b"4")]))
    again = WatchValues(prefix="a")
    told.watching.add(again)
    assert list(again.changed) == [("a2", None), ("a4", b"4")]
