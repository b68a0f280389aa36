"""Typed tables made by Spark's own tasks, and the format that Spark finds by itself."""

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from iceberg_lake import IcebergLake
from rillnode.node.spark.frames import BRONZE_STRUCT, read_delta
from rillnode.node.spark.offsets import TASK_ROWS_MIN
from rillnode.node.spark.session import on_spark
from rillnode.node.spark.typed.layout import Layout
from rillnode.node.spark.typed.work import do, in_process
from typed_samples import Lake, run

pytestmark = pytest.mark.spark


def test_tasks_of_spark_land_what_one_process_would(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    total = 2 * TASK_ROWS_MIN + 100
    for first in range(0, total, TASK_ROWS_MIN // 2):
        numbers = range(first, min(total, first + TASK_ROWS_MIN // 2))
        lake.push(*(
            json.dumps({"id": at if at % 100 else "x", "pos": {"lat": at, "n": at}}).encode()
            for at in numbers
        ))  # fmt: skip
    for name, engine in {"spark": on_spark(spark, do), "here": in_process}.items():
        columns = {"id": "int", "pos": {"lat": "float"}}
        query = lake.table(name, engine, columns=columns, tasks_max=3)
        run(query)
    assert lake.rows("spark") == lake.rows("here")
    assert len(lake.rows("spark_rejects")) == len(range(0, total, 100))
    assert lake.rows("spark")[0]["pos"] == {"lat": 1.0, "n": 1}
    frame = read_delta(spark, str(tmp_path / "spark"))
    assert frame.where("pos.n > 100").count() == sum(1 for at in range(101, total) if at % 100)


@pytest.mark.long
def test_tasks_of_spark_write_files_of_iceberg_tables(spark: SparkSession, tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path)
    total = 2 * TASK_ROWS_MIN
    for first in range(0, total, TASK_ROWS_MIN):
        numbers = range(first, first + TASK_ROWS_MIN)
        entries = ({"id": at if at % 100 else "x", "pos": {"lat": at, "n": at}} for at in numbers)
        lake.push(*(json.dumps(one).encode() for one in entries))
    columns = {"id": "int", "pos": {"lat": "float"}}
    run(lake.table("t", on_spark(spark, do), columns=columns, tasks_max=3))
    assert lake.places() == [at for at in range(total) if at % 100]
    assert lake.rows()[0]["pos"] == {"lat": 1.0, "n": 1}
    assert len(lake.rows("t_rejects")) == len(range(0, total, 100))


def test_spark_finds_the_format_without_being_told(spark: SparkSession) -> None:
    fresh = spark.newSession()  # it knows nothing of what was registered with the first
    assert fresh.read.format("rillnode").load().schema == BRONZE_STRUCT


@pytest.mark.long
def test_tasks_of_spark_keep_keys_and_partitions_as_one_process_would(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(tmp_path)
    for first in range(0, 3 * TASK_ROWS_MIN, TASK_ROWS_MIN):
        lake.push(*(
            json.dumps({"id": at % 1_000, "n": at, "op": f"o{at % 3}"}).encode()
            for at in range(first, first + TASK_ROWS_MIN)
        ))  # fmt: skip
    total = 3 * TASK_ROWS_MIN
    layout = Layout(key=("id",), delete_when="id < 100", partition_by=("op",))
    plain = Layout(partition_by=("op", "day(_received_at)"))
    columns = {"id": "int", "n": "int", "op": "string"}
    for name, engine in {"spark": on_spark(spark, do), "here": in_process}.items():
        run(lake.table(name, engine, columns=columns, layout=layout, tasks_max=3))
    run(lake.table("parted", on_spark(spark, do), columns=columns, layout=plain, tasks_max=3))
    assert lake.rows("spark") == lake.rows("here")
    assert {row["n"] for row in lake.rows("spark")} == {
        at for at in range(total - 1_000, total) if at % 1_000 >= 100
    }
    frame = spark.read.option("basePath", str(tmp_path / "parted")).parquet(
        *DeltaTable(tmp_path / "parted").file_uris()
    )
    assert frame.count() == total
    assert frame.where("op = 'o1' and n % 3 = 1").count() == total // 3
