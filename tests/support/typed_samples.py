"""Typed tables over a bronze table that a test fills, without Spark."""

import datetime
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipeline_samples import TIME, Bronze, make_block
from rillnode.codecs.entries import EntryKind
from rillnode.node.spark.arrow import BatchBuilder
from rillnode.node.spark.delta_log import TableLog
from rillnode.node.spark.job_config import TypedConfig
from rillnode.node.spark.typed.decode import Landed, Lander, Plan
from rillnode.node.spark.typed.delta_store import OpenDeltaTable
from rillnode.node.spark.typed.query import TypedQuery
from rillnode.node.spark.typed.schemas import Schema, SchemaSource
from rillnode.node.spark.typed.work import Engine, in_process
from table_readers import plain_rows

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
CREATED_AT = 1_600_000_000_000
COLUMNS: dict[str, Any] = {"id": "int", "at": "timestamp", "temp": "float?"}


class Position(msgspec.Struct):
    lat: float
    lon: float | None = None


class Reading(msgspec.Struct):
    """What the application of the tests pushes."""

    id: int
    at: datetime.datetime
    temp: float | None = None
    pos: Position | None = None
    tags: list[str] = []


def entries(*items: bytes, kind: EntryKind = EntryKind.BYTES, stream: str = "s") -> pa.RecordBatch:
    """Rows of bronze."""
    builder = BatchBuilder()
    block = make_block(0, list(items), kind=kind)
    builder.add_block(stream, 0, block, 0, len(items), created_at=CREATED_AT)
    return builder.finish()


def land(
    items: Sequence[bytes],
    columns: dict[str, Any] | None = None,
    schema: Schema | None = None,
    *,
    kind: EntryKind = EntryKind.BYTES,
    **plan: Any,
) -> Landed:
    """Land entries by columns or a schema."""
    source = SchemaSource(columns=columns or {})
    lander = Lander(Plan(source=source, table=plan.pop("table", {}), **plan), schema)
    return lander.land(entries(*items, kind=kind), NOW)


def values(landed: Landed) -> list[dict[str, Any]]:
    """The rows of a table, without where they come from."""
    rows: list[dict[str, Any]] = landed.rows.to_pylist()
    places = ("_stream", "_partition", "_index", "_received_at", "_created_at")
    return [{name: row[name] for name in row.keys() - {*places}} for row in rows]


def reasons(landed: Landed) -> list[str]:
    """Why entries did not fit."""
    found: list[str] = landed.rejects.column("reason").to_pylist()
    return found


class Lake:
    """A bronze table, and typed tables made of it.

    Attributes:
        opened: what typed tables are when they are open.
    """

    opened: type[Any] = OpenDeltaTable

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.bronze = Bronze(directory)
        self._batch = 0
        self._next: dict[tuple[str, int], int] = {}

    def push(
        self,
        *items: bytes,
        stream: str = "s",
        created_at: int = CREATED_AT,
        received_at: int = TIME,
        partition: int = 0,
        kind: EntryKind = EntryKind.BYTES,
    ) -> None:
        """Land entries of a stream as one batch of bronze."""
        first = self._next.get((stream, partition), 0)
        until = self._next[stream, partition] = first + len(items)
        builder = BatchBuilder()
        block = make_block(first, list(items), received_at=received_at, kind=kind)
        builder.add_block(stream, partition, block, first, until, created_at=created_at)
        self.bronze.run(self._batch, builder.finish())
        self._batch += 1

    def go_on(self, other: "Lake") -> None:
        """Have what another one has, and go on from there."""
        shutil.copytree(other.directory, self.directory, dirs_exist_ok=True)
        self._batch, self._next = other._batch, dict(other._next)

    def remove(self) -> None:
        """Remove the streams: those that are pushed to then are made anew."""
        self._next.clear()

    def config(self, name: str = "t", **keys: Any) -> TypedConfig:
        """A typed table's configuration."""
        columns = keys.pop("columns", COLUMNS)
        keys.setdefault("source", SchemaSource(columns=columns))
        keys.setdefault("streams", ("*",))
        return TypedConfig(name=name, dir=str(self.directory / name), **keys)

    def read(self, name: str) -> list[dict[str, Any]]:
        """The rows of a table as another program reads them; none where there is none."""
        path = self.directory / name
        if not DeltaTable.is_deltatable(str(path)):
            return []
        rows: list[dict[str, Any]] = plain_rows(str(path)).to_pylist()
        return rows

    def table(
        self, name: str = "t", engine: Engine = in_process, *, tasks_max: int = 1, **keys: Any
    ) -> TypedQuery:
        """The query of a typed table."""
        config, bronze = self.config(name, **keys), TableLog(str(self.bronze.table))
        return TypedQuery(config, bronze, engine, tasks_max=tasks_max)

    def rows(self, name: str = "t") -> list[dict[str, Any]]:
        """The rows of a table, by the place of their entries."""
        return sorted(self.read(name), key=lambda row: (row["_stream"], row["_index"]))

    def write(self, rows: pa.Table, *, anew: bool = False, name: str = "t") -> None:
        """Write to a table as somebody else would: append rows, or replace them and its columns.

        The stubs of pyarrow do not know that its tables are what `write_deltalake` takes.
        """
        data: Any = rows
        if anew:
            write_deltalake(self.directory / name, data, mode="overwrite", schema_mode="overwrite")
        else:
            write_deltalake(self.directory / name, data, mode="append", schema_mode="merge")

    def places(self, name: str = "t") -> list[int]:
        """The indexes of the entries in a table."""
        return [row["_index"] for row in self.rows(name)]


def run(query: TypedQuery) -> None:
    """Let a table take in all that there is."""
    while query.step():
        continue


def die_after(
    monkeypatch: pytest.MonkeyPatch, commits: int, opened: type[Any] = OpenDeltaTable
) -> None:
    """Let the process be killed when it begins another commit to such tables."""
    real, left = opened.commit, [commits]

    def dying(table: Any, *args: Any, **keys: Any) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        real(table, *args, **keys)

    monkeypatch.setattr(opened, "commit", dying)
