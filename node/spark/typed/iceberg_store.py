"""Typed tables in Iceberg's format: a name in a catalog, which knows the table's newest metadata.

Tasks write Parquet files whose columns have the table's numbers for them; a commit makes a snapshot
of them. Each schema of the history is a property of the table.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, cast

import msgspec
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from rillnode.codecs.errors import ConfigError, StoreError
from rillnode.node.spark.erasure import Erased, Erasures, Lock, applied
from rillnode.node.spark.job_config import CatalogConfig
from rillnode.node.spark.parquet import TableFile, remove_files, write_files
from rillnode.node.spark.schema_upgrade import renamed, with_metadata
from rillnode.node.spark.typed.arrays import ICEBERG_NAMES, KIND, arrow_field, columns_of
from rillnode.node.spark.typed.columns import Columns, unfit, walk
from rillnode.node.spark.typed.evolution import present_columns
from rillnode.node.spark.typed.iceberg_catalog import asking, open_catalog
from rillnode.node.spark.typed.iceberg_maintenance import IcebergMaintenance, forget_snapshots
from rillnode.node.spark.typed.iceberg_table import (
    DOC,
    JSON,
    PAIR,
    OpenIcebergTable,
    arrow_of,
    data_of,
    field_ids,
    is_as_written,
    plain,
    read_rows,
    sync_table,
    write_rows,
)
from rillnode.node.spark.typed.store import Conflict, Place, SchemaVersion

_SCHEMAS: Final = "rillnode.schemas."
_COMMITS_MAX: Final = 100_000
_ATTEMPTS: Final = 5
_PROPERTIES: Final = {
    # A commit each few seconds makes thousands of manifests and metadata files a day.
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "50",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
    "write.parquet.compression-codec": "zstd",
}


class IcebergStore:
    """A table in a catalog.

    Args:
        config: the catalog.
        identifier: the table's name in it, with its namespace.
        location: directory or URI of its files; empty for where the catalog says.
        schema: of a table that is made where its place is asked for.
        compact_commits: small files are merged after this many commits; 0 never.

    Attributes:
        name: its name, with its catalog's.
    """

    def __init__(
        self,
        config: CatalogConfig,
        identifier: str,
        location: str = "",
        schema: pa.Schema | None = None,
        compact_commits: int = 0,
    ) -> None:
        self.name = f"{config.name}.{identifier}"
        self._config = config
        self._identifier = identifier
        self._maintenance = IcebergMaintenance(compact_commits)
        self._location = location if "://" in location or not location else f"file://{location}"
        self._schema = schema
        self._ids: dict[str, int] | None = None

    def open(self) -> OpenIcebergTable | None:
        """The table as of now; None before it is made.

        Raises:
            ConfigError: `table.schema`, columns that files are written for are not there any more.
        """
        with asking(self.name):
            try:
                table = open_catalog(self._config).load_table(self._identifier)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None
            if self._ids is not None and not self._ids.items() <= field_ids(table.schema()).items():
                self._ids = None
                text = f"another writer has changed columns of {self.name}"
                raise ConfigError(
                    "table.schema",
                    f"{text}: what was written for it is written anew, for what it has now",
                )
            return OpenIcebergTable(self.name, table)

    def place(self) -> Place:
        """Where files for the table are written, and the numbers of its columns."""
        table = self.open()
        if self._schema is not None and (
            table is None or not set(self._schema.names) <= set(table.arrow_schema.names)
        ):
            table = self.become(self._schema, None)
        if table is None:
            raise StoreError("table.busy", f"{self.name} was dropped")
        self._ids = field_ids(table.table.schema())
        return Place(directory=plain(data_of(table.table)), ids=self._ids)

    def uris(self, files: Sequence[str]) -> list[str]:
        """Where some of the table's files lie."""
        return [plain(one) for one in files]

    def history(self) -> list[SchemaVersion]:
        """All schemas that the table has had, in order."""
        table = self.open()
        properties = {} if table is None else table.table.properties
        found = [
            msgspec.json.decode(one, type=SchemaVersion)
            for name, one in properties.items()
            if name.startswith(_SCHEMAS)
        ]
        return sorted(found, key=lambda one: one.version)

    def check(self, columns: Columns) -> None:
        """Refuse columns whose paths are the same, since Iceberg knows them by these.

        Raises:
            ConfigError: `table.column`, which.
        """
        seen: set[str] = set()

        def note(path: str, _: pa.Field) -> None:
            if path in seen:
                raise unfit(path, "is there twice, once with a dot in a name")
            seen.add(path)

        with_metadata(pa.schema([arrow_field(one) for one in columns]), note)

    def become(self, schema: pa.Schema, noted: SchemaVersion | None) -> OpenIcebergTable:
        """Make the table, or let it have these columns; what it has besides stays.

        Raises:
            ConfigError: `table.schema`, it cannot have them, or is a table of another kind.
            StoreError: `table.busy`, somebody else commits all the time.
        """
        documented = renamed(
            with_metadata(schema, lambda _, one: {DOC: JSON} if _is_json(one) else None),
            ICEBERG_NAMES,
        )
        for _ in range(_ATTEMPTS):
            table = self.open() or self._create(documented)
            present = present_columns(table, self.name)
            widened = _widened(present, columns_of(schema))
            try:
                with asking(self.name):
                    self._change(table, documented, widened, noted)
            except Conflict:
                continue
            self._ids = None
            return table
        text = f"{self.name} is written by others all the time, and cannot be changed"
        raise StoreError("table.busy", text)

    def _create(self, schema: pa.Schema) -> OpenIcebergTable:
        with asking(self.name):
            catalog = open_catalog(self._config)
            try:
                return self._created(catalog, schema)
            except NoSuchNamespaceError:
                catalog.create_namespace_if_not_exists(self._identifier.rpartition(".")[0])
                return self._created(catalog, schema)

    def _created(self, catalog: Catalog, schema: pa.Schema) -> OpenIcebergTable:
        table = catalog.create_table_if_not_exists(
            self._identifier, schema, self._location or None, properties=_PROPERTIES
        )
        sync_table(table)
        return OpenIcebergTable(self.name, table)

    def _change(
        self,
        table: OpenIcebergTable,
        schema: pa.Schema,
        widened: Sequence[str],
        noted: SchemaVersion | None,
    ) -> None:
        """Change columns, and write the table's files anew where some get other types.

        Iceberg makes no floating-point numbers of whole ones: such a column goes, and another of
        its name comes, which has a number of its own. Snapshots from before keep theirs.
        """
        written: list[str] = []
        try:
            with table.transaction() as made:
                with made.update_schema(allow_incompatible_changes=True) as update:
                    for name in widened:
                        update.delete_column(name)
                with made.update_schema() as update:
                    update.union_by_name(schema)
                if noted is not None:
                    text = msgspec.json.encode(noted).decode()
                    made.set_properties({f"{_SCHEMAS}{noted.version:06}": text})
                if widened and (files := table.files()):
                    if any(not is_as_written(table.table, one) for one in files):
                        text = f"files of {self.name} are another writer's: make the table anew"
                        raise ConfigError("table.schema", text)
                    future = made.table_metadata.schema()
                    written += write_rows(table.table, read_rows(files, arrow_of(future)), future)
                    paths = [f"{data_of(table.table)}/{one}" for one in written]
                    table.snapshot(made, paths, [one.file for one in table.tasks()])
        except (Conflict, ConfigError):
            self.remove(written)
            raise

    def committing(self) -> AbstractContextManager[None]:
        """Nothing: the catalog lets one of two committers through."""
        return nullcontext()

    def pair(self, number: int) -> dict[str, Any] | None:
        """What the commit of the pair of that number has said; None where nobody knows."""
        table = self.open()
        for pair in table.noted(PAIR, _COMMITS_MAX) if table is not None else ():
            if pair["number"] == number:
                return cast("dict[str, Any]", pair)
        return None

    def allowed(self, files: Sequence[TableFile], erasures: Erasures) -> list[TableFile]:
        """Files that a commit is about to add, without entries that were erased."""
        return erasures.keep_out(self.place().directory, files) if files else []

    def erase(self, erased: Erased, lock: Lock) -> int:
        """Take out rows of entries that were erased, which older snapshots have until they expire.

        Raises:
            StoreError: `table.busy`, somebody else commits all the time.
        """
        for _ in range(_ATTEMPTS):
            table = self.open()
            if table is None or applied(table) >= erased.number:
                return 0
            place, schema = self.place(), table.arrow_schema
            gone: list[str] = []
            written: list[TableFile] = []
            removed = 0
            for file in table.files():
                count = sum(int(erased.mask(rows).sum()) for rows in read_rows([file], schema))
                if count:
                    removed += count
                    gone.append(file)
                    kept = (
                        rows.filter(pa.array(~erased.mask(rows)))
                        for rows in read_rows([file], schema)
                    )
                    written += write_files(place.directory, kept, place.ids)
            try:
                with lock():
                    table.commit(written, [erased.mark()], removed=gone)
            except Conflict:
                self.remove([one.name for one in written])
                continue
            return removed
        text = f"{self.name} is written by others all the time, and nothing could be erased in it"
        raise StoreError("table.busy", text)

    def counted(self, erased: Erased) -> int:
        """How many rows stand at erased places."""
        table = self.open()
        rows = () if table is None else read_rows(table.files(), table.arrow_schema)
        return sum(int(erased.mask(one).sum()) for one in rows)

    def forget(self) -> int:
        """Keep no older snapshot, and no file that only they have; returns how many these were."""
        table = self.open()
        if table is None:
            return 0
        with asking(self.name):
            return forget_snapshots(table.table)

    def remove(self, names: Sequence[str]) -> None:
        """Remove files that no commit has added."""
        if names and (table := self.open()) is not None:
            remove_files(plain(data_of(table.table)), names)

    def maintain(self) -> str | None:
        """Do the next piece of work that keeps the table in few files; returns what was done."""
        table = self.open()
        if table is None:
            return None
        with asking(self.name):
            return self._maintenance.step(table)


def _is_json(field: pa.Field) -> bool:
    return (field.metadata or {}).get(KIND) == JSON


def _widened(present: Columns, wanted: Columns) -> list[str]:
    """The columns in which whole numbers are to become floating-point ones."""
    had = {path for path, one in walk(present) if one.kind == "int"}
    paths = (path for path, one in walk(wanted) if one.kind == "float" and path in had)
    return sorted({path[0] for path in paths})
