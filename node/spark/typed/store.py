"""What typed tables ask of a table format: Delta's and Iceberg's stores have the same methods.

A store is one table, the typed one or its rejects. Tasks write Parquet files into its directory;
a commit adds them, together with numbers that say how far the table has come, in one transaction
or not at all.
"""

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from rillnode.codecs.errors import StoreError

if TYPE_CHECKING:
    from rillnode.node.spark.typed.delta_store import DeltaStore, OpenDeltaTable
    from rillnode.node.spark.typed.iceberg_store import IcebergStore
    from rillnode.node.spark.typed.iceberg_table import OpenIcebergTable


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


OpenTable: TypeAlias = "OpenDeltaTable | OpenIcebergTable"
"""A table as of one of its versions."""
TableStore: TypeAlias = "DeltaStore | IcebergStore"
"""A table in its format, whether it is made already or not."""
