"""The silver query's reader and writer, as Spark calls them, without Spark."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql.streaming.datasource import ReadMaxRows

from pipeline_samples import Query, rows
from rillnode.codecs.errors import ConfigError, StoreError
from rillnode.node.pipeline.delta_log import LogFile
from rillnode.node.pipeline.silver import (
    Silver,
    SilverReader,
    SilverWriter,
    read_file,
    share_files,
)
from rillnode.node.pipeline.silver_table import SILVER_SCHEMA, SILVER_STRUCT


class Chain:
    """A bronze table to fill, and the silver query over it."""

    def __init__(self, directory: Path) -> None:
        self.bronze = Query(directory)
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
        }
        return Silver(options).streamReader(SILVER_STRUCT)

    def writer(self) -> SilverWriter:
        options = {"path": str(self.silver), "checkpointLocation": str(self.checkpoint)}
        return Silver(options).streamWriter(SILVER_STRUCT, overwrite=False)

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


def test_batches_follow_bronze_and_a_new_checkpoint_goes_on(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    start = chain.reader().initialOffset()
    assert chain.run(start) == start  # without bronze there is nothing
    for batch in range(3):
        chain.bronze.run(batch, rows(batch * 10, 10))
    # Begun before bronze was there, and as a query that begins now.
    assert start["table"] == ""
    first = chain.run(start)
    assert chain.indexes() == list(range(20))
    assert chain.run(first) != first
    assert chain.indexes() == list(range(30))
    chain.bronze.run(3, rows(30, 5))
    chain.run(chain.reader().initialOffset())
    assert chain.indexes() == list(range(35))
    end = chain.reader().initialOffset()
    assert chain.run(end) == end


def test_a_batch_without_rows_still_says_how_far_it_has_come(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    chain.bronze.run(0, rows(0, 10))
    end = chain.run(chain.reader().initialOffset())
    DeltaTable(chain.bronze.table).delete()
    after = chain.run(end)
    assert after["version"] == end["version"] + 1
    assert chain.reader().initialOffset() == after
    assert chain.indexes() == list(range(10))


def test_no_batch_begins_while_the_query_is_drained(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    chain.bronze.run(0, rows(0, 10))
    start = chain.reader().initialOffset()
    chain.drain_file.touch()
    assert chain.run(start) == start


def test_a_query_for_the_present_ends_with_it(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    chain.bronze.run(0, rows(0, 10))
    reader = chain.reader()
    reader.prepareForTriggerAvailableNow()
    chain.bronze.run(1, rows(10, 10))
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
    assert end["version"] == 1


def test_rows_are_written_in_order_and_with_when_they_landed(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    chain.bronze.run(0, rows(5, 10, stream="b"), rows(0, 5, stream="b"), rows(0, 3, stream="a"))
    reader, writer = chain.reader(), chain.writer()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(100))
    batches = [batch for task in reader.partitions(start, end) for batch in reader.read(task)]
    assert all(batch.schema.equals(SILVER_SCHEMA) for batch in batches)
    (file,) = writer.write(iter([*reversed(batches), batches[0].slice(0, 0)])).files
    written = pq.read_table(str(chain.silver / file.name)).to_pylist()
    order = [(row["stream"], row["index"]) for row in written]
    assert order == sorted(order)
    assert {row["landed_at"].timestamp() * 1000 for row in written} == {end["time_ms"]}
    assert writer.write(iter([pa.RecordBatch.from_pylist([], schema=SILVER_SCHEMA)])).files == ()


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError, match="target"):
        Silver({"path": "b"}).streamReader(SILVER_STRUCT)
    with pytest.raises(ConfigError, match="`checkpointLocation`"):
        Silver({"path": "s"}).streamWriter(SILVER_STRUCT, overwrite=False)


def test_files_are_shared_out_in_order() -> None:
    files = [LogFile(str(at), count, None, None) for at, count in enumerate([4_000] * 6)]
    shares = [[file.path for file in task] for task in share_files(files, 2)]
    assert shares == [["0", "1", "2"], ["3", "4", "5"]]
    assert len(share_files(files, 100)) == 6
    assert len(share_files(files[:1], 100)) == 1
    assert share_files([], 2) == []


def test_a_file_that_is_gone_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="pipeline replay"):
        list(read_file(str(tmp_path / "gone.parquet")))
