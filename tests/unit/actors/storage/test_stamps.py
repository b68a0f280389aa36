"""A batch is found wherever it stands, and refused where it comes too late."""

import msgspec
import pytest

from rillnode.actors.storage import Append
from rillnode.actors.storage.jetstream.forwarding import HandedAppend, HandedBatch, decode_batch
from rillnode.actors.storage.jetstream.frames import LogFrame, Stamp, decode, encode
from rillnode.actors.storage.jetstream.packing import pack
from rillnode.actors.storage.jetstream.stamps import Batch, Stamps
from rillnode.actors.storage.layout import LogState
from rillnode.codecs.entries import EntryKind, encode_block, pack_body
from rillnode.codecs.errors import CodecError, StoreError

A, B = b"a", b"b"


def nothing(_batch: Batch) -> None:
    """Nobody waits."""


def batch(origin: bytes, number: int, *sizes: int) -> Batch:
    appends = [Append(count=1, body=pack_body([bytes(size)])) for size in sizes or (3,)]
    return Batch(appends, nothing, origin, number)


def next_state(frame: LogFrame, *batches: Batch) -> LogState:
    last = batches[-1].appends[-1]
    return LogState(0, last.first_index + 1, 0, last.kept_bytes)


def test_a_batch_is_found_with_its_results() -> None:
    stamps, state = Stamps(), LogState()
    first, second, own = batch(A, 1, 3, 5), batch(B, 7, 2), batch(b"", 0, 4)
    stamps.add(1, pack([first, own, second], state, b"t"))
    for known in (first, second):
        again = batch(known.origin, known.number, *([1] * len(known.appends)))
        assert stamps.settle(again, state)
        assert again.sequence == 1
        assert again.is_settled
        for one, other in zip(again.appends, known.appends, strict=True):
            assert (one.first_index, one.kept_bytes) == (other.first_index, other.kept_bytes)
    assert [one.first_index for one in first.appends] == [0, 1]
    assert second.appends[0].first_index == 3
    assert second.appends[0].kept_bytes == 14


def test_one_that_is_not_there_is_not_found() -> None:
    stamps = Stamps()
    stamps.add(1, pack([batch(A, 1)], LogState(), b"t"))
    missing = batch(A, 2)
    assert not stamps.settle(missing, LogState())
    assert not stamps.settle(batch(B, 1), LogState())
    assert not missing.is_settled


def test_one_behind_a_later_one_of_its_origin_is_refused() -> None:
    stamps = Stamps()
    stamps.add(1, pack([batch(A, 3)], LogState(), b"t"))
    with pytest.raises(StoreError) as caught:
        stamps.settle(batch(A, 2), LogState())
    assert caught.value.code == "store.fenced"
    assert not stamps.settle(batch(B, 2), LogState())


def test_only_what_was_seen_whole_is_covered() -> None:
    stamps = Stamps()
    plain = pack([batch(b"", 0)], LogState(), b"t")
    for sequence in (5, 6, 7):
        stamps.add(sequence, plain)
    assert stamps.cover(4, 7)
    assert stamps.cover(5, 6)
    assert not stamps.cover(3, 7)
    assert not stamps.cover(4, 8)
    # A gap: what was before it is of no use.
    stamps.add(9, plain)
    assert not stamps.cover(7, 9)
    assert stamps.cover(8, 9)
    stamps.begin(20)
    assert stamps.cover(20, 20)


def test_memory_is_bounded_and_what_is_forgotten_is_not_covered() -> None:
    stamps = Stamps()
    state = LogState()
    for number in range(1, 1_001):
        one = batch(A, number)
        frame = pack([one], state, b"t")
        stamps.add(number, frame)
        state = next_state(frame, one)
    stamps.trim()
    assert not stamps.cover(700, 1_000)
    assert stamps.cover(800, 1_000)
    found = batch(A, 900)
    assert stamps.settle(found, state)
    assert found.appends[0].first_index == 899


def test_stamps_are_kept_with_the_frame() -> None:
    frame = pack([batch(b"", 0), batch(A, 1, 3, 5), batch(B, 2)], LogState(), b"t")
    assert frame.stamps == [Stamp(A, 1, 1, 2), Stamp(B, 2, 3, 1)]
    assert decode(LogFrame, encode(frame), "here") == frame
    # As frames were before there were any.
    old = msgspec.msgpack.encode([b"t", 0, frame.blocks, [], []])
    assert decode(LogFrame, old, "here").stamps == []


@pytest.mark.parametrize("stamp", [(0, 2), (1, 1), (-1, 1), (0, 0), (0, -1), (0, 2**62)])
def test_a_stamp_of_blocks_that_are_not_there_is_damage(stamp: tuple[int, int]) -> None:
    block = encode_block(
        count=1, kind=EntryKind.BYTES, received_at=0, position=0, body=pack_body([b"x"])
    )
    frame = LogFrame(b"t", 0, [block], stamps=[Stamp(A, 1, *stamp)])
    with pytest.raises(StoreError, match="no entry of this store"):
        decode(LogFrame, encode(frame), "here")


def test_a_damaged_block_is_an_error() -> None:
    frame = LogFrame(b"t", 0, [b"short"], stamps=[Stamp(A, 1, 0, 1)])
    with pytest.raises(CodecError):
        Stamps().add(1, frame)


def test_an_error_is_not_given_to_what_was_found() -> None:
    ended: list[Batch] = []
    found = batch(A, 1)
    found.sequence = 4
    lost = batch(A, 2)
    lost.done = found.done = ended.append
    for one in (found, lost):
        one.refuse(StoreError("store.full", "no room"))
    assert ended == [found, lost]
    assert found.appends[0].error is None
    assert lost.appends[0].error is not None


def handed(**changes: object) -> bytes:
    body = pack_body([b"one", b"two"])
    one = {"kind": 0, "flags": 0, "received_at": 5, "count": 2, "body": body, "keys": [(b"k", 1)]}
    values = list({**one, **changes}.values())
    return msgspec.msgpack.encode([2**32, A, 1, 9, [values]])


def test_what_is_handed_on_is_read_again() -> None:
    decoded = decode_batch(handed())
    body = pack_body([b"one", b"two"])
    one = HandedAppend(EntryKind.BYTES, 0, 5, 2, body, [(b"k", 1)])
    assert decoded == HandedBatch(2**32, A, 1, 9, [one])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 64,
        handed()[:-1],
        handed() + b"\0",
        handed(count=0),
        handed(count=3),
        handed(count=2**40),
        handed(flags=1),
        handed(kind=9),
        handed(keys=[(b"k", 2)]),
        handed(keys=[(b"\0k", 0)]),
        handed(keys=[(b"k", -1)]),
        handed(received_at=-1),
        handed(body=b""),
        msgspec.msgpack.encode([2**32, b"", 1, 9, []]),
        msgspec.msgpack.encode([2**32, A, 1, 9, []]),
        msgspec.msgpack.encode([-1, A, 1, 9, [[0, 0, 5, 1, pack_body([b"x"]), []]]]),
    ],
)  # fmt: skip
def test_what_is_no_batch_is_refused(data: bytes) -> None:
    assert decode_batch(data) is None


def test_what_is_read_to_look_for_one_is_kept_until_it_was_looked_for() -> None:
    stamps, state = Stamps(), LogState()
    for number in range(1, 1_001):
        one = batch(A, number)
        frame = pack([one], state, b"t")
        stamps.add(number, frame)
        state = next_state(frame, one)
    assert stamps.cover(0, 1_000)
    assert stamps.settle(batch(A, 1), state)
