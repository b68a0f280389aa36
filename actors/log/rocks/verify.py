"""Looks at every row of a store and tells what is wrong with it; changes nothing.

What is checked, beside RocksDB's own checksums, which every read verifies:

- order and density: each block of a log begins with the index after the one before it;
- positions: each block says how many data bytes stand before it;
- bodies: kinds are known, lengths within the limits and add up;
- extents: a trimmed log begins inside its first block;
- secondary keys: each leads to an entry that the log has, stands in its block's list, and what a
  list names is there;
- streams: names and ids lead to each other, every log and partition belongs to a stream.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from struct import error as StructError
from typing import Final

import msgspec
from rocksdict import RdictIter

from rillnode.actors.log.rocks.layout import (
    BLOCK_KEY,
    BLOCK_KEYS_PREFIX,
    FORMAT_KEY,
    INDEX,
    LOG_KEY,
    NEXT_STREAM_KEY,
    NUMBER,
    RECORD_PREFIX,
    RUN_PREFIX,
    SAVED_INDEX_PREFIX,
    STREAM_ID_PREFIX,
    STREAM_PREFIX,
    LogState,
    decode_keys,
    decode_record,
    decode_saved_index_key,
    split_key,
)
from rillnode.actors.log.rocks.logs import key_here, seek, step
from rillnode.actors.log.rocks.tables import Tables
from rillnode.codecs.entries import HEADER_BYTES, check_body, data_bytes, decode_header
from rillnode.codecs.errors import CodecError

PROBLEMS_MAX: Final = 100
"""Problems described; further ones are only counted."""

_LIST_KEY: Final = LOG_KEY.size + len(BLOCK_KEYS_PREFIX) + INDEX.size


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where, and what."""

    where: str
    text: str


@dataclass(slots=True)
class Verdict:
    """The content of a store, and what is wrong with it.

    Attributes:
        stale_keys: secondary keys of entries trimmed since, which a crash left; harmless.
        problem_count: all problems, those beyond `PROBLEMS_MAX` included.
    """

    streams: int = 0
    logs: int = 0
    blocks: int = 0
    entries: int = 0
    data_bytes: int = 0
    keys: int = 0
    stale_keys: int = 0
    saved_indexes: int = 0
    problem_count: int = 0
    problems: list[Problem] = field(default_factory=list[Problem])

    def add(self, where: str, text: str) -> None:
        """Note a problem."""
        self.problem_count += 1
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(Problem(where, text))


OnBytes = Callable[[int], None]
"""Told how many bytes more were looked at."""


def verify_store(tables: Tables, on_bytes: OnBytes = lambda size: None) -> Verdict:
    """Look at every row, in one pass over each column family.

    Memory is linear in the number of logs that hold entries. Never raises for damage: what
    RocksDB cannot read is a problem too, and ends the look at that column family.
    """
    verdict = Verdict()
    cursors = tables.cursors()
    streams: dict[int, int] = {}
    logs: dict[int, _Kept] = {}
    parts: tuple[tuple[str, Callable[[], None]], ...] = (
        ("records", _Records(cursors.records, verdict, streams, on_bytes).run),
        ("blocks", _Blocks(cursors.blocks, verdict, streams, logs, on_bytes).run),
        ("keys", _Keys(cursors.keys, tables.cursors().keys, verdict, logs, on_bytes).run),
    )
    for name, run in parts:
        try:
            run()
        except Exception as error:
            verdict.add(name, f"cannot be read: {error}")
    return verdict


def _rows(cursor: RdictIter, on_bytes: OnBytes) -> Iterator[tuple[bytes, bytes]]:
    cursor.seek_to_first()
    key = key_here(cursor)
    while key is not None:
        value: bytes = cursor.value()
        on_bytes(len(key) + len(value))
        yield key, value
        key = step(cursor)


@dataclass(slots=True)
class _Records:
    """Streams, their ids, saved indexes; fills `streams`: partitions by id."""

    cursor: RdictIter
    verdict: Verdict
    streams: dict[int, int]
    on_bytes: OnBytes
    names: dict[int, str] = field(default_factory=dict[int, str])
    next_id: int = 1

    def run(self) -> None:
        for key, value in _rows(self.cursor, self.on_bytes):
            try:
                self._row(key, value)
            except (ValueError, StructError, msgspec.MsgspecError) as error:
                self.verdict.add(f"record {key!r}", f"cannot be read: {error}")
        # Ids stand before names in the order of keys, so all of them are known here.
        for stream_id in self.names.keys() - self.streams.keys():
            self.verdict.add(f"stream {self.names[stream_id]!r}", "its id leads to no stream")
        for stream_id in (*self.streams, *self.names):
            if stream_id >= self.next_id:
                self.verdict.add(f"stream id {stream_id}", "would be given a second time")

    def _row(self, key: bytes, value: bytes) -> None:
        prefix, rest = key[:1], key[1:]
        if key == NEXT_STREAM_KEY:
            (self.next_id,) = NUMBER.unpack(value)
        elif prefix == STREAM_ID_PREFIX:
            (stream_id,) = NUMBER.unpack(rest)
            self.names[stream_id] = value.decode()
        elif prefix == STREAM_PREFIX:
            self._stream(rest.decode(), value)
        elif prefix == SAVED_INDEX_PREFIX:
            decode_saved_index_key(key)
            INDEX.unpack(value)
            self.verdict.saved_indexes += 1
        elif prefix != RECORD_PREFIX and key != FORMAT_KEY:
            self.verdict.add(f"record {key!r}", "is of no kind that this version knows")

    def _stream(self, name: str, value: bytes) -> None:
        record = decode_record(value)
        self.verdict.streams += 1
        self.streams[record.id] = record.partitions
        if record.name != name:
            self.verdict.add(f"stream {name!r}", f"its record says {record.name!r}")
        if self.names.get(record.id) != name:
            self.verdict.add(f"stream {name!r}", f"its id {record.id} does not lead to it")


@dataclass(slots=True)
class _Kept:
    """What a log has: its first block's first index, its first entry, and the index after all."""

    first_block: int
    first_index: int
    next_index: int
    next_position: int = 0


@dataclass(slots=True)
class _Blocks:
    """Every log's blocks, one after the other; fills `logs`.

    Attributes:
        trimmed: the log's extent row, where it has one.
        kept: the log's blocks so far.
        lost: the block before was damaged, so what stands after it fits anywhere.
    """

    cursor: RdictIter
    verdict: Verdict
    streams: dict[int, int]
    logs: dict[int, _Kept]
    on_bytes: OnBytes
    log: int = -1
    trimmed: LogState | None = None
    kept: _Kept | None = None
    lost: bool = False

    def run(self) -> None:
        for key, value in _rows(self.cursor, self.on_bytes):
            if len(key) not in (LOG_KEY.size, BLOCK_KEY.size):
                self.verdict.add(f"block {key.hex()}", "its key is none of a block")
                continue
            (log,) = LOG_KEY.unpack_from(key)
            if log != self.log:
                self._begin(log)
            if len(key) == LOG_KEY.size:
                self._extent(value)
            else:
                self._block(BLOCK_KEY.unpack(key)[1], value)

    def _begin(self, log: int) -> None:
        self.log, self.trimmed, self.kept, self.lost = log, None, None, False
        self.verdict.logs += 1
        partitions = self.streams.get(log >> 32)
        if partitions is None:
            self.verdict.add(_name(log), "belongs to no stream")
        elif log & 0xFFFF_FFFF >= partitions:
            self.verdict.add(_name(log), "is of a partition that its stream does not have")

    def _extent(self, value: bytes) -> None:
        try:
            self.trimmed = LogState.decode(value)
        except StructError:
            self.verdict.add(_name(self.log), "where it begins cannot be read")
            self.lost = True
            return
        end = self.trimmed.next_index
        self.logs[self.log] = _Kept(end, end, end)

    def _block(self, first_index: int, value: bytes) -> None:
        where = f"{_name(self.log)} entry {first_index}"
        try:
            header = decode_header(value)
            body = memoryview(value)[HEADER_BYTES:]
            check_body(header.count, body, header.flags)
        except CodecError as error:
            self.verdict.add(where, f"its block is damaged: {error.text}")
            self.lost = True
            return
        if self.kept is None:
            self._first(where, first_index, first_index + header.count)
            first_kept = self.trimmed.first_index if self.trimmed is not None else 0
            first_kept = max(first_kept, first_index)
            self.kept = self.logs[self.log] = _Kept(first_index, first_kept, first_index)
        elif not self.lost:
            self._next(where, self.kept, first_index, header.position)
        self.lost = False
        size = data_bytes(header.count, body, header.flags)
        self.kept.next_index = first_index + header.count
        self.kept.next_position = header.position + size
        self.verdict.blocks += 1
        self.verdict.entries += header.count
        self.verdict.data_bytes += size

    def _first(self, where: str, first_index: int, next_index: int) -> None:
        if self.lost:
            return
        first = 0 if self.trimmed is None else self.trimmed.first_index
        if not first_index <= first < next_index:
            self.verdict.add(where, f"is the log's first, which should hold entry {first}")

    def _next(self, where: str, kept: _Kept, first_index: int, position: int) -> None:
        if kept.next_index != first_index:
            self.verdict.add(where, f"follows entry {kept.next_index - 1}: the log has a hole")
        elif kept.next_position != position:
            text = f"{kept.next_position} data bytes stand before it, it says {position}"
            self.verdict.add(where, text)


@dataclass(slots=True)
class _Keys:
    """Secondary keys and the lists of each block's; `finder` is a second cursor over them."""

    cursor: RdictIter
    finder: RdictIter
    verdict: Verdict
    logs: dict[int, _Kept]
    on_bytes: OnBytes
    log: int = -1
    listed: int = 0
    present: int = 0

    def run(self) -> None:
        for key, value in _rows(self.cursor, self.on_bytes):
            log = int.from_bytes(key[: LOG_KEY.size])
            if log != self.log:
                self._end()
                self.log, self.listed, self.present = log, 0, 0
            rest = key[LOG_KEY.size :]
            if rest.startswith(BLOCK_KEYS_PREFIX) and len(key) == _LIST_KEY:
                self._list(key, value)
            elif len(rest) > INDEX.size:
                self._key(rest, value)
            else:
                self.verdict.add(f"key {key.hex()}", "is none of a secondary key")
        self._end()

    def _list(self, key: bytes, value: bytes) -> None:
        (first_index,) = INDEX.unpack_from(key, len(key) - INDEX.size)
        where = f"{_name(self.log)} keys of entry {first_index}"
        try:
            rows = set(decode_keys(value))
        except msgspec.MsgspecError as error:
            self.verdict.add(where, f"their list cannot be read: {error}")
            return
        prefix = key[: LOG_KEY.size]
        missing = sum(seek(self.finder, prefix + row) != prefix + row for row in rows)
        self.listed += len(rows) - missing
        kept = self.logs.get(self.log)
        # A block's keys go before their list, and a crash may come in between.
        if missing and kept is not None and first_index >= kept.first_block:
            self.verdict.add(where, f"{missing} of {len(rows)} are missing")

    def _key(self, indexed: bytes, value: bytes) -> None:
        _, index = split_key(indexed)
        if indexed.startswith(RUN_PREFIX):
            index += int.from_bytes(value) - 1
        kept = self.logs.get(self.log)
        self.present += 1
        self.verdict.keys += 1
        if kept is None or index >= kept.next_index:
            where = f"{_name(self.log)} key {indexed.hex()}"
            self.verdict.add(where, f"leads to entry {index}, which the log does not have")
        elif index < kept.first_index:
            self.verdict.stale_keys += 1

    def _end(self) -> None:
        """All keys of a log were seen: each must have been listed, or nothing would remove it."""
        unlisted = self.present - self.listed
        if unlisted > 0:
            self.verdict.add(_name(self.log), f"{unlisted} secondary keys stand in no list")


def _name(log: int) -> str:
    return f"stream id {log >> 32} partition {log & 0xFFFF_FFFF}"
