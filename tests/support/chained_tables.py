"""Tables made of each other, for tests: a bronze table to fill, silver, gold."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable

from pipeline_samples import TIME, Query, make_block
from rillnode.codecs.entries import EntryKind
from rillnode.node.spark.arrow import BatchBuilder
from rillnode.node.spark.job_config import DerivedConfig
from rillnode.node.spark.silver import SilverQuery, write_rows
from rillnode.node.spark.tables import GoldTable
from rillnode.node.spark.typed.work import Engine
from rillnode.node.spark.upsert import read_rows
from rillnode.node.spark.views.planning import gold_views
from rillnode.node.spark.views.query import SilverSource, ViewQuery


def in_process(tasks: Sequence[bytes]) -> list[bytes]:
    """Do the tasks of silver here."""
    return [write_rows(one) for one in tasks]


class Pipeline:
    """A bronze table that a test fills, and what is made of it.

    Attributes:
        key_files: with which silver decrypts.
    """

    def __init__(self, directory: Path, bronze: Query | None = None) -> None:
        self.bronze = bronze or Query(directory)
        self.silver = directory / "silver"
        self.gold = directory / "gold"
        self.key_files: dict[str, str] = {}
        self._indexes: dict[tuple[str, int], int] = {}
        self._batch = 0

    def config(self, **keys: Any) -> DerivedConfig:
        """The configuration of the tables."""
        return DerivedConfig(
            bronze_dir=str(self.bronze.table),
            silver_dir=str(self.silver),
            gold_dir=str(self.gold),
            checkpoint_dir=str(self.silver / "_checkpoints" / "silver"),
            consumer="sink/bronze",
            key_files=self.key_files,
            trigger_seconds=0.1,
            **keys,
        )

    def land(
        self,
        *items: bytes,
        kind: EntryKind = EntryKind.STREAMR,
        stream: str = "s",
        partition: int = 0,
        received_at: int = TIME,
        lost: str | None = None,
    ) -> None:
        """Land entries as one batch of bronze, with a row for entries of stream `lost`."""
        builder = BatchBuilder()
        if lost is not None:
            builder.add_gap(lost, 3, 5, 9)
        first = self._indexes.get((stream, partition), 0)
        until = self._indexes[stream, partition] = first + len(items)
        if items:
            block = make_block(first, list(items), kind=kind, received_at=received_at)
            builder.add_block(stream, partition, block, first, until)
        self.bronze.run(self._batch, builder.finish())
        self._batch += 1

    def query(self, engine: Engine = in_process, **keys: Any) -> SilverQuery:
        """The query of silver."""
        return SilverQuery(self.config(**keys), engine, tasks_max=2)

    def run(self, **keys: Any) -> None:
        """Run the query until it has what bronze has, as a process of its own."""
        query = self.query(**keys)
        while query.step():
            continue
        query.close()

    def run_gold(self) -> int:
        """Bring gold up with silver; returns the number of steps of all tables."""
        steps = 0
        for view in gold_views(str(self.gold)):
            query = ViewQuery(view, SilverSource(str(self.bronze.table), str(self.silver)))
            while query.step():
                steps += 1
        return steps

    def gold_rows(self, table: GoldTable) -> list[dict[str, Any]]:
        rows = read_rows(str(self.gold / table.name), table).to_pylist()
        return sorted(rows, key=lambda row: (row["minute"], row.get("partition", 0)))

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for name in DeltaTable(self.silver).file_uris():
            rows += pq.read_table(name).to_pylist()
        return sorted(rows, key=lambda row: (row["partition"], row["index"]))

    def indexes(self) -> list[int]:
        return [row["index"] for row in self.rows()]
