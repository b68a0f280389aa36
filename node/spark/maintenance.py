"""Keeps a table in few large files: a micro-batch every few seconds makes thousands a day.

Consecutive small files are merged into one, in one transaction that changes no data. It counts only
where nobody has committed since the files were last looked at: Delta does not notice by itself that
two merges replace the same files, or that rows of them were deleted meanwhile, and the table would
then hold rows twice, or again. delta-rs' own `optimize.compact` has no such guard: of two that read
the same version both commit, whatever number of retries they are given.

The merged files stay for some days for who reads an older version of the table; then they are
removed, and with them what failed tasks left.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from deltalake import DeltaTable

from rillnode.node.spark.delta import (
    add_actions,
    commit_unless_changed,
    remove_actions,
)
from rillnode.node.spark.delta_log import added_files, file_schema_of
from rillnode.node.spark.files import remove_files
from rillnode.node.spark.parquet import described_file, file_rows, partition_directory, write_files
from rillnode.node.spark.schema_upgrade import conform

TARGET_BYTES: Final = 134_217_728
FILES_MAX: Final = 256
KEEP_HOURS: Final = 168
_ATTEMPTS: Final = 10


def compact(location: str) -> Iterator[str]:
    """Merge a table's small files now; yields what was done, for the log.

    Raises:
        TableNotFoundError: there is no table.
    """
    table = DeltaTable(location)
    work = Maintenance(location, commits=1)
    for files in plan_merges(live_files(table)):
        yield work.merge(table, files)


class LiveFile(NamedTuple):
    """A file of the table's present version: its path below the table's directory, and its size.

    Attributes:
        added_at: when, ms since 1970.
        partition: what the columns that the table is partitioned by are in it.
    """

    path: str
    size: int
    added_at: int
    partition: tuple[tuple[str, str | None], ...] = ()


class Maintenance:
    """Merges files after every so many commits, in steps short enough for the job's main loop.

    Args:
        location: the table's directory or URI.
        commits: number of commits between two rounds; 0 for no maintenance.
        keep_hours: how long files that no longer count stay.
    """

    def __init__(self, location: str, commits: int, keep_hours: int = KEEP_HOURS) -> None:
        self._keep_hours = keep_hours
        self._location = location
        self._commits = commits
        self._done_at: int | None = None
        self._planned: list[list[LiveFile]] | None = None

    def step(self, table: DeltaTable) -> str | None:
        """Do the next piece of work, if any is due; returns what was done, for the log."""
        if not self._commits:
            return None
        if self._done_at is None:
            self._done_at = table.version()
        if self._planned is None:
            if table.version() - self._done_at < self._commits:
                return None
            self._planned = plan_merges(live_files(table))
        if self._planned:
            return self.merge(table, self._planned.pop(0))
        return self._finish(table)

    def merge(self, table: DeltaTable, files: list[LiveFile]) -> str:
        """Merge some of the table's files into one, unless another process has just merged some."""
        table.update_incremental()
        if not set(files) <= set(live_files(table)):
            return _taken(files)
        schema = file_schema_of(table)
        # Files may be older than the last columns of the table.
        rows = (
            conform(rows, schema) for file in files for rows in file_rows(self._location, file.path)
        )
        partition = dict(files[0].partition)
        merged = [
            replace(one, partition=partition)
            for one in write_files(self._location, rows, below=partition_directory(partition))
        ]
        removed = remove_actions([file.path for file in files], data_change=False)
        actions = removed + add_actions(merged, data_change=False)
        for _ in range(_ATTEMPTS):
            if commit_unless_changed(self._location, table, actions):
                return f"merged {len(files)} files of the table into {len(merged)}"
            if not set(files) <= set(live_files(table)):
                break
        remove_files(self._location, [file.name for file in merged])
        return _taken(files)

    def _finish(self, table: DeltaTable) -> str:
        table.update_incremental()
        removed = table.vacuum(
            retention_hours=self._keep_hours,
            dry_run=False,
            enforce_retention_duration=False,
            full=True,
        )
        self._planned, self._done_at = None, table.version()
        return f"removed {len(removed)} files that the table no longer uses"


def live_files(table: DeltaTable) -> list[LiveFile]:
    """The files of the table's present version, in the order in which they were added."""
    files = [
        LiveFile(one.name, one.size, row["modification_time"], tuple(one.partition.items()))
        for row in added_files(table)
        for one in [described_file(row)]
    ]
    return sorted(files, key=lambda file: (file.added_at, file.path))


def plan_merges(files: list[LiveFile]) -> list[list[LiveFile]]:
    """Groups of consecutive files to merge, each of about the target size when merged."""
    parts: dict[tuple[tuple[str, str | None], ...], list[LiveFile]] = {}
    for file in files:
        parts.setdefault(file.partition, []).append(file)
    return [group for part in parts.values() for group in _plan_part(part)]


def _plan_part(files: list[LiveFile]) -> list[list[LiveFile]]:
    groups: list[list[LiveFile]] = [[]]
    size = 0
    for file in files:
        if file.size > TARGET_BYTES // 2:
            groups += [[file], []]
            size = 0
            continue
        if size + file.size > TARGET_BYTES or len(groups[-1]) >= FILES_MAX:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size
    return [group for group in groups if len(group) > 1 or any(map(_is_foreign, group))]


def _is_foreign(file: LiveFile) -> bool:
    """Whether delta-rs has written a file by itself: pyarrow cannot filter texts in it."""
    return "-c000." in file.path


def _taken(files: list[LiveFile]) -> str:
    return f"nothing is left to merge of {len(files)} files"
