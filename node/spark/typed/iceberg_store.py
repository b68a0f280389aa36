"""Typed tables in Iceberg's format: a name in a catalog, which knows the table's newest metadata.

Tasks write Parquet files whose columns have the table's numbers for them; a commit makes a snapshot
of them. Each schema of the history is a property of the table.
"""

<<<<<<< HEAD
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, cast
=======
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final
>>>>>>> c24-iceberg

import msgspec
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from rillnode.codecs.errors import ConfigError, StoreError
from rillnode.node.spark.erasure import Erased, Erasures, Lock, applied
from rillnode.node.spark.field_metadata import with_metadata
from rillnode.node.spark.job_config import CatalogConfig
from rillnode.node.spark.parquet import remove_files
from rillnode.node.spark.typed.arrays import KIND, arrow_field, columns_of
from rillnode.node.spark.typed.columns import Columns, unfit, walk
from rillnode.node.spark.typed.evolution import present_columns
from rillnode.node.spark.typed.iceberg_catalog import asking, open_catalog
<<<<<<< HEAD
from rillnode.node.spark.typed.store import Conflict, Place, SchemaVersion

_NUMBERS: Final = "rillnode.positions"
"""What commits leave: JSON of numbers by their names."""
_NOTED: Final = "rillnode."
"""Before the names of what summaries of snapshots note."""
_COMMITS_MAX: Final = 100_000
=======
from rillnode.node.spark.typed.iceberg_maintenance import IcebergMaintenance
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
    said_by,
    snapshots_of,
    sync_table,
    write_rows,
)
from rillnode.node.spark.typed.store import Conflict, SchemaVersion
from rillnode.node.spark.typed.work import Place

>>>>>>> c24-iceberg
_SCHEMAS: Final = "rillnode.schemas."
_ATTEMPTS: Final = 5
_PROPERTIES: Final = {
    # A commit each few seconds makes thousands of manifests and metadata files a day.
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "50",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
    "write.parquet.compression-codec": "zstd",
}


<<<<<<< HEAD
class _Commit(TableTransaction):
    """A transaction that is not made again upon what another writer has made meanwhile.

    pyiceberg would do so. But where the table has come to is read before, and by then the other
    one may have done this very work.
    """

    def _rebuild_snapshot_updates(self) -> None:
        raise CommitFailedException("another writer was first")


class OpenIcebergTable:
    """An Iceberg table as of one of its versions.

    Args:
        name: as what people know it.
        table: pyiceberg's own.

    Attributes:
        table: the same.
    """

    def __init__(self, name: str, table: Table) -> None:
        self._name = name
        self.table = table
        self._numbers = _numbers(table)

    @property
    def arrow_schema(self) -> pa.Schema:
        """Its columns."""
        return _arrow(self.table.schema())

    def transaction_version(self, app_id: str) -> int | None:
        """A number that a commit has left; None where none has."""
        return self._numbers.get(app_id)

    def count(self) -> int:
        """The number of its rows."""
        snapshot = self.table.current_snapshot()
        if snapshot is None:
            return 0
        told = _said(snapshot, "total-records")
        if told is not None and not _has_deletes(snapshot):
            return int(told)
        with asking(self._name):
            return self.table.scan().count()

    def files(self) -> list[str]:
        """Where its files lie.

        Raises:
            StoreError: `table.deletes`, another writer has deleted rows beside the files.
        """
        tasks = self.tasks()
        if any(one.delete_files for one in tasks):
            raise StoreError(
                "table.deletes",
                f"rows of {self._name} were deleted by files of deletes, which are to be taken in "
                "first: `CALL system.rewrite_data_files` of Spark does it",
            )
        return [one.file.file_path for one in tasks]

    def tasks(self) -> list[FileScanTask]:
        """Its files, each with what was deleted of it."""
        with asking(self._name):
            return list(self.table.scan().plan_files())

    def rows(self) -> Iterator[pa.RecordBatch]:
        """All of its rows."""
        return self.rows_of(self.tasks(), self.arrow_schema)

    def rows_of(self, tasks: Iterable[FileScanTask], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of some of its files, as its schema of now has them."""
        metadata, io = self.table.metadata, self.table.io
        scan = ArrowScan(metadata, io, self.table.schema(), AlwaysTrue())
        for task in tasks:  # one at a time: all rows of its files are in memory at once
            with asking(self._name):
                batches = list(scan.to_record_batches([task]))
            for batch in batches:
                yield conform(batch, schema)

    def figures(self) -> dict[str, Any]:
        """Sizes of its files, and its last commit, for people."""
        sizes = [one.file.file_size_in_bytes for one in self.tasks()]
        snapshot = self.table.current_snapshot()
        return {
            "files": len(sizes),
            "bytes": sum(sizes),
            "file_bytes_min": min(sizes, default=0),
            "file_bytes_max": max(sizes, default=0),
            "location": self.table.location(),
            "table_version": 0 if snapshot is None else snapshot.sequence_number,
            "last_commit": datetime.fromtimestamp(self.table.metadata.last_updated_ms / 1_000, UTC),
        }

    def commit(
        self,
        added: Sequence[TableFile],
        numbers: Sequence[Transaction],
        *,
        removed: Sequence[str] = (),
        pair: dict[str, Any] | None = None,
        noted: Mapping[str, Any] | None = None,
    ) -> None:
        """Commit files that are written, as one snapshot.

        Raises:
            Conflict: another writer was first, and nothing was done.
            ConfigError: `table.schema`, a file has other columns than the table.
        """
        with asking(self._name):
            gone = [one.file for one in self.tasks() if one.file.file_path in set(removed)]
            told = {**({} if pair is None else {"pair": pair}), **(noted or {})}
            said = {f"{_NOTED}{name}": _json(one) for name, one in told.items()}
            paths = [f"{_data(self.table)}/{one.name}" for one in added]
            with self.transaction() as made:
                self.snapshot(made, paths, gone, numbers, said)

    def noted(self, name: str, commits_max: int) -> Iterator[Any]:
        """What the newest commits have noted under a name, the newest first."""
        for snapshot in islice(_snapshots(self.table), commits_max):
            if text := _said(snapshot, f"{_NOTED}{name}"):
                yield msgspec.json.decode(text)

    @contextmanager
    def transaction(self) -> Generator[TableTransaction]:
        """A transaction that is made where nothing is raised, and is durable then.

        Raises:
            Conflict: another writer was first, and nothing was done.
        """
        made = _Commit(self.table)
        yield made
        try:
            made.commit_transaction()
        except CommitFailedException as error:
            raise Conflict("table.busy", f"{self._name}: another writer was first") from error
        sync_table(self.table)

    def snapshot(
        self,
        made: TableTransaction,
        paths: Iterable[str],
        gone: Sequence[DataFile] = (),
        numbers: Sequence[Transaction] = (),
        said: Mapping[str, str] | None = None,
    ) -> None:
        """Add a snapshot to a transaction.

        Args:
            made: the transaction.
            paths: files that it adds.
            gone: files that it removes.
            numbers: what it leaves, beside what former ones have left.
            said: what else its summary is to say.

        Raises:
            ConfigError: `table.schema`, a file has other columns than the table.
        """
        left = {**self._numbers, **{one.app_id: one.version for one in numbers}}
        text = _json(left)
        made.set_properties({_NUMBERS: text})
        self._numbers = left
        update = made.update_snapshot(snapshot_properties={_NUMBERS: text, **(said or {})})
        with update.overwrite() if gone else update.merge_append() as producer:
            for path in paths:
                try:
                    file = parquet_file_to_data_file(self.table.io, made.table_metadata, path)
                except ValueError as error:
                    text = f"a file does not have the columns of {self._name}: {error}"
                    raise ConfigError("table.schema", text) from error
                producer.append_data_file(file)
            for one in gone:
                producer.delete_data_file(one)


=======
>>>>>>> c24-iceberg
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
        documented = with_metadata(schema, lambda _, one: {DOC: JSON} if _is_json(one) else None)
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
                    text = _json(noted)
                    made.set_properties({f"{_SCHEMAS}{noted.version:06}": text})
                if widened and (files := table.files()):
                    if any(not is_as_written(table.table, one) for one in files):
                        text = f"files of {self.name} are another writer's: make the table anew"
                        raise ConfigError("table.schema", text)
                    future = made.table_metadata.schema()
<<<<<<< HEAD
                    rows = table.rows_of(tasks, _arrow(future))
                    directory = plain(_data(table.table))
                    files = write_files(directory, rows, field_ids(future))
                    written += [one.name for one in files]
                    paths = [f"{_data(table.table)}/{one}" for one in written]
                    table.snapshot(made, paths, [one.file for one in tasks])
=======
                    written += write_rows(table.table, read_rows(files, arrow_of(future)), future)
                    paths = [f"{data_of(table.table)}/{one}" for one in written]
                    table.snapshot(made, paths, [one.file for one in table.tasks()])
>>>>>>> c24-iceberg
        except (Conflict, ConfigError):
            self.remove(written)
            raise

    def committing(self) -> AbstractContextManager[None]:
        """Nothing: the catalog lets one of two committers through."""
        return nullcontext()

    def pair(self, number: int) -> dict[str, Any] | None:
        """What the commit of the pair of that number has said; None where nobody knows."""
        table = self.open()
<<<<<<< HEAD
        for pair in table.noted("pair", _COMMITS_MAX) if table is not None else ():
            if pair["number"] == number:
                return cast("dict[str, Any]", pair)
=======
        for snapshot in snapshots_of(table.table) if table is not None else ():
            if text := said_by(snapshot, PAIR):
                pair: dict[str, Any] = msgspec.json.decode(text)
                if pair["number"] == number:
                    return pair
>>>>>>> c24-iceberg
        return None

    def allowed(self, files: Sequence[TableFile], erasures: Erasures) -> list[TableFile]:
        """Files that a commit is about to add, without entries that were erased."""
        return erasures.keep_out(self.place().directory, files) if files else []

    def erase(self, erased: Erased, lock: Lock) -> int:
        """Take out rows of entries that were erased; returns how many there were.

        Snapshots from before have them until they expire.

        Raises:
            StoreError: `table.busy`, somebody else commits all the time.
        """
        for _ in range(_ATTEMPTS):
            table = self.open()
            if table is None or applied(table) >= erased.number:
                return 0
            gone: list[str] = []
            written: list[TableFile] = []
            removed = 0
            for task in table.tasks():
                rows = list(table.rows_of([task], table.arrow_schema))
                keeps = [pa.array(~erased.mask(one)) for one in rows]
                kept = [one.filter(keep) for one, keep in zip(rows, keeps, strict=True)]
                if count := sum(one.num_rows for one in rows) - sum(one.num_rows for one in kept):
                    removed += count
                    gone.append(task.file.file_path)
                    place = self.place()
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
<<<<<<< HEAD


def _snapshots(table: Table) -> Iterator[Snapshot]:
    """The snapshots that led to the table of now, the newest one first, as far as it knows them."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _said(snapshot: Snapshot, name: str) -> str | None:
    return None if snapshot.summary is None else snapshot.summary[name]


def _numbers(table: Table) -> dict[str, int]:
    """What the commits of a table have left."""
    last: Snapshot | None = None
    for last in _snapshots(table):
        if text := _said(last, _NUMBERS):
            return msgspec.json.decode(text, type=dict[str, int])
    if last is not None and last.parent_snapshot_id is None:
        return {}  # it was rolled back to what was there before the first of ours
    text = table.properties.get(_NUMBERS, "{}") if last is not None else "{}"
    return msgspec.json.decode(text, type=dict[str, int])


def _has_deletes(snapshot: Snapshot) -> bool:
    return (_said(snapshot, "total-delete-files") or "0") != "0"
=======
>>>>>>> c24-iceberg
