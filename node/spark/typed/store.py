"""The port for table formats; `formats.py` chooses the one that a table is to have.

A store is one table, the typed one or its rejects. Tasks write Parquet files into its directory;
a commit adds them, together with numbers that say how far the table has come, in one transaction
or not at all.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol

import msgspec
import pyarrow as pa
from deltalake import Transaction

from rillnode.codecs.errors import StoreError
from rillnode.node.spark.delta_log import Numbered
from rillnode.node.spark.erasure import Erased, Erasures, Lock
from rillnode.node.spark.parquet import TableFile
from rillnode.node.spark.typed.columns import Columns


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
