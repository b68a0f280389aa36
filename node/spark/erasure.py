"""Erases entries from all tables of a lake, for good, while everything goes on.

What was erased is written down first, in the Delta table `<bronze>_erasures`: the places of the
entries, and who erased them by which predicate. From then on no commit brings one of these places
into a table, wherever its rows come from (`Erasures.keep_out`), and every table is *swept*: its
files that hold such places are written anew without them. A table's own log tells up to which
erasure it was swept, so that whoever finds one that was not goes on with it, after whatever kill.

A place is a stream, by its name and when it was created, a partition and an index. Silver has no
column for when a stream was created: there the time at which the node took the entry tells the
streams of one name apart.
"""

import getpass
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple, cast
from urllib.parse import unquote

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction, RemoveAction

from rillnode.codecs.errors import StoreError
from rillnode.node.spark.delta import (
    add_actions,
    commit_unless_changed,
    committing,
    open_to_write,
)
from rillnode.node.spark.delta_log import ERASURE, Numbered, open_table
from rillnode.node.spark.maintenance import compact
from rillnode.node.spark.parquet import (
    TableFile,
    filesystem,
    partition_directory,
    partition_text,
    remove_files,
    write_files,
)
from rillnode.node.spark.schema_upgrade import conform
from rillnode.node.spark.statistics import file_schema_of
from rillnode.node.spark.tables import Column, arrow_schema

_READ_ROWS: Final = 8_192
_ATTEMPTS: Final = 100
_MERGED_AT: Final = 20
"""Erasures after which their files are merged: every commit reads them."""
_TIME: Final = pa.timestamp("us", tz="UTC")
_MINUTE_US: Final = 60_000_000
_UNKNOWN: Final = -1
"""In place of a time that is not known, in microseconds since 1970."""

PLACES: Final = pa.schema(
    [
        pa.field("stream", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("created_at", _TIME),
        pa.field("index", pa.int64()),
        pa.field("received_at", _TIME),
    ]
)
"""Where entries stand, and when the node took them."""
_RANGE_COLUMNS: Final = (
    Column("stream", pa.string(), "the stream's name"),
    Column("partition", pa.int32(), "the partition"),
    Column("created_at", _TIME, "when the stream was created"),
    Column("start", pa.int64(), "the first index"),
    Column("until", pa.int64(), "the index after the last one"),
    Column("first_at", _TIME, "when the node took the first of the entries"),
    Column("last_at", _TIME, "when it took the last one, in the same minute"),
)
_RANGES: Final = arrow_schema(_RANGE_COLUMNS)
ERASURE_COLUMNS: Final = (
    Column("erasure", pa.int64(), "number of the erasure"),
    Column("at", _TIME, "when it began"),
    Column("by", pa.string(), "whose it was, by the name in the system"),
    Column("table", pa.string(), "the typed table whose columns the predicate names"),
    Column("predicate", pa.string(), "which entries were erased"),
    *_RANGE_COLUMNS,
)
ERASURES: Final = arrow_schema(ERASURE_COLUMNS)
"""One row is a range of places that were erased, of one minute."""
# A range is of one minute, so that it tells which minutes have to be counted anew.
_TO_RANGES: Final = """
SELECT stream, "partition", created_at, min("index") AS "start", max("index") + 1 AS until,
    min(received_at) AS first_at, max(received_at) AS last_at
FROM (
    SELECT *, "index" - row_number() OVER (
        PARTITION BY stream, "partition", created_at, minute ORDER BY "index"
    ) AS island
    FROM (SELECT DISTINCT *, date_trunc('minute', received_at) AS minute FROM places)
)
GROUP BY stream, "partition", created_at, minute, island
ORDER BY stream, "partition", created_at, "start"
"""

Flags = npt.NDArray[np.bool_]
_Numbers = npt.NDArray[np.int64]


def ranges_of(places: Iterable[pa.RecordBatch]) -> pa.Table:
    """Places as ranges of indexes, each of one minute; what is named twice counts once."""
    database = duckdb.connect(":memory:", config={"python_enable_replacements": "false"})
    database.execute("SET TimeZone = 'UTC'")
    database.register("places", pa.Table.from_batches([*places], schema=PLACES))
    found: Any = database.sql(_TO_RANGES)
    return cast("pa.Table", found.to_arrow_table()).cast(_RANGES)


@dataclass(frozen=True, slots=True)
class _Group:
    """The ranges of one partition of one stream, in order, none of which meets another."""

    partition: int
    created_at: int
    starts: _Numbers
    untils: _Numbers
    first_at: _Numbers
    last_at: _Numbers


class Span(NamedTuple):
    """A range of erased places of a stream.

    Attributes:
        partition: the partition.
        created_ms: when the stream was created, ms since 1970; -1 where that is not known.
        start: the first index.
        until: the index after the last one.
        last_ms: when the node took the last of the entries, ms since 1970.
    """

    partition: int
    created_ms: int
    start: int
    until: int
    last_ms: int


class Erased:
    """All places that were erased.

    Args:
        rows: of the table of erasures.

    Attributes:
        number: of the newest erasure; 0 where there is none.
    """

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        numbers = cast("list[int]", rows.column("erasure").to_pylist())
        self.number = max(numbers, default=0)
        grouped: dict[tuple[str, int, int], list[tuple[int, int, int, int]]] = {}
        values = [_listed(rows, name) for name in _RANGES.names]
        for stream, partition, created_at, *span in zip(*values, strict=True):
            grouped.setdefault((stream, partition, created_at), []).append(tuple(span))
        self._groups: dict[str, list[_Group]] = {}
        for (stream, partition, created_at), spans in grouped.items():
            columns = np.array(_merged(spans), np.int64).T
            self._groups.setdefault(stream, []).append(_Group(partition, created_at, *columns))

    def __bool__(self) -> bool:
        return bool(self._groups)

    def mark(self) -> Transaction:
        """What a table's transaction says when all of this is no longer in it."""
        return _applied(self.number)

    @property
    def streams(self) -> list[str]:
        """The streams that entries were erased of."""
        return sorted(self._groups)

    def spans(self, stream: str) -> Iterator["Span"]:
        """The ranges of places of one stream."""
        for one in self._groups.get(stream, ()):
            created_ms = one.created_at // 1_000 if one.created_at >= 0 else _UNKNOWN
            for start, until, last_at in zip(
                one.starts.tolist(), one.untils.tolist(), one.last_at.tolist(), strict=True
            ):
                yield Span(one.partition, created_ms, start, until, last_at // 1_000)

    def slots(self, after: int) -> pa.Table:
        """The partitions' minutes that entries were erased of since the erasure `after`."""
        newer = self._rows.filter(pc.greater(self._rows.column("erasure"), after))
        first = newer.column("first_at").cast(pa.int64()).to_pylist()
        minutes = pa.array([one // _MINUTE_US * _MINUTE_US for one in first], pa.int64())
        slots = pa.table(
            {
                "stream": newer.column("stream"),
                "partition": newer.column("partition"),
                "minute": minutes.cast(_TIME),
            }
        )
        return slots.group_by(slots.column_names).aggregate([])

    def mask(self, rows: pa.RecordBatch) -> Flags:
        """Which rows of any of the tables stand at erased places."""
        found = np.zeros(rows.num_rows, np.bool_)
        prefix = _prefix(rows.schema)
        knows_times = f"{prefix}received_at" in rows.schema.names
        # delta-rs writes texts in a form of its own, which pyarrow compares with nothing.
        streams = rows.column(f"{prefix}stream").cast(pa.string())
        names = cast("list[str]", pc.unique(streams).to_pylist())
        if not any(name in self._groups for name in names):
            return found
        partitions, indexes, received, created = (
            _numbers(rows, f"{prefix}{name}")
            for name in ("partition", "index", "received_at", "created_at")
        )
        for name in names:
            mine = np.asarray(pc.equal(streams, name).to_pylist(), np.bool_)
            for group in self._groups.get(name, ()):
                at = np.flatnonzero(mine & (partitions == group.partition))
                found[at] |= _within(group, indexes[at], received[at], created[at])
        # A row without a time is no entry: it stands for entries that were lost.
        return found & (received != _UNKNOWN) if knows_times else found

    def may_have(self, stats: Mapping[str, Any]) -> bool:
        """Whether a file with these statistics may hold rows at erased places."""
        low: dict[str, Any] = stats.get("minValues") or {}
        high: dict[str, Any] = stats.get("maxValues") or {}
        prefix = "_" if "_index" in low else ""
        first, last = low.get(f"{prefix}stream"), high.get(f"{prefix}stream")
        if first is None or last is None:
            return True
        low_index, high_index = (one.get(f"{prefix}index") for one in (low, high))
        for stream, groups in self._groups.items():
            if first <= stream <= last:
                if low_index is None or high_index is None:
                    return True
                for one in groups:
                    at = int(np.searchsorted(one.untils, int(low_index), "right"))
                    if at < len(one.starts) and one.starts[at] <= high_index:
                        return True
        return False


class Erasures:
    """The erasures of a bronze table, looked up as often as one likes.

    Args:
        bronze: directory or URI of the bronze table.
    """

    def __init__(self, bronze: str) -> None:
        self.location = f"{bronze.rstrip('/')}_erasures"
        self._table: DeltaTable | None = None
        self._version = -1
        self._erased = Erased(pa.Table.from_batches([], schema=ERASURES))

    def erased(self) -> Erased:
        """What was erased until now."""
        if self._table is None:
            self._table = open_table(self.location)
        else:
            self._table.update_incremental()
        if self._table is not None and self._table.version() != self._version:
            self._erased = Erased(_rows_of(self.location, self._table))
            self._version = self._table.version()
        return self._erased

    def note(self, ranges: pa.Table, *, table: str, predicate: str) -> int:
        """Write down what is erased; from now on it is. Returns the erasure's number."""
        at = datetime.now(UTC)
        with committing(self.location):
            log = open_to_write(self.location, Schema.from_arrow(ERASURES))
            for _ in range(_ATTEMPTS):
                number = applied(log) + 1
                said = {
                    "erasure": number, "at": at, "by": _user(), "table": table,
                    "predicate": predicate,
                }  # fmt: skip
                arrays = [
                    pa.array([said[one.name]] * ranges.num_rows, one.type)
                    if one.name in said
                    else ranges.column(one.name)
                    for one in ERASURES
                ]
                rows = pa.table(arrays, ERASURES.names).cast(ERASURES)
                files = list(write_files(self.location, rows.to_batches()))
                actions = add_actions(files, data_change=True)
                if commit_unless_changed(self.location, log, actions, [_applied(number)]):
                    break
                remove_files(self.location, [one.name for one in files])
            else:
                raise StoreError("table.busy", f"{self.location} is written by others all the time")
        if number % _MERGED_AT == 0:
            list(compact(self.location))
        return number

    def keep_out(self, location: str, files: Sequence[TableFile]) -> list[TableFile]:
        """Files that a commit is about to add, without rows at erased places.

        Called with the table's lock held, it leaves nothing to an erasure that begins later: that
        one finds the files in the table.
        """
        erased = self.erased()
        if not erased:
            return list(files)
        kept: list[TableFile] = []
        for file in files:
            fresh = None
            if erased.may_have(json.loads(file.stats)):
                fresh = _without(location, file.name, file.partition, erased)
            if fresh is None:
                kept.append(file)
            else:
                kept += fresh.files
                remove_files(location, [file.name])
        return kept

    def history(self) -> list[dict[str, Any]]:
        """The erasures, the first one first, each with how many entries it has erased."""
        table = open_table(self.location)
        rows = [] if table is None else _rows_of(self.location, table).to_pylist()
        found: dict[int, dict[str, Any]] = {}
        for row in rows:
            names = ("erasure", "at", "by", "table", "predicate")
            one = found.setdefault(row["erasure"], {name: row[name] for name in names})
            one["entries"] = one.get("entries", 0) + row["until"] - row["start"]
        return [found[number] for number in sorted(found)]


def of_ranges(ranges: pa.Table) -> Erased:
    """Places as they would be erased."""
    numbers = pa.array([1] * ranges.num_rows, pa.int64())
    return Erased(ranges.append_column("erasure", numbers))


@dataclass(frozen=True, slots=True)
class _File:
    """What a table's log says of a file."""

    stats: dict[str, Any]
    partition: dict[str, str | None]


@dataclass(frozen=True, slots=True)
class _Fresh:
    """What a file becomes without its rows at erased places."""

    files: list[TableFile]
    removed: int


def applied(table: Numbered | None) -> int:
    """Up to which erasure a table was swept."""
    return 0 if table is None else table.transaction_version(ERASURE) or 0


def counted(location: str, erased: Erased) -> int:
    """How many rows of a table stand at erased places."""
    table = open_table(location)
    if table is None:
        return 0
    return sum(
        int(erased.mask(rows).sum())
        for path, file in _files(table).items()
        if erased.may_have(file.stats)
        for rows in _place_rows(location, path)
    )


Lock = Callable[[], AbstractContextManager[None]]
"""Keeps a second committer off a table."""


def sweep(location: str, erased: Erased, lock: Lock | None = None) -> int:
    """Take all rows at erased places out of a table; returns how many there were.

    It may be done by several processes, and be killed: what is left is done the next time.

    Args:
        location: directory or URI of the table.
        erased: what was erased.
        lock: what who commits to the table holds, where it is not the table's own lock.

    Raises:
        StoreError: `table.busy`, somebody rewrites the table's files all the time.
    """
    table = open_table(location)
    if table is None or applied(table) >= erased.number:
        return 0
    held = lock or partial(committing, location)
    looked_at: set[str] = set()
    removed = 0
    for _ in range(_ATTEMPTS):
        table.update_incremental()
        for path, file in _files(table).items():
            if path not in looked_at and erased.may_have(file.stats):
                removed += _rewrite(location, held, table, path, file, erased)
            looked_at.add(path)
        with held():
            table.update_incremental()
            # Others may have merged files meanwhile, and not yet have looked for erasures.
            if set(_files(table)) <= looked_at and commit_unless_changed(
                location, table, [], [erased.mark()], {ERASURE: erased.number}
            ):
                return removed
    raise StoreError("table.busy", f"{location} is rewritten by others all the time")


def _rewrite(
    location: str, lock: Lock, table: DeltaTable, path: str, file: _File, erased: Erased
) -> int:
    """Put a file without its rows at erased places in its place, unless it is gone by then."""
    fresh = _without(location, path, file.partition, erased, file_schema_of(table))
    if fresh is None:
        return 0
    now_ms = int(datetime.now(UTC).timestamp() * 1_000)
    actions: list[AddAction | RemoveAction] = [
        RemoveAction(path, data_change=True, deletion_timestamp=now_ms)
    ]
    actions += add_actions(fresh.files, data_change=True)
    with lock():
        table.update_incremental()
        for _ in range(_ATTEMPTS):
            if path not in _files(table):
                break
            if commit_unless_changed(location, table, actions, (), {ERASURE: erased.number}):
                return fresh.removed
    remove_files(location, [one.name for one in fresh.files])
    return 0


def _without(
    location: str,
    name: str,
    partition: Mapping[str, str | None],
    erased: Erased,
    schema: pa.Schema | None = None,
) -> _Fresh | None:
    """A file's rows at other places, in files of their own; None where there are no others.

    Args:
        location: the table's directory or URI.
        name: the file.
        partition: of which the file is.
        erased: the places.
        schema: the columns of the files of their own; None for those of the file.
    """
    removed = sum(int(erased.mask(rows).sum()) for rows in _place_rows(location, name))
    if not removed:
        return None
    system, root = filesystem(location)
    with pq.ParquetFile(f"{root}/{name}", filesystem=system) as parquet:
        kept = (
            rows.filter(pa.array(~erased.mask(rows)))
            for read in parquet.iter_batches(batch_size=_READ_ROWS)
            for rows in [read if schema is None else conform(read, schema)]
        )
        files = write_files(location, kept, below=partition_directory(partition))
        return _Fresh([replace(one, partition=partition) for one in files], removed)


def _place_rows(location: str, name: str) -> Iterator[pa.RecordBatch]:
    system, root = filesystem(location)
    with pq.ParquetFile(f"{root}/{name}", filesystem=system) as parquet:
        prefix = _prefix(parquet.schema_arrow)
        wanted = [f"{prefix}{one}" for one in PLACES.names]
        present = [one for one in wanted if one in parquet.schema_arrow.names]
        yield from parquet.iter_batches(batch_size=_READ_ROWS, columns=present)


def _files(table: DeltaTable) -> dict[str, _File]:
    """A table's files."""
    return {
        unquote(one["path"]): _File(
            {"minValues": one.get("min"), "maxValues": one.get("max")},
            {name: partition_text(value) for name, value in one.get("partition", {}).items()},
        )
        for one in pa.table(table.get_add_actions()).to_pylist()
    }


def _rows_of(location: str, table: DeltaTable) -> pa.Table:
    batches: list[pa.RecordBatch] = []
    system, root = filesystem(location)
    for path in _files(table):
        with pq.ParquetFile(f"{root}/{path}", filesystem=system) as parquet:
            batches += parquet.iter_batches()
    return pa.Table.from_batches(batches, schema=ERASURES)


def _applied(number: int) -> Transaction:
    return Transaction(ERASURE, number)


def _prefix(schema: pa.Schema) -> str:
    return "_" if "_index" in schema.names else ""


def _listed(rows: pa.Table, name: str) -> list[Any]:
    column = rows.column(name)
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64()).fill_null(_UNKNOWN).to_pylist()
    return column.to_pylist()


def _numbers(rows: pa.RecordBatch, name: str) -> _Numbers:
    """A column as numbers, times in microseconds; none of it is known where it is not there."""
    if name not in rows.schema.names:
        return np.full(rows.num_rows, _UNKNOWN, np.int64)
    column = rows.column(name)
    if pa.types.is_timestamp(column.type):
        column = column.cast(_TIME)
    values = column.cast(pa.int64()).fill_null(_UNKNOWN)
    return np.asarray(values.to_pylist(), np.int64)


def _within(group: _Group, indexes: _Numbers, received: _Numbers, created: _Numbers) -> Flags:
    """Which places are in one of the ranges."""
    at = np.maximum(np.searchsorted(group.starts, indexes, "right") - 1, 0)
    inside = (group.starts[at] <= indexes) & (indexes < group.untils[at])
    during = (group.first_at[at] <= received) & (received <= group.last_at[at])
    both_known = (created != _UNKNOWN) & (group.created_at != _UNKNOWN)
    return inside & np.where(both_known, created == group.created_at, during)


def _merged(spans: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    merged: list[tuple[int, int, int, int]] = []
    for start, until, first_at, last_at in sorted(spans):
        if merged and start < merged[-1][1]:
            first, end, low, high = merged[-1]
            merged[-1] = (first, max(end, until), min(low, first_at), max(high, last_at))
        else:
            merged.append((start, until, first_at, last_at))
    return merged


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        return "unknown"
