"""Typed tables in Iceberg's format, and what reads them."""

from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from rillnode.node.spark.job_config import CatalogConfig, TypedConfig
from rillnode.node.spark.typed.iceberg_table import OpenIcebergTable
from typed_samples import Lake


class IcebergLake(Lake):
    """A bronze table, and typed tables made of it, in a catalog that is a file."""

    opened = OpenIcebergTable

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.uri = f"sqlite:///{directory}/catalog.db"
        self.catalog = CatalogConfig(name="rillnode", type="sql", uri=self.uri)

    @cached_property
    def _others(self) -> SqlCatalog:
        return SqlCatalog("rillnode", uri=self.uri)

    def config(self, name: str = "t", **keys: Any) -> TypedConfig:
        """A typed table's configuration."""
        keys.setdefault("catalog", self.catalog)
        return super().config(name, table=f"lake.{name}", **keys)

    def load(self, name: str = "t") -> Table:
        """A table as pyiceberg has it, by a connection of its own."""
        return self._others.load_table(f"lake.{name}")

    def append(self, name: str = "t", rows: int | None = None) -> None:
        """Let another writer append rows of a table to it again, all or some."""
        table: Any = self.load(name)
        table.append(table.scan().to_arrow().slice(0, rows))

    def read(self, name: str) -> list[dict[str, Any]]:
        """The rows of a table as pyiceberg reads them; none where there is none."""
        try:
            rows: list[dict[str, Any]] = self.load(name).scan().to_arrow().to_pylist()
        except NoSuchTableError:
            return []
        return rows


def by_duckdb(table: Table, columns: str = "*") -> list[tuple[Any, ...]]:
    """Rows of a table as DuckDB reads its data files by their field numbers."""
    files = [one.file.file_path.removeprefix("file://") for one in table.scan().plan_files()]
    sql = f"SELECT {columns} FROM read_parquet($files, union_by_name = true)"
    return duckdb.execute(sql, {"files": files}).fetchall()
