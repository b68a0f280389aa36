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
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any, Final, NamedTuple, cast

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Schema, Transaction

from rillnode.codecs.errors import StoreError
from rillnode.node.spark.delta import (
    add_actions,
    commit_unless_changed,
    committing,
    open_to_write,
    remove_actions,
)
from rillnode.node.spark.delta_log import ERASURE, Numbered, added_files, file_schema_of, open_table
from rillnode.node.spark.files import remove_files
from rillnode.node.spark.maintenance import compact
from rillnode.node.spark.parquet import (
    TableFile,
    described_file,
    file_rows,
    partition_directory,
    write_files,
)
from rillnode.node.spark.querying import connect
from rillnode.node.spark.schema_upgrade import conform
from rillnode.node.spark.tables import Column, arrow_schema

_ATTEMPTS: Final = 100
_MERGED_AT: Final = 20
"""Erasures after which their files are merged: every commit reads them."""
_TIME: Final = pa.timestamp("us", tz="UTC")
_FIRST_INDEX, _LAST_INDEX = 0, 2**63 - 1

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

_IS_AT: Final = """
SELECT DISTINCT number FROM places p JOIN erased e USING (stream, "partition")
WHERE e."start" <= p."index" AND p."index" < e.until AND CASE
    WHEN p.created_at IS NULL OR e.created_at IS NULL
    THEN p.received_at BETWEEN e.first_at AND e.last_at
    ELSE p.created_at = e.created_at
END
"""
_MAY_BE_IN: Final = """
SELECT count(*) FROM erased
WHERE stream BETWEEN $first AND $last AND until > $low AND "start" <= $high
"""

Flags = npt.NDArray[np.bool_]


def _asked(name: str, table: pa.Table) -> duckdb.DuckDBPyConnection:
    """A connection that can be asked about a table."""
    connection = connect()
    connection.register(name, table)
    return connection


def ranges_of(places: Iterable[pa.RecordBatch]) -> pa.Table:
    """Places as ranges of indexes, each of one minute; what is named twice counts once."""
    connection = _asked("places", pa.Table.from_batches([*places], schema=PLACES))
    found: Any = connection.sql(_TO_RANGES)
    return cast("pa.Table", found.to_arrow_table()).cast(_RANGES)


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
        streams: those that entries were erased of.
    """

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self.number: int = pc.max(rows.column("erasure")).as_py() or 0
        self.streams = sorted(cast("list[str]", pc.unique(rows.column("stream")).to_pylist()))

    @cached_property
    def _database(self) -> duckdb.DuckDBPyConnection:
        # Where nothing was erased, as nearly everywhere, nothing is asked.
        return _asked("erased", self._rows)

    def __bool__(self) -> bool:
        return bool(self.streams)

    def mark(self) -> Transaction:
        """What a table's transaction says when all of this is no longer in it."""
        return _applied(self.number)

    def spans(self, stream: str) -> Iterator[Span]:
        """The ranges of places of one stream, none of which meets another."""
        mine = self._rows.filter(pc.equal(self._rows.column("stream"), stream))
        columns = ("partition", "created_at", "start", "until", "last_at")
        values = [mine.column(name).cast(pa.int64()).to_pylist() for name in columns]
        last: Span | None = None
        for partition, created, start, until, at in sorted(
            zip(*values, strict=True), key=lambda one: (one[0], one[1] or 0, *one[2:])
        ):
            created_ms = -1 if created is None else created // 1_000
            one = Span(partition, created_ms, start, until, at // 1_000)
            if last is not None and last[:2] == one[:2] and start < last.until:
                one = Span(
                    *one[:2], last.start, max(until, last.until), max(one.last_ms, last.last_ms)
                )
            elif last is not None:
                yield last
            last = one
        if last is not None:
            yield last

    def slots(self, after: int) -> pa.Table:
        """The partitions' minutes that entries were erased of since the erasure `after`."""
        newer = self._rows.filter(pc.greater(self._rows.column("erasure"), after))
        minutes = pc.floor_temporal(newer.column("first_at"), unit="minute")
        slots = newer.select(["stream", "partition"]).append_column("minute", minutes)
        return slots.group_by(slots.column_names).aggregate([])

    def mask(self, rows: pa.RecordBatch) -> Flags:
        """Which rows of any of the tables stand at erased places."""
        found = np.zeros(rows.num_rows, np.bool_)
        prefix, height = _prefix(rows.schema), rows.num_rows
        arrays: list[pa.Array] = []
        for one in PLACES:
            name = f"{prefix}{one.name}"
            if name in rows.schema.names:
                # delta-rs writes texts in a form of its own, which pyarrow compares with nothing.
                arrays.append(rows.column(name).cast(one.type))
            else:
                arrays.append(pa.nulls(height, one.type))
        places = pa.table([*arrays, pa.array(range(height), pa.int64())], [*PLACES.names, "number"])
        if f"{prefix}received_at" in rows.schema.names:
            # A row without a time is no entry: it stands for entries that were lost.
            places = places.filter(pc.is_valid(places.column("received_at")))
        names = cast("list[str]", pc.unique(places.column("stream")).to_pylist())
        if not set(names).isdisjoint(self.streams):
            self._database.register("places", places)
            found[self._database.execute(_IS_AT).fetchnumpy()["number"].astype(np.int64)] = True
        return found

    def may_have(self, file: Mapping[str, Any]) -> bool:
        """Whether a file may hold rows at erased places, by its `min` and `max`."""
        low: dict[str, Any] = file.get("min") or {}
        high: dict[str, Any] = file.get("max") or {}
        prefix = "_" if "_index" in low else ""
        ends = [one.get(f"{prefix}stream") for one in (low, high)]
        bounds = [one.get(f"{prefix}index") for one in (low, high)]
        if not self:
            return False
        if None in ends:
            return True
        asked = {
            "first": ends[0],
            "last": ends[1],
            "low": _FIRST_INDEX if bounds[0] is None else bounds[0],
            "high": _LAST_INDEX if bounds[1] is None else bounds[1],
        }
        ((count,),) = self._database.execute(_MAY_BE_IN, asked).fetchall()
        return bool(count)


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
            stats = json.loads(file.stats)
            fresh, removed = [file], 0
            if erased.may_have({"min": stats.get("minValues"), "max": stats.get("maxValues")}):
                fresh, removed = _without(location, file, erased)
            kept += fresh
            if removed:
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


def applied(table: Numbered | None) -> int:
    """Up to which erasure a table was swept."""
    return 0 if table is None else table.transaction_version(ERASURE) or 0


def counted(location: str, erased: Erased) -> int:
    """How many rows of a table stand at erased places."""
    table = open_table(location)
    files = added_files(table) if table is not None else []
    return sum(_count(location, one["path"], erased) for one in files if erased.may_have(one))


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
        for file in added_files(table):
            if file["path"] not in looked_at and erased.may_have(file):
                removed += _rewrite(location, held, table, file, erased)
            looked_at.add(file["path"])
        with held():
            table.update_incremental()
            # Others may have merged files meanwhile, and not yet have looked for erasures.
            if _paths(table) <= looked_at and commit_unless_changed(
                location, table, [], [erased.mark()], {ERASURE: erased.number}
            ):
                return removed
    raise StoreError("table.busy", f"{location} is rewritten by others all the time")


def _rewrite(
    location: str, lock: Lock, table: DeltaTable, file: Mapping[str, Any], erased: Erased
) -> int:
    """Put a file without its rows at erased places in its place, unless it is gone by then."""
    old = described_file(file)
    fresh, removed = _without(location, old, erased, file_schema_of(table))
    if not removed:
        return 0
    actions = [*remove_actions([old.name]), *add_actions(fresh, data_change=True)]
    with lock():
        table.update_incremental()
        for _ in range(_ATTEMPTS):
            if old.name not in _paths(table):
                break
            if commit_unless_changed(location, table, actions, (), {ERASURE: erased.number}):
                return removed
    remove_files(location, [one.name for one in fresh])
    return 0


def _without(
    location: str, file: TableFile, erased: Erased, schema: pa.Schema | None = None
) -> tuple[list[TableFile], int]:
    """A file without its rows at erased places, written anew if it has any, and how many it had.

    Args:
        location: the table's directory or URI.
        file: the file.
        erased: the places.
        schema: the columns of the file that is written; None for those of the file.
    """
    removed = _count(location, file.name, erased)
    if not removed:
        return [file], 0
    kept = (
        rows.filter(pa.array(~erased.mask(rows)))
        for read in file_rows(location, file.name)
        for rows in [read if schema is None else conform(read, schema)]
    )
    files = write_files(location, kept, below=partition_directory(file.partition))
    return [replace(one, partition=file.partition) for one in files], removed


def _count(location: str, name: str, erased: Erased) -> int:
    """How many rows of a file stand at erased places."""
    columns = [f"{prefix}{one}" for one in PLACES.names for prefix in ("", "_")]
    return sum(int(erased.mask(rows).sum()) for rows in file_rows(location, name, columns))


def _paths(table: DeltaTable) -> set[str]:
    return {one["path"] for one in added_files(table)}


def _rows_of(location: str, table: DeltaTable) -> pa.Table:
    batches = [rows for path in sorted(_paths(table)) for rows in file_rows(location, path)]
    return pa.Table.from_batches(batches, schema=ERASURES)


def _applied(number: int) -> Transaction:
    return Transaction(ERASURE, number)


def _prefix(schema: pa.Schema) -> str:
    return "_" if "_index" in schema.names else ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        return "unknown"
