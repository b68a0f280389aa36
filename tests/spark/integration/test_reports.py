import datetime
import json
from pathlib import Path

import pytest
from deltalake import Schema
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from demo_report import (
    bar_table,
    events_per_hour,
    events_per_key,
    json_number,
    json_text,
    json_time,
    top_by,
)
from pipeline_samples import Query, make_block
from rillnode.node.spark.arrow import BatchBuilder
from rillnode.node.spark.delta import open_to_write
from rillnode.node.spark.frames import read_delta
from rillnode.node.spark.tables import BRONZE_SCHEMA

HOUR_MS = 3_600_000
START = datetime.datetime(2026, 3, 1, 5, 30, tzinfo=datetime.UTC)


def quakes() -> list[bytes]:
    start = int(START.timestamp() * 1000)
    documents = [
        {"p": {"mag": mag, "place": place}, "time": start + hours * HOUR_MS}
        for mag, place, hours in [
            (4.5, "Alaska", 0),
            (6.1, "Chile", 0),
            (None, "Chile", 1),
            (5.0, "Chile", 26),
            (2.2, "Japan", 26),
        ]
    ]
    return [json.dumps(document).encode() for document in documents] + [b"no JSON", b"\xff\xfe"]


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> DataFrame:
    query = Query(tmp_path)
    items = quakes()
    builder = BatchBuilder()
    builder.add_block("q", 0, make_block(0, items), 0, len(items))
    builder.add_gap("q", 0, len(items), len(items) + 5)
    query.run(0, builder.finish())
    (query.table / "part-orphan.parquet").write_bytes(b"what a failed task has left")
    return read_delta(spark, str(query.table))


@pytest.mark.spark
def test_reports_answer_over_the_live_files_and_skip_what_is_no_json(table: DataFrame) -> None:
    assert table.count() == len(quakes()) + 1
    places = events_per_key(table, json_text("$.p.place")).collect()
    per_key = [(row["key"], row["events"]) for row in places]
    assert per_key == [("Chile", 3), (None, 2), ("Alaska", 1), ("Japan", 1)]
    magnitude, place = json_number("$.p.mag"), json_text("$.p.place")
    top = top_by(table, magnitude, label=place, limit=2).collect()
    assert [(row["label"], row["number"], row["index"]) for row in top] == [
        ("Chile", 6.1, 1),
        ("Chile", 5.0, 3),
    ]
    hourly = events_per_hour(table, json_time("$.time"))
    texts = hourly.selectExpr("date_format(hour, 'dd HH:mm') AS hour", "events").collect()
    hours = [(row["hour"], row["events"]) for row in texts]
    assert hours == [("01 05:00", 2), ("01 06:00", 1), ("02 07:00", 2)]
    received = events_per_hour(table).collect()
    assert [row["events"] for row in received] == [len(quakes())]


@pytest.mark.spark
def test_a_table_without_files_has_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(tmp_path)
    open_to_write(str(query.table), Schema.from_arrow(BRONZE_SCHEMA))
    frame = read_delta(spark, str(query.table))
    assert frame.columns[:3] == ["stream", "partition", "index"]
    assert frame.count() == 0


def test_bars_are_drawn_to_scale_and_labels_are_not_markup() -> None:
    console = Console(width=100, record=True, file=None, force_terminal=False, quiet=True)
    console.quiet = False
    with console.capture() as capture:
        console.print(bar_table("Events", [("[red]a", 10), ("b", 5), ("c", 0)]))
    lines = capture.get().splitlines()
    full, half, none = (line.count("█") for line in lines[-3:])
    assert (full, half, none) == (40, 20, 0)
    assert "[red]a" in lines[-3]
    assert "10" in lines[-3]


def test_bars_without_points_are_an_empty_table() -> None:
    assert bar_table("Events", []).row_count == 0
