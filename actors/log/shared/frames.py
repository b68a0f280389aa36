"""Frames: what one store writes at a time into the log of a shard; pure.

    version    u8       the first that has all that is in it; readers refuse what they do not know
    checksum   u32      CRC-32 of all that follows; so in all versions
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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from struct import Struct
from typing import Any, Final, Union, get_type_hints
from zlib import crc32

import msgspec
from msgspec.structs import astuple, fields

from rillnode.actors.log import (
    Append,
    OpenProducer,
    Operation,
    PutRecord,
    PutRecords,
    PutStream,
    RemoveStream,
    SaveIndex,
    StreamRecord,
    Trim,
    WriteOperation,
)
from rillnode.codecs.errors import StoreError

FRAME_VERSION: Final = 1
"""The newest that is read. A kind of operation that is added, or a field of one, or of what is
in it, takes another: by it older nodes know that they cannot carry a frame out as others do."""

WRITER_BYTES: Final = 8

_HEAD: Final = Struct(">BI")
_REST: Final = Struct(">8sIQQQI")
HEADER_BYTES: Final = _HEAD.size + _REST.size

OPERATION_BYTES: Final = 64
"""What an operation counts for in a frame beside its entries and named values, roughly."""


class PutListing(Operation, eq=False):
    """Note in the catalogue, which is in shard 0, what has become of a stream of another shard.

    Attributes:
        name: the stream's.
        record: what it is now; None: it was removed.
        generation: sequence at which that was done in the stream's own shard: the highest counts.
        was: result: the record that was listed before, where none is now.
        is_newest: result: nothing that was done later, or the same, was listed before.
    """

    name: str = ""
    record: StreamRecord | None = None
    generation: int = 0
    was: StreamRecord | None = None
    is_newest: bool = False


class BeginLog(Operation, eq=False):
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


class TooNewError(Exception):
    """A frame that not all nodes can read.

    Attributes:
        version: what they would have to.
    """

    def __init__(self, version: int) -> None:
        super().__init__(f"it takes version {version}")
        self.version = version


_LAYOUT: Final[Sequence[tuple[type[Operation], Sequence[int], int]]] = (
    (Append, (15,), 6),
    (Trim, (5,), 5),
    (PutStream, (1,), 1),
    (RemoveStream, (1,), 1),
    (SaveIndex, (4,), 2),
    (PutRecords, (2,), 1),
    (PutListing, (3,), 3),
    (BeginLog, (3,), 3),
    (OpenProducer, (3,), 3),
)
"""Operations by their kinds, which are 1 and so on; how many fields of each are written, the first
of its own in their order, in version 1 and in those after it up to the last that has changed it (0:
that does not know it); and how many of them must be there to be read."""

_OF_SUBMITTER: Final = (None,) * len(fields(Operation))
"""What every operation begins with; it is not written."""


class _Kind:
    """A kind of operation, and the array that it is written as."""

    def __init__(
        self, number: int, operation: type[Any], counts: Sequence[int], required: int
    ) -> None:
        count = counts[-1]
        own = fields(operation)[len(_OF_SUBMITTER) :][:count]
        types = {**get_type_hints(operation), "body": bytes}
        rows: list[Any] = [
            (one.name, types[one.name], *(() if place < required else (one.default,)))
            for place, one in enumerate(own)
        ]
        self.number = number
        self.operation = operation
        self.packed: Any = msgspec.defstruct(
            operation.__name__, rows, frozen=True, array_like=True, tag=number
        )
        self.counts = counts
        empty = operation()
        self._defaults = [(one.name, getattr(empty, one.name)) for one in own]
        names = [one.name for one in own]
        self.values: Callable[[Any], Sequence[Any]] = (
            attrgetter(*names) if count > 1 else lambda one: (getattr(one, names[0]),)
        )

    def version_of(self, operation: object) -> int:
        """The first version that has all that an operation says."""
        for version, count in enumerate(self.counts, 1):
            later = self._defaults[count:]
            if count and all(getattr(operation, name) == default for name, default in later):
                return version
        return len(self.counts)

    def pack(self, operation: Any, version: int) -> object:
        """The array that is written of an operation in a version."""
        values = self.values(operation)
        if version < len(self.counts):
            values = values[: self.counts[version - 1]]
        return (self.number, *values)


_KINDS: Final = {row[0]: _Kind(number, *row) for number, row in enumerate(_LAYOUT, 1)}
_OPERATIONS: Final = {one.packed: one.operation for one in _KINDS.values()}

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
    list[Union[tuple(_OPERATIONS)]]  # type: ignore[misc] # noqa: UP007
)


def encode_frame(contents: Contents, version_max: int = FRAME_VERSION) -> bytes:
    """Write a frame of the first version that has all that is in it.

    Raises:
        TooNewError: that is past `version_max`.
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
    version, packed = _packed(contents.operations)
    if version > version_max:
        raise TooNewError(version)
    body = _encoder.encode(packed)
    return b"".join((_HEAD.pack(version, crc32(body, crc32(rest))), rest, body))


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
    # First: what is damaged is not taken for a frame of a later version, which stops all nodes.
    if version < 1 or crc32(memoryview(data)[_HEAD.size :]) != checksum:
        raise FrameError("the checksum is another")
    if version > FRAME_VERSION:
        raise StoreError(
            "store.newer",
            f"the log has frames of version {version}, and this node reads up to {FRAME_VERSION}: "
            "update it",
            retryable=False,
        )
    writer, epoch, number, since, mark, digest = _REST.unpack_from(data, _HEAD.size)
    return Session(writer, epoch, number, since), mark, digest


def _packed(operations: Sequence[SharedOperation]) -> tuple[int, list[object]]:
    """The version that operations take, and what is written of them."""
    version = 1
    kinds: list[tuple[_Kind, SharedOperation]] = []
    for operation in operations:
        if isinstance(operation, PutRecord):
            operation = PutRecords(records=[(operation.key, operation.value)])
        kind = _KINDS[type(operation)]
        if len(kind.counts) > 1:
            version = max(version, kind.version_of(operation))
        kinds.append((kind, operation))
    return version, [kind.pack(operation, version) for kind, operation in kinds]


def _unpack(packed: Any) -> SharedOperation:
    operation: SharedOperation = _OPERATIONS[type(packed)](*_OF_SUBMITTER, *astuple(packed))
    return operation
