"""Keys and values of the store in RocksDB; pure.

Column families and their keys (all numbers big-endian, so that byte order is number order):

    blocks    log u64                        -> extent, once the log was trimmed (4 x u64)
              log u64 | first_index u64      -> a block as `codecs.entries` lays it out
    keys      log u64 | secondary key | index u64 -> nothing
              log u64 | 00 | first_index u64 -> all rows of that block's keys (MessagePack)
              log u64 | 00 ff | secondary key | first_index u64 -> number of entries, which all
                                                have that key (u32)
    default   "m" name                       -> format version, next stream id (u32)
              "mcopy"                        -> nothing; the store is being copied into
              "mcopy" log u64                -> entries of that log that were compared (u64)
              "s" name                       -> StreamRecord (MessagePack)
              "i" stream id u32              -> name
              "x" stream 00 00 | partition u32 | client id -> index u64
              "r" key                        -> a named value

A log's extent row stands just before its blocks, so one cursor finds both. What lists a block's
secondary keys is there to find them again when the block is trimmed. In "x" a zero byte of
the stream's name is written 00 01: the order of keys is then the order of SavedIndexKey.
"""

from bisect import bisect_left
from collections.abc import Sequence
from struct import Struct
from typing import Final

import msgspec

from rillnode.actors.log import (
    EVERY_ENTRY,
    Append,
    ListKeys,
    LogExtent,
    SavedIndexKey,
    StreamRecord,
)
from rillnode.actors.log.producers import Numbers
from rillnode.codecs.errors import StoreError

Change = tuple[bytes, bytes | None]
"""A row's key and its new value; None removes it."""

LOG_KEY: Final = Struct(">Q")
BLOCK_KEY: Final = Struct(">QQ")
NUMBER: Final = Struct(">I")
INDEX: Final = Struct(">Q")
_EXTENT: Final = Struct(">QQQQ")

FORMAT_KEY: Final = b"mformat"
NEXT_STREAM_KEY: Final = b"mnext_stream"
COPY_KEY: Final = b"mcopy"
STREAM_PREFIX: Final = b"s"
STREAM_ID_PREFIX: Final = b"i"
SAVED_INDEX_PREFIX: Final = b"x"
RECORD_PREFIX: Final = b"r"

BLOCK_KEYS_PREFIX: Final = b"\0"
"""Of the rows that list secondary keys; no such key begins so."""

RUN_PREFIX: Final = b"\0\xff"
"""Of the rows of keys that lead to all entries of a block; no block's index begins with ff."""

_record_encoder = msgspec.msgpack.Encoder()
_record_decoder = msgspec.msgpack.Decoder(StreamRecord)
_keys_encoder = msgspec.msgpack.Encoder()
_keys_decoder = msgspec.msgpack.Decoder(list[bytes])


# A Struct, as one is made for each log of a group: it is made in a third of a dataclass's time.
class LogState(msgspec.Struct, eq=False, gc=False):
    """The bounds of a log, in entries and in data bytes since its creation.

    Attributes:
        received_at: when the last entry came; of a log without entries it says nothing.
        numbers: what its producers have numbered; None: nothing.
    """

    first_index: int = 0
    next_index: int = 0
    first_position: int = 0
    next_position: int = 0
    received_at: int = 0
    numbers: Numbers | None = None

    def extent(self) -> LogExtent:
        """The state as users of the store see it."""
        return LogExtent(
            self.first_index, self.next_index, self.next_position - self.first_position
        )

    def encode(self) -> bytes:
        """The value of the log's extent row."""
        return _EXTENT.pack(
            self.first_index, self.next_index, self.first_position, self.next_position
        )

    @classmethod
    def decode(cls, value: bytes) -> "LogState":
        """Read an extent row."""
        return cls(*_EXTENT.unpack(value))


def put_behind(append: Append, last: int) -> None:
    """See that entries do not come before those that they stand behind, whatever clocks say.

    Args:
        append: what is about to be appended.
        last: when the last entry of its log came, in milliseconds since 1970.
    """
    if append.timed is None or append.received_at >= last:
        return
    append.received_at = last
    at = len(append.keys) - append.timed
    end = INDEX.pack(last)
    timed = [(key[: -INDEX.size] + end, offset) for key, offset in append.keys[at:]]
    append.keys = [*append.keys[:at], *timed]


def settle_double(append: Append, index: int, state: LogState) -> None:
    """Set the results of an append that its log has already, at an index."""
    append.first_index, append.is_double = index, True
    append.next_index = state.next_index
    append.kept_bytes = state.next_position - state.first_position


def indexed_keys(keys: Sequence[tuple[bytes, int]], first_index: int) -> list[bytes]:
    """Secondary keys as they are stored: behind each the index that it leads to, or begins at."""
    return [
        RUN_PREFIX + key + INDEX.pack(first_index)
        if offset == EVERY_ENTRY
        else key + INDEX.pack(first_index + offset)
        for key, offset in keys
    ]


def keys_with_offsets(indexed: Sequence[bytes], first_index: int) -> list[tuple[bytes, int]]:
    """The inverse of `indexed_keys`."""
    return [
        (split_key(key)[0][len(RUN_PREFIX) :], EVERY_ENTRY)
        if key.startswith(RUN_PREFIX)
        else (key[: -INDEX.size], split_key(key)[1] - first_index)
        for key in indexed
    ]


def key_rows(log: int, indexed: Sequence[bytes], count: int) -> list[tuple[bytes, bytes]]:
    """The rows of a block's secondary keys; `count` is that of its entries."""
    prefix, run = LOG_KEY.pack(log), NUMBER.pack(count)
    return [(prefix + key, run if key.startswith(RUN_PREFIX) else b"") for key in indexed]


def split_key(indexed: bytes) -> tuple[bytes, int]:
    """The secondary key and the index that one of them holds."""
    return indexed[: -INDEX.size], INDEX.unpack_from(indexed, len(indexed) - INDEX.size)[0]


def listed_run(run: bytes, count: int, operation: ListKeys) -> list[bytes]:
    """What a listing may want of a key that leads to `count` entries, in its order.

    Args:
        run: the key, and behind it the index at which it begins; without its prefix.
        count: how many entries have it.
        operation: the listing.
    """
    key, first = split_key(run)
    entries = range(first, first + count)

    def indexed(index: int) -> bytes:
        return key + INDEX.pack(index)

    start = bisect_left(entries, operation.start, key=indexed)
    end = count
    if operation.end is not None:
        end = bisect_left(entries, operation.end, key=indexed)
    wanted = entries[start:end][::-1] if operation.reverse else entries[start:end]
    return [indexed(index) for index in wanted[: operation.limit]]


def merged(
    operation: ListKeys, keys: Sequence[bytes], of_runs: Sequence[bytes]
) -> list[tuple[bytes, int]]:
    """The result of a listing: the first of what was found as single keys, and in runs."""
    if of_runs:
        keys = sorted((*keys, *of_runs), reverse=operation.reverse)
    return [split_key(key) for key in keys[: operation.limit]]


def block_keys_key(log: int, first_index: int) -> bytes:
    """Key of the row that lists the secondary keys of a block."""
    return LOG_KEY.pack(log) + BLOCK_KEYS_PREFIX + INDEX.pack(first_index)


def encode_keys(indexed: Sequence[bytes]) -> bytes:
    """The row that lists a block's secondary keys."""
    return _keys_encoder.encode(indexed)


def decode_keys(value: bytes) -> list[bytes]:
    """The inverse of `encode_keys`."""
    return _keys_decoder.decode(value)


def stream_key(name: str) -> bytes:
    """Key of a stream's record."""
    return STREAM_PREFIX + utf8(name)


def stream_id_key(stream_id: int) -> bytes:
    """Key under which a stream's name stands."""
    return STREAM_ID_PREFIX + NUMBER.pack(stream_id)


def record_key(key: str) -> bytes:
    """Key of a named value."""
    return RECORD_PREFIX + utf8(key)


def encode_record(record: StreamRecord) -> bytes:
    """A stream's record as it is stored.

    Raises:
        StoreError: a lone surrogate, which no text from outside holds.
    """
    try:
        return _record_encoder.encode(record)
    except UnicodeEncodeError as error:
        raise _no_text(error.object) from None


def decode_record(value: bytes) -> StreamRecord:
    """Read a stream's record; fields of a later version are passed over."""
    return _record_decoder.decode(value)


def saved_index_prefix(stream: str) -> bytes:
    """What the keys of all saved indexes of a stream begin with."""
    return SAVED_INDEX_PREFIX + utf8(stream).replace(b"\0", b"\0\1") + b"\0\0"


def saved_index_range(stream: str) -> tuple[bytes, bytes]:
    """The first key that a saved index of a stream can have, and the first past all of them."""
    prefix = saved_index_prefix(stream)
    # No other stream's keys begin with the end: a zero byte of a name is followed by 01.
    return prefix, prefix[:-1] + b"\1"


def logs_range(stream_id: int) -> tuple[bytes, bytes]:
    """The same of what belongs to the logs of a stream; ids end one below what four bytes hold."""
    return NUMBER.pack(stream_id), NUMBER.pack(stream_id + 1)


def records_range(begin: str) -> tuple[bytes, bytes]:
    """The same of the named values whose names begin so."""
    prefix = record_key(begin)
    return prefix, prefix[:-1] + bytes([prefix[-1] + 1])


def saved_index_key(key: SavedIndexKey) -> bytes:
    """Key of a saved index; sorts as SavedIndexKey does."""
    return saved_index_prefix(key.stream) + NUMBER.pack(key.partition) + utf8(key.client_id)


def decode_saved_index_key(key: bytes) -> SavedIndexKey:
    """The inverse of `saved_index_key`."""
    end = key.index(b"\0\0")
    stream = key[len(SAVED_INDEX_PREFIX) : end].replace(b"\0\1", b"\0").decode()
    (partition,) = NUMBER.unpack_from(key, end + 2)
    return SavedIndexKey(stream, partition, key[end + 2 + NUMBER.size :].decode())


def utf8(text: str) -> bytes:
    """Encode a name.

    Raises:
        StoreError: a lone surrogate, which no text from outside holds.
    """
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _no_text(text) from None


def _no_text(text: str) -> StoreError:
    return StoreError("store.name", f"{text!a} is not valid Unicode text", retryable=False)
