"""Tables made of each other, for tests with Spark: a bronze table to fill, silver, gold."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline_samples import TIME, Query, make_block
from rillnode.codecs.entries import EntryKind
from rillnode.node.spark.arrow import BatchBuilder
from rillnode.node.spark.silver import start_silver
from rillnode.node.spark.tables import GoldTable
from rillnode.node.spark.upsert import read_rows
from rillnode.node.spark.views.planning import gold_views
from rillnode.node.spark.views.query import SilverSource, ViewQuery


class Pipeline:
    """A bronze table that a test fills, and the query that makes silver of it.

    Attributes:
        key_files: with which silver decrypts.
    """

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.bronze = Query(directory)
        self.silver = directory / "silver"
        self.checkpoint = self.silver / "_checkpoints" / "silver"
        self.gold = directory / "gold"
        self.key_files: dict[str, str] = {}
        self._indexes: dict[int, int] = {}
        self._batch = 0

    def land(
        self,
        *items: bytes,
        kind: EntryKind = EntryKind.STREAMR,
        partition: int = 0,
        received_at: int = TIME,
        lost: str | None = None,
    ) -> None:
        """Land entries as one batch of bronze, with a row for entries of stream `lost`."""
        builder = BatchBuilder()
        if lost is not None:
            builder.add_gap(lost, 3, 5, 9)
        first = self._indexes.get(partition, 0)
        until = self._indexes[partition] = first + len(items)
        if items:
            block = make_block(first, list(items), kind=kind, received_at=received_at)
            builder.add_block("s", partition, block, first, until)
        self.bronze.run(self._batch, builder.finish())
        self._batch += 1

    def run(self, rows_max: int = 100_000) -> None:
        """Run the query until it has what bronze has."""
        query = start_silver(
            self.spark,
            bronze=str(self.bronze.table),
            table=str(self.silver),
            checkpoint=str(self.checkpoint),
            drain_file=self.silver / "drain",
            rows_max=rows_max,
            duplicate_seconds=600,
            key_files=self.key_files,
            trigger={"availableNow": True},
        )
        query.awaitTermination()

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
