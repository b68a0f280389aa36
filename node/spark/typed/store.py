"""The port for table formats, and how a table's schema changes.

A store is one table, the typed one or its rejects. Tasks write Parquet files into its directory; a
commit adds them, together with numbers that say how far the table has come, in one transaction or
not at all. `delta_store.stores_of` chooses the format.

Columns only come: at the table's end, or within a struct. Files keep what they have, and readers
find nulls in the place of what they lack. That whole numbers become floating-point ones is the one
change that writes the files anew, in one transaction; readers of older versions go on.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec
import pyarrow as pa
from deltalake import Transaction

from rillnode.codecs.errors import ConfigError, StoreError
from rillnode.node.spark.delta_log import Numbered
from rillnode.node.spark.erasure import Erased, Erasures, Lock
from rillnode.node.spark.parquet import TableFile
from rillnode.node.spark.typed.arrays import REST, columns_of, table_schema
from rillnode.node.spark.typed.columns import (
    Column,
    Columns,
    check_columns,
    merge_columns,
    unfit_name,
    widened,
    written_columns,
)
from rillnode.node.spark.typed.layout import PLAIN, Layout
from rillnode.node.spark.typed.schemas import Schema as Declared
from rillnode.node.spark.typed.times import partition_fields


class Conflict(StoreError):
    """Another writer has committed first: nothing was done, and may be tried again."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The place where files for a table are written, and how.

    Attributes:
        directory: a directory or a URI.
        ids: numbers by which the table's format knows columns, by their paths; empty for names.
    """

    directory: str
    ids: dict[str, int] = {}


class SchemaVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One schema of a table's history.

    Attributes:
        version: its number, from 1.
        at: since when.
        why: what has changed it.
        columns: its columns, as in TOML.
    """

    version: int
    at: datetime
    why: str
    columns: dict[str, Any]


class OpenTable(Numbered, Protocol):
    """A table as of one of its versions."""

    @property
    def arrow_schema(self) -> pa.Schema:
        """Its columns."""
        ...

    @property
    def id(self) -> str:
        """What no other table has, one that is made anew in its place included."""
        ...

    def count(self) -> int:
        """The number of its rows."""
        ...

    def files(self) -> list[str]:
        """Its files, as `TableStore.uris` takes them.

        Raises:
            StoreError: `table.deletes`, another writer has deleted rows beside the files.
        """
        ...

    def figures(self) -> dict[str, Any]:
        """Sizes of its files, and its last commit, for people."""
        ...

    def rows(self) -> Iterator[pa.RecordBatch]:
        """All of its rows."""
        ...

    def commit(
        self,
        added: Sequence[TableFile],
        numbers: Sequence[Transaction],
        *,
        removed: Sequence[str] = (),
        pair: dict[str, Any] | None = None,
        noted: Mapping[str, Any] | None = None,
    ) -> None:
        """Commit files that are written; all is durable when this returns.

        Args:
            added: files in the store's directory.
            numbers: what the commit leaves.
            removed: files that go.
            pair: what `TableStore.pair` is to find.
            noted: what `noted` is to find.

        Raises:
            Conflict: another writer was first, and nothing was done.
            ConfigError: `table.schema`, a file has other columns than the table.
            StoreError: `table.pair`, a file is gone.
        """
        ...

    def noted(self, name: str, commits_max: int) -> Iterator[Any]:
        """What the newest commits have noted under a name, the newest first."""
        ...


class TableStore(Protocol):
    """A table in its format, whether it is made already or not.

    Attributes:
        name: what people call it: its location, or its name with its catalog's.
    """

    name: str

    def open(self) -> OpenTable | None:
        """The table as of now; None before it is made.

        Raises:
            ConfigError: `table.schema`, columns that files are written for are not there any more.
        """
        ...

    def place(self) -> Place:
        """Where files for the table are written.

        Raises:
            StoreError: `table.busy`, it was removed.
        """
        ...

    def uris(self, files: Sequence[str]) -> list[str]:
        """Where some of the table's files lie."""
        ...

    def history(self) -> list[SchemaVersion]:
        """All schemas that the table has had, in order."""
        ...

    def check(self, columns: Columns) -> None:
        """Refuse columns that the format does not have.

        Raises:
            ConfigError: `table.column`, which.
        """
        ...

    def become(self, schema: pa.Schema, noted: SchemaVersion | None) -> OpenTable:
        """Make the table, or let it have these columns; what it has besides stays.

        Raises:
            ConfigError: `table.schema` or `table.layout`, it cannot, or is a table of another kind.
            StoreError: `table.busy`, somebody else commits all the time.
        """
        ...

    def committing(self) -> AbstractContextManager[None]:
        """Keep a second committer off, where the format itself does not."""
        ...

    def pair(self, number: int) -> dict[str, Any] | None:
        """What the commit of the pair of that number has said; None where nobody knows."""
        ...

    def allowed(self, files: Sequence[TableFile], erasures: Erasures) -> list[TableFile]:
        """Files that a commit is about to add, without entries that were erased."""
        ...

    def erase(self, erased: Erased, lock: Lock) -> int:
        """Take out rows of entries that were erased; returns how many there were.

        Raises:
            StoreError: `table.busy`, somebody else commits all the time.
        """
        ...

    def remove(self, names: Sequence[str]) -> None:
        """Remove files that no commit has added."""
        ...

    def maintain(self) -> str | None:
        """Do the next piece of work that keeps the table in few files; returns what was done."""
        ...


def present_columns(table: OpenTable | None, name: str) -> Columns:
    """The columns that a table has now; none where there is no table yet.

    Raises:
        ConfigError: `table.schema`, it is no typed table.
    """
    if table is None:
        return ()
    schema = table.arrow_schema
    if "_stream" not in schema.names:
        text = f"{name} is a table of another kind: give this one a place of its own"
        raise ConfigError("table.schema", text)
    return columns_of(schema)


def other_columns(present: pa.Schema, wanted: pa.Schema) -> list[str]:
    """Those of some columns that a table does not have, or as another type."""
    kinds = {one.name: _small(one.type) for one in present}
    return [one.name for one in wanted if kinds.get(one.name) != _small(one.type)]


def _small(kind: pa.DataType) -> pa.DataType:
    """A type as files have it; Iceberg's reader makes large texts of texts."""
    if pa.types.is_large_string(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) else kind


def usable(present: Columns, found: Columns, store: TableStore) -> Columns:
    """Those of some new columns that a table can take in."""
    taken: list[Column] = []
    for one in _without_unfit(found):
        try:
            merged = merge_columns(present, (*taken, one), widen=False)
            check_columns(merged)
            store.check(merged)
        except ConfigError:
            continue  # its entries become rejects, which say so
        taken.append(one)
    return tuple(taken)


def _without_unfit(columns: Columns) -> Columns:
    """Columns without those in them whose names no column can have."""
    kept: dict[str, Column] = {}
    for one in columns:
        if one.name and unfit_name(one.name):
            continue
        inner = _without_unfit(one.columns)
        if inner or not one.columns:
            kept.setdefault(one.name.lower(), replace(one, columns=inner))
    return tuple(kept.values())


class TableSchema:
    """A typed table's schema.

    Args:
        store: the table.
        widen: whether whole numbers may become floating-point ones.
        rest: whether `_rest` is kept.
        layout: how its rows are kept.
    """

    def __init__(
        self, store: TableStore, *, widen: bool, rest: bool, layout: Layout = PLAIN
    ) -> None:
        self._layout = layout
        self._store = store
        self._widen = widen
        self._rest = rest
        self._history: list[SchemaVersion] | None = None
        self._declared: Columns = ()

    def present(self) -> Columns:
        """The columns that it has now."""
        return present_columns(self._store.open(), self._store.name)

    def history(self) -> list[SchemaVersion]:
        """All schemas that the table has had, the present one last."""
        if self._history is None:
            self._history = self._store.history()
        return self._history

    def declare(self, declared: Declared, why: str) -> tuple[OpenTable, Columns]:
        """Make the table, or let it become what is declared; gives it with its columns.

        Raises:
            ConfigError: a column would have to change its type.
        """
        self._declared = declared.columns
        return self._become(declared.columns, why)

    def take_in(self, found: Columns, wide: Sequence[Sequence[str]]) -> tuple[OpenTable, Columns]:
        """Let the table have what entries have been found to have.

        Raises:
            ConfigError: it cannot be so.
        """
        present = self.present()
        wanted = widened(merge_columns(present, self._declared, widen=self._widen), wide)
        names = [one.name for one in found] + [".".join(filter(None, one)) for one in wide]
        why = f"entries had {', '.join(names)}"[:500]
        return self._become(merge_columns(wanted, found, widen=False), why)

    def _become(self, wanted: Columns, why: str) -> tuple[OpenTable, Columns]:
        table = self._store.open()
        if table is None:
            self._history = None  # of one that was removed
        merged = merge_columns(present_columns(table, self._store.name), wanted, widen=self._widen)
        # What is declared says which columns every entry has; the table itself does not know.
        merged = merge_columns(merged, self._declared, widen=self._widen)
        check_columns(merged)
        self._store.check(merged)
        had_rest = table is not None and REST.name in table.arrow_schema.names
        self._layout.check(merged)
        own = partition_fields(self._layout)
        schema = table_schema(merged, rest=self._rest or had_rest, own=own)
        noted = self._noted(merged, why)
        table = self._store.become(schema, noted)
        if noted is not None:
            self.history().append(noted)
        return table, merged

    def _noted(self, columns: Columns, why: str) -> SchemaVersion | None:
        """What the history is to say; None where it says so already."""
        history = self.history()
        written = written_columns(columns)
        if history and history[-1].columns == written:
            return None
        number = history[-1].version + 1 if history else 1
        return SchemaVersion(version=number, at=datetime.now(UTC), why=why, columns=written)
