"""Keeps an Iceberg table in few large files, few snapshots, and without files that nobody needs.

Consecutive small files are merged into one. pyiceberg writes that as a snapshot that overwrites:
the same rows, but who follows the table snapshot by snapshot has to be told to pass over it. It
expires snapshots, and removes no files: those that no snapshot has are removed here, some days
after they were written, and with them what failed tasks and commits have left.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from pyarrow import fs
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table

from rillnode.node.spark.maintenance import KEEP_HOURS, LiveFile, plan_merges
from rillnode.node.spark.parquet import filesystem, remove_files
from rillnode.node.spark.typed.iceberg_table import (
    OpenIcebergTable,
    arrow_of,
    data_of,
    is_as_written,
    plain,
    read_rows,
    write_rows,
)
from rillnode.node.spark.typed.store import Conflict

SNAPSHOTS_MAX: Final = 200
"""Snapshots that are kept: each commit writes all of them down again."""
_REMOVED: Final = (".parquet", ".avro")


class IcebergMaintenance:
    """Keeps one table in order after every so many commits, in short steps.

    Args:
        commits: number of commits between two rounds; 0 for no maintenance.
    """

    def __init__(self, commits: int) -> None:
        self._commits = commits
        self._done_at: int | None = None
        self._planned: list[list[LiveFile]] | None = None

    def step(self, table: OpenIcebergTable) -> str | None:
        """Do the next piece of work, if any is due; returns what was done, for the log."""
        if not self._commits:
            return None
        if self._done_at is None:
            self._done_at = table.version
        if self._planned is None:
            if table.version - self._done_at < self._commits:
                return None
            self._planned = plan_merges(live_files(table.table))
        if self._planned:
            return _merge(table, [one.path for one in self._planned.pop(0)])
        self._planned, self._done_at = None, table.version
        expired = _expire(table.table, SNAPSHOTS_MAX)
        removed = _remove_unused(table.table)
        return f"{expired} snapshots have expired, {removed} files that none has are removed"


def live_files(table: Table) -> list[LiveFile]:
    """The data files of a table in the order in which they were added."""
    snapshot = table.current_snapshot()
    manifests = [] if snapshot is None else snapshot.manifests(table.io)
    found = [
        LiveFile(
            one.data_file.file_path, one.data_file.file_size_in_bytes, one.sequence_number or 0
        )
        for manifest in manifests
        if manifest.content == ManifestContent.DATA
        for one in manifest.fetch_manifest_entry(table.io)
    ]
    return sorted(found, key=lambda file: (file.added_at, file.path))


def _merge(table: OpenIcebergTable, paths: list[str]) -> str:
    """Merge some files into one; those that other writers have written or deleted in stay."""
    nothing = f"nothing is left to merge of {len(paths)} files"
    tasks = {one.file.file_path: one for one in table.tasks() if not one.delete_files}
    files = [one for one in paths if one in tasks and is_as_written(table.table, one)]
    if len(files) < 2:
        return nothing
    schema = table.table.schema()
    merged = write_rows(table.table, read_rows(files, arrow_of(schema)), schema)
    try:
        with table.transaction() as made:
            added = [f"{data_of(table.table)}/{one}" for one in merged]
            table.snapshot(made, added, [tasks[one].file for one in files])
    except Conflict:
        remove_files(plain(data_of(table.table)), merged)
        return nothing
    return f"merged {len(files)} files of the table into {len(merged)}"


def forget_snapshots(table: Table) -> int:
    """Let all snapshots expire but those that have a name, and remove what only they have.

    What no commit has added yet stays. Returns how many files were removed.
    """
    had = set(_used(table))
    _expire(table, 0)
    gone = had - set(_used(table))
    system, _ = filesystem(plain(table.location()))
    for path in gone:
        with suppress(FileNotFoundError):
            system.delete_file(path)
    return len(gone)


def _expire(table: Table, snapshots_max: int) -> int:
    """Let old snapshots expire; returns how many."""
    oldest_ms = time.time() * 1_000 - KEEP_HOURS * 3_600_000
    snapshots = sorted(table.snapshots(), key=lambda one: one.timestamp_ms, reverse=True)
    kept = {one.snapshot_id for one in table.refs().values()}
    ids = [
        one.snapshot_id
        for at, one in enumerate(snapshots)
        if (at >= snapshots_max or one.timestamp_ms < oldest_ms) and one.snapshot_id not in kept
    ]
    if ids:
        try:
            table.maintenance.expire_snapshots().by_ids(ids).commit()
        except CommitFailedException:
            return 0  # the next round does it
    return len(ids)


def _remove_unused(table: Table) -> int:
    """Remove files that no snapshot has, old enough that no commit will add them; how many."""
    used = set(_used(table))
    system, root = filesystem(plain(table.location().rstrip("/")))
    oldest = time.time() - KEEP_HOURS * 3_600
    removed = 0
    for part in ("data", "metadata"):
        selector = fs.FileSelector(f"{root}/{part}", allow_not_found=True)
        for one in system.get_file_info(selector):
            if (
                one.path.endswith(_REMOVED)
                and one.path not in used
                and (one.mtime is None or one.mtime.timestamp() < oldest)
            ):
                system.delete_file(one.path)
                removed += 1
    return removed


def _used(table: Table) -> Iterator[str]:
    """The paths of all files that snapshots have."""
    seen: set[str] = set()
    for snapshot in table.snapshots():
        yield _path(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in seen:
                continue
            seen.add(manifest.manifest_path)
            yield _path(manifest.manifest_path)
            for entry in manifest.fetch_manifest_entry(table.io):
                yield _path(entry.data_file.file_path)


def _path(uri: str) -> str:
    """The path of a file in its file system."""
    return uri.partition("://")[2] or uri
