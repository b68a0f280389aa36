"""Looks at the times of rows: which are late, which are too old, and in which partition each is.

A row is *late* if the node has received it more than `late_seconds` after its time. That depends
on nothing but the row, so that a publisher whose clock is ahead makes no others late, and a step
that is made again counts the same. A row without a time is as old as its receipt.
"""

import datetime
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from rillnode.node.spark.delta import committing, sync_commits
from rillnode.node.spark.delta_log import added_files, arrow_schema_of
from rillnode.node.spark.typed.layout import RECEIVED, Layout, Partition

VALUE_BYTES_MAX: Final = 64
"""Bytes of a text by which a table is partitioned: each may be three in a directory's name."""
_DAY: Final = 86_400_000_000
_UNITS: Final = {"day": pa.date32(), "hour": pa.string(), "month": pa.string()}
_FORMATS: Final = {"hour": "%Y-%m-%dT%H", "month": "%Y-%m"}
_MICROSECONDS: Final = pa.timestamp("us", tz="UTC")


class Timed(NamedTuple):
    """Rows, and what was counted of them.

    Attributes:
        rows: those that are landed, with the columns that the table is partitioned by.
        late: how many of them are late.
        expired: how many others are too old.
    """

    rows: pa.RecordBatch
    late: int
    expired: int


def partition_fields(layout: Layout) -> list[pa.Field]:
    """The columns of a table that are made of times to partition it by."""
    return [pa.field(one.name, _UNITS[one.unit]) for one in layout.partitions if one.unit]


def timed(rows: pa.RecordBatch, layout: Layout, now: datetime.datetime) -> Timed:
    """Count late rows, leave out those that are too old, and tell the partitions of the rest."""
    expired = late = 0
    if layout.keep_days is not None:
        oldest = _microseconds(now) - round(layout.keep_days * _DAY)
        stays = pc.greater_equal(order_times(rows, layout), oldest)
        kept = rows.filter(stays)
        expired, rows = rows.num_rows - kept.num_rows, kept
    if layout.time:
        ends = _ends(rows.column(layout.time))
        behind = pc.subtract(_as_microseconds(rows.column(RECEIVED)), ends)
        is_late = pc.greater(behind, round(min(layout.late_seconds * 1_000_000, 2.0**62)))
        late = pc.sum(is_late).as_py() or 0
    for one in layout.partitions:
        if one.unit:
            rows = rows.append_column(one.name, _truncated(rows, one))
    return Timed(rows, late, expired)


def order_times(rows: pa.RecordBatch, layout: Layout) -> pa.Array:
    """The times of rows, or else when they were received, in microseconds since 1970."""
    received = _as_microseconds(rows.column(RECEIVED))
    if not layout.time:
        return received
    return pc.coalesce(_as_microseconds(rows.column(layout.time)), received)


def long_values(rows: pa.RecordBatch, layout: Layout) -> dict[int, str]:
    """The rows whose partitions would have names that are too long, by number, and why."""
    found: dict[int, str] = {}
    for one in layout.partitions:
        column = rows.column(one.source)
        if not one.unit and pa.types.is_string(column.type):
            is_long = pc.greater(pc.binary_length(column), VALUE_BYTES_MAX)
            numbers: list[int] = pc.indices_nonzero(pc.fill_null(is_long, False)).to_pylist()
            text = f"{one.name} is longer than the {VALUE_BYTES_MAX} bytes of a partition"
            found |= dict.fromkeys(numbers, text)
    return found


class Expiry:
    """Deletes rows of a table that are too old, by whole days in UTC.

    Where the table is partitioned by day, one day goes in each step, and no file is read.

    Args:
        location: the table's directory or URI.
        layout: how its rows are kept.
    """

    def __init__(self, location: str, layout: Layout) -> None:
        self._location = location
        self._layout = layout
        self._done_until: datetime.date | None = None

    def step(self, table: DeltaTable, now: datetime.datetime) -> str | None:
        """Delete the next rows that are too old, if there are any; returns what was done."""
        if self._layout.keep_days is None:
            return None
        until = (now - datetime.timedelta(days=self._layout.keep_days)).date()
        if self._done_until == until:
            return None
        condition = self._oldest_day(table, until)
        try:
            deleted = self._delete(table, condition or self._older(table, until))
        except CommitFailedError:
            return None  # another writer was first; there is time
        if condition is None:
            self._done_until = until
        return f"deleted {deleted} rows that are older than {until}" if deleted else None

    def _delete(self, table: DeltaTable, condition: str) -> int:
        with committing(self._location):
            table.update_incremental()
            before = table.version()
            # delta-rs leaves the number out where it does not know it.
            deleted: int = table.delete(condition).get("num_deleted_rows", 0)
            sync_commits(self._location, before, table.version())
        return deleted

    def _oldest_day(self, table: DeltaTable, until: datetime.date) -> str | None:
        """The condition of a whole day that is too old; None where there is none."""
        for one in self._layout.partitions:
            if one.unit == "day" and one.source == self._layout.kept_by:
                days = {file["partition"][one.name] for file in added_files(table)} - {None}
                if days and min(days) < until:
                    return f"\"{one.name}\" = DATE '{min(days)}'"
        return None

    def _older(self, table: DeltaTable, until: datetime.date) -> str:
        time = f"'{until}T00:00:00Z'"
        received = f'"{RECEIVED}" < {time}'
        if not self._layout.time:
            return received
        name = f'"{self._layout.time}"'
        if pa.types.is_date(arrow_schema_of(table).field(self._layout.time).type):
            time = f"DATE '{until}'"
        return f"({name} < {time}) OR ({name} IS NULL AND {received})"


def _ends(times: pa.Array) -> pa.Array:
    """The ends of times: a date ends with its day."""
    found = _as_microseconds(times)
    return pc.add(found, _DAY) if pa.types.is_date(times.type) else found


def _as_microseconds(times: pa.Array) -> pa.Array:
    if pa.types.is_date(times.type):
        return pc.multiply(times.cast(pa.int32()).cast(pa.int64()), _DAY)
    return times.cast(_MICROSECONDS).cast(pa.int64())


def _microseconds(time: datetime.datetime) -> int:
    return round(time.timestamp() * 1_000_000)


def _truncated(rows: pa.RecordBatch, one: Partition) -> pa.Array:
    times = rows.column(one.source)
    if one.unit == "day":
        return times.cast(pa.date32())
    return pc.strftime(times, format=_FORMATS[one.unit])
