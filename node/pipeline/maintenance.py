"""Keeps a table in few large files: a micro-batch every few seconds makes thousands a day.

Consecutive small files are merged into one, in one transaction that changes no data. It does not
conflict with the query's own commits, which only add. The merged files stay for some days for who
reads an older version of the table; then they are removed, and with them what failed tasks left.
"""

import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from rillnode.codecs.errors import StoreError
from rillnode.node.pipeline.delta import add_actions, sync_log
from rillnode.node.pipeline.files import local_path, locked
from rillnode.node.pipeline.parquet import filesystem, write_files
from rillnode.node.pipeline.schema_upgrade import conform

TARGET_BYTES: Final = 134_217_728
FILES_MAX: Final = 256
KEEP_HOURS: Final = 168
_READ_ROWS: Final = 8_192
_COMPACT_SECONDS: Final = 60.0


def compact(location: str) -> Iterator[str]:
    """Merge a table's small files now; yields what was done, for the log.

    Raises:
        StoreError: `file.locked`, a job is doing so.
        TableNotFoundError: there is no table.
    """
    table = DeltaTable(location)
    work = Maintenance(location, commits=1)
    directory = local_path(location)
    if directory is None:
        return
    with locked(directory / "_maintenance.lock", seconds=_COMPACT_SECONDS):
        for files in plan_merges(live_files(table)):
            yield work.merge(table, files)


class LiveFile(NamedTuple):
    """A file of the table's present version."""

    path: str
    size: int
    added_at: int


class Maintenance:
    """Merges files after every so many commits, in steps short enough for the job's main loop.

    Only local tables are maintained. delta-rs does not notice when two processes replace the same
    files at the same time, and the table then holds their rows twice; a lock file keeps the jobs
    of several sinks apart, and nothing else may compact the table while a job does.

    Args:
        location: the table's directory or URI.
        commits: number of commits between two rounds; 0 for no maintenance.
    """

    def __init__(self, location: str, commits: int) -> None:
        self._location = location
        self._directory = local_path(location)
        self._commits = commits
        self._done_at: int | None = None
        self._planned: list[list[LiveFile]] | None = None

    def step(self, table: DeltaTable) -> str | None:
        """Do the next piece of work, if any is due; returns what was done, for the log."""
        if self._directory is None or not self._commits:
            return None
        if self._done_at is None:
            self._done_at = table.version()
        if self._planned is None:
            if table.version() - self._done_at < self._commits:
                return None
            self._planned = plan_merges(live_files(table))
        try:
            with locked(self._directory / "_maintenance.lock", seconds=0):
                table.update_incremental()
                if self._planned:
                    return self.merge(table, self._planned.pop(0))
                return self._finish(table)
        except StoreError:
            return None

    def merge(self, table: DeltaTable, files: list[LiveFile]) -> str:
        """Merge some of the table's files into one; the maintenance lock must be held."""
        if not set(files) <= set(live_files(table)):
            return f"nothing is left to merge of {len(files)} files"
        schema = pa.schema(table.schema().to_arrow())
        merged = list(write_files(self._location, _read(self._location, files, schema)))
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(file.path, data_change=False, deletion_timestamp=_now_ms())
            for file in files
        ]
        before = table.version()
        table.create_write_transaction(
            actions + add_actions(merged, data_change=False), "append", table.schema()
        )
        table.update_incremental()
        sync_log(self._location, before, table.version())
        return f"merged {len(files)} files of the table into {len(merged)}"

    def _finish(self, table: DeltaTable) -> str:
        removed = table.vacuum(retention_hours=KEEP_HOURS, dry_run=False, full=True)
        self._planned, self._done_at = None, table.version()
        return f"removed {len(removed)} files that the table no longer uses"


def live_files(table: DeltaTable) -> list[LiveFile]:
    """The files of the table's present version, in the order in which they were added."""
    rows: list[dict[str, Any]] = pa.table(table.get_add_actions()).to_pylist()
    files = [LiveFile(row["path"], row["size_bytes"], row["modification_time"]) for row in rows]
    return sorted(files, key=lambda file: (file.added_at, file.path))


def plan_merges(files: list[LiveFile]) -> list[list[LiveFile]]:
    """Groups of consecutive files to merge, each of about the target size when merged."""
    groups: list[list[LiveFile]] = [[]]
    size = 0
    for file in files:
        if file.size > TARGET_BYTES // 2:
            groups.append([])
            size = 0
            continue
        if size + file.size > TARGET_BYTES or len(groups[-1]) >= FILES_MAX:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size
    return [group for group in groups if len(group) > 1]


def _read(location: str, files: list[LiveFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows of files that may be older than the last columns of the table."""
    system, root = filesystem(location)
    for file in files:
        with pq.ParquetFile(f"{root}/{file.path}", filesystem=system) as parquet:
            for rows in parquet.iter_batches(batch_size=_READ_ROWS):
                yield conform(rows, schema)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
