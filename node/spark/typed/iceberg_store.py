"""Typed tables in Iceberg's format: a name in a catalog, which knows the table's newest metadata.

Tasks write Parquet files whose columns have the table's numbers for them; a commit makes a snapshot
of them. Each schema of the history is a property of the table.

The table is kept in few large files: consecutive small ones are merged. pyiceberg writes that as a
snapshot that overwrites: the same rows, but who follows the table snapshot by snapshot has to be
told to pass over it. It expires snapshots, and removes no files: those that no snapshot has are
removed here, some days after they were written, and with them what failed tasks and commits have
left.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Final, cast

import msgspec
import pyarrow as pa
from pyarrow import fs
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table

from rillnode.codecs.errors import ConfigError, StoreError
from rillnode.node.spark.erasure import Erased, Erasures, Lock, applied
from rillnode.node.spark.files import filesystem, remove_files
from rillnode.node.spark.job_config import CatalogConfig
from rillnode.node.spark.maintenance import KEEP_HOURS, LiveFile, plan_merges
from rillnode.node.spark.parquet import TableFile, write_files
from rillnode.node.spark.schema_upgrade import renamed, with_metadata
from rillnode.node.spark.typed.arrays import ICEBERG_NAMES, KIND, arrow_field, columns_of
from rillnode.node.spark.typed.columns import Columns, unfit, walk
from rillnode.node.spark.typed.iceberg_table import (
    DOC,
    JSON,
    PAIR,
    OpenIcebergTable,
    arrow_of,
    asking,
    data_of,
    field_ids,
    is_as_written,
    open_catalog,
    plain,
    read_rows,
    sync_table,
    write_rows,
)
from rillnode.node.spark.typed.store import (
    Conflict,
    Place,
    SchemaVersion,
    other_columns,
    present_columns,
)

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
            if noted is None and not other_columns(table.arrow_schema, schema):
                self._ids = None
                return table
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
        if not files or not erasures.erased():
            return list(files)
        return erasures.keep_out(self.place().directory, files)

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
