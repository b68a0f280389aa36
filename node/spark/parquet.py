"""Parquet files of a Delta table, as one task writes them, with the statistics of each.

Readers skip files by their statistics: a bronze file holds few streams and a narrow range of
indexes and times. A column of which a file's statistics say nothing is taken by some readers
(delta-rs, so pandas, pyarrow and DuckDB through it) for one without any value, so that a filter
finds nothing, unless the table itself names the columns that its statistics are about. And where
they tell a range but not how many values are null, such a reader takes all rows for being in it. So
every table names its columns, and every file tells the nulls of each.

Statistics of a file, as JSON: `numRecords`, and by column `minValues`, `maxValues` and `nullCount`.
A column whose values are all null has no range. Texts are told whole, never cut; times to the
millisecond, the lower end rounded down and the upper end up.
"""

import datetime
import json
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from rillnode.node.spark.files import filesystem, sync_files
from rillnode.node.spark.schema_upgrade import with_field_ids

_RANGED: Final = (
    *("stream", "partition", "index", "received_at", "minute"),
    *("_stream", "_partition", "_index", "_received_at"),
)
"""Columns by whose range readers look for rows."""
STATISTICS_COLUMNS: Final = "delta.dataSkippingStatsColumns"
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)


def ranged_columns(schema: pa.Schema) -> tuple[str, ...]:
    """The columns that statistics of files with these columns are about.

    Only types whose order all readers agree on: neither floating-point numbers, which may be no
    number, nor binary data, nor what is nested.
    """
    return tuple(name for name in _RANGED if name in schema.names and _has_range(schema, name))


def statistics_properties(columns: Sequence[str]) -> dict[str, str]:
    """What a table says of the columns that its statistics are about, as properties of it."""
    if not columns:
        return {"delta.dataSkippingNumIndexedCols": "0"}
    return {STATISTICS_COLUMNS: ",".join(columns)}


class FileStatistics:
    """Statistics of a file, from its rows.

    Args:
        columns: the columns that they are about, which all rows have.
        entries: whether `data` and `gap_until` are those of entries, where they are there.
    """

    def __init__(self, columns: Sequence[str], *, entries: bool = True) -> None:
        self.rows = self.data_bytes = self.entries_lost = 0
        self._entries = entries
        self._nulls = dict.fromkeys(columns, 0)
        self._ranges: dict[str, tuple[Any, Any]] = {}

    def add(self, rows: pa.Table) -> None:
        """Count some rows."""
        self.rows += rows.num_rows
        for name in self._nulls:
            column = rows.column(name)
            self._nulls[name] += column.null_count
            found = pc.min_max(column).as_py()
            self._widen(name, found["min"], found["max"])
        if not self._entries:
            return
        if "data" in rows.column_names and pa.types.is_binary(rows.schema.field("data").type):
            self.data_bytes += pc.sum(pc.binary_length(rows.column("data"))).as_py() or 0
        if {"index", "gap_until"} <= {*rows.column_names}:
            lost = pc.subtract(rows.column("gap_until"), rows.column("index"))
            self.entries_lost += pc.sum(lost).as_py() or 0

    def to_json(self) -> str:
        """The statistics as Delta's log holds them."""
        statistics = {
            "numRecords": self.rows,
            "minValues": {name: _low(low) for name, (low, _) in self._ranges.items()},
            "maxValues": {name: _high(high) for name, (_, high) in self._ranges.items()},
            "nullCount": self._nulls,
        }
        return json.dumps(statistics)

    def _widen(self, name: str, low: Any, high: Any) -> None:
        if low is None:
            return
        if name in self._ranges:
            low, high = min(low, self._ranges[name][0]), max(high, self._ranges[name][1])
        self._ranges[name] = (low, high)


def _has_range(schema: pa.Schema, name: str) -> bool:
    kind = schema.field(name).type
    if pa.types.is_timestamp(kind):
        return kind.tz is not None
    texts = pa.types.is_string(kind), pa.types.is_large_string(kind), pa.types.is_string_view(kind)
    return any(texts) or pa.types.is_signed_integer(kind)


def _low(value: object) -> object:
    if isinstance(value, datetime.datetime):
        value = value.astimezone(datetime.UTC)
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value


def _high(value: object) -> object:
    if isinstance(value, datetime.datetime) and value.microsecond % 1_000:
        return _low(value + _MILLISECOND)
    return _low(value)


FILE_BYTES_MAX: Final = 536_870_912
ROW_GROUP_BYTES: Final = 33_554_432
HELD_BYTES_MAX: Final = 134_217_728
"""Bytes of rows that are held in memory until they are parted."""
_READ_ROWS: Final = 4_096
_SHORT_TEXTS: Final = ("stream", "kind")
_SAMPLE: Final = 1_000
"""Values of a column that tell whether its values repeat."""
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """A written file that a commit may add to the table.

    Attributes:
        name: path below the table's directory.
        size: bytes on disk.
        rows: number of rows.
        data_bytes: sum of the lengths of `data`, where the table has this column.
        entries_lost: entries that rows of kind `gap` stand for.
        stats: the file's statistics as Delta's JSON.
        partition: what the columns that the table is partitioned by are in all of its rows.
    """

    name: str
    size: int
    rows: int
    data_bytes: int
    entries_lost: int
    stats: str
    partition: Mapping[str, str | None] = field(default_factory=dict[str, str | None])


def write_files(
    table: str,
    batches: Iterable[pa.RecordBatch],
    ids: Mapping[str, int] | None = None,
    below: str = "",
    name: str = "part",
) -> Iterator[TableFile]:
    """Write batches to new files in the table's directory; each is durable when it is yielded.

    A reader of the table sees them only once they are committed.

    Args:
        table: the directory, or its URI.
        batches: the rows.
        ids: numbers by which the table's format knows columns, by their paths.
        below: a directory in it that the files are in.
        name: what their names begin with.
    """
    system, root = filesystem(table)
    pending: list[pa.RecordBatch] = []
    pending_bytes = 0
    file: _OpenFile | None = None
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            if file is None:
                file = _OpenFile(system, root, below, name, with_field_ids(batch.schema, ids or {}))
            pending.append(batch)
            pending_bytes += batch.nbytes
            if pending_bytes >= ROW_GROUP_BYTES:
                file.write(pending)
                pending, pending_bytes = [], 0
                if file.written_bytes >= FILE_BYTES_MAX:
                    done, file = file.finish(), None
                    yield done
        if file is not None:
            if pending:
                file.write(pending)
            done, file = file.finish(), None
            yield done
    finally:
        if file is not None:
            file.discard()


def write_parted(
    table: str,
    batches: Iterable[pa.RecordBatch],
    names: Sequence[str],
    ids: Mapping[str, int] | None = None,
) -> Iterator[TableFile]:
    """Write batches as `write_files` does, to files of their own for each partition.

    Args:
        table: the directory, or its URI.
        batches: the rows.
        names: the columns that the table is partitioned by, which its files do not have.
        ids: as of `write_files`.
    """
    if not names:
        yield from write_files(table, batches, ids)
        return
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes >= HELD_BYTES_MAX:
            yield from _write_parts(table, held, names)
            held, held_bytes = [], 0
    if held:
        yield from _write_parts(table, held, names)


def _write_parts(
    table: str, held: list[pa.RecordBatch], names: Sequence[str]
) -> Iterator[TableFile]:
    rows = pa.Table.from_batches(held)
    for part in rows.select(list(names)).group_by(list(names)).aggregate([]).to_pylist():
        mask = pa.array([True] * rows.num_rows)
        for name, value in part.items():
            column = rows.column(name)
            here = pc.is_null(column) if value is None else pc.equal(column, value)
            mask = pc.and_kleene(mask, here)
        partition = {name: partition_text(value) for name, value in part.items()}
        mine = rows.filter(mask).drop_columns(list(names)).to_batches()
        for file in write_files(table, mine, below=partition_directory(partition)):
            yield replace(file, partition=partition)


def partition_text(value: Any) -> str | None:
    """A partition's value as a table's log has it."""
    match value:
        case None | "":
            return None
        case bool():
            return str(value).lower()
        case datetime.date():
            return value.isoformat()
        case _:
            return str(value)


def partition_directory(partition: Mapping[str, str | None]) -> str:
    """The directory of a partition's files, from which some readers take its values."""
    return "/".join(
        f"{quote(name, safe='')}={_NULL if value is None else quote(value, safe='')}"
        for name, value in partition.items()
    )


def described_file(file: Mapping[str, Any]) -> TableFile:
    """A file that a table has, of one of its `added_files`; without its statistics."""
    parts: dict[str, Any] = file.get("partition", {})
    return TableFile(
        name=file["path"],
        size=file["size_bytes"],
        rows=file.get("num_records") or 0,
        data_bytes=0,
        entries_lost=0,
        stats="",
        partition={name: partition_text(value) for name, value in parts.items()},
    )


def file_rows(
    location: str, name: str = "", columns: Collection[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a file.

    Args:
        location: the table's directory or URI; or the file's, without a name.
        name: its path below the table's directory.
        columns: the columns that are needed, of those that it has; None for all.

    Raises:
        FileNotFoundError: it is not there.
    """
    system, root = filesystem(location)
    with pq.ParquetFile(f"{root}/{name}" if name else root, filesystem=system) as parquet:
        names = parquet.schema_arrow.names
        present = None if columns is None else [one for one in names if one in columns]
        # Threads take twice the processor time, and other tasks have the other cores.
        yield from parquet.iter_batches(batch_size=_READ_ROWS, columns=present, use_threads=False)


def is_typed(schema: pa.Schema) -> bool:
    """Whether files have the columns of people's own, whose names and types may be any."""
    return "_stream" in schema.names


class _OpenFile:
    def __init__(
        self, system: fs.FileSystem, root: str, below: str, name: str, schema: pa.Schema
    ) -> None:
        self._system = system
        self._name = f"{name}-{uuid.uuid4()}.zstd.parquet"
        if below:
            self._name = f"{below}/{self._name}"
        self._path = f"{root}/{self._name}"
        self._depth = len(below.split("/")) if below else 0
        system.create_dir(self._path.rpartition("/")[0], recursive=True)
        self._stream = system.open_output_stream(self._path)
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None
        self._statistics = FileStatistics(ranged_columns(schema), entries=not is_typed(schema))

    @property
    def written_bytes(self) -> int:
        return int(self._stream.tell())

    def write(self, batches: list[pa.RecordBatch]) -> None:
        """Write one row group."""
        rows = pa.Table.from_batches(batches)
        if self._writer is None:
            self._writer = self._begun(batches[0])
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._statistics.add(rows)

    def discard(self) -> None:
        """Remove what is written: on a full disk it would take the room that is made."""
        with suppress(OSError, pa.ArrowException):
            if self._writer is not None:
                self._writer.close()
        with suppress(OSError):
            self._stream.close()
        with suppress(OSError):
            self._system.delete_file(self._path)

    def finish(self) -> TableFile:
        """Close the file and make it durable."""
        if self._writer is not None:
            self._writer.close()
        size = self.written_bytes
        self._stream.close()
        if isinstance(self._system, fs.LocalFileSystem):
            path = Path(self._path)
            # The directories that it is in may be new, too.
            sync_files([path, *list(path.parents)[: self._depth]])
        return TableFile(
            name=self._name,
            size=size,
            rows=self._statistics.rows,
            data_bytes=self._statistics.data_bytes,
            entries_lost=self._statistics.entries_lost,
            stats=self._statistics.to_json(),
        )

    def _begun(self, rows: pa.RecordBatch) -> pq.ParquetWriter:
        """The writer of rows like these."""
        # Payloads rarely repeat: a dictionary and minima of them would cost time for nothing.
        short: list[str] | bool = [name for name in _SHORT_TEXTS if name in self._schema.names]
        repeating = short
        if is_typed(self._schema):
            short, repeating = True, list(_repeating(rows))
        return pq.ParquetWriter(
            self._stream,
            self._schema,
            compression="zstd",
            use_dictionary=repeating,
            write_statistics=short,
        )


def _repeating(rows: pa.RecordBatch) -> Iterator[str]:
    """The columns whose values repeat, for which alone a dictionary is worth its time."""
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        for path, values in _leaves(name, column):
            sample = values.slice(0, _SAMPLE)
            if 2 * len(pc.unique(sample)) <= len(sample):
                yield path


def _leaves(path: str, values: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """The columns of a file that one of rows becomes, by their paths in it."""
    match values:
        case pa.StructArray():
            for at, one in enumerate(values.type):
                yield from _leaves(f"{path}.{one.name}", values.field(at))
        case pa.MapArray():
            yield from _leaves(f"{path}.key_value.key", values.keys)
            yield from _leaves(f"{path}.key_value.value", values.items)
        case pa.ListArray():
            yield from _leaves(f"{path}.list.element", values.values)
        case _:
            yield path, values
