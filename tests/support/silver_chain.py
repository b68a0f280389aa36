"""The silver query's reader and writer over a bronze table, as Spark calls them, without Spark."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql.streaming.datasource import ReadMaxRows

from pipeline_samples import Bronze
from rillnode.node.spark.frames import SILVER_STRUCT
from rillnode.node.spark.silver import KEY_STRUCT, Silver, SilverReader, SilverWriter


class Chain:
    """A bronze table to fill, and the silver query over it."""

    def __init__(self, directory: Path, bronze: Bronze | None = None) -> None:
        self.bronze = bronze or Bronze(directory)
        self.silver = directory / "silver"
        self.checkpoint = directory / "silver-checkpoint"
        (self.checkpoint / "offsets").mkdir(parents=True)
        (self.checkpoint / "metadata").write_text('{"id": "silver-query"}')
        self.drain_file = directory / "drain"
        self.batch = 0

    def reader(self) -> SilverReader:
        options = {
            "path": str(self.bronze.table),
            "target": str(self.silver),
            "maxRowsPerTrigger": "15",
            "minPartitions": "2",
            "drainFile": str(self.drain_file),
            "keyFiles": "{}",
        }
        return Silver(options).streamReader(SILVER_STRUCT)

    def writer(self) -> SilverWriter:
        options = {
            "path": str(self.silver),
            "checkpointLocation": str(self.checkpoint),
            "bronze": str(self.bronze.table),
        }
        return Silver(options).streamWriter(KEY_STRUCT, overwrite=False)

    def run(self, start: dict[str, Any]) -> dict[str, Any]:
        """One batch, as Spark would run it without looking for duplicates."""
        reader, writer = self.reader(), self.writer()
        end = reader.latestOffset(start, ReadMaxRows(15))
        if end == start:
            return end
        text = f"v1\n{{}}\n{json.dumps(end)}\n"
        (self.checkpoint / "offsets" / str(self.batch)).write_text(text)
        tasks = reader.partitions(start, end)
        writer.commit([writer.write(reader.read(task)) for task in tasks], self.batch)
        self.batch += 1
        return end

    def indexes(self) -> list[int]:
        return sorted(
            index
            for name in DeltaTable(self.silver).file_uris()
            for index in pq.read_table(name, columns=["index"]).column(0).to_pylist()
        )
