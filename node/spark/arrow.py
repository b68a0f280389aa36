"""Fetches ranges of entries, and makes Arrow record batches of them.

A block keeps its entries' lengths and data apart, as Arrow does: the lengths are summed up to
offsets and the data is taken as it lies, without Python work per entry of kind `bytes`. What
belongs to a whole block (stream, partition, time, kind) is held once per block and repeated by
Arrow and numpy. A thread fetches the next blocks while Spark takes the last ones; at most two
fetches are held in memory.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rillnode.codecs.entries import (
    FLAG_HEADERS,
    FLAG_KEYS,
    FLAG_META,
    HEADER_BYTES,
    Block,
    EntryKind,
    decode_header,
    table_bytes,
)
from rillnode.codecs.errors import CodecError
from rillnode.codecs.keyed import decode_headers
from rillnode.node.entries import (
    NO_METADATA,
    TIME_MS_MAX,
    TIME_MS_MIN,
    Metadata,
    name_of,
    reader_of,
)
from rillnode.node.spark.offsets import Range, data_loss
from rillnode.node.spark.ranges import ClientOptions, fetch_ranges
from rillnode.node.spark.tables import BRONZE_SCHEMA

_Int64s = npt.NDArray[np.int64]
_GAP: Final = -1
"""In place of a kind's number: no entry, but a range that was lost."""
_WITHOUT_METADATA: Final = frozenset({int(EntryKind.BYTES), _GAP})
_TIMES: Final = frozenset({"ts", "prev_ts"})


@dataclass(slots=True)
class BatchBuilder:
    """Collects blocks and gaps, in order, for one record batch of the bronze schema.

    Attributes:
        rows: number of rows collected.
        data_bytes: number of data bytes collected.
    """

    rows: int = 0
    data_bytes: int = 0
    _streams: dict[str, int] = field(default_factory=dict[str, int])
    _pieces: list[tuple[int, int, int, int, int, int, int]] = field(
        default_factory=list[tuple[int, int, int, int, int, int, int]]
    )
    _data: "list[_Part]" = field(default_factory=list["_Part"])
    _metas: "list[_Part]" = field(default_factory=list["_Part"])
    _keys: "list[_Part]" = field(default_factory=list["_Part"])
    _headers: "list[_Part]" = field(default_factory=list["_Part"])
    _gaps: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def add_block(
        self,
        stream: str,
        partition: int,
        block: Block,
        start: int,
        until: int,
        *,
        created_at: int = 0,
    ) -> None:
        """Add the entries of `block` with `start <= index < until`; at least one must be.

        `created_at` tells when the stream was created, ms since 1970; 0 where nobody knows.

        Raises:
            CodecError: the block's lengths do not add up, or its kind is unknown.
        """
        value = memoryview(block.value)
        header = decode_header(block.value)
        count = header.count
        low = max(0, start - block.first_index)
        high = min(count, until - block.first_index)
        at = HEADER_BYTES + table_bytes(count, header.flags)
        if at > len(value):
            raise CodecError(
                "codec.truncated", "block ends inside its lengths", offset=len(block.value)
            )
        place = HEADER_BYTES
        for flag, parts in (
            (0, self._data),
            (FLAG_META, self._metas),
            (FLAG_KEYS, self._keys),
            (FLAG_HEADERS, self._headers),
        ):
            if flag & header.flags != flag:
                continue
            words = np.frombuffer(value, "<u4", count, place)
            place += 4 * count
            is_null = None
            if flag == FLAG_KEYS:  # a word is one more than the key's length, or there is none
                is_null = words == 0
                words = words - ~is_null
            first = at + int(words[:low].sum(dtype=np.int64))
            chosen = words[low:high]
            size = int(chosen.sum(dtype=np.int64))
            is_null = None if is_null is None else is_null[low:high]
            parts.append(_Part(self.rows, chosen, value[first : first + size], is_null))
            at += int(words.sum(dtype=np.int64))
        if at != len(value):
            raise CodecError(
                "entries.lengths", "block lengths do not add up to its size", offset=len(value)
            )
        numbers = (block.first_index + low, high - low, header.received_at, int(header.kind))
        self._add_piece(stream, partition, created_at, *numbers)
        self.data_bytes += len(self._data[-1].data)

    def add_gap(
        self, stream: str, partition: int, start: int, until: int, *, created_at: int = 0
    ) -> None:
        """Add one row that says that entries `start <= index < until` are lost.

        An empty range stands for what a stream still had when it was removed: nobody knows. The
        row's `received_at` is null: nothing was received, and a repeated read must give equal rows.
        """
        self._gaps.append((self.rows, until if until > start else 0))
        self._data.append(_Part(self.rows, np.zeros(1, np.uint32), memoryview(b""), None))
        self._add_piece(stream, partition, created_at, start, 1, 0, _GAP)

    def finish(self) -> pa.RecordBatch:
        """The batch of what was collected; the builder is done with."""
        pieces: _Int64s = np.array(self._pieces, np.int64).reshape(-1, 7)
        names, partitions, created_at, firsts, counts, received_at, kinds = pieces.T
        # The clock of a node, or of another one with the same log, may have been anywhere.
        created_at = np.clip(created_at, 0, TIME_MS_MAX)
        received_at = np.clip(received_at, TIME_MS_MIN, TIME_MS_MAX)
        total = self.rows
        numbers, named = np.unique(kinds, return_inverse=True)
        names_of_kinds = pa.array([_kind_name(one) for one in numbers.tolist()])
        before: _Int64s = np.cumsum(counts) - counts
        lengths = np.concatenate([np.zeros(0, np.uint32), *(part.lengths for part in self._data)])
        gap_rows, gap_untils = np.array(self._gaps, np.int64).reshape(-1, 2).T
        is_gap = np.zeros(total, np.bool_)
        is_gap[gap_rows] = True
        arrays: dict[str, Any] = {
            "stream": pa.array(list(self._streams), pa.string()).take(
                pa.array(np.repeat(names, counts))
            ),
            "partition": pa.array(np.repeat(partitions.astype(np.int32), counts)),
            "index": pa.array(np.repeat(firsts - before, counts) + np.arange(total)),
            "received_at": pa.array(np.repeat(received_at * 1000, counts), mask=is_gap).cast(
                BRONZE_SCHEMA.field("received_at").type
            ),
            "kind": names_of_kinds.take(pa.array(np.repeat(named, counts))),
            "data": _binary(lengths, [part.data for part in self._data], is_gap),
        }
        if created_at.any():
            created = np.repeat(created_at * 1000, counts)
            kind = BRONZE_SCHEMA.field("created_at").type
            arrays["created_at"] = pa.array(created, mask=created == 0).cast(kind)
        if not _WITHOUT_METADATA.issuperset(kinds.tolist()):
            arrays.update(_metadata(np.repeat(kinds, counts), arrays["data"]))
        if self._metas:
            arrays["node_meta"] = self._sparse(self._metas)
        if self._keys:
            keys = self._sparse(self._keys)
            arrays["key"] = pc.coalesce(keys, arrays["key"]) if "key" in arrays else keys
        if self._headers:
            headers: list[bytes | None] = self._sparse(self._headers).to_pylist()
            maps = [list(decode_headers(one).items()) if one else None for one in headers]
            arrays["headers"] = pa.array(maps, BRONZE_SCHEMA.field("headers").type)
        if self._gaps:
            untils: _Int64s = np.zeros(total, np.int64)
            untils[gap_rows] = gap_untils
            arrays["gap_until"] = pa.array(untils, mask=untils == 0)
        return pa.RecordBatch.from_arrays(
            [
                arrays[column.name] if column.name in arrays else pa.nulls(total, column.type)
                for column in BRONZE_SCHEMA
            ],
            schema=BRONZE_SCHEMA,
        )

    def _add_piece(
        self,
        stream: str,
        partition: int,
        created_at: int,
        first: int,
        count: int,
        received_at: int,
        kind: int,
    ) -> None:
        name = self._streams.setdefault(stream, len(self._streams))
        self._pieces.append((name, partition, created_at, first, count, received_at, kind))
        self.rows += count

    def _sparse(self, parts: "list[_Part]") -> pa.Array:
        """A column of what lies in `parts`, null in the rows that are in none of them."""
        lengths = np.zeros(self.rows, np.uint32)
        is_null = np.ones(self.rows, np.bool_)
        for part in parts:
            rows = slice(part.row, part.row + len(part.lengths))
            lengths[rows] = part.lengths
            is_null[rows] = False if part.is_null is None else part.is_null
        return _binary(lengths, [part.data for part in parts], is_null)


class _Part(NamedTuple):
    """What a block has in one column: from which row on, and where; None: no row's is null."""

    row: int
    lengths: npt.NDArray[np.uint32]
    data: memoryview
    is_null: npt.NDArray[np.bool_] | None


def _metadata(kinds: _Int64s, data: pa.Array) -> Mapping[str, pa.Array]:
    """The columns that the entries' protocols fill."""
    items: list[bytes | None] = data.to_pylist()
    rows = [
        NO_METADATA if item is None else _metadata_of(kind, item)
        for kind, item in zip(kinds.tolist(), items, strict=True)
    ]
    arrays: dict[str, pa.Array] = {}
    for name, values in zip(Metadata._fields, zip(*rows, strict=True), strict=True):
        type_ = BRONZE_SCHEMA.field(name).type
        if name in _TIMES:
            micros = [None if value is None else value * 1000 for value in values]
            arrays[name] = pa.array(micros, pa.int64()).cast(type_)
        else:
            arrays[name] = pa.array(values, type_)
    return arrays


def _metadata_of(kind: int, data: bytes) -> Metadata:
    """The metadata of one entry; none where it does not have its protocol's form."""
    try:
        return reader_of(name_of(kind)).metadata(data)
    except CodecError:
        return NO_METADATA


def _kind_name(kind: int) -> str:
    return "gap" if kind == _GAP else name_of(kind)


def _binary(
    lengths: npt.NDArray[np.uint32], parts: list[memoryview], is_null: npt.NDArray[np.bool_]
) -> pa.Array:
    """A binary array of the values that lie in `parts` one after another; null ones are empty."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, dtype=np.int32, out=offsets[1:])
    nulls = int(is_null.sum())
    validity = pa.py_buffer(np.packbits(~is_null, bitorder="little")) if nulls else None
    data = parts[0] if len(parts) == 1 else b"".join(parts)
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers, nulls)


BATCH_BYTES_MAX: Final = 4_194_304
BATCH_ROWS_MAX: Final = 16_384

_Item = TypeVar("_Item")


def read_ranges(
    options: ClientOptions, ranges: Iterable[Range], *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """Read ranges in order as batches of the bronze schema.

    Raises:
        RequestError: entries were trimmed and `fail_on_data_loss` is set, or the node's answers
            leave a hole.
        CodecError: a block is damaged.
        TransportError: the node cannot be reached.
    """
    builder = BatchBuilder()
    for part, blocks in ahead(fetch_ranges(options, ranges)):
        if part.gap:
            if fail_on_data_loss:
                raise data_loss(part)
            builder.add_gap(*_place(part), created_at=part.created_at)
        for block in blocks:
            stream, partition, start, until = _place(part)
            builder.add_block(stream, partition, block, start, until, created_at=part.created_at)
            if builder.data_bytes >= BATCH_BYTES_MAX or builder.rows >= BATCH_ROWS_MAX:
                yield builder.finish()
                builder = BatchBuilder()
    if builder.rows:
        yield builder.finish()


def _place(part: Range) -> tuple[str, int, int, int]:
    return part.stream, part.partition, part.start, part.until


def ahead(source: Generator[_Item, None, None]) -> Generator[_Item, None, None]:
    """Run a generator in a thread, one item ahead of who takes them; errors come through."""
    with ThreadPoolExecutor(1, "rillnode-fetch") as thread:
        try:
            coming = thread.submit(next, source, None)
            while (item := coming.result()) is not None:
                coming = thread.submit(next, source, None)
                yield item
        finally:
            thread.submit(source.close).result()
