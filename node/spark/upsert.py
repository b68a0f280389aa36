"""Replaces rows of a gold table or view by slot: new knowledge of a minute for old.

One transaction removes the files that hold rows of the replaced slots, adds files with the rows
that stay and the new ones, and says how far the table has come in what it is made of. A table is
sorted by its slots' time and cut into small files, so that only its last one is written again and
again. delta-rs would replace rows by a predicate, too, but says nothing before the transaction by
which files could be made durable first.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction, RemoveAction

from rillnode.node.spark.delta import (
    add_actions,
    commit,
    commit_unless_changed,
    committing,
    open_to_write,
    remove_actions,
)
from rillnode.node.spark.delta_log import added_files, open_table
from rillnode.node.spark.parquet import file_rows, write_files
from rillnode.node.spark.schema_upgrade import conform
from rillnode.node.spark.tables import GoldTable

FILE_ROWS_MAX: Final = 16_384
KEEP_HOURS: Final = 6
"""How long replaced files stay, for who reads an older version of the table."""
TIDY_COMMITS: Final = 100
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Replaced:
    """The rows of a table that others replace.

    Attributes:
        keys: the columns that tell; none where no row is replaced.
        takes: whether rows with these values are replaced.
        ranges: in what range the values of a column are, where none of them is null.
    """

    keys: tuple[str, ...]
    takes: Callable[[tuple[Any, ...]], bool]
    ranges: Mapping[str, tuple[Any, Any]]

    @classmethod
    def of(cls, keys: tuple[str, ...], values: Set[tuple[Any, ...]]) -> "Replaced":
        """Rows with one of these values."""
        if not values:
            return cls((), lambda _: False, {})
        columns = zip(keys, zip(*values, strict=True), strict=True)
        known = ((name, column) for name, column in columns if None not in column)
        return cls(keys, values.__contains__, {name: (min(one), max(one)) for name, one in known})


def upsert(
    location: str,
    slot: Sequence[str],
    rows: pa.Table,
    positions: Sequence[Transaction] = (),
    replaced: Replaced | None = None,
) -> None:
    """Replace rows by others; durable when it returns.

    Args:
        location: the table's directory or URI; it is made on demand.
        slot: the columns that tell which rows are replaced together.
        rows: the new rows, with exactly the table's columns, in this order.
        positions: what the transaction says beside.
        replaced: the rows that go; left out, those of the slots that `rows` has rows of.

    Raises:
        ConfigError: another table lies there.
    """
    if replaced is None:
        replaced = Replaced.of(tuple(slot), set(values_of(rows, slot)))
    with committing(location):
        known = open_table(location)  # refuses one that needs more of its reader
        present = open_to_write(location, Schema.from_arrow(rows.schema), known)
        while True:
            # The files that may have replaced rows, and those of their rows that stay.
            paths = _files(present, replaced.ranges) if replaced.keys else []
            held = _read(location, rows.schema, paths)
            stays = [not replaced.takes(one) for one in values_of(held, replaced.keys)]
            kept = held.filter(pa.array(stays, pa.bool_()))
            fresh = _write(location, slot, pa.concat_tables([kept, rows]))
            if commit_unless_changed(location, present, remove_actions(paths) + fresh, positions):
                break
        if present.version() % TIDY_COMMITS == 0:
            present.vacuum(
                retention_hours=KEEP_HOURS,
                dry_run=False,
                enforce_retention_duration=False,
                full=True,
            )


def make_anew(
    location: str, slot: Sequence[str], rows: pa.Table, positions: Sequence[Transaction]
) -> None:
    """Replace all rows of a table, and its columns, as `upsert` does."""
    with committing(location):
        files = _write(location, slot, rows)
        schema = Schema.from_arrow(rows.schema)
        commit(location, DeltaTable(location), files, positions, schema=schema)


def read_rows(
    location: str, table: GoldTable, low: datetime | None = None, high: datetime | None = None
) -> pa.Table:
    """Rows of a gold table with `low <= minute <= high`, in order; none if there is no table."""
    present = open_table(location)
    ranges = {"minute": (low or _FIRST, high or _LAST)}
    paths = [] if present is None else _files(present, ranges)
    rows = _read(location, table.schema, paths)
    minutes: list[datetime] = rows.column("minute").to_pylist()
    wanted = [(low is None or low <= one) and (high is None or one <= high) for one in minutes]
    return _sorted(rows.filter(pa.array(wanted, pa.bool_())), table.slot)


def _sorted(rows: pa.Table, slot: Sequence[str]) -> pa.Table:
    """Rows in a table's order: times first, so that new rows are in few files."""

    def place(name: str) -> tuple[bool, str]:
        return not pa.types.is_temporal(rows.schema.field(name).type), name

    return rows.sort_by([(name, "ascending") for name in sorted(slot, key=place)])


def values_of(rows: pa.Table, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """What each row has in some columns."""
    return zip(*(_values(rows.column(name)) for name in names), strict=True)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Values as SQL groups rows by them: what is no number is one value, here always an object."""
    values: list[Any] = column.to_pylist()
    if not pa.types.is_floating(column.type):
        return values
    return [math.nan if one != one else one for one in values]


def _files(present: DeltaTable, ranges: Mapping[str, tuple[Any, Any]]) -> list[str]:
    """Files that may hold rows in some ranges."""

    def may_hold(file: dict[str, Any]) -> bool:
        low: dict[str, Any] = file.get("min") or {}
        high: dict[str, Any] = file.get("max") or {}
        return all(
            low.get(name) is None or (high[name] >= first and low[name] <= last)
            for name, (first, last) in ranges.items()
        )

    return [file["path"] for file in added_files(present) if may_hold(file)]


def _read(location: str, schema: pa.Schema, paths: Sequence[str]) -> pa.Table:
    read = (conform(rows, schema) for path in paths for rows in file_rows(location, path))
    return pa.Table.from_batches([*read], schema=schema)


def _write(location: str, slot: Sequence[str], rows: pa.Table) -> list[AddAction | RemoveAction]:
    """Write rows to small files in order; returns what a transaction says of them."""
    rows = _sorted(rows, slot)
    parts = (rows.slice(at, FILE_ROWS_MAX) for at in range(0, rows.num_rows, FILE_ROWS_MAX))
    files = (one for part in parts for one in write_files(location, part.to_batches()))
    return add_actions(files, data_change=True)
