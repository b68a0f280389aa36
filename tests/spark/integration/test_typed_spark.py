"""Typed tables made by Spark's own tasks, and the format that Spark finds by itself."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rillnode.node.spark.offsets import TASK_ROWS_MIN
from rillnode.node.spark.reports import read_delta
from rillnode.node.spark.session import on_spark
from rillnode.node.spark.structs import BRONZE_STRUCT
from rillnode.node.spark.typed.work import in_process
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
    for name, engine in {"spark": on_spark(spark), "here": in_process}.items():
        columns = {"id": "int", "pos": {"lat": "float"}}
        query = lake.table(name, engine, columns=columns, tasks_max=3)
        run(query)
    assert lake.rows("spark") == lake.rows("here")
    assert len(lake.rows("spark_rejects")) == len(range(0, total, 100))
    assert lake.rows("spark")[0]["pos"] == {"lat": 1.0, "n": 1}
    frame = read_delta(spark, str(tmp_path / "spark"))
    assert frame.where("pos.n > 100").count() == sum(1 for at in range(101, total) if at % 100)


def test_spark_finds_the_format_without_being_told(spark: SparkSession) -> None:
    fresh = spark.newSession()  # it knows nothing of what was registered with the first
    assert fresh.read.format("rillnode").load().schema == BRONZE_STRUCT
