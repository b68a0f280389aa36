"""Questions to a bronze table, answered by Spark, and bars of the answers for a terminal.

Entries are kept as they came, so that a question says how it reads them: with `json_text` and
`json_number`, which give null for what is no JSON or has no such field, and never fail.
"""

import json
from collections.abc import Sequence
from typing import Final

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession, functions as f
from pyspark.sql.types import StructType
from rich.bar import Bar
from rich.table import Table
from rich.text import Text

from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.frames import frame_of

BAR_WIDTH: Final = 40

Point = tuple[str, float]
"""A label and its value."""


def bar_table(title: str, points: Sequence[Point], *, unit: str = "events") -> Table:
    """Bars for a terminal, one line per point, scaled to the largest value.

    Labels are shown as they are, without any markup that they might hold.
    """
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    table.add_column(unit, justify="right")
    table.add_column("", width=BAR_WIDTH)
    largest = max((value for _, value in points), default=0) or 1
    for label, value in points:
        bar = Bar(largest, 0, max(value, 0), width=BAR_WIDTH, color="cyan")
        table.add_row(Text(label), f"{value:,.6g}" if value % 1 else f"{value:,.0f}", bar)
    return table


def read_delta(spark: SparkSession, table: str) -> DataFrame:
    """The rows of a Delta table's present version, for a Spark without Delta's own jar.

    Spark reads the Parquet files that the table's log names, and no others: what failed tasks or
    merges have left in the directory is not part of the table.

    Raises:
        ConfigError: the table needs more of its reader than a list of files.
    """
    present = DeltaTable(table)
    protocol = present.protocol()
    if protocol.min_reader_version > 1:
        raise ConfigError(
            "spark.table",
            f"{table} uses features of Delta that need Delta's own reader "
            f"(reader version {protocol.min_reader_version})",
        )
    schema = StructType.fromJson(json.loads(present.schema().to_json()))
    return frame_of(spark, present.file_uris(), schema)


def json_text(path: str) -> Column:
    """The field of an entry's JSON at a path such as `$.properties.place`, as text."""
    return f.get_json_object(f.col("data").cast("string"), path)


def json_number(path: str) -> Column:
    """The number in an entry's JSON at a path such as `$.properties.mag`."""
    return json_text(path).try_cast("double")


def json_time(path: str) -> Column:
    """The time in an entry's JSON at a path, given in milliseconds since 1970."""
    return f.timestamp_millis(json_text(path).try_cast("bigint"))


def events_per_key(rows: DataFrame, key: Column | str, *, limit: int = 20) -> DataFrame:
    """Number of entries per key, the largest first.

    Columns: key, events. Rows of kind `gap` are no entries.
    """
    return (
        _entries(rows)
        .groupBy(_column(key).alias("key"))
        .agg(f.count("*").alias("events"))
        .orderBy(f.desc("events"), "key")
        .limit(limit)
    )


def top_by(
    rows: DataFrame, number: Column, *, label: Column | str = "stream", limit: int = 5
) -> DataFrame:
    """The entries with the largest numbers, the largest first.

    Columns: label, number, stream, partition, index. Entries without the number are left out.
    """
    return (
        _entries(rows)
        .select(
            _column(label).alias("label"), number.alias("number"), "stream", "partition", "index"
        )
        .where(f.col("number").isNotNull())
        .orderBy(f.desc("number"), "stream", "partition", "index")
        .limit(limit)
    )


def events_per_hour(rows: DataFrame, time: Column | str = "received_at") -> DataFrame:
    """Number of entries per hour (UTC), in order; hours without entries are left out.

    Columns: hour, events.
    """
    hour = f.date_trunc("hour", _column(time)).alias("hour")
    counted = _entries(rows).groupBy(hour).agg(f.count("*").alias("events"))
    return counted.where(f.col("hour").isNotNull()).orderBy("hour")


def _entries(rows: DataFrame) -> DataFrame:
    return rows.where(f.col("kind") != "gap")


def _column(column: Column | str) -> Column:
    return f.col(column) if isinstance(column, str) else column
