"""Tests what watchers are told, beside what the suite of every store asks."""

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


def test_each_stream_that_had_a_name_is_told_of() -> None:
    told = Told()
    for number in (3, 4, 5):
        record = StreamRecord(name="s", id=number)
        told.land(PutStream(record=record))
        if number < 5:
            told.land(RemoveStream(name="s", record=record))
    watch = WatchRecords()
    told.watching.add(watch)
    assert [record.id for record in watch.removed] == [3, 4]
    assert [record.id for record in watch.changed] == [5]


def test_logs_that_are_removed_are_watched_no_longer() -> None:
    told = Told()
    watch, other = Watch(log=LOG), Watch(log=log_id(4, 0))
    told.watching.add(watch)
    told.watching.add(other)
    told.land(RemoveStream(name="s", record=RECORD), is_own=True)
    assert told.told == []
    assert list(told.watching.logs.values()) == [other]


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
