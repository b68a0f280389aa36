"""What stands in the messages of JetStream's streams; pure.

There are two kinds of streams, both of MessagePack arrays (`msgspec.Struct`, array_like):

    <prefix>-<log u64 in hex>   one log: each message is a LogFrame, one group of appends
    <prefix>-journal            all else: each message is a JournalFrame, one group of changes

A JetStream message is stored whole or not at all, so a frame is what the store commits at once.
The journal's keys are those of `layout` in its `default` family, and these:

    "e" log u64        -> where a trimmed log begins (LogStart)
    "a" log u64        -> sequence of the last LogFrame whose records are in the journal (u64)
    "d" stream id u32  -> partitions of a removed stream that JetStream may still hold (u32)
"""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Final, TypeVar

import msgspec

from rillnode.actors.storage.layout import LOG_KEY, NUMBER, Change
from rillnode.codecs.errors import StoreError

LOG_START_PREFIX: Final = b"e"
APPLIED_PREFIX: Final = b"a"
DROPPED_PREFIX: Final = b"d"


class Stamp(msgspec.Struct, frozen=True, array_like=True):
    """Whose group some blocks of a frame are: a group that has a stamp is in its log once at most.

    Attributes:
        origin: tells the store that made the group from all others.
        number: grows from one of its groups to the next.
        block: the first of its blocks among those of the frame.
        blocks: so many are the group's.
    """

    origin: bytes
    number: int
    block: int
    blocks: int


class LogFrame(msgspec.Struct, frozen=True, array_like=True):
    """One group of appends to a log.

    Attributes:
        token: tells this message from every other: who wrote it, and the how manieth it was.
        first_index: index of its first entry.
        blocks: at least one, as `codecs.entries` lays them out, each going on where the last ended.
        keys: secondary keys, each with the index it leads to behind it.
        records: named values that hold once the frame does; also written to the journal.
        stamps: of the groups that came from other stores.
    """

    token: bytes
    first_index: int
    blocks: list[bytes]
    keys: list[bytes] = []
    records: list[Change] = []
    stamps: list[Stamp] = []


class JournalFrame(msgspec.Struct, frozen=True, array_like=True):
    """One group of changes: `ranges` [first, end) are removed, then `changes` apply in order."""

    token: bytes
    ranges: list[tuple[bytes, bytes]]
    changes: list[Change]


class LogStart(msgspec.Struct, frozen=True, array_like=True):
    """Where a trimmed log begins.

    Attributes:
        first_index: first entry kept.
        first_position: data bytes of the log before it.
        block_index: first entry of the block that holds it.
        frame_index: first entry of the frame that holds it, or that ends before it.
        sequence: that frame's sequence; those before are purged.
    """

    first_index: int = 0
    first_position: int = 0
    block_index: int = 0
    frame_index: int = 0
    sequence: int = 1


F = TypeVar("F", bound=LogFrame | JournalFrame | LogStart)

TOKEN_BYTES: Final = 8
"""What tells one writer from all others: random, new each time that a store is opened."""

_encoder = msgspec.msgpack.Encoder()


def token_maker(writer: bytes) -> Callable[[], bytes]:
    """What makes the tokens of a writer, whose own bytes tell it from all others."""
    numbers = count()
    return lambda: writer + next(numbers).to_bytes(8, "big")


def encode(frame: LogFrame | JournalFrame | LogStart) -> bytes:
    """A frame as it is stored."""
    return _encoder.encode(frame)


def decode(kind: type[F], data: bytes, where: str) -> F:
    """The inverse of `encode`.

    Raises:
        StoreError: something else stands there; `where` names it.
    """
    try:
        frame = msgspec.msgpack.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise corrupt_error(where) from error
    if isinstance(frame, LogFrame):
        count = len(frame.blocks)
        stamps = frame.stamps
        if not count or not all(0 <= one.block < one.block + one.blocks <= count for one in stamps):
            raise corrupt_error(where)
    return frame


def log_start_key(log: int) -> bytes:
    """Key of the row that says where a trimmed log begins."""
    return LOG_START_PREFIX + LOG_KEY.pack(log)


def applied_key(log: int) -> bytes:
    """Key of the row that says which of a log's records are in the journal."""
    return APPLIED_PREFIX + LOG_KEY.pack(log)


def dropped_key(stream_id: int) -> bytes:
    """Key of the row that says that a removed stream's logs have to be dropped."""
    return DROPPED_PREFIX + NUMBER.pack(stream_id)


def rows_of_stream(stream_id: int) -> Sequence[tuple[bytes, bytes]]:
    """The ranges of the rows about the logs of one stream."""
    first, end = NUMBER.pack(stream_id), NUMBER.pack(stream_id + 1)
    return [(prefix + first, prefix + end) for prefix in (LOG_START_PREFIX, APPLIED_PREFIX)]


def corrupt_error(where: str) -> StoreError:
    """What stands in a stream of ours was not written by this store."""
    return StoreError(
        "store.corrupt",
        f"{where} holds what is no entry of this store: restore the stream from a backup, or use "
        "another prefix if it belongs to something else",
        retryable=False,
    )
