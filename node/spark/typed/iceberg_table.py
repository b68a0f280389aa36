"""An Iceberg table as of one of its versions: what it holds, and commits of files to it.

How far a table has come is in its newest snapshot's summary, and in its properties; each commit
writes both. The summary is what counts, since it goes when somebody rolls the table back. The
properties are what is left when the snapshots of this project have expired.

Credentials of its catalog are in the environment of the processes that use it, or in pyiceberg's
own file, under the catalog's name: `PYICEBERG_CATALOG__RILLNODE__TOKEN`.
"""

import sqlite3
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import requests
from deltalake import Transaction
from pydantic import ValidationError as MalformedError
from pyiceberg import exceptions as iceberg
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import parquet_file_to_data_file, schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema, index_name_by_id
from pyiceberg.table import FileScanTask, Table, Transaction as TableTransaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import TableUpdate
from pyiceberg.utils.config import Config
from requests.adapters import HTTPAdapter
from sqlalchemy import exc as sql
from sqlalchemy.engine import make_url

from rillnode.codecs.errors import ConfigError, RillnodeError, StoreError, TransportError
from rillnode.node.spark.delta_log import ERASURE
from rillnode.node.spark.explaining import first_line
from rillnode.node.spark.files import filesystem, local_path, sync_files
from rillnode.node.spark.job_config import CatalogConfig
from rillnode.node.spark.parquet import TableFile, file_rows, write_files
from rillnode.node.spark.schema_upgrade import (
    conform,
    field_ids as numbers_of,
    renamed,
    with_metadata,
)
from rillnode.node.spark.typed.arrays import KIND, OWN_NAMES
from rillnode.node.spark.typed.store import Conflict

ANSWER_SECONDS_MAX: Final = 60.0
_REFUSED: Final = (
    iceberg.UnauthorizedError, iceberg.ForbiddenError, iceberg.AuthorizationExpiredError,
    iceberg.OAuthError,
)  # fmt: skip
_AWAY: Final = (
    requests.ConnectionError, requests.Timeout, sql.OperationalError, sql.TimeoutError,
    iceberg.ServiceUnavailableError, iceberg.ServerError, iceberg.TooManyRequestsError,
    iceberg.CommitStateUnknownException,
)  # fmt: skip
_WRONG: Final = (
    requests.RequestException, iceberg.RESTError, iceberg.NoSuchPropertyException,
    iceberg.NotInstalledError, sql.ArgumentError, sql.NoSuchModuleError, ModuleNotFoundError,
    NotImplementedError,
)  # fmt: skip
_DAMAGED: Final = (
    iceberg.ValidationError, MalformedError, FileNotFoundError, sql.DatabaseError,
    sqlite3.DatabaseError, UnicodeDecodeError,
)  # fmt: skip


class _Adapter(HTTPAdapter):
    """Waits for answers no longer than so."""

    def send(self, *args: Any, **keys: Any) -> requests.Response:
        """Send a request; pyiceberg says of none how long it may take."""
        return super().send(*args, **{**keys, "timeout": ANSWER_SECONDS_MAX})


class _RestCatalog(RestCatalog):
    def _config_headers(self, session: requests.Session) -> None:
        # What a new session goes through before its first request.
        super()._config_headers(session)
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Adapter())


@contextmanager
def asking(name: str) -> Generator[None]:
    """Say what is wrong with the catalog of a table, or with the table, where anything is.

    Raises:
        TransportError: `table.catalog`, it is away, which passes.
        ConfigError: `table.catalog`, it refuses what it is asked, or who asks.
        StoreError: `table.damaged`, what the catalog or the table says of itself is no sense.
    """
    try:
        yield
    except (RillnodeError, iceberg.CommitFailedException):
        raise
    except _REFUSED as error:
        text = f"the catalog of {name} refuses the credentials: {first_line(error)}"
        raise ConfigError(
            "table.catalog",
            f"{text}. They come from the environment, as PYICEBERG_CATALOG__NAME__TOKEN or "
            "PYICEBERG_CATALOG__NAME__CREDENTIAL, with the catalog's name",
        ) from error
    except _AWAY as error:
        text = f"the catalog of {name} is away: {first_line(error)}"
        raise TransportError(
            "table.catalog", f"{text}. Nothing is lost, the table goes on where it is"
        ) from error
    except _DAMAGED as error:
        raise StoreError(
            "table.damaged",
            f"{name} is damaged: {first_line(error)}. Put the file back from a copy, or drop the "
            "table and its rejects from the catalog: they are made anew",
        ) from error
    except _WRONG as error:
        raise ConfigError("table.catalog", f"the catalog of {name}: {first_line(error)}") from error


@lru_cache(maxsize=64)
def open_catalog(config: CatalogConfig) -> Catalog:
    """A catalog; one for each configuration, so that its connections are kept."""
    given = {"uri": config.uri, "warehouse": config.warehouse}
    settings = cast("Mapping[str, str]", Config().get_catalog_config(config.name) or {})
    properties: dict[str, str] = {**settings, **{key: one for key, one in given.items() if one}}
    if not properties.get("uri"):
        text = f"catalog {config.name} has no uri, neither in node.toml nor in the environment"
        raise ConfigError("table.catalog", text)
    if config.type == "rest":
        return _RestCatalog(config.name, **properties)
    url = make_url(properties["uri"])
    if url.get_backend_name() == "sqlite" and url.database:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    return SqlCatalog(config.name, **properties)


PAIR: Final = "pair"
DOC: Final = b"doc"
JSON: Final = b"json"
"""The comment of a column of texts that hold JSON."""
_NOTED: Final = "rillnode."
"""Before the names of what summaries of snapshots note."""
_NUMBERS: Final = "rillnode.positions"
"""What commits leave: JSON of numbers by their names."""
_SEQUENCE: Final = "rillnode.sequence"
"""The number that the snapshot of the last of our commits has at least."""


class _Commit(TableTransaction):
    """A transaction that is not made again upon what another writer has made meanwhile.

    pyiceberg would do so. But where the table has come to is read before, and by then the other
    one may have done this very work.

    The metadata that its updates lead to is made once for each set of updates. pyiceberg makes it,
    with a deep copy of all snapshots and schemas, whenever a step of a commit reads a field of it.
    """

    _known: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        base, updates = self._table.metadata, self._updates
        if self._known is None or self._known[0] is not base or self._known[1] is not updates:
            self._known = (base, updates, super().table_metadata)
        return self._known[2]

    def _rebuild_snapshot_updates(self) -> None:
        raise CommitFailedException("another writer was first")


class OldFiles(NamedTuple):
    """Files that a table no longer has, and its older snapshots have.

    Attributes:
        sizes: their sizes, by their URIs.
        newest: when the newest of those snapshots was made; None where there are no files.
    """

    sizes: dict[str, int]
    newest: datetime | None


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
    def version(self) -> int:
        """How many commits it has had, about."""
        snapshot = self.table.current_snapshot()
        return 0 if snapshot is None else snapshot.sequence_number or 0

    @property
    def arrow_schema(self) -> pa.Schema:
        """Its columns."""
        return arrow_of(self.table.schema())

    @property
    def id(self) -> str:
        """What no other table has, one that is made anew in its place included."""
        return str(self.table.metadata.table_uuid)

    def transaction_version(self, app_id: str) -> int | None:
        """A number that a commit has left; None where none has."""
        return self._numbers.get(app_id)

    def count(self) -> int:
        """The number of its rows."""
        snapshot = self.table.current_snapshot()
        if snapshot is None:
            return 0
        told = said_by(snapshot, "total-records")
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

    def figures(self) -> dict[str, Any]:
        """Sizes of its files, and its last commit, for people."""
        sizes = [one.file.file_size_in_bytes for one in self.tasks()]
        return {
            "files": len(sizes),
            "bytes": sum(sizes),
            "file_bytes_min": min(sizes, default=0),
            "file_bytes_max": max(sizes, default=0),
            "location": self.table.location(),
            "table_version": self.version,
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
            wanted = set(removed)
            # To know its files the whole table is gone through.
            tasks = self.tasks() if wanted else []
            gone = [one.file for one in tasks if one.file.file_path in wanted]
            told = {**({} if pair is None else {PAIR: pair}), **(noted or {})}
            said = {
                f"{_NOTED}{name}": msgspec.json.encode(one).decode() for name, one in told.items()
            }
            paths = [f"{data_of(self.table)}/{one.name}" for one in added]
            with self.transaction() as made:
                self.snapshot(made, paths, gone, numbers, said)

    def old_files(self, erasure: int) -> OldFiles:
        """The files that only snapshots of before an erasure have, by the number of that."""
        live = {one.file.file_path for one in self.tasks()}
        sizes: dict[str, int] = {}
        newest_ms = 0
        with asking(self._name):
            for snapshot in self.table.snapshots():
                if (_numbers_in(snapshot) or {}).get(ERASURE, 0) >= erasure:
                    continue
                found = {
                    entry.data_file.file_path: entry.data_file.file_size_in_bytes
                    for manifest in snapshot.manifests(self.table.io)
                    for entry in manifest.fetch_manifest_entry(self.table.io)
                    if entry.data_file.file_path not in live
                }
                if found:
                    sizes |= found
                    newest_ms = max(newest_ms, snapshot.timestamp_ms)
        newest = datetime.fromtimestamp(newest_ms / 1_000, UTC) if sizes else None
        return OldFiles(sizes, newest)

    def noted(self, name: str, commits_max: int) -> Iterator[Any]:
        """What the newest commits have noted under a name, the newest first."""
        for snapshot in islice(snapshots_of(self.table), commits_max):
            if text := said_by(snapshot, f"{_NOTED}{name}"):
                yield msgspec.json.decode(text)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """All of its rows."""
        yield from read_rows(self.files(), self.arrow_schema)

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
        text = msgspec.json.encode(left).decode()
        made.set_properties({_NUMBERS: text, _SEQUENCE: str(self.version + 1)})
        self._numbers = left
        update = made.update_snapshot(snapshot_properties={_NUMBERS: text, **(said or {})})
        metadata = _as_in_files(made.table_metadata)
        with update.overwrite() if gone else update.merge_append() as producer:
            for path in paths:
                try:
                    file = parquet_file_to_data_file(self.table.io, metadata, path)
                except ValueError as error:
                    text = f"{self._name} takes no file of the columns that it had: {error}"
                    raise ConfigError("table.schema", text) from error
                producer.append_data_file(file)
            for one in gone:
                producer.delete_data_file(one)


def field_ids(schema: Schema) -> dict[str, int]:
    """The numbers of a table's columns, by their paths."""
    paths = index_name_by_id(schema).items()
    return {OWN_NAMES.get(path, path): number for number, path in paths}


def plain(uri: str) -> str:
    """A URI as the rest of this project takes it: of a local file the path itself, unquoted."""
    return uri.removeprefix("file://")


def sync_table(table: Table) -> None:
    """Make what the newest commit of a local table has written durable."""
    files = [table.metadata_location]
    if (snapshot := table.current_snapshot()) is not None:
        manifests = snapshot.manifests(table.io)
        new = (one for one in manifests if one.added_snapshot_id == snapshot.snapshot_id)
        files += [snapshot.manifest_list, *(one.manifest_path for one in new)]
    paths = (local_path(plain(one)) for one in files)
    sync_files(one for one in paths if one is not None)


def data_of(table: Table) -> str:
    """Where the data files of a table lie, as its metadata name it."""
    return f"{table.location().rstrip('/')}/data"


def is_as_written(table: Table, file: str) -> bool:
    """Whether a file has columns of a table under the names and numbers that they have now."""
    system, path = filesystem(plain(file))
    with pq.ParquetFile(path, filesystem=system) as parquet:
        found = numbers_of(renamed(parquet.schema_arrow, OWN_NAMES))
    ids = {path: str(number) for path, number in field_ids(table.schema()).items()}
    return found.items() <= ids.items()


def read_rows(files: Iterable[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of files that are as they were written, with the columns of a schema."""
    for file in files:
        for rows in file_rows(plain(file)):
            names = renamed(rows.schema, OWN_NAMES).names
            yield conform(pa.RecordBatch.from_arrays(rows.columns, names=names), schema)


def write_rows(table: Table, rows: Iterable[pa.RecordBatch], schema: Schema) -> list[str]:
    """Write rows to files for a table that has a schema then; gives the files' names."""
    files = write_files(plain(data_of(table)), rows, field_ids(schema))
    return [one.name for one in files]


def arrow_of(schema: Schema) -> pa.Schema:
    """Columns of Iceberg's as those of a typed table."""
    return with_metadata(
        renamed(schema_to_pyarrow(schema, include_field_ids=False), OWN_NAMES),
        lambda _, one: {KIND: JSON} if (one.metadata or {}).get(DOC) == JSON else None,
    )


def _as_in_files(metadata: TableMetadata) -> TableMetadata:
    """What a table says of itself, with the names that columns have in its files."""
    schema = metadata.schema()
    fields = [
        one.model_copy(update={"name": OWN_NAMES.get(one.name, one.name)}) for one in schema.fields
    ]
    return metadata.model_copy(update={"schemas": [Schema(*fields, schema_id=schema.schema_id)]})


def snapshots_of(table: Table) -> Iterator[Snapshot]:
    """The snapshots that led to the table of now, the newest one first, as far as it knows them."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)


def said_by(snapshot: Snapshot, name: str) -> str | None:
    """What a snapshot's summary says; None where it says nothing."""
    return None if snapshot.summary is None else snapshot.summary[name]


def _numbers(table: Table) -> dict[str, int]:
    """What the commits of a table have left."""
    text: str | None = "{}"
    if (current := table.current_snapshot()) is not None:
        said = (said_by(one, _NUMBERS) for one in snapshots_of(table))
        text = next((one for one in said if one), None)
        # Those of ours have expired, or the table was rolled back to before the first of them.
        first = int(table.properties.get(_SEQUENCE, 0))
        if text is None and (current.sequence_number or 0) >= first:
            text = table.properties.get(_NUMBERS)
    return msgspec.json.decode(text or "{}", type=dict[str, int])


def _numbers_in(snapshot: Snapshot) -> dict[str, int] | None:
    """What the commits until a snapshot have left; None where it is another writer's."""
    text = said_by(snapshot, _NUMBERS)
    return msgspec.json.decode(text, type=dict[str, int]) if text else None


def _has_deletes(snapshot: Snapshot) -> bool:
    return (said_by(snapshot, "total-delete-files") or "0") != "0"
