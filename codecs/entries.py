"""Blocks of entries: one layout from the producer's socket to the disk, the reader and Spark.

A producer packs what it pushes in one go into a *body*; the store puts a header before it and
writes the two as one value; a reader gets the value as it was written. So an entry is framed
once in its life, and a batch costs the node a header whatever the number of its entries.

    body    = lengths u32[count] | data                              (flag META clear)
            = lengths u32[count] | meta_lengths u32[count] | data | meta   (flag META set)
    header  = count u32 | kind u8 | flags u8 | zero u16 | received_at i64 | position u64
    block   = header | body

All numbers are little-endian, so that Arrow takes `lengths` and `data` without a copy per entry.
`received_at` is in milliseconds since 1970; `position` is the number of data bytes that the log
held before this block since its creation, so that the size of any range is one subtraction.
The index of a block's first entry is its key, not part of it.
"""

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import accumulate, pairwise, repeat

import msgspec

from rillnode.codecs.errors import CodecError
from rillnode.codecs.limits import BLOCK_BYTES_MAX, BLOCK_ENTRIES_MAX, ENTRY_BYTES_MAX

_HEADER = struct.Struct("<IBBHqQ")
HEADER_BYTES = _HEADER.size
FLAG_META = 1


class EntryKind(IntEnum):
    """The protocol that an entry's bytes belong to."""

    BYTES = 0
    STREAMR = 1
    NEXTGRAPH = 2


_KINDS = {int(kind): kind for kind in EntryKind}


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry: where it stands, when it arrived (ms since 1970) and exactly the bytes given.

    A Struct, because consumers make hundreds of thousands a second: it is made in a third of a
    frozen dataclass's time, and the garbage collector, which could find no cycle, passes it by.
    """

    partition: int
    index: int
    received_at: int
    kind: EntryKind
    data: bytes
    meta: bytes = b""


class Block(msgspec.Struct, frozen=True, gc=False):
    """A stored block and the index of its first entry."""

    first_index: int
    value: bytes

    @property
    def count(self) -> int:
        """Number of entries."""
        return int.from_bytes(self.value[:4], "little")

    @property
    def next_index(self) -> int:
        """Index after the last entry."""
        return self.first_index + self.count


class BlockHeader(msgspec.Struct, frozen=True, gc=False):
    """The decoded header of a block; a Struct, as one is made for each block that is read."""

    count: int
    kind: EntryKind
    flags: int
    received_at: int
    position: int


def pack_body(items: Sequence[bytes], metas: Sequence[bytes] | None = None) -> bytes:
    """Pack entries' data into a body; `metas`, where given, has one item per entry."""
    lengths = _words(map(len, items))
    if metas is None:
        return b"".join((lengths, *items))
    return b"".join((lengths, _words(map(len, metas)), *items, *metas))


def check_body(count: int, body: bytes | memoryview, flags: int = 0) -> None:
    """Check that a body from outside holds `count` entries within the limits.

    Time and memory are linear in the number of entries, never in what the lengths claim.

    Raises:
        CodecError: no or too many entries, an entry over its limit, or lengths that do not add up.
    """
    if not 0 < count <= BLOCK_ENTRIES_MAX:
        raise CodecError(
            "entries.count", f"a block holds 1 to {BLOCK_ENTRIES_MAX} entries, not {count}"
        )
    columns = 2 if flags & FLAG_META else 1
    table = 4 * count * columns
    lengths = _read_words(body, count * columns)
    if max(lengths) > ENTRY_BYTES_MAX:
        raise CodecError("entries.size", f"an entry holds at most {ENTRY_BYTES_MAX} bytes")
    total = table + sum(lengths)
    if total != len(body):
        raise CodecError(
            "entries.lengths",
            f"block lengths add up to {total} bytes, the body has {len(body)}",
            offset=min(total, len(body)),
        )


def data_bytes(count: int, body: bytes | memoryview, flags: int = 0) -> int:
    """Number of data bytes of a checked body: what retention and `position` count."""
    if flags & FLAG_META:
        return sum(_read_words(body, count))
    return len(body) - 4 * count


def split_items(items: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Cut entries into runs that each make one block within the limits, reading none ahead."""
    run: list[bytes] = []
    size = 0
    for item in items:
        size += len(item)
        if run and (size > BLOCK_BYTES_MAX or len(run) == BLOCK_ENTRIES_MAX):
            yield run
            run, size = [], len(item)
        run.append(item)
    if run:
        yield run


def encode_block(
    *,
    count: int,
    kind: EntryKind,
    received_at: int,
    position: int,
    body: bytes | memoryview,
    flags: int = 0,
) -> bytes:
    """Put a header before a checked body: the block as it is stored."""
    header = _HEADER.pack(count, kind, flags, 0, received_at, position)
    return b"".join((header, body))


def decode_header(value: bytes) -> BlockHeader:
    """Read a stored block's header.

    Raises:
        CodecError: too short, or a kind of a newer version.
    """
    if len(value) < HEADER_BYTES:
        raise CodecError("codec.truncated", "block ends inside its header", offset=len(value))
    count, kind, flags, _, received_at, position = _HEADER.unpack_from(value)
    try:
        return BlockHeader(count, _KINDS[kind], flags, received_at, position)
    except KeyError:
        raise CodecError("entries.kind", f"unknown kind of entry {kind}", offset=4) from None


def items_of(value: bytes) -> list[bytes]:
    """The data of every entry of a stored block, in order (one slice per entry).

    Raises:
        CodecError: `codec.truncated`, the block is shorter than its lengths say.
    """
    return _items_of(value, decode_header(value))


def lengths_of(value: bytes) -> "array[int]":
    """The data length of every entry of a stored block; raises as `items_of` does."""
    return _read_words(value, int.from_bytes(value[:4], "little"), HEADER_BYTES)


def entries_of(
    block: Block, *, partition: int = 0, first: int = 0, until: int | None = None
) -> list[Entry]:
    """The entries of a block with `first <= index < until`, ascending.

    Raises:
        CodecError: the block's kind is unknown, or it is shorter than its lengths say.
    """
    header = decode_header(block.value)
    items = _items_of(block.value, header)
    metas = _metas_of(block.value, header) if header.flags & FLAG_META else None
    start = max(0, first - block.first_index)
    stop = len(items) if until is None else min(len(items), until - block.first_index)
    if start >= stop:
        return []
    return list(
        map(
            Entry,
            repeat(partition),
            range(block.first_index + start, block.first_index + stop),
            repeat(header.received_at),
            repeat(header.kind),
            items[start:stop],
            metas[start:stop] if metas else repeat(b""),
        )
    )


def _items_of(value: bytes, header: BlockHeader) -> list[bytes]:
    start = HEADER_BYTES + 4 * header.count * (2 if header.flags & FLAG_META else 1)
    return _cut(value, _read_words(value, header.count, HEADER_BYTES), start)


def _metas_of(value: bytes, header: BlockHeader) -> list[bytes]:
    table = HEADER_BYTES + 4 * header.count
    start = table + 4 * header.count + sum(_read_words(value, header.count, HEADER_BYTES))
    return _cut(value, _read_words(value, header.count, table), start)


def _cut(value: bytes, lengths: "array[int]", start: int) -> list[bytes]:
    ends = list(accumulate(lengths, initial=start))
    if ends[-1] > len(value):
        raise CodecError("codec.truncated", "block ends inside its entries", offset=len(value))
    return [value[a:b] for a, b in pairwise(ends)]


def _words(values: Iterator[int]) -> bytes:
    words = array("I", values)
    if sys.byteorder == "big":
        words.byteswap()
    return words.tobytes()


def _read_words(source: bytes | memoryview, count: int, offset: int = 0) -> "array[int]":
    words = array("I")
    end = offset + 4 * count
    if end > len(source):
        raise CodecError("codec.truncated", "block ends inside its lengths", offset=len(source))
    words.frombytes(memoryview(source)[offset:end])
    if sys.byteorder == "big":
        words.byteswap()
    return words
