"""Blocks of entries: one layout from the producer's socket to the disk, the reader and tables.

A producer packs what it pushes in one go into a *body*; the store puts a header before it and
writes the two as one value; a reader gets the value as it was written. So an entry is framed
once in its life, and a batch costs the node a header whatever the number of its entries.

    body    = words u32[count] of each column | bytes of each column
    columns = data, and as flags say meta, keys, headers; in this order
    header  = count u32 | kind u8 | flags u8 | zero u16 | received_at i64 | position u64
    block   = header | body

A word is the length of its entry's bytes in that column; of keys it is one more, and 0 is an entry
without a key, for a key may be empty. `meta` is the node's own and no client's; headers are laid
out in `codecs/keyed.py`. A block whose entries have none of these has no such column.

All numbers are little-endian, so that Arrow takes lengths and data without a copy per entry.
`received_at` is in milliseconds since 1970; `position` is the number of bytes that clients have
given (data, keys and headers) that the log held before this block since its creation, so that the
size of any range is one subtraction. The index of a block's first entry is its key, not part of it.
"""

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from importlib import import_module
from itertools import accumulate, pairwise, repeat
from operator import add, sub
from typing import Final, NamedTuple, cast

import msgspec

from rillnode.codecs.errors import CodecError, RequestError
from rillnode.codecs.keyed import (
    check_headers,
    check_headers_size,
    check_key_size,
    decode_headers,
)
from rillnode.codecs.limits import BLOCK_BYTES_MAX, BLOCK_ENTRIES_MAX, ENTRY_BYTES_MAX

_HEADER = struct.Struct("<IBBHqQ")
HEADER_BYTES = _HEADER.size
FLAG_META = 1
FLAG_KEYS = 2
FLAG_HEADERS = 4
FLAGS_PUSHED: Final = FLAG_KEYS | FLAG_HEADERS
"""The columns that clients may push beside data."""

_COLUMNS: Final = (FLAG_META, FLAG_KEYS, FLAG_HEADERS)
_FLAGS_MAX: Final = sum(_COLUMNS)


OWN_KINDS: Final = range(128, 256)
"""Numbers of the kinds of other packages' plug-ins."""


class EntryKind(IntEnum):
    """The protocol that an entry's bytes belong to.

    `EntryKind(128)` and so on are kinds of other packages' plug-ins, which have no name here.

    Attributes:
        BYTES: of none: bytes of rillnode's own clients, HTTP and Ockam.
        STREAMR: a message of Streamr.
        NEXTGRAPH: an event of NextGraph.
    """

    BYTES = 0
    STREAMR = 1
    NEXTGRAPH = 2

    @classmethod
    def _missing_(cls, value: object) -> "EntryKind | None":
        if not isinstance(value, int) or value not in OWN_KINDS:
            return None
        made = int.__new__(cls, value)
        made._name_, made._value_ = f"KIND_{value}", value
        # There is only one of each, which `is` can tell.
        return cast("EntryKind", cls._value2member_map_.setdefault(value, made))


_KINDS = {int(kind): kind for kind in (*EntryKind, *map(EntryKind, OWN_KINDS))}


# A Struct, because consumers make hundreds of thousands a second: it is made in a third of a frozen
# dataclass's time, and the garbage collector, which could find no cycle, passes it by.
class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry: where it stands, when it arrived and exactly the bytes given.

    Attributes:
        partition: the partition that it is in.
        index: its place there, from 0.
        received_at: when the node took it, in milliseconds since 1970.
        kind: whose bytes they are.
        data: the bytes.
        meta: what its node has noted beside it, for itself.
        pushed_key: the key that its producer has given it; see `key`.
        encoded_headers: its headers as they are stored; see `headers`.
    """

    partition: int
    index: int
    received_at: int
    kind: EntryKind
    data: bytes
    meta: bytes = b""
    pushed_key: bytes | None = None
    encoded_headers: bytes = b""

    @property
    def key(self) -> bytes | None:
        """What it is about: the key that its producer has given it, or that its protocol knows.

        What a Streamr client has published has `publisher/chain`, the publisher in lower case;
        what a NextGraph client has, its topic in hexadecimal. They are read out of the data when
        they are asked for. What an Ockam client has pushed has none, and where its plug-in is not
        installed nobody knows it.
        """
        if self.pushed_key is not None or self.kind is EntryKind.BYTES or self.kind in OWN_KINDS:
            return self.pushed_key
        # A kind's room tells, found by its name: it is another's, and few ask.
        try:
            room = import_module(f"rillnode.codecs.{self.kind.name.lower()}.entry_key")
        except ModuleNotFoundError:
            return None
        key: bytes | None = room.key_of(self.data)
        return key

    @property
    def headers(self) -> dict[str, bytes]:
        """Its headers by their names, read anew each time; empty where it has none.

        Raises:
            CodecError: they are damaged.
        """
        return decode_headers(self.encoded_headers)


class NewEntry(NamedTuple):
    """An entry that is not stored yet, with a key or headers, as `codecs/keyed.py` encodes them."""

    data: bytes
    key: bytes | None = None
    headers: bytes = b""

    @property
    def size(self) -> int:
        """What it counts for `position`."""
        return len(self.data) + len(self.key or b"") + len(self.headers)


class Run:
    """New entries that together make one block within the limits.

    Attributes:
        entries: in their order.
        size: their bytes.
    """

    def __init__(self) -> None:
        self.entries: list[NewEntry] = []
        self.size = 0

    def takes(self, entry: NewEntry) -> bool:
        """Whether another entry still goes into the block."""
        return not self.entries or (
            len(self.entries) < BLOCK_ENTRIES_MAX and self.size + entry.size <= BLOCK_BYTES_MAX
        )

    def add(self, entry: NewEntry) -> None:
        """Take an entry that it takes."""
        self.entries.append(entry)
        self.size += entry.size

    def pack(self) -> tuple[bytes, int]:
        """The block's body and its flags: it has only such columns as an entry has something in."""
        items, keys, headers = zip(*self.entries, strict=True)
        columns = (
            keys if any(key is not None for key in keys) else None,
            headers if any(headers) else None,
        )
        return pack_body(items, None, *columns), flags_of(None, *columns)


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


def pack_body(
    items: Sequence[bytes],
    metas: Sequence[bytes] | None = None,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[bytes] | None = None,
) -> bytes:
    """Pack entries' data into a body.

    Args:
        items: the data of each entry.
        metas: where given, the node's note on each entry.
        keys: where given, the key of each entry, or None.
        headers: where given, each entry's headers as `encode_headers` makes them.
    """
    if metas is None and keys is None and headers is None:
        if len(items) == 1:
            return len(items[0]).to_bytes(4, "little") + items[0]
        return b"".join((_words(map(len, items)), *items))
    lengths = _words(map(len, items))
    words, columns = [lengths], [*items]
    if metas is not None:
        words.append(_words(map(len, metas)))
        columns += metas
    if keys is not None:
        words.append(_words(0 if key is None else len(key) + 1 for key in keys))
        columns += (key or b"" for key in keys)
    if headers is not None:
        words.append(_words(map(len, headers)))
        columns += headers
    return b"".join((*words, *columns))


def flags_of(
    metas: object | None = None, keys: object | None = None, headers: object | None = None
) -> int:
    """The flags of a body that `pack_body` makes of the same."""
    given = zip(_COLUMNS, (metas, keys, headers), strict=True)
    return sum(flag for flag, column in given if column is not None)


def check_entry_size(size: int) -> None:
    """Check that an entry's data is within its limit.

    Raises:
        CodecError: `entries.size`, it is not.
    """
    if size > ENTRY_BYTES_MAX:
        raise CodecError("entries.size", f"an entry holds at most {ENTRY_BYTES_MAX} bytes")


def check_body(count: int, body: bytes | memoryview, flags: int = 0) -> None:
    """Check that a body from outside holds `count` entries within the limits.

    Time and memory are linear in the number of entries and of their headers, never in what the
    lengths claim.

    Raises:
        CodecError: no or too many entries, an unknown column, an entry, a key or headers over
            their limits, headers that are none, or lengths that do not add up.
    """
    if not 0 < count <= BLOCK_ENTRIES_MAX:
        raise CodecError(
            "entries.count", f"a block holds 1 to {BLOCK_ENTRIES_MAX} entries, not {count}"
        )
    if count == 1 and not flags:
        size = len(body) - 4
        if 0 <= size <= ENTRY_BYTES_MAX and int.from_bytes(body[:4], "little") == size:
            return
    columns = 1
    if flags:
        _check_flags(flags)
        columns = _columns(flags)
    lengths = _read_words(body, count * columns)
    check_entry_size(max(lengths))
    table = 4 * count * columns
    total = table + sum(lengths)
    if flags & FLAG_KEYS:
        keys = _column(lengths, count, flags, FLAG_KEYS)
        check_key_size(max(keys) - 1)
        total -= _present(keys)
    if total != len(body):
        raise CodecError(
            "entries.lengths",
            f"block lengths add up to {total} bytes, the body has {len(body)}",
            offset=min(total, len(body)),
        )
    if flags & FLAG_HEADERS:
        sizes = _column(lengths, count, flags, FLAG_HEADERS)
        check_headers_size(max(sizes))
        check_headers(_cut(bytes(body[total - sum(sizes) :]), sizes, 0))


def table_bytes(count: int, flags: int = 0) -> int:
    """Size of the words of a body, the least that it has.

    Raises:
        CodecError: `entries.flags`, a column is unknown.
    """
    _check_flags(flags)
    return 4 * count * _columns(flags)


def data_bytes(count: int, body: bytes | memoryview, flags: int = 0) -> int:
    """Bytes of a checked body that clients have given: what retention and `position` count."""
    if not flags:
        return len(body) - 4 * count
    return sum(_sizes(body, count, flags))


def fits_block(items: Sequence[bytes]) -> bool:
    """Whether entries make one block; each of them does."""
    count = len(items)
    return count == 1 or (count <= BLOCK_ENTRIES_MAX and sum(map(len, items)) <= BLOCK_BYTES_MAX)


def split_items(items: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Cut entries into runs that each make one block within the limits, reading none ahead.

    Raises:
        ArgumentError: one has no length, so that it is no bytes.
    """
    run: list[bytes] = []
    size = 0
    for item in items:
        try:
            size += len(item)
        except TypeError:
            text = f"an entry is bytes, not {type(item).__name__}: encode it"
            raise RequestError("client.argument", text) from None
        if run and (size > BLOCK_BYTES_MAX or len(run) == BLOCK_ENTRIES_MAX):
            yield run
            run, size = [], len(item)
        run.append(item)
    if run:
        yield run


def split_entries(entries: Iterable[NewEntry]) -> Iterator[Run]:
    """The same for entries with keys and headers."""
    run = Run()
    for entry in entries:
        if not run.takes(entry):
            yield run
            run = Run()
        run.add(entry)
    if run.entries:
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
    return join_block((body,), count, kind, flags, received_at, position)


def join_block(
    parts: Iterable[bytes | memoryview],
    count: int,
    kind: EntryKind,
    flags: int,
    received_at: int,
    position: int,
) -> bytes:
    """As `encode_block`, of the parts of a body, each of which is copied once."""
    return b"".join((_HEADER.pack(count, kind, flags, 0, received_at, position), *parts))


def decode_header(value: bytes) -> BlockHeader:
    """Read a stored block's header.

    Raises:
        CodecError: too short, or a kind or a column of a newer version.
    """
    if len(value) < HEADER_BYTES:
        raise CodecError("codec.truncated", "block ends inside its header", offset=len(value))
    count, kind, flags, _, received_at, position = _HEADER.unpack_from(value)
    if flags:
        _check_flags(flags)
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


def sizes_of(value: bytes) -> Sequence[int]:
    """What each entry of a stored block counts for `position`; raises as `items_of` does."""
    header = decode_header(value)
    return _sizes(value, header.count, header.flags, HEADER_BYTES)


def entries_of(
    block: Block,
    *,
    partition: int = 0,
    first: int = 0,
    until: int | None = None,
    received_at: Sequence[int] | None = None,
) -> list[Entry]:
    """The entries of a block with `first <= index < until`, ascending.

    Args:
        block: the block.
        partition: that it is of.
        first: index of the first entry that is wanted.
        until: index behind the last one; None: the end of the block.
        received_at: when each of them came; None: all when the block did.

    Raises:
        CodecError: the block's kind is unknown, or it is shorter than its lengths say.
    """
    header = decode_header(block.value)
    items = _items_of(block.value, header)
    start = max(0, first - block.first_index)
    stop = len(items) if until is None else min(len(items), until - block.first_index)
    if start >= stop:
        return []
    beside = _beside(block.value, header, start, stop) if header.flags else ()
    return list(
        map(
            Entry,
            repeat(partition),
            range(block.first_index + start, block.first_index + stop),
            repeat(header.received_at) if received_at is None else received_at,
            repeat(header.kind),
            items[start:stop],
            *beside,
        )
    )


def block_of(entries: Sequence[Entry]) -> bytes:
    """A block of entries of one kind, without notes, with the time when the first came."""
    keys = [entry.pushed_key for entry in entries]
    headers = [entry.encoded_headers for entry in entries]
    columns = (
        keys if any(key is not None for key in keys) else None,
        headers if any(headers) else None,
    )
    return encode_block(
        count=len(entries),
        kind=entries[0].kind,
        received_at=entries[0].received_at,
        position=0,
        body=pack_body([entry.data for entry in entries], None, *columns),
        flags=flags_of(None, *columns),
    )


def _items_of(value: bytes, header: BlockHeader) -> list[bytes]:
    start = HEADER_BYTES + 4 * header.count * _columns(header.flags)
    return _cut(value, _read_words(value, header.count, HEADER_BYTES), start)


def _beside(
    value: bytes, header: BlockHeader, start: int, stop: int
) -> tuple[Iterable[bytes], Iterable[bytes | None], Iterable[bytes]]:
    """The other columns of a block's entries from `start` to before `stop`."""
    count, flags = header.count, header.flags
    words = _read_words(value, count * _columns(flags), HEADER_BYTES)
    end = HEADER_BYTES + 4 * len(words) + sum(words[:count])
    metas: Iterable[bytes] = repeat(b"")
    keys: Iterable[bytes | None] = repeat(None)
    headers: Iterable[bytes] = repeat(b"")
    if flags & FLAG_META:
        lengths = _column(words, count, flags, FLAG_META)
        metas = _cut(value, lengths, end)[start:stop]
        end += sum(lengths)
    if flags & FLAG_KEYS:
        lengths = _column(words, count, flags, FLAG_KEYS)
        found = _cut(value, map(sub, lengths, map(bool, lengths)), end)
        keys = [
            key if word else None
            for word, key in zip(lengths[start:stop], found[start:stop], strict=True)
        ]
        end += sum(lengths) - _present(lengths)
    if flags & FLAG_HEADERS:
        headers = _cut(value, _column(words, count, flags, FLAG_HEADERS), end)[start:stop]
    return metas, keys, headers


def _check_flags(flags: int) -> None:
    if not 0 <= flags <= _FLAGS_MAX:
        raise CodecError("entries.flags", f"unknown columns of a block: flags {flags}", offset=5)


def _columns(flags: int) -> int:
    """Number of columns of a body."""
    return 1 + flags.bit_count()


def _column(words: "array[int]", count: int, flags: int, flag: int) -> "array[int]":
    """The words of one of a body's columns, out of those of all."""
    before = count * _columns(flags & (flag - 1))
    return words[before : before + count]


def _present(keys: "array[int]") -> int:
    """How many entries have a key: so much more than the keys' bytes is the sum of their words."""
    return len(keys) - keys.count(0)


def _sizes(source: bytes | memoryview, count: int, flags: int, offset: int = 0) -> Sequence[int]:
    """What clients have given of each entry, in bytes."""
    if not flags & FLAGS_PUSHED:
        return _read_words(source, count, offset)
    words = _read_words(source, count * _columns(flags), offset)
    sizes: Sequence[int] = words[:count]
    if flags & FLAG_KEYS:
        keys = _column(words, count, flags, FLAG_KEYS)
        sizes = list(map(sub, map(add, sizes, keys), map(bool, keys)))
    if flags & FLAG_HEADERS:
        sizes = list(map(add, sizes, _column(words, count, flags, FLAG_HEADERS)))
    return sizes


def _cut(value: bytes, lengths: Iterable[int], start: int) -> list[bytes]:
    ends = list(accumulate(lengths, initial=start))
    if ends[-1] > len(value):
        raise CodecError("codec.truncated", "block ends inside its entries", offset=len(value))
    return [value[a:b] for a, b in pairwise(ends)]


def _words(values: Iterable[int]) -> bytes:
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
