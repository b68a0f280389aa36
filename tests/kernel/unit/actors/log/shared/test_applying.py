"""Tests that every view decides alike: the one in memory and the one on disk."""

import copy
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from rillnode.actors.log import (
    Append,
    FindStream,
    GetRecord,
    ListIndexes,
    ListKeys,
    ListRecords,
    ListStreams,
    OpenProducer,
    Operation,
    PutRecords,
    PutStream,
    Read,
    RemoveStream,
    Retention,
    SavedIndexKey,
    SaveIndex,
    StreamRecord,
    Trim,
    log_id,
    version_of,
)
from rillnode.actors.log.rocks.reads import answer
from rillnode.actors.log.rocks.tables import Changes
from rillnode.actors.log.rocks.tail import TailCache
from rillnode.actors.log.rocks.view import DurableView
from rillnode.actors.log.shared import applying
from rillnode.actors.log.shared.applying import ApplyFrame, Progress, encode_identity
from rillnode.actors.log.shared.frames import (
    BeginLog,
    Contents,
    PutListing,
    Session,
    SharedOperation,
    checksum_of,
    decode_frame,
    encode_frame,
)
from rillnode.actors.log.shared.memory_view import ViewTables
from rillnode.actors.log.shared.rocks_view import UnsyncedTables, ViewCommit
from rillnode.codecs.entries import FLAG_META, decode_header, pack_body
from rillnode.codecs.errors import StoreError
from store_support import SMALL, CutError

SHARD, SHARDS = 1, 3
LOG = log_id(SHARD, 0)
"""Of the first stream that is made in the shard."""


class Target:
    """A view, frame by frame."""

    def __init__(self) -> None:
        self.sequence = 0
        self.frames: list[bytes] = []

    def frame(
        self,
        *operations: SharedOperation,
        writer: bytes = b"w",
        epoch: int = 1,
        number: int = 0,
        since: int = 0,
    ) -> ApplyFrame:
        """Write the next frame, and carry it out as others do."""
        session = Session(writer.ljust(8), epoch, number, since)
        return self.land(encode_frame(Contents(session, operations=operations)))

    def land(self, data: bytes) -> ApplyFrame:
        self.frames.append(data)
        self.sequence += 1
        contents = decode_frame(data)
        frame = ApplyFrame(
            sequence=self.sequence,
            checksum=checksum_of(data),
            contents=contents,
            operations=contents.operations,
        )
        self.apply(frame)
        return frame

    def apply(self, frame: ApplyFrame) -> None:
        raise NotImplementedError

    def read(self, operation: Any) -> Any:
        raise NotImplementedError

    @property
    def progress(self) -> Progress:
        raise NotImplementedError

    def reopen(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass

    def rows(self) -> Sequence[tuple[bytes, bytes]]:
        raise NotImplementedError


class InMemory(Target):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tables = ViewTables(SHARD, SHARDS)

    def apply(self, frame: ApplyFrame) -> None:
        self.tables.apply(frame)

    def read(self, operation: Any) -> Any:
        self.tables.answer(operation)
        return operation

    @property
    def progress(self) -> Progress:
        return self.tables.applier.progress

    def reopen(self) -> None:
        self.tables.applier = applying.Applier(self.tables, SHARD, SHARDS)

    def rows(self) -> Sequence[tuple[bytes, bytes]]:
        return sorted(self.tables.rows(b"w"))


class CutTables(UnsyncedTables):
    """Tables that let only so many writes through."""

    left = 2**32

    def write(self, changes: Changes) -> None:
        if not self.left:
            raise CutError
        self.left -= 1
        super().write(changes)


class OnDisk(Target):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.open()

    def open(self) -> None:
        self.tables = CutTables(self.path, SMALL)
        self.view = DurableView(1)
        self.view.show(self.tables)
        self.tail = TailCache(100_000)
        self.commit = ViewCommit(SHARD, SHARDS, self.tables, self.view, self.tail, SMALL)

    def apply(self, frame: ApplyFrame) -> None:
        self.commit.run([frame])
        if frame.error is not None:
            raise frame.error

    def read(self, operation: Any) -> Any:
        self.view.read(0, lambda cursors: answer(operation, cursors))
        return operation

    @property
    def progress(self) -> Progress:
        return Progress.decode(self.tables.record(applying.PROGRESS_KEY))

    def reopen(self) -> None:
        self.close()
        self.open()

    def close(self) -> None:
        del self.commit
        with self.view.replaced():
            self.tables.close()

    def rows(self) -> Sequence[tuple[bytes, bytes]]:
        rows = self.commit.rows(b"w")
        return [(key, row) for key, row in rows if key != applying.IDENTITY_KEY]


KINDS: list[Callable[[Path], Target]] = [InMemory, OnDisk]


@pytest.fixture(params=KINDS, ids=["memory", "rocks"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    made: Target = request.param(tmp_path / "view")
    yield made
    made.close()


def push(*texts: bytes, log: int = LOG, **fields: Any) -> Append:
    fields.setdefault("received_at", 1)
    return Append(log=log, count=len(texts), body=pack_body(texts), **fields)


def timed(at: int, log: int = LOG) -> Append:
    """An entry with a key of its time, behind one with what is not."""
    end = at.to_bytes(8, "big")
    keys = [(b"a" + end, 0), (b"t" + end, 0)]
    return push(b"x", log=log, received_at=at, keys=keys, timed=1)


def put(name: str, value: bytes | None, *seen: tuple[str, int]) -> PutRecords:
    return PutRecords(records=[(name, value)], seen=seen)


def code(operation: Operation) -> str:
    return "" if operation.error is None else operation.error.code


def codes(frame: ApplyFrame) -> list[str]:
    return [code(one) for one in frame.operations]


def arrivals(target: Target) -> list[int]:
    return [decode_header(one.value).received_at for one in target.read(Read(log=LOG)).blocks]


def blocks(target: Target, log: int = LOG) -> list[tuple[int, int]]:
    return [(one.first_index, one.count) for one in target.read(Read(log=log)).blocks]


def held(target: Target) -> list[object]:
    """All that a view answers, of what the tests here write."""
    found: list[object] = [target.rows()]
    streams = target.read(ListStreams(limit=1_000))
    found.append(
        [(one, extent) for one, extent in zip(streams.records, streams.extents, strict=True)]
    )
    for record in streams.records:
        found.append(target.read(FindStream(name=None, id=record.id)).record)
    for stream_id in range(SHARD, SHARD + 8 * SHARDS, SHARDS):
        for partition in range(2):
            log = log_id(stream_id, partition)
            read = target.read(Read(log=log))
            found.append((read.extent, [(one.first_index, one.value) for one in read.blocks]))
            pairs = target.read(ListKeys(log=log)).pairs
            found.append([pair for pair in pairs if pair[1] >= read.extent.first_index])
    found.append(target.read(ListIndexes()).indexes)
    found.append(target.read(ListRecords()).records)
    return found


# Which frames count --------------------------------------------------------------------------


def test_copies_and_frames_behind_a_gap_are_void(target: Target) -> None:
    counts = [target.frame(push(b"x"), number=n).counts for n in (1, 1, 3, 2, 2, 3, 1, 4)]
    assert counts == [True, False, False, True, False, True, False, True]
    assert blocks(target) == [(0, 1), (1, 1), (2, 1), (3, 1)]
    target.reopen()
    assert not target.frame(push(b"x"), number=4).counts
    assert target.frame(push(b"x"), number=5).counts


def test_a_newer_epoch_ends_older_ones(target: Target) -> None:
    assert target.frame(number=1).counts
    assert not target.frame(epoch=2, number=2).counts
    assert target.frame(number=2).counts
    assert target.frame(epoch=3, number=1).counts
    for epoch, number in ((1, 3), (2, 1), (3, 1), (0, 1)):
        assert not target.frame(push(b"x"), epoch=epoch, number=number).counts
    assert target.frame(epoch=3, number=2).counts
    assert not target.frame(writer=b"new", epoch=0, number=1).counts
    assert not target.frame(writer=b"new", epoch=1, number=2).counts
    assert blocks(target) == []


def test_a_void_frame_moves_the_view_and_nothing_else(target: Target) -> None:
    target.frame(push(b"x"), number=1)
    before = target.progress
    frame = target.frame(push(b"y"), number=1)
    assert frame.progress is not None
    assert frame.progress.sequence == before.sequence + 1
    assert frame.progress.digest == before.digest
    damaged = ApplyFrame(sequence=3, checksum=7)
    target.apply(damaged)
    assert target.progress == (3, applying.WHOLE, before.digest, 7)
    assert not damaged.counts


def test_a_frame_that_was_carried_out_is_not_again(target: Target) -> None:
    frame = target.frame(push(b"x"), number=1)
    again = ApplyFrame(sequence=1, contents=frame.contents, operations=frame.operations)
    target.apply(again)
    assert not again.counts
    assert again.progress == target.progress
    assert blocks(target) == [(0, 1)]


def test_a_frame_before_those_that_a_view_has_missed_is_not_carried_out(target: Target) -> None:
    target.frame(push(b"x"), number=1)
    contents = Contents(Session(b"other   ", 1, 1), operations=[push(b"y")])
    early = ApplyFrame(sequence=3, contents=contents, operations=contents.operations)
    with pytest.raises(StoreError) as caught:
        target.apply(early)
    assert caught.value.retryable
    assert target.progress.sequence == 1


def test_a_writer_that_was_forgotten_writes_in_a_new_epoch(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applying, "WRITERS_MAX", 2)
    target.frame(push(b"x"), writer=b"a", number=1)  # sequence 1
    target.frame(writer=b"b", number=1)
    target.frame(writer=b"c", number=1)
    for _ in range(2):
        # What it had sent may come once more, also as the first frame that it ever wrote.
        assert not target.frame(push(b"x"), writer=b"a", number=1).counts
        assert not target.frame(push(b"x"), writer=b"a", number=2).counts
        target.reopen()
    assert not target.frame(writer=b"a", epoch=2, number=1, since=0).counts
    assert target.frame(writer=b"a", epoch=2, number=1, since=7).counts
    assert target.frame(writer=b"c", number=2).counts
    assert blocks(target) == [(0, 1)]


# What operations build on --------------------------------------------------------------------


def test_appends_that_have_not_seen_others_are_refused(target: Target) -> None:
    assert codes(target.frame(push(b"1", b"2", seen=0), writer=b"a", number=1)) == [""]
    assert codes(target.frame(push(b"3", seen=1), writer=b"b", number=1)) == ["store.fenced"]
    assert codes(target.frame(push(b"3", seen=2), writer=b"b", number=2)) == [""]
    assert codes(target.frame(push(b"4", seen=2), writer=b"a", number=2)) == ["store.fenced"]
    target.reopen()
    assert codes(target.frame(push(b"4", seen=3), writer=b"a", number=3)) == [""]
    assert blocks(target) == [(0, 2), (2, 1), (3, 1)]


def test_no_entry_comes_before_one_that_it_stands_behind(target: Target) -> None:
    for number, at in enumerate((5, 9, 3, 7, 10), 1):
        writer = (b"a", b"b")[number % 2]
        target.frame(timed(at), writer=writer, number=(number + 1) // 2)
        target.reopen()
    assert arrivals(target) == [5, 9, 9, 9, 10]
    found = [(key[:1], key[-1]) for key, _ in target.read(ListKeys(log=LOG)).pairs]
    assert found == [
        *((b"a", at) for at in (3, 5, 7, 9, 10)),
        *((b"t", at) for at in (5, 9, 9, 9, 10)),
    ]
    # What stands behind none follows its own clock, and what is copied that of its source.
    copied = push(b"x", received_at=2, timed=None)
    target.frame(Trim(log=LOG, before=5), timed(4), timed(2), copied, writer=b"c", number=1)
    assert arrivals(target) == [4, 4, 2]


def test_own_appends_under_way_need_not_be_seen(target: Target) -> None:
    target.frame(push(b"1", b"2"), writer=b"a", number=1)
    pipelined = [push(b"3", seen=2), push(b"4", seen=2)]
    assert codes(target.frame(*pipelined, writer=b"b", number=1)) == ["", ""]
    target.reopen()
    assert codes(target.frame(push(b"5", seen=2), writer=b"b", number=2)) == [""]
    assert codes(target.frame(push(b"6", seen=1), writer=b"b", number=3)) == ["store.fenced"]
    assert codes(target.frame(push(b"7"), writer=b"a", number=2)) == [""]


def test_an_append_that_was_given_up_and_came_late_is_to_be_seen(target: Target) -> None:
    target.frame(push(b"confirmed"), number=1)
    target.frame(push(b"given up"), number=2)
    assert codes(target.frame(push(b"x", seen=1), epoch=2, number=1)) == ["store.fenced"]


def test_values_are_changed_by_who_has_seen_them(target: Target) -> None:
    one = version_of(b"1")
    assert codes(target.frame(put("v", b"1", ("v", 0)), number=1)) == [""]
    operations = [put("v", b"x", ("v", 0)), put("v", b"2", ("v", one)), put("v", b"3", ("v", one))]
    assert codes(target.frame(*operations, number=2)) == ["store.fenced", "", "store.fenced"]
    gone = [put("v", None, ("v", version_of(b"2"))), put("w", b"", ("v", 0), ("w", 0))]
    assert codes(target.frame(*gone, number=3)) == ["", ""]
    assert codes(target.frame(put("w", b"x", ("w", 0)), number=4)) == ["store.fenced"]
    assert target.read(GetRecord(key="w")).value == b""
    assert target.read(GetRecord(key="v")).value is None
    assert version_of(b"") != version_of(None) == 0


def test_an_append_follows_from_values_as_well(target: Target) -> None:
    one = version_of(b"1")
    first = push(b"a", records=[("v", b"1")], follows=[("v", 0)])
    late = push(b"b", records=[("v", b"x")], follows=[("v", 0)])
    assert codes(target.frame(first, late, number=1)) == ["", "store.fenced"]
    assert target.read(GetRecord(key="v")).value == b"1"
    target.reopen()
    again = push(b"b", records=[("v", b"2")], follows=[("v", one), ("w", 0)])
    assert codes(target.frame(again, number=2)) == [""]
    assert blocks(target) == [(0, 1), (1, 1)]


def test_of_saved_indexes_the_highest_counts(target: Target) -> None:
    key = SavedIndexKey("s", 0, "c")
    saves = [SaveIndex(key=key, index=index) for index in (5, 3, 5, 7)]
    frame = target.frame(*saves, number=1)
    assert [one.index for one in frame.operations if isinstance(one, SaveIndex)] == [5, 5, 5, 7]
    late = target.frame(SaveIndex(key=key, index=0), writer=b"b", number=1).operations[0]
    assert isinstance(late, SaveIndex)
    assert (late.index, late.error) == (7, None)
    assert target.read(ListIndexes()).indexes == [(key, 7)]


def test_of_listings_the_newest_counts(target: Target) -> None:
    old, new = StreamRecord(name="s", id=4), StreamRecord(name="s", id=7)
    for record, generation, expected in (
        (old, 5, old),
        (None, 4, old),
        (None, 9, None),
        (old, 5, None),
        (new, 9, None),
        (new, 12, new),
        (None, 9, new),
    ):
        target.frame(
            PutListing(name="s", record=record, generation=generation),
            writer=b"%d" % target.sequence,
            number=1,
        )
        assert target.read(FindStream(name="s")).record == expected
        target.reopen()


@pytest.mark.parametrize(
    "record", [StreamRecord(name="l", id=-1), StreamRecord(name="l", id=2**32),
               StreamRecord(name="l", id=0), StreamRecord(name="other", id=2)],
)  # fmt: skip
def test_what_no_stream_is_cannot_be_listed(target: Target, record: StreamRecord) -> None:
    listed = PutListing(name="l", record=StreamRecord(name="l", id=2), generation=1)
    frame = target.frame(PutListing(name="l", record=record, generation=9), listed, number=1)
    assert codes(frame) == ["store.void", ""]
    assert target.read(ListStreams()).records == [listed.record]


def test_streams_have_ids_of_their_shard(target: Target) -> None:
    made = target.frame(*(PutStream(record=StreamRecord(name=n)) for n in "abc"), number=1)
    ids = [one.record.id for one in made.operations if isinstance(one, PutStream)]
    assert ids == [1, 4, 7]
    target.frame(RemoveStream(name="c"), number=2)
    target.reopen()
    (again,) = target.frame(PutStream(record=StreamRecord(name="c")), number=3).operations
    assert isinstance(again, PutStream)
    assert again.record.id == 10
    assert {stream_id % SHARDS for stream_id in ids} == {SHARD}


def test_shard_0_gives_no_id_0() -> None:
    tables = ViewTables(0, SHARDS)
    contents = Contents(
        Session(b"w" * 8, 1, 1), operations=[PutStream(record=StreamRecord(name="s"))]
    )
    tables.apply(ApplyFrame(sequence=1, contents=contents, operations=contents.operations))
    (made,) = contents.operations
    assert isinstance(made, PutStream)
    assert made.record.id == SHARDS


# Wrong contents ------------------------------------------------------------------------------

BEFORE: list[SharedOperation] = [
    PutStream(record=StreamRecord(name="s")),
    push(b"before"),
    put("v", b"1"),
]

WRONG: dict[str, tuple[SharedOperation, str]] = {
    "log of another shard": (push(b"x", log=log_id(2, 0)), "store.misplaced"),
    "trim of another shard": (Trim(log=log_id(2, 0), before=1), "store.misplaced"),
    "log below 0": (push(b"x", log=-(2**40) + (1 << 32)), "store.misplaced"),
    "no entries": (Append(log=LOG, count=0, body=b"", records=[("v", b"w")]), "store.void"),
    "count below 0": (Append(log=LOG, count=-1, body=b"abcd", records=[("v", b"w")]), "store.void"),
    "large count": (Append(log=LOG, count=2**40, body=b"", records=[("v", b"w")]), "store.void"),
    "short body": (Append(log=LOG, count=2, body=b"\0" * 7, records=[("v", b"w")]), "store.void"),
    "short lengths": (Append(log=LOG, count=1, flags=FLAG_META, body=b"\0" * 7), "store.void"),
    "large flags": (push(b"x", flags=256, records=[("v", b"w"), ("u", b"")]), "store.void"),
    "large time": (
        Append(log=LOG, count=1, body=b"\0" * 4, received_at=2**63, records=[("v", b"w")]),
        "store.void",
    ),
    "key of no entry": (push(b"x", keys=[(b"k", -5)], records=[("v", b"w")]), "store.void"),
    "no number": (
        Trim(log=LOG, retention=Retention(seconds=float("nan")), now_ms=1),
        "store.void",
    ),
    "no time": (Trim(log=LOG, retention=Retention(seconds=float("inf")), now_ms=1), "store.void"),
    "position below 0": (SaveIndex(key=SavedIndexKey("s", 0, "c"), index=-1), "store.void"),
    "number below 0": (
        push(b"x", producer=b"p", sequence=-1, records=[("v", b"w")]),
        "store.void",
    ),
    "large number": (push(b"x", producer=b"p", sequence=2**63 - 1), "store.void"),
    "large epoch": (push(b"x", producer=b"p", epoch=2**63), "store.void"),
    "large time of an opening": (
        OpenProducer(log=LOG, producer=b"p", received_at=2**63),
        "store.void",
    ),
    "opening in another shard": (OpenProducer(log=log_id(2, 0), producer=b"p"), "store.misplaced"),
    "producer of a large time": (
        push(b"x", producer=b"p", received_at=2**63, records=[("v", b"w")]),
        "store.void",
    ),
    "large partition": (SaveIndex(key=SavedIndexKey("s", 2**32, "c"), index=1), "store.void"),
    "unknown stream": (RemoveStream(name="unknown"), "store.unknown"),
    "known stream": (PutStream(record=StreamRecord(name="s")), "store.exists"),
    "removed stream": (push(b"x", log=log_id(4, 0)), "stream.removed"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_operation_with_wrong_contents_leaves_nothing(tmp_path: Path, wrong: str) -> None:
    operation, expected = WRONG[wrong]
    targets = [InMemory(tmp_path / "memory"), OnDisk(tmp_path / "rocks")]
    for target in targets:
        removed: list[SharedOperation] = [
            PutStream(record=StreamRecord(name="r")),
            RemoveStream(name="r"),
        ]
        target.frame(*BEFORE, *removed, number=1)
        frame = target.frame(
            put("v", b"2", ("v", version_of(b"1"))),
            operation,
            put("v", b"3", ("v", version_of(b"2"))),
            push(b"after"),
            number=2,
        )
        assert frame.counts
        assert codes(frame) == ["", expected, "", ""]
        assert blocks(target) == [(0, 1), (1, 1)]
        assert target.read(GetRecord(key="u")).value is None
        assert target.read(ListKeys(log=LOG)).pairs == []
        assert codes(target.frame(push(b"later"), number=3)) == [""]
        target.reopen()
        assert blocks(target) == [(0, 1), (1, 1), (2, 1)]
    assert targets[0].progress == targets[1].progress
    assert held(targets[0]) == held(targets[1])
    targets[1].close()


# Both views ----------------------------------------------------------------------------------

NAMES = st.sampled_from("abc")
LOGS = st.sampled_from([log_id(SHARD + n * SHARDS, p) for n in range(3) for p in range(2)])
VALUES = st.sampled_from([None, b"", b"1", b"2" * 50])
VERSIONS = st.sampled_from([0, version_of(b""), version_of(b"1")])
SEEN = st.none() | st.integers(0, 12)
RECORDS = st.lists(st.tuples(st.sampled_from(["beside/4294967296/x", "v"]), VALUES), max_size=2)
KEYS = st.lists(st.tuples(st.sampled_from([b"k", b"l"]), st.just(0)), max_size=2, unique=True)
SIZES = st.lists(st.sampled_from([0, 3, 9_000]), min_size=1, max_size=4)
PRODUCERS = st.sampled_from([b"p", b"q"])
GROUPS = st.lists(st.tuples(NAMES, VALUES), max_size=3)


@st.composite
def an_operation(draw: st.DrawFn) -> SharedOperation:
    name, small = draw(NAMES), draw(st.integers(0, 12))
    match draw(st.integers(0, 10)):
        case 0:
            hold = draw(st.none() | st.integers(0, 12))
            most = draw(st.none() | st.sampled_from([0, 10_000]))
            limits = Retention(bytes_max=most)
            return Trim(log=draw(LOGS), before=small, retention=limits, hold=hold)
        case 1:
            return PutStream(record=StreamRecord(name=name, partitions=2))
        case 2:
            return RemoveStream(name=name)
        case 3:
            return SaveIndex(key=SavedIndexKey(name, 0, "c"), index=small)
        case 4:
            seen = draw(st.lists(st.tuples(NAMES, VERSIONS), max_size=1))
            return PutRecords(records=draw(GROUPS), seen=seen)
        case 5:
            listed = f"listed {name}"
            record = None if draw(st.booleans()) else StreamRecord(name=listed, id=2)
            return PutListing(name=listed, record=record, generation=small)
        case 6:
            return OpenProducer(log=draw(LOGS), producer=draw(PRODUCERS), received_at=small)
        case 7:
            epoch = draw(st.sampled_from([0, 0, 0, 1, 2, 3]))
            texts = [b"x" * size for size in draw(SIZES)]
            return push(
                *texts, log=draw(LOGS), producer=draw(PRODUCERS), epoch=epoch, sequence=small
            )
        case _:
            texts = [b"x" * size for size in draw(SIZES)]
            log = draw(LOGS | st.just(log_id(2, 0)))
            return push(*texts, log=log, keys=draw(KEYS), seen=draw(SEEN), records=draw(RECORDS))


FRAMES = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b"]),
        st.integers(0, 9),
        st.lists(an_operation(), max_size=6),
    ),
    max_size=12,
)


def encoded(frames: Sequence[tuple[bytes, int, list[SharedOperation]]]) -> list[bytes]:
    """Frames of writers that mostly write the next one, and now and then another."""
    found: list[bytes] = []
    last: dict[bytes, Session] = {}
    for writer, turn, operations in frames:
        known = last.get(writer, Session(writer.ljust(8), 1, 0))
        session = Session(known.writer, known.epoch, known.number + 1)
        if turn == 0:
            session = Session(known.writer, known.epoch + 1, 1)
        elif turn == 1:
            session = Session(known.writer, known.epoch, known.number + 2)
        if turn != 1:
            last[writer] = session
        found.append(encode_frame(Contents(session, operations=operations)))
    return found


@given(FRAMES)
def test_views_are_the_same_after_the_same_frames(
    frames: list[tuple[bytes, int, list[SharedOperation]]],
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        memory, rocks = InMemory(Path()), OnDisk(Path(directory, "view"))
        for data in encoded(frames):
            one, other = memory.land(data), rocks.land(data)
            assert (one.counts, codes(one)) == (other.counts, codes(other))
            assert one.progress == other.progress
        assert held(memory) == held(rocks)
        rocks.reopen()
        assert memory.progress == rocks.progress
        assert held(memory) == held(rocks)
        rocks.close()


# Any contents --------------------------------------------------------------------------------

WILD = st.sampled_from([0, 1, 5, -1, -5, -(2**63), 2**64 - 1]) | st.sampled_from(
    [2**8, 2**16, 2**31, 2**32 - 1, 2**32, 2**40, 2**62, 2**63 - 1, 2**63]
)
WILD_LOGS = st.sampled_from([LOG, LOG + 1, LOG + 2**32 - 1, log_id(4, 0), 2**64 - 1]) | WILD
WILD_BYTES = st.sampled_from([b"", b"\0" * 4, b"\0" * 8, b"\xff" * 9, b"\0\0\0\1a", b"t" * 8])
WILD_NAMES = st.sampled_from(["a", "s", "v", "\0", "beside/4294967296/x", "é" * 90])
WILD_PAIRS = st.lists(st.tuples(WILD_NAMES, WILD), max_size=2)
WILD_VALUES = st.lists(st.tuples(WILD_NAMES, st.none() | WILD_BYTES), max_size=2)
WILD_KEYS = st.lists(st.tuples(WILD_BYTES, WILD), max_size=2)
WILD_FLOATS = st.sampled_from([0.0, -1.0, 1e308, float("nan"), float("inf")])


@st.composite
def a_retention(draw: st.DrawFn) -> Retention:
    most = st.none() | WILD
    return Retention(
        seconds=draw(st.none() | WILD_FLOATS), entries_max=draw(most), bytes_max=draw(most)
    )


@st.composite
def a_record(draw: st.DrawFn) -> StreamRecord:
    return StreamRecord(
        name=draw(WILD_NAMES), id=draw(WILD), partitions=draw(st.sampled_from([1, 2, 0, -1])),
        created_at=draw(WILD), owner=draw(WILD_NAMES), retention=draw(a_retention()),
    )  # fmt: skip


@st.composite
def anything(draw: st.DrawFn) -> SharedOperation:
    match draw(st.integers(0, 9)):
        case 0:
            return Trim(
                log=draw(WILD_LOGS), before=draw(WILD), retention=draw(a_retention()),
                now_ms=draw(WILD), hold=draw(st.none() | WILD),
            )  # fmt: skip
        case 1:
            return PutStream(record=draw(a_record()))
        case 2:
            return RemoveStream(name=draw(WILD_NAMES))
        case 3:
            key = SavedIndexKey(draw(WILD_NAMES), draw(WILD), draw(WILD_NAMES))
            return SaveIndex(key=key, index=draw(WILD), seen=draw(WILD_PAIRS))
        case 4:
            return PutRecords(records=draw(WILD_VALUES), seen=draw(WILD_PAIRS))
        case 5:
            record = draw(st.none() | a_record())
            return PutListing(name=draw(WILD_NAMES), record=record, generation=draw(WILD))
        case 6:
            return OpenProducer(
                log=draw(WILD_LOGS), producer=draw(WILD_BYTES), received_at=draw(WILD)
            )
        case 7:
            return BeginLog(log=draw(WILD_LOGS), index=draw(WILD), position=draw(WILD))
        case _:
            return Append(
                log=draw(WILD_LOGS), flags=draw(WILD), received_at=draw(WILD), count=draw(WILD),
                body=draw(WILD_BYTES), keys=draw(WILD_KEYS), timed=draw(st.none() | WILD),
                records=draw(WILD_VALUES), seen=draw(st.none() | WILD), follows=draw(WILD_PAIRS),
                producer=draw(WILD_BYTES), epoch=draw(WILD), sequence=draw(WILD),
            )  # fmt: skip


@given(st.lists(st.lists(anything(), min_size=1, max_size=4), min_size=1, max_size=6))
def test_no_contents_stop_a_view(frames: list[list[SharedOperation]]) -> None:
    """Whoever may write to the log may write anything: at every view it is void, or does the same.

    That is so however often a view is opened anew, and forgets what it keeps in memory.
    """
    with tempfile.TemporaryDirectory() as directory:
        one, other = (OnDisk(Path(directory, name)) for name in "12")
        for target in (one, other):
            number = 1
            target.frame(*BEFORE, number=number)
            for operations in frames:
                if target is other:
                    target.reopen()
                with suppress(OverflowError):  # it cannot be written
                    target.frame(*copy.deepcopy(operations), number=number + 1)
                    number += 1
            frame = target.frame(put("after", b"1"), number=number + 1)
            assert codes(frame) == [""]
        assert one.progress == other.progress
        assert repr(held(one)) == repr(held(other))  # NaN is not itself
        for target in (one, other):
            target.close()


def random_frames(seed: int) -> list[bytes]:
    """Frames with something of everything, and enough to be written in many slices."""
    chance = random.Random(seed)
    frames: list[tuple[bytes, int, list[SharedOperation]]] = []
    made = [PutStream(record=StreamRecord(name=name, partitions=2)) for name in "abc"]
    frames.append((b"a", 5, [*made]))
    for _ in range(4):
        operations: list[SharedOperation] = []
        for _ in range(6):
            log = log_id(SHARD + chance.randrange(3) * SHARDS, chance.randrange(2))
            name = chance.choice("abc")
            value = chance.choice([None, b"1", b"2"])
            text = b"x" * chance.choice([1, 6_000, 17_000])
            choices: list[SharedOperation] = [
                push(text, log=log, keys=[(b"k", 0)], seen=chance.choice([None, 1, 3])),
                push(text, log=log, seen=chance.choice([None, 2])),
                push(text, log=log, producer=b"p", sequence=chance.randrange(4)),
                push(text, text, log=log, producer=b"q", epoch=1, sequence=chance.randrange(4)),
                OpenProducer(log=log, producer=b"q"),
                timed(chance.randrange(9), log),
                Trim(log=log, retention=Retention(entries_max=chance.randrange(3))),
                RemoveStream(name=name),
                PutStream(record=StreamRecord(name=name, partitions=2)),
                SaveIndex(key=SavedIndexKey(name, 0, "c"), index=chance.randrange(9)),
                put(name, value, (name, chance.choice([0, version_of(b"1")]))),
                put(name, value),
                PutListing(name="l", record=None, generation=chance.randrange(9)),
                Append(log=log, count=1, body=b"\0" * 4, received_at=2**63),
            ]
            operations.append(chance.choice(choices))
        frames.append((chance.choice([b"a", b"b"]), chance.randrange(10), operations))
    return encoded(frames)


@pytest.mark.parametrize(
    "seed", [*range(1), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 40))]
)
def test_a_view_that_was_cut_off_after_any_write_goes_on_as_if_it_was_not(
    tmp_path: Path, seed: int
) -> None:
    frames = random_frames(seed)
    memory = InMemory(tmp_path)
    for data in frames:
        memory.land(data)
    expected = held(memory)
    cut = 0
    while True:
        rocks = OnDisk(tmp_path / str(cut))
        rocks.tables.left = cut
        try:
            for data in frames:
                rocks.land(data)
            break
        except CutError:
            pass
        rocks.reopen()
        rocks.sequence = rocks.progress.sequence - (not rocks.progress.is_whole)
        for data in frames[rocks.sequence :]:
            rocks.land(data)
        assert rocks.progress == memory.progress
        assert held(rocks) == expected, cut
        rocks.close()
        cut += 1
    rocks.close()
    assert cut > len(frames) // 2


def test_what_a_view_is_of_is_told_apart() -> None:
    found = {encode_identity(b"a" * 16, shard, shards) for shard in (0, 1) for shards in (2, 3)}
    assert len(found) == 4
