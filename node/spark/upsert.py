"""Replaces rows of a gold table by slot: new knowledge of a minute for old.

One transaction removes the files that hold rows of the replaced slots, adds files with the rows
that stay and the new ones, and says how far the table has come in what it is made of. A table is
sorted by minute and cut into small files, so that only its last one is written again and again.
"""

import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import fs

from rillnode.node.spark.delta import commit_unless_changed, committing, open_to_write
from rillnode.node.spark.delta_log import open_table
from rillnode.node.spark.files import sync_files
from rillnode.node.spark.gold_tables import GoldTable
from rillnode.node.spark.parquet import filesystem
from rillnode.node.spark.schema_upgrade import conform
from rillnode.node.spark.statistics import FileStatistics, ranged_columns

FILE_ROWS_MAX: Final = 16_384
KEEP_HOURS: Final = 6
"""How long replaced files stay, for who reads an older version of the table."""
TIDY_COMMITS: Final = 100
_ORDER: Final = [("minute", "ascending"), ("stream", "ascending")]


def upsert(
    location: str,
    table: GoldTable,
    rows: pa.Table,
    positions: Sequence[Transaction] = (),
    slots: pa.Table | None = None,
) -> None:
    """Replace the slots that `rows` has rows of, and others; durable when it returns.

    Args:
        location: the table's directory or URI; it is made on demand.
        table: its columns and its slots.
        rows: the new rows, with exactly the table's columns, in this order.
        positions: what the transaction says beside.
        slots: others, whose rows go unless `rows` has new ones.

    Raises:
        ConfigError: another table lies there.
    """
    with committing(location):
        present = _open(location, table)
        while True:
            removed, kept = _replaced(
                location, present, table, [rows, *([] if slots is None else [slots])]
            )
            merged = pa.concat_tables([kept, rows.cast(table.schema)]).sort_by(_ORDER)
            actions: list[AddAction | RemoveAction] = [
                RemoveAction(path, data_change=True, deletion_timestamp=_now_ms())
                for path in removed
            ]
            actions += _write(location, merged)
            if commit_unless_changed(location, present, actions, positions):
                break
        if present.version() % TIDY_COMMITS == 0:
            present.vacuum(
                retention_hours=KEEP_HOURS,
                dry_run=False,
                enforce_retention_duration=False,
                full=True,
            )


def read_rows(
    location: str, table: GoldTable, low: datetime | None = None, high: datetime | None = None
) -> pa.Table:
    """Rows of a gold table with `low <= minute <= high`, in order; none if there is no table."""
    present = open_table(location)
    rows = _read(location, table, [] if present is None else _files(present, low, high))
    minutes: list[datetime] = rows.column("minute").to_pylist()
    wanted = [(low is None or low <= one) and (high is None or one <= high) for one in minutes]
    return rows.filter(pa.array(wanted, pa.bool_())).sort_by(_ORDER)


def _open(location: str, table: GoldTable) -> DeltaTable:
    open_table(location)  # refuses one that needs more of its reader
    return open_to_write(location, Schema.from_arrow(table.schema))


def _replaced(
    location: str, present: DeltaTable, table: GoldTable, replacing: Sequence[pa.Table]
) -> tuple[list[str], pa.Table]:
    """Paths of the files with rows of the slots, and those of their rows that stay."""
    slots = {slot for rows in replacing for slot in _slots(rows, table)}
    if not slots:
        return [], _read(location, table, [])
    minutes: list[datetime] = [
        one for rows in replacing for one in rows.column("minute").unique().to_pylist()
    ]
    paths = _files(present, min(minutes), max(minutes))
    held = _read(location, table, paths)
    stays = [slot not in slots for slot in _slots(held, table)]
    return paths, held.filter(pa.array(stays, pa.bool_()))


def _slots(rows: pa.Table, table: GoldTable) -> Iterator[tuple[Any, ...]]:
    return zip(*(rows.column(name).to_pylist() for name in table.slot), strict=True)


def _files(present: DeltaTable, low: datetime | None, high: datetime | None) -> list[str]:
    """Files that may hold rows of a span of minutes."""
    actions: list[dict[str, Any]] = pa.table(present.get_add_actions()).to_pylist()
    return [
        action["path"]
        for action in actions
        if (low is None or action["max"]["minute"] >= low)
        and (high is None or action["min"]["minute"] <= high)
    ]


def _read(location: str, table: GoldTable, paths: Sequence[str]) -> pa.Table:
    system, root = filesystem(location)
    batches: list[pa.RecordBatch] = []
    for path in paths:
        with pq.ParquetFile(f"{root}/{path}", filesystem=system) as parquet:
            batches += [conform(batch, table.schema) for batch in parquet.iter_batches()]
    return pa.Table.from_batches(batches, schema=table.schema)


def _write(location: str, rows: pa.Table) -> list[AddAction | RemoveAction]:
    system, root = filesystem(location)
    system.create_dir(root, recursive=True)
    actions: list[AddAction | RemoveAction] = []
    for first in range(0, rows.num_rows, FILE_ROWS_MAX):
        part = rows.slice(first, FILE_ROWS_MAX)
        name = f"part-{uuid.uuid4()}.zstd.parquet"
        with system.open_output_stream(f"{root}/{name}") as stream:
            writer = pq.ParquetWriter(stream, part.schema, compression="zstd")
            writer.write_table(part)
            writer.close()
            size = int(stream.tell())
        if isinstance(system, fs.LocalFileSystem):
            sync_files([Path(root) / name])
        actions.append(AddAction(name, size, {}, _now_ms(), data_change=True, stats=_stats(part)))
    return actions


def _stats(rows: pa.Table) -> str:
    statistics = FileStatistics(ranged_columns(rows.schema))
    statistics.add(rows)
    return statistics.to_json()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
