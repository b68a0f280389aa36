"""Frames: what is written is read, and nothing else is."""

from zlib import crc32

import msgspec
import pytest

from rillnode.actors.log import (
    Append,
    OpenProducer,
    PutRecord,
    PutRecords,
    PutStream,
    RemoveStream,
    Retention,
    SavedIndexKey,
    SaveIndex,
    StreamRecord,
    Trim,
)
from rillnode.actors.log.shared import frames
from rillnode.actors.log.shared.frames import (
    FRAME_VERSION,
    HEADER_BYTES,
    BeginLog,
    Contents,
    FrameError,
    PutListing,
    Session,
    SharedOperation,
    TooNewError,
    checksum_of,
    decode_frame,
    decode_session,
    encode_frame,
)
from rillnode.codecs.entries import EntryKind
from rillnode.codecs.errors import StoreError
from shared_nodes import later_frame, plant_second_version

BEGIN = BeginLog(log=2**33, index=2**40, position=2**41)
PINNED = 623_907_883
"""Of the frame that has one of each operation, with all of its fields."""

SESSION = Session(b"\xff\x00writer", 2**32 - 1, 2**64 - 1, 2**63)
RECORD = StreamRecord(
    name="é/\0x",
    id=2**32 - 1,
    partitions=7,
    created_at=1,
    owner="o",
    retention=Retention(seconds=0.5, entries_max=3, bytes_max=0),
    require_signed=True,
    grants={"*": ("read", "write")},
    attributes={"a": "b"},
)
OPERATIONS: list[SharedOperation] = [
    Append(
        log=2**64 - 1,
        kind=EntryKind(2),
        flags=1,
        received_at=-1,
        count=2,
        body=b"\0\xff",
        keys=[(b"key", 1), (b"", 0)],
        timed=1,
        records=[("name", b"value"), ("gone", None)],
        seen=0,
        follows=[("name", 2**64 - 1)],
        producer=b"\0\xff",
        epoch=2**63 - 1,
        sequence=2**63 - 1,
    ),
    OpenProducer(log=2**64 - 1, producer=b"m7", received_at=2**62),
    Append(log=1, count=1, body=memoryview(b"abcd")),
    Trim(log=5, before=9, retention=RECORD.retention, now_ms=2**62, hold=4),
    Trim(log=5),
    PutStream(record=RECORD),
    RemoveStream(name=""),
    SaveIndex(key=SavedIndexKey("s", 2**32 - 1, "client"), index=2**64 - 1, created_at=7),
    PutRecords(records=[("a", b""), ("b", None)], seen=[("c", 0), ("d", 2**64 - 1)]),
    PutListing(name="n", record=RECORD, generation=2**64 - 1),
    PutListing(name="n", record=None, generation=0),
]


def fields(operation: SharedOperation) -> dict[str, object]:
    found = {name: getattr(operation, name) for name in operation.__struct_fields__}
    for name in ("body",):
        if name in found:
            found[name] = bytes(found[name])
    for name in ("keys", "records", "seen", "follows"):
        if isinstance(found.get(name), list | tuple):
            found[name] = [tuple(one) for one in found[name]]
    return found


def test_every_operation_there_and_back() -> None:
    contents = Contents(SESSION, 2**64 - 1, 2**32 - 1, OPERATIONS)
    found = decode_frame(encode_frame(contents))
    assert (found.session, found.mark, found.digest) == (SESSION, 2**64 - 1, 2**32 - 1)
    assert list(map(type, found.operations)) == list(map(type, OPERATIONS))
    assert list(map(fields, found.operations)) == list(map(fields, OPERATIONS))


def test_one_named_value_travels_as_several_do() -> None:
    frame = encode_frame(Contents(SESSION, operations=[PutRecord(key="k", value=None)]))
    (found,) = decode_frame(frame).operations
    assert isinstance(found, PutRecords)
    assert (list(map(tuple, found.records)), list(found.seen)) == ([("k", None)], [])


def test_an_empty_frame() -> None:
    frame = encode_frame(Contents(SESSION))
    assert list(decode_frame(frame).operations) == []
    assert decode_session(frame) == SESSION
    assert len(frame) == HEADER_BYTES + 1


def test_damage_at_every_byte_is_found() -> None:
    frame = encode_frame(Contents(SESSION, operations=OPERATIONS))
    for at in range(len(frame)):
        for bit in (1, 0x80):
            damaged = bytearray(frame)
            damaged[at] ^= bit
            # A version that is not known yet tells nothing of the rest.
            expected: tuple[type[Exception], ...] = (
                (FrameError,) if at else (FrameError, StoreError)
            )
            with pytest.raises(expected):
                decode_frame(bytes(damaged))


def test_a_frame_that_was_cut_is_found() -> None:
    frame = encode_frame(Contents(SESSION, operations=OPERATIONS))
    for size in range(len(frame)):
        with pytest.raises(FrameError):
            decode_frame(frame[:size])
    with pytest.raises(FrameError):
        decode_frame(frame + b"\0")
    assert checksum_of(frame[:3]) == crc32(frame[:3])


def test_a_later_version_is_not_looked_into() -> None:
    frame = later_frame()
    for read in (decode_frame, decode_session):
        with pytest.raises(StoreError) as caught:
            read(frame)
        assert (caught.value.code, caught.value.retryable) == ("store.newer", False)
    for damaged in (frame + b"x", frame[:-1], b"\0" + encode_frame(Contents(SESSION))[1:]):
        with pytest.raises(FrameError):
            decode_frame(damaged)


def framed(body: bytes) -> bytes:
    rest = frames._REST.pack(  # pyright: ignore[reportPrivateUsage]
        SESSION.writer, 1, 1, 0, 0, 0
    )
    head = frames._HEAD.pack(  # pyright: ignore[reportPrivateUsage]
        FRAME_VERSION, crc32(body, crc32(rest))
    )
    return head + rest + body


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc0",
        b"\x91" * 100_000,
        b"\x91\x93\x04\xa1a" + b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        b"\xdd\x7f\xff\xff\xff\x92\x04\xa1a",
        b"\x91\x92\x04\xdb\xff\xff\xff\xff",
        b"\x91\x92\x06\xdd\xff\xff\xff\xff",
        b"\x91\x94\x07\xa1a\xdf\xff\xff\xff\xff",
        b"\x91\x92\x63\xa1a",
        b"\x91\x92\x04\xa1\xff",
        b"\x90\x90",
        msgspec.msgpack.encode([[1, 1, 77, 0, 0, 1, b"\0\0\0\0"]]),
        msgspec.msgpack.encode([[5, ["s", "p", "c"], 1]]),
        msgspec.msgpack.encode([[6, [["name"]]]]),
    ],
    ids=range(15),
)
def test_hostile_contents_are_refused(body: bytes) -> None:
    with pytest.raises(FrameError):
        decode_frame(framed(body))


def test_fields_of_a_later_version_are_passed_over() -> None:
    (found,) = decode_frame(framed(msgspec.msgpack.encode([[4, "s", {"more": 1}]]))).operations
    assert isinstance(found, RemoveStream)
    assert found.name == "s"


@pytest.fixture
def second_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that has one more field of a trim, and removals."""
    plant_second_version(monkeypatch)


@pytest.mark.usefixtures("second_version")
def test_a_frame_has_the_first_version_that_has_all_of_it() -> None:
    old, new = Trim(log=5, before=9, now_ms=7), Trim(log=5, hold=4)
    frame = encode_frame(Contents(SESSION, operations=[old, SaveIndex()]), 1)
    assert frame[0] == 1
    assert msgspec.msgpack.decode(frame[HEADER_BYTES:])[0][:3] == [2, 5, 9]
    assert len(msgspec.msgpack.decode(frame[HEADER_BYTES:])[0]) == 5  # its kind, and four fields
    assert list(map(fields, decode_frame(frame).operations[:1])) == [fields(old)]
    frame = encode_frame(Contents(SESSION, operations=[old, new]), 2)
    assert frame[0] == 2
    assert list(map(fields, decode_frame(frame).operations)) == [fields(old), fields(new)]
    assert encode_frame(Contents(SESSION), 1)[0] == 1
    for operation in (new, RemoveStream(name="s")):
        with pytest.raises(TooNewError) as caught:
            encode_frame(Contents(SESSION, operations=[old, operation]), 1)
        assert caught.value.version == 2


def test_what_takes_no_later_version_is_written_as_it_always_was() -> None:
    """Whoever changes what is written here changes what older nodes read: see FRAME_VERSION."""
    frame = encode_frame(Contents(SESSION, operations=[*OPERATIONS, BEGIN]))
    assert (FRAME_VERSION, frame[0], crc32(frame)) == (1, 1, PINNED)


@pytest.mark.parametrize(
    "operation",
    [RemoveStream(name="\ud800"), PutRecords(records=[("\udfff", b"")])],
)
def test_a_name_that_is_no_text_cannot_be_written(operation: SharedOperation) -> None:
    with pytest.raises(UnicodeEncodeError):
        encode_frame(Contents(SESSION, operations=[operation]))


def test_what_is_written_of_an_operation_keeps_its_place() -> None:
    """The order is that of the classes' fields, which must not be put in another one."""
    operation = Append(
        log=1 << 32, kind=EntryKind.BYTES, flags=2, received_at=3, count=4, body=b"5",
        keys=[(b"6", 7)], timed=8, records=[("9", b"10")], seen=11, follows=[("12", 13)],
        producer=b"14", epoch=15, sequence=16, after=17,
    )  # fmt: skip
    frame = encode_frame(Contents(Session(b"w" * 8, 1, 1), operations=[operation]))
    assert msgspec.msgpack.decode(frame[HEADER_BYTES:]) == [
        [1, 1 << 32, int(EntryKind.BYTES), 2, 3, 4, b"5", [[b"6", 7]], 8, [["9", b"10"]], 11,
         [["12", 13]], b"14", 15, 16, 17]
    ]  # fmt: skip
