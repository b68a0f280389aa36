"""Commits files to Delta tables, which it makes and brings up to date.

Rows, files and what the log of a table says of them are synced before anybody learns of a commit,
because the node may trim entries after that.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from rillnode.node.spark.delta_log import added_files, arrow_schema_of, file_schema_of
from rillnode.node.spark.files import local_path, locked_directory, sync_files
from rillnode.node.spark.parquet import (
    STATISTICS_COLUMNS,
    TableFile,
    file_rows,
    ranged_columns,
    statistics_properties,
)
from rillnode.node.spark.schema_upgrade import upgrade_table

COMMIT_SECONDS_MAX: Final = 60.0
_Action = AddAction | RemoveAction
_LOG_PROPERTIES: Final = {
    # A commit per trigger makes thousands of log files a day; readers need few of them.
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 7 days",
    "delta.enableExpiredLogCleanup": "true",
}


def open_to_write(location: str, schema: Schema, table: DeltaTable | None = None) -> DeltaTable:
    """A table with all columns of `schema`; it is made where there is none.

    Args:
        location: where it lies.
        schema: the columns.
        table: the table, where it is open already.

    Raises:
        ConfigError: a table with other columns lies there.
    """
    if table is None:
        try:
            table = DeltaTable(location)
        except TableNotFoundError:
            table = create_table(location, schema)
    before = table.version()
    upgrade_table(table, schema)
    name_statistics(table)
    sync_log(location, before, table.version())
    return table


def name_statistics(table: DeltaTable) -> None:
    """Let a table say what all of its files' statistics are about, where that is less than before.

    Of a column that it has got later the files from before say nothing, and it never names that.
    """
    told = table.metadata().configuration.get(STATISTICS_COLUMNS, "").split(",")
    columns = [one for one in ranged_columns(file_schema_of(table)) if one in told]
    wanted = statistics_properties(columns)
    if not wanted.items() <= table.metadata().configuration.items():
        table.alter.set_table_properties(wanted)
        table.update_incremental()


def create_table(
    location: str,
    schema: Schema,
    *,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> DeltaTable:
    """A new table, or the one that somebody else has just made."""
    in_files = [one for one in pa.schema(schema.to_arrow()) if one.name not in partition_by]
    configuration = {
        **_LOG_PROPERTIES,
        **statistics_properties(ranged_columns(pa.schema(in_files))),
        **(properties or {}),
    }
    DeltaTable.create(
        location,
        schema,
        mode="ignore",
        partition_by=list(partition_by),
        configuration=configuration,
        raise_if_key_not_exists=False,
    )
    sync_log(location, -1, 0)
    return DeltaTable(location)


def commit_unless_changed(
    location: str,
    table: DeltaTable,
    actions: list[_Action],
    positions: Sequence[Transaction] = (),
    metadata: Mapping[str, Any] | None = None,
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
        commit(location, table, actions, positions, metadata, retries=0)
    except CommitFailedError:
        table.update_incremental()
        if table.version() == before:
            raise
        return False
    return True


def commit(
    location: str,
    table: DeltaTable,
    actions: list[_Action],
    numbers: Sequence[Transaction] = (),
    noted: Mapping[str, Any] | None = None,
    *,
    schema: Schema | None = None,
    retries: int | None = None,
) -> None:
    """Commit a transaction; it is durable when this returns, and `table` as of now.

    Args:
        location: where the table lies.
        table: the table.
        actions: files that come and go.
        numbers: what the transaction leaves for good.
        noted: what the table's history tells of it.
        schema: the table's columns from now on, where all of its rows are replaced.
        retries: how often Delta may let it follow those of others; None for as often as it likes.
    """
    before = table.version()
    table.create_write_transaction(
        actions,
        "append" if schema is None else "overwrite",
        schema or table.schema(),
        commit_properties=CommitProperties(
            app_transactions=list(numbers),
            custom_metadata=dict(noted) if noted else None,
            max_commit_retries=retries,
        ),
    )
    table.update_incremental()
    sync_log(location, before, table.version())


def committing(location: str) -> AbstractContextManager[None]:
    """Keep a second committer off a local table.

    A job and what is left of one that was killed may commit the same batch at the same time. Of
    two such transactions Delta lets the second one fail, which is all there is in an object store;
    with the lock it finds that the batch is done. Where no transaction says which batch it is, as
    for the consumers' lag, only the lock keeps rows from being there twice.
    """
    return locked_directory(location, "_commit.lock", seconds=COMMIT_SECONDS_MAX)


def add_actions(files: Iterable[TableFile], *, data_change: bool) -> list[_Action]:
    """What a transaction says of written files."""
    now_ms = time.time_ns() // 1_000_000
    return [
        AddAction(
            file.name,
            file.size,
            dict(file.partition),
            now_ms,
            data_change=data_change,
            stats=file.stats,
        )
        for file in files
    ]


def remove_actions(paths: Iterable[str], *, data_change: bool = True) -> list[_Action]:
    """What a transaction says of files that go."""
    now_ms = time.time_ns() // 1_000_000
    return [RemoveAction(one, data_change=data_change, deletion_timestamp=now_ms) for one in paths]


def sync_log(location: str, before: int, after: int) -> None:
    """Make the versions `before < version <= after` of a table durable."""
    local = local_path(location)
    if local is not None:
        log = local / "_delta_log"
        versions = range(before + 1, after + 1)
        sync_files([log, *(log / f"{version:020}.json" for version in versions)])


def sync_commits(location: str, before: int, after: int) -> None:
    """Make versions durable that delta-rs has written: their files, then the versions."""
    local = local_path(location)
    if local is None:
        return
    for version in range(before + 1, after + 1):
        lines = (local / "_delta_log" / f"{version:020}.json").read_bytes().splitlines()
        added = [action["add"]["path"] for action in map(json.loads, lines) if "add" in action]
        sync_files(local / unquote(path) for path in added)
    sync_log(location, before, after)


def read_rows(
    location: str, table: DeltaTable, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a table's files, also what the files have in their partitions alone.

    Args:
        location: where the table lies.
        table: the table.
        columns: the columns that are needed; None for all. Files lack those that came later.
    """
    schema = arrow_schema_of(table)
    for file in added_files(table):
        for rows in file_rows(location, file["path"], columns):
            for name, value in file.get("partition", {}).items():
                if columns is None or name in columns:
                    same = pa.repeat(pa.scalar(value, schema.field(name).type), rows.num_rows)
                    rows = rows.append_column(name, same)
            yield rows


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
