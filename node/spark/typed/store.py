"""The port of table formats: what a typed table asks of Delta, or of another format.

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
from rillnode.node.spark.erasure import Erased, Erasures, Lock
from rillnode.node.spark.parquet import TableFile
from rillnode.node.spark.typed.columns import Columns


class Conflict(StoreError):
    """Another writer has committed first: nothing was done, and may be tried again."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where files for a table are written, and how.

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


class OpenTable(Protocol):
    """A table as of one of its versions."""

    @property
    def arrow_schema(self) -> pa.Schema:
        """Its columns."""
        ...

    @property
    def id(self) -> str:
        """What no other table has, one that is made anew in its place included."""
        ...

    def transaction_version(self, app_id: str) -> int | None:
        """A number that a commit has left; None where none has."""
        ...

    def count(self) -> int:
        """The number of its rows."""
        ...

    def files(self) -> list[str]:
        """Its files, as the format names them."""
        ...

    def figures(self) -> dict[str, Any]:
        """Sizes of its files, and its last commit, for people."""
        ...

    def rows(self) -> Iterator[pa.RecordBatch]:
        """All of its rows; some formats leave out columns that came after them."""
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
            Conflict: another writer was first; some formats see to this by themselves.
        """
        ...

    def noted(self, name: str, commits_max: int) -> Iterator[Any]:
        """What the newest commits have noted under a name, the newest first."""
        ...


class TableStore(Protocol):
    """A table in its format, whether it is made already or not.

    Attributes:
        name: as what people know it.
    """

    name: str

    def open(self) -> OpenTable | None:
        """The table as of now; None before it is made."""
        ...

    def place(self) -> Place:
        """Where files for the table are written; for some formats it is made first."""
        ...

    def uris(self, files: Sequence[str]) -> list[str]:
        """Where some of the table's files lie."""
        ...

    def history(self) -> list[SchemaVersion]:
        """All schemas that the table has had, the present one last."""
        ...

    def check(self, columns: Columns) -> None:
        """Refuse columns that the format cannot have.

        Raises:
            ConfigError: `table.column`, which, and why.
        """
        ...

    def become(self, schema: pa.Schema, noted: SchemaVersion | None) -> OpenTable:
        """Make the table, or let it have these columns; what it has besides stays.

        Args:
            schema: of what it is to hold; whole numbers may have become floating-point ones.
            noted: what its history is to say first; None where nothing is new.
        """
        ...

    def committing(self) -> AbstractContextManager[None]:
        """Keep a second committer off, where that can be done."""
        ...

    def pair(self, number: int) -> dict[str, Any] | None:
        """What the commit of the pair of that number has said; None where nobody knows."""
        ...

    def allowed(self, files: Sequence[TableFile], erasures: Erasures) -> list[TableFile]:
        """Files that a commit is about to add, without entries that were erased."""
        ...

    def erase(self, erased: Erased, lock: Lock) -> int:
        """Take out rows of entries that were erased; returns how many there were.

        Args:
            erased: what was erased.
            lock: keeps off who commits to the table.
        """
        ...

    def remove(self, names: Sequence[str]) -> None:
        """Remove files from its directory that no commit has added."""
        ...

    def maintain(self) -> str | None:
        """Do the next piece of work that keeps the table in few files; returns what was done."""
        ...
