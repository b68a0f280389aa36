"""Typed tables in Delta's format: a directory or a URI, whose log is the catalog.

Each schema is a file `_schemas/N.json` in the table's directory, written before the table changes.
`stores_of` chooses this format, or Iceberg's for a table that has a catalog.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, Final, cast
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from deltalake import DeltaTable, Schema, Transaction
from pyarrow import fs

from rillnode.actors.log.directories import replace_file
from rillnode.codecs.errors import ConfigError, StoreError
from rillnode.node.spark.delta import (
    add_actions,
    commit,
    committing,
    create_table,
    name_statistics,
    read_rows,
    remove_actions,
    sync_log,
)
from rillnode.node.spark.delta_log import LiveTable, added_files, arrow_schema_of
from rillnode.node.spark.erasure import Erased, Erasures, Lock, sweep
from rillnode.node.spark.files import filesystem, local_path, remove_files
from rillnode.node.spark.installed import require_iceberg
from rillnode.node.spark.job_config import TypedConfig
from rillnode.node.spark.maintenance import KEEP_HOURS, Maintenance
from rillnode.node.spark.parquet import TableFile, write_parted
from rillnode.node.spark.schema_upgrade import conform
from rillnode.node.spark.typed.arrays import REJECTS, columns_of
from rillnode.node.spark.typed.columns import Columns, walk
from rillnode.node.spark.typed.keys import Keyed
from rillnode.node.spark.typed.layout import PLAIN, Layout
from rillnode.node.spark.typed.store import Place, SchemaVersion, TableStore, present_columns
from rillnode.node.spark.typed.times import Expiry

_ATTEMPTS: Final = 3
REWRITTEN_KEEP_HOURS: Final = 6
"""How long old files of a table with a key stay: each merge writes some of its files anew."""
_KEY: Final = "rillnode.key"
"""The property of a table that says by what key it was made."""


class OpenDeltaTable:
    """A Delta table as of one of its versions.

    Args:
        location: where it lies.
        table: delta-rs' own.
        keyed: merges rows by their key; None where each is a row.

    Attributes:
        table: the same.
    """

    def __init__(self, location: str, table: DeltaTable, keyed: Keyed | None = None) -> None:
        self._location = location
        self._keyed = keyed
        self._numbers: dict[str, int | None] = {}
        self._numbers_of = -1
        self.table = table

    @property
    def arrow_schema(self) -> pa.Schema:
        """Its columns."""
        return arrow_schema_of(self.table)

    @property
    def id(self) -> str:
        """What no other table has, one that is made anew in its place included."""
        return str(self.table.metadata().id)

    def transaction_version(self, app_id: str) -> int | None:
        """A number that a commit has left; None where none has."""
        # To find one delta-rs goes through all of them.
        if self._numbers_of != self.table.version():
            self._numbers, self._numbers_of = {}, self.table.version()
        if app_id not in self._numbers:
            self._numbers[app_id] = self.table.transaction_version(app_id)
        return self._numbers[app_id]

    def count(self) -> int:
        """The number of its rows."""
        return self.table.count()

    def files(self) -> list[str]:
        """The paths of its files, as its log has them."""
        paths = pa.table(self.table.get_add_actions()).column("path").to_pylist()
        return cast("list[str]", paths)

    def figures(self) -> dict[str, Any]:
        """Sizes of its files, and its last commit, for people."""
        files = added_files(self.table)
        sizes: list[int] = [file["size_bytes"] for file in files]
        parts = {tuple(file.get("partition", {}).items()) for file in files}
        committed_ms: int = self.table.history(1)[0]["timestamp"]
        return {
            "files": len(sizes),
            "bytes": sum(sizes),
            "partitions": len(parts),
            "file_bytes_min": min(sizes, default=0),
            "file_bytes_max": max(sizes, default=0),
            "table_version": self.table.version(),
            "last_commit": datetime.fromtimestamp(committed_ms / 1_000, UTC),
        }

    def rows(self) -> Iterator[pa.RecordBatch]:
        """All of its rows, as its files have them."""
        return read_rows(self._location, self.table)

    def commit(
        self,
        added: Sequence[TableFile],
        numbers: Sequence[Transaction],
        *,
        removed: Sequence[str] = (),
        pair: dict[str, Any] | None = None,
        noted: Mapping[str, Any] | None = None,
    ) -> None:
        """Commit files that are written, as `OpenTable` says; of a table with a key, merge them."""
        told = {**({"pair": pair} if pair else {}), **(noted or {})}
        if self._keyed is not None and added:
            self._keyed.merge(self.table, added, numbers, told)
            return
        actions = add_actions(added, data_change=True) + remove_actions(removed)
        before = self.table.version()
        commit(self._location, self.table, actions, numbers, told)
        if self._numbers_of == before == self.table.version() - 1:
            self._numbers |= {one.app_id: one.version for one in numbers}
            self._numbers_of = self.table.version()

    def noted(self, name: str, commits_max: int) -> Iterator[Any]:
        """What the newest commits have noted under a name, the newest first."""
        for one in self.table.history(commits_max):
            if name in one:
                yield one[name]


class DeltaStore:
    """A table in a directory or at a URI.

    Args:
        location: which.
        compact_commits: small files are merged after this many commits; 0 never.
        layout: how its rows are kept.

    Attributes:
        name: its location.
    """

    def __init__(self, location: str, compact_commits: int = 0, layout: Layout = PLAIN) -> None:
        self.name = location
        self._layout = layout
        self._parted = [one.name for one in layout.partitions]
        keep_hours = REWRITTEN_KEEP_HOURS if layout.key else KEEP_HOURS
        self._maintenance = Maintenance(location, compact_commits, keep_hours)
        self._expiry = Expiry(location, layout)
        self._keyed = Keyed(location, layout) if layout.key else None
        self._live = LiveTable(location)
        self._opened: OpenDeltaTable | None = None

    def open(self) -> OpenDeltaTable | None:
        """The table as of now; None before it is made."""
        table = self._live.open()
        if table is None:
            self._opened = None
        elif self._opened is None or self._opened.table is not table:
            self._opened = OpenDeltaTable(self.name, table, self._keyed)
        return self._opened

    def place(self) -> Place:
        """Where files for the table are written."""
        return Place(directory=self.name)

    def uris(self, files: Sequence[str]) -> list[str]:
        """Where some of the table's files lie."""
        return [f"{self.name}/{unquote(one)}" for one in files]

    def history(self) -> list[SchemaVersion]:
        """All schemas that the table has had, in order."""
        system, root = filesystem(self.name)
        selector = fs.FileSelector(f"{root}/_schemas", allow_not_found=True)
        found: list[SchemaVersion] = []
        for one in sorted(system.get_file_info(selector), key=lambda info: str(info.path)):
            if one.base_name.endswith(".json"):
                with system.open_input_stream(one.path) as stream:
                    found.append(msgspec.json.decode(stream.read(), type=SchemaVersion))
        return found

    def check(self, columns: Columns) -> None:
        """Refuse nothing: all columns are such as Delta has."""

    def become(self, schema: pa.Schema, noted: SchemaVersion | None) -> OpenDeltaTable:
        """Make the table, or let it have these columns; what it has besides stays.

        Raises:
            StoreError: `table.busy`, somebody else commits all the time.
        """
        if noted is not None:
            path = f"{self.name}/_schemas/{noted.version:06}.json"
            _write(path, msgspec.json.encode(noted))
        opened = self.open()
        if opened is None:
            create_table(
                self.name,
                Schema.from_arrow(schema),
                partition_by=self._parted,
                properties={_KEY: json.dumps(self._layout.key)} if self._layout.key else None,
            )
            return self._present()
        table = opened.table
        self._check(table)
        present = present_columns(opened, self.name)
        if _widens(present, columns_of(schema)):
            self._rewrite(schema)
        else:
            self._add(table, present, schema)
        opened = self._present()
        before = opened.table.version()
        name_statistics(opened.table)
        sync_log(self.name, before, opened.table.version())
        return opened

    def _present(self) -> OpenDeltaTable:
        """The table, which has just been there.

        Raises:
            StoreError: `table.busy`, somebody has removed it.
        """
        table = self.open()
        if table is None:
            raise StoreError("table.busy", f"{self.name} was removed while it was changed")
        return table

    def _check(self, table: DeltaTable) -> None:
        """Refuse a table that is kept otherwise.

        Raises:
            ConfigError: `table.layout`.
        """
        told = table.metadata()
        key = json.loads(told.configuration.get(_KEY, "[]"))
        for what, has, wanted in (
            ("key", key, list(self._layout.key)),
            ("partition_by", told.partition_columns, self._parted),
        ):
            if has != wanted:
                text = f"{what}: {self.name} was made with {has}, and is now to have {wanted}"
                raise ConfigError(
                    "table.layout",
                    f"{text}. Give the table another dir, or remove this one and its rejects",
                )

    def _add(self, table: DeltaTable, present: Columns, schema: pa.Schema) -> None:
        had = {one.name: one for one in present}
        columns = [one.name for one in columns_of(schema) if had.get(one.name) != one]
        names = arrow_schema_of(table).names
        own = [one for one in schema.names if one.startswith("_") and one not in names]
        if fields := [schema.field(one) for one in (*columns, *own)]:
            before = table.version()
            table.alter.add_columns(list(Schema.from_arrow(pa.schema(fields)).fields))
            table.update_incremental()
            sync_log(self.name, before, table.version())

    def _rewrite(self, schema: pa.Schema) -> None:
        """Write all files anew with other types, in one transaction."""
        for _ in range(_ATTEMPTS):
            table = DeltaTable(self.name)
            before = table.version()
            ordered = _ordered(arrow_schema_of(table), schema)
            files = list(write_parted(self.name, self._rows(table, ordered), self._parted))
            with committing(self.name):
                table.update_incremental()
                if table.version() == before:
                    actions = add_actions(files, data_change=True)
                    columns = Schema.from_arrow(ordered)
                    commit(self.name, table, actions, schema=columns, retries=0)
                    return
            self.remove([one.name for one in files])
        text = f"{self.name} is written by others all the time, and cannot be widened"
        raise StoreError("table.busy", text)

    def _rows(self, table: DeltaTable, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for rows in read_rows(self.name, table):
            yield conform(rows, schema)

    def committing(self) -> AbstractContextManager[None]:
        """Keep a second committer off a local table."""
        return committing(self.name)

    def pair(self, number: int) -> dict[str, Any] | None:
        """What the commit of the pair of that number has said; None where nobody knows."""
        table = self._live.open()
        for one in table.history() if table is not None else ():
            pair = cast("dict[str, Any]", one.get("pair") or {})
            if pair.get("number") == number:
                return pair
        return None

    def allowed(self, files: Sequence[TableFile], erasures: Erasures) -> list[TableFile]:
        """Files that a commit is about to add, without entries that were erased."""
        return erasures.keep_out(self.name, files)

    def erase(self, erased: Erased, lock: Lock) -> int:
        """Take out rows of entries that were erased; returns how many there were.

        Raises:
            StoreError: `table.busy`, somebody rewrites the table's files all the time.
        """
        if self._keyed is not None:
            with lock():
                self._keyed.erase(erased)
        return sweep(self.name, erased, lock)

    def remove(self, names: Sequence[str]) -> None:
        """Remove files that no commit has added."""
        remove_files(self.name, names)

    def maintain(self) -> str | None:
        """Do the next piece of work that keeps the table in few files; returns what was done."""
        table = self._live.open()
        if table is None:
            return None
        return self._expiry.step(table, datetime.now(UTC)) or self._maintenance.step(table)


def _write(location: str, content: bytes) -> None:
    local = local_path(location)
    if local is not None:
        local.parent.mkdir(parents=True, exist_ok=True)
        replace_file(local, content)
        return
    system, path = filesystem(location)
    with system.open_output_stream(path) as stream:
        stream.write(content)


def _widens(present: Columns, target: Columns) -> bool:
    kinds = {path: one.kind for path, one in walk(present)}
    return any(kinds.get(path, one.kind) != one.kind for path, one in walk(target))


def _ordered(present: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """The fields of a schema in the order in which a table has them, new ones last."""
    names = [one for one in present.names if one in wanted.names]
    names += [one for one in wanted.names if one not in present.names]
    return pa.schema([wanted.field(one) for one in names])


def stores_of(config: TypedConfig) -> tuple[TableStore, TableStore]:
    """A table and its rejects, in the format that it is to have.

    Raises:
        ConfigError: `table.install`, what the format needs is not installed; `table.layout`, it
            cannot keep rows as they are to be kept.
    """
    commits = config.compact_commits
    if config.catalog is None:
        return (
            DeltaStore(config.dir, commits, config.layout),
            DeltaStore(config.rejects, commits, config.layout.of_rejects),
        )
    layout = config.layout
    if layout.key or layout.partition_by or layout.keep_days is not None:
        text = "key, partition_by and keep_days are of Delta tables: leave them out, or the catalog"
        raise ConfigError("table.layout", text)
    require_iceberg()
    # Few have what it needs.
    from rillnode.node.spark.typed.iceberg_store import IcebergStore

    catalog, rejects = config.catalog, f"{config.table}_rejects"
    return (
        IcebergStore(catalog, config.table, config.dir, None, commits),
        IcebergStore(catalog, rejects, config.rejects, REJECTS, commits),
    )
