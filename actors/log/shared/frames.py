"""Frames: what one store writes at a time into the log of a shard; pure.

    version    u8       of the layout and of the operations; readers refuse what they do not know
    checksum   u32      CRC-32 of all that follows
    writer     8 bytes  drawn by a store each time that it opens
    epoch      u32      raised when frames were given up that may come yet
    number     u64      of the frame in its epoch, from 1 on
    since      u64      sequence of the shard that the writer had applied when its epoch began
    mark       u64      a sequence at which views are compared, or 0
    digest     u32      the writer's view at that sequence
    operations          MessagePack: an array of arrays, each of which begins with its kind

Numbers are big-endian. A frame without operations changes nothing; who has applied his own has
applied all that was stored before he wrote it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, assert_never
from zlib import crc32

import msgspec

from rillnode.actors.log import (
    Append,
    OpenProducer,
    Operation,
    PutRecord,
    PutRecords,
    PutStream,
    RemoveStream,
    Retention,
    SavedIndexKey,
    SaveIndex,
    StreamRecord,
    Trim,
    WriteOperation,
)
from rillnode.codecs.entries import EntryKind
from rillnode.codecs.errors import StoreError

FRAME_VERSION: Final = 1

WRITER_BYTES: Final = 8

_HEAD: Final = Struct(">BI")
_REST: Final = Struct(">8sIQQQI")
HEADER_BYTES: Final = _HEAD.size + _REST.size

OPERATION_BYTES: Final = 64
"""What an operation counts for in a frame beside its entries and named values, roughly."""


@dataclass(slots=True, eq=False)
class PutListing(Operation):
    """Note in the catalogue, which is in shard 0, what has become of a stream of another shard.

    Attributes:
        name: the stream's.
        record: what it is now; None: it was removed.
        generation: sequence at which that was done in the stream's own shard: the highest counts.
        was: result: the record that was listed before, where none is now.
    """

    name: str = ""
    record: StreamRecord | None = None
    generation: int = 0
    was: StreamRecord | None = None


@dataclass(slots=True, eq=False)
class BeginLog(Operation):
    """Let a log without entries begin, and end, where that of another store does.

    Errors: `stream.removed`, `copy.changed` (it has entries, or has had some behind that place).

    Attributes:
        log: the log.
        index: of its next entry.
        position: data bytes that the other log has had before that.
    """

    log: int = 0
    index: int = 0
    position: int = 0


SharedOperation = WriteOperation | PutListing | BeginLog


@dataclass(frozen=True, slots=True)
class Session:
    """A frame's writer, and its number among that writer's frames."""

    writer: bytes
    epoch: int
    number: int
    since: int = 0


@dataclass(slots=True)
class Contents:
    """A frame as it is read.

    Attributes:
        session: who has written it.
        mark: sequence at which the writer tells what its view was; 0: it does not.
        digest: that.
        operations: what is to be done, in order.
    """

    session: Session
    mark: int = 0
    digest: int = 0
    operations: Sequence[SharedOperation] = field(default_factory=list[SharedOperation])


class FrameError(Exception):
    """A frame that nobody can read; every reader passes it over alike."""


class _Append(msgspec.Struct, frozen=True, array_like=True, tag=1):
    log: int
    kind: int
    flags: int
    received_at: int
    count: int
    body: bytes
    keys: Sequence[tuple[bytes, int]] = ()
    timed: int | None = 0
    records: Sequence[tuple[str, bytes | None]] = ()
    seen: int | None = None
    follows: Sequence[tuple[str, int]] = ()
    producer: bytes = b""
    epoch: int = 0
    sequence: int = 0


class _Trim(msgspec.Struct, frozen=True, array_like=True, tag=2):
    log: int
    before: int
    retention: Retention
    now_ms: int
    hold: int | None


class _PutStream(msgspec.Struct, frozen=True, array_like=True, tag=3):
    record: StreamRecord


class _RemoveStream(msgspec.Struct, frozen=True, array_like=True, tag=4):
    name: str


class _SaveIndex(msgspec.Struct, frozen=True, array_like=True, tag=5):
    key: SavedIndexKey
    index: int
    seen: Sequence[tuple[str, int]] = ()


class _PutRecords(msgspec.Struct, frozen=True, array_like=True, tag=6):
    records: Sequence[tuple[str, bytes | None]]
    seen: Sequence[tuple[str, int]] = ()


class _PutListing(msgspec.Struct, frozen=True, array_like=True, tag=7):
    name: str
    record: StreamRecord | None
    generation: int


class _BeginLog(msgspec.Struct, frozen=True, array_like=True, tag=8):
    log: int
    index: int
    position: int


class _OpenProducer(msgspec.Struct, frozen=True, array_like=True, tag=9):
    log: int
    producer: bytes
    received_at: int


_Packed = (
    _Append
    | _Trim
    | _PutStream
    | _RemoveStream
    | _SaveIndex
    | _PutRecords
    | _PutListing
    | _BeginLog
    | _OpenProducer
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[_Packed])


def encode_frame(contents: Contents) -> bytes:
    """Write a frame.

    Raises:
        UnicodeEncodeError: a name is no Unicode text.
        OverflowError: a number has more than 64 bits.
    """
    session = contents.session
    rest = _REST.pack(
        session.writer,
        session.epoch,
        session.number,
        session.since,
        contents.mark,
        contents.digest,
    )
    body = _encoder.encode([_pack(operation) for operation in contents.operations])
    return b"".join((_HEAD.pack(FRAME_VERSION, crc32(body, crc32(rest))), rest, body))


def decode_frame(data: bytes) -> Contents:
    """Read a frame.

    Raises:
        FrameError: it is damaged, or holds what is none of ours.
        StoreError: `store.newer`, a later version has written it.
    """
    session, mark, digest = _read_header(data)
    try:
        packed = _decoder.decode(memoryview(data)[HEADER_BYTES:])
        operations = [_unpack(one) for one in packed]
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise FrameError(str(error)) from None
    return Contents(session, mark, digest, operations)


def checksum_of(data: bytes) -> int:
    """The checksum that a frame has."""
    if len(data) < HEADER_BYTES:
        return crc32(data)
    checksum: int = _HEAD.unpack_from(data)[1]
    return checksum


def decode_session(data: bytes) -> Session:
    """Who has written a frame. Raises as `decode_frame` does."""
    return _read_header(data)[0]


def _read_header(data: bytes) -> tuple[Session, int, int]:
    if len(data) < HEADER_BYTES:
        raise FrameError(f"{len(data)} bytes are no frame")
    version, checksum = _HEAD.unpack_from(data)
    if version > FRAME_VERSION:
        raise StoreError(
            "store.newer",
            f"the log has frames of version {version}, and this node reads up to {FRAME_VERSION}: "
            "update it",
            retryable=False,
        )
    if version != FRAME_VERSION or crc32(memoryview(data)[_HEAD.size :]) != checksum:
        raise FrameError("the checksum is another")
    writer, epoch, number, since, mark, digest = _REST.unpack_from(data, _HEAD.size)
    return Session(writer, epoch, number, since), mark, digest


def _pack(operation: SharedOperation) -> _Packed:
    match operation:
        case Append() as one:
            return _Append(
                one.log,
                one.kind,
                one.flags,
                one.received_at,
                one.count,
                one.body if isinstance(one.body, bytes) else bytes(one.body),
                one.keys,
                one.timed,
                one.records,
                one.seen,
                one.follows,
                one.producer,
                one.epoch,
                one.sequence,
            )
        case Trim() as one:
            return _Trim(one.log, one.before, one.retention, one.now_ms, one.hold)
        case PutStream(record=record):
            return _PutStream(record)
        case RemoveStream(name=name):
            return _RemoveStream(name)
        case SaveIndex(key=key, index=index, seen=seen):
            return _SaveIndex(key, index, seen)
        case PutRecord(key=name, value=value):
            return _PutRecords([(name, value)])
        case PutRecords(records=records, seen=seen):
            return _PutRecords(records, seen)
        case PutListing(name=name, record=record, generation=generation):
            return _PutListing(name, record, generation)
        case BeginLog(log=log, index=index, position=position):
            return _BeginLog(log, index, position)
        case OpenProducer(log=log, producer=producer, received_at=received_at):
            return _OpenProducer(log, producer, received_at)
        case _:
            assert_never(operation)


def _unpack(packed: _Packed) -> SharedOperation:
    match packed:
        case _Append() as one:
            return Append(
                log=one.log,
                kind=EntryKind(one.kind),
                flags=one.flags,
                received_at=one.received_at,
                count=one.count,
                body=one.body,
                keys=one.keys,
                timed=one.timed,
                records=one.records,
                seen=one.seen,
                follows=one.follows,
                producer=one.producer,
                epoch=one.epoch,
                sequence=one.sequence,
            )
        case _Trim(log, before, retention, now_ms, hold):
            return Trim(log=log, before=before, retention=retention, now_ms=now_ms, hold=hold)
        case _PutStream(record):
            return PutStream(record=record)
        case _RemoveStream(name):
            return RemoveStream(name=name)
        case _SaveIndex(key, index, seen):
            return SaveIndex(key=key, index=index, seen=seen)
        case _PutRecords(records, seen):
            return PutRecords(records=records, seen=seen)
        case _PutListing(name, record, generation):
            return PutListing(name=name, record=record, generation=generation)
        case _BeginLog(log, index, position):
            return BeginLog(log=log, index=index, position=position)
        case _OpenProducer(log, producer, received_at):
            return OpenProducer(log=log, producer=producer, received_at=received_at)
