"""Tables and checkpoints hold no paths: a moved directory goes on where it stopped."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from chained_tables import Pipeline
from fake_sink import FakeSink, job_settings
from rillnode.node.spark.job_config import JobConfig
from rillnode.node.spark.landing import Landing, fetch
from rillnode.node.spark.ranges import ClientOptions
from rillnode.node.spark.session import on_spark
from rillnode.node.spark.tables import MINUTES
from streamr_samples import make_message

pytestmark = [pytest.mark.spark, pytest.mark.long]


def land(spark: SparkSession, options: ClientOptions, table: Path) -> list[int]:
    """Land what is new; returns all indexes."""
    config = JobConfig(
        **job_settings(options),
        table_dir=str(table),
        checkpoint_dir=str(table / "_checkpoints" / "bronze"),
        work_dir=str(table.parent / "work"),
    )
    landing = Landing(config, on_spark(spark, fetch))
    while landing.step():
        continue
    found: list[int] = []
    for file in DeltaTable(table).file_uris():
        found += pq.read_table(file, columns=["index"]).column("index").to_pylist()
    return sorted(found)


def test_a_moved_bronze_table_gets_each_entry_once(
    spark: SparkSession, sink: FakeSink, tmp_path: Path
) -> None:
    options = sink.serve()
    sink.append("s", [b"%d" % at for at in range(10)])
    assert land(spark, options, tmp_path / "old") == list(range(10))
    (tmp_path / "old").rename(tmp_path / "new")
    sink.append("s", [b"%d" % at for at in range(10, 15)])
    assert land(spark, options, tmp_path / "new") == list(range(15))
    assert not (tmp_path / "old").exists()


def test_moved_silver_and_gold_go_on_and_remember(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    pipeline = Pipeline(old)
    pipeline.land(make_message(0), make_message(1))
    pipeline.run()
    pipeline.run_gold()
    old.rename(new)
    pipeline.bronze.table, pipeline.silver, pipeline.gold = (
        new / "table",
        new / "silver",
        new / "gold",
    )
    pipeline.land(make_message(1), make_message(2))  # the first of them came before the move
    pipeline.run()
    pipeline.run_gold()
    assert pipeline.indexes() == [0, 1, 3]
    (minute,) = pipeline.gold_rows(MINUTES)
    assert (minute["messages"], minute["duplicates"]) == (3, 1)
    assert not old.exists()
