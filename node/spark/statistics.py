"""Writes statistics of files into a table's log: rows, and some columns' range and nulls.

Readers skip files by it. A column of which a file's statistics say nothing is taken by some readers
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
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

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
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.rows = 0
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


def added_files(table: DeltaTable) -> list[dict[str, Any]]:
    """A table's files, as `get_add_actions` has them, with their paths as they are."""
    files: list[dict[str, Any]] = pa.table(table.get_add_actions()).to_pylist()
    return [{**one, "path": unquote(one["path"])} for one in files]


def arrow_schema_of(table: DeltaTable) -> pa.Schema:
    """A table's columns as an Arrow schema."""
    return pa.schema(table.schema().to_arrow())


def file_schema_of(table: DeltaTable) -> pa.Schema:
    """The columns of a table that its files have: those that it is not partitioned by."""
    parted = table.metadata().partition_columns
    return pa.schema([one for one in arrow_schema_of(table) if one.name not in parted])


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
