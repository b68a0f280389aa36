"""Commits files to Delta tables, which it makes and brings up to date.

Rows, files and what the log of a table says of them are synced before anybody learns of a commit,
because the node may trim entries after that.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from rillnode.node.spark.files import local_path, locked_directory, sync_files
from rillnode.node.spark.parquet import TableFile, read_statistics
from rillnode.node.spark.schema_upgrade import upgrade_table
from rillnode.node.spark.statistics import (
    arrow_schema_of,
    names_its_statistics,
    statistics_properties,
    undescribed_files,
)

COMMIT_SECONDS_MAX: Final = 60.0
_DESCRIBED_AT_ONCE: Final = 256
"""Files of one transaction that gives files new statistics."""
_LOG_PROPERTIES: Final = {
    # A commit per trigger makes thousands of log files a day; readers need few of them.
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 7 days",
    "delta.enableExpiredLogCleanup": "true",
}


def open_to_write(location: str, schema: Schema) -> DeltaTable:
    """A table with all columns of `schema`; it is made where there is none.

    Raises:
        ConfigError: a table with other columns lies there.
    """
    try:
        table = DeltaTable(location)
    except TableNotFoundError:
        table = create_table(location, schema)
    before = table.version()
    if upgrade_table(table, schema):
        sync_log(location, before, table.version())
    if not names_its_statistics(table):
        upgrade_statistics(location)
        table.update_incremental()
    return table


def create_table(location: str, schema: Schema) -> DeltaTable:
    """A new table, or the one that somebody else has just made."""
    properties = {**_LOG_PROPERTIES, **statistics_properties(pa.schema(schema.to_arrow()))}
    DeltaTable.create(location, schema, mode="ignore", configuration=properties)
    sync_log(location, -1, 0)
    return DeltaTable(location)


def upgrade_statistics(location: str) -> str | None:
    """Make a table of an earlier version say what its files' statistics are about, and tell nulls.

    Returns:
        What was done, for the log; None where nothing was to do.
    """
    try:
        table = DeltaTable(location)
    except TableNotFoundError:
        return None
    before, described = table.version(), 0
    schema = arrow_schema_of(table)
    if not names_its_statistics(table):
        table.alter.set_table_properties(statistics_properties(schema))
        table.update_incremental()
    waiting = undescribed_files(table)
    while waiting:
        some, waiting = waiting[:_DESCRIBED_AT_ONCE], waiting[_DESCRIBED_AT_ONCE:]
        described += _describe(location, table, some)
    if table.version() == before:
        return None
    sync_log(location, before, table.version())
    return f"{location} tells what its statistics are about; {described} files got new ones"


def _describe(location: str, table: DeltaTable, files: Sequence[Mapping[str, Any]]) -> int:
    """Give files of a table new statistics; returns how many of them.

    An action that adds a file again replaces the one before it. A file that is no longer in the
    table is left out: it would be in it again.
    """
    schema = arrow_schema_of(table)
    found: dict[str, str] = {}
    for file in files:
        with suppress(FileNotFoundError):  # who reads the table is told so, too
            found[file["path"]] = read_statistics(location, unquote(file["path"]), schema)
    while True:
        paths = found.keys() & {file["path"] for file in undescribed_files(table)}
        actions: list[AddAction | RemoveAction] = [
            AddAction(
                file["path"],
                file["size_bytes"],
                {},
                file["modification_time"],
                data_change=False,
                stats=found[file["path"]],
            )
            for file in files
            if file["path"] in paths
        ]
        if not actions or commit_unless_changed(location, table, actions):
            return len(actions)


def commit_unless_changed(
    location: str,
    table: DeltaTable,
    actions: list[AddAction | RemoveAction],
    positions: Sequence[Transaction] = (),
) -> bool:
    """Commit what was made of a table's files, unless others have committed since it was read.

    Delta would let such a transaction follow theirs, and rows that they have removed or replaced
    would be in the table again. `table` is as of now afterwards.

    Returns:
        Whether it was committed, and is durable.

    Raises:
        CommitFailedError: it could not be committed for another reason.
    """
    before = table.version()
    try:
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            commit_properties=CommitProperties(
                app_transactions=list(positions), max_commit_retries=0
            ),
        )
    except CommitFailedError:
        table.update_incremental()
        if table.version() == before:
            raise
        return False
    table.update_incremental()
    sync_log(location, before, table.version())
    return True


def holds(table: DeltaTable, app_id: str, batch_id: int) -> bool:
    """Whether a table holds a query's batch."""
    done = table.transaction_version(app_id)
    return done is not None and done >= batch_id


def committing(location: str) -> AbstractContextManager[None]:
    """Keep a second committer off a local table.

    A job and what is left of one that was killed may commit the same batch at the same time. Of
    two such transactions Delta lets the second one fail, which is all there is in an object store;
    with the lock it finds that the batch is done. Where no transaction says which batch it is, as
    for the consumers' lag, only the lock keeps rows from being there twice.
    """
    return locked_directory(location, "_commit.lock", seconds=COMMIT_SECONDS_MAX)


def add_actions(files: Sequence[TableFile], *, data_change: bool) -> list[AddAction | RemoveAction]:
    """What a transaction says of written files."""
    now_ms = time.time_ns() // 1_000_000
    return [
        AddAction(file.name, file.size, {}, now_ms, data_change=data_change, stats=file.stats)
        for file in files
    ]


def sync_log(location: str, before: int, after: int) -> None:
    """Make the versions `before < version <= after` of a table durable."""
    local = local_path(location)
    if local is not None:
        log = local / "_delta_log"
        versions = range(before + 1, after + 1)
        sync_files([log, *(log / f"{version:020}.json" for version in versions)])


def summary(app_id: str, batch_id: int, files: Sequence[TableFile]) -> dict[str, object]:
    """What the table's history tells of a batch."""
    return {
        "query": app_id,
        "id": batch_id,
        "rows": sum(file.rows for file in files),
        "data_bytes": sum(file.data_bytes for file in files),
        "file_bytes": sum(file.size for file in files),
        "files": len(files),
        "entries_lost": sum(file.entries_lost for file in files),
    }
