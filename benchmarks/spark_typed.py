"""Typed tables beside what one would write instead, and what they take.

    python -m benchmarks.spark_typed [PART ...] [--quick] [--rows N] [--rounds R] [--dir DIRECTORY]

Parts, all of them unless some are named:

`rate`: all cases take the same entries, JSON of 1 KiB, and all but bronze and silver make the same
five columns of them, in one run, in one Spark session with two tasks. The node is a stand-in in a
process of its own, as in `benchmarks.spark`, and the files are those of a bronze table. Kafka has
none: *replay over TCP* is a plain PySpark job over rows like those of Kafka's source, bytes and
where they come from, that come over a socket. The first batches of a case are not counted.

`latency`: a node with a sink, `[[sink.python]]` and `[[sink.spark]]`, trigger 1 s: from its start
to the first row in the typed table, from an event to its row, and memory (`spark_tables latency`).

`idle`: 500 streams that `[[sink.python]]` has caught up with (`benchmarks.idle_sink`).

`trickle`: ten entries every three minutes for a day, each time a commit: how many
files are left, and how many there were at most.
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema, write_deltalake
from pyspark.sql import DataFrame, SparkSession, functions as f
from rich.console import Console
from rich.table import Table

from benchmarks import idle_sink
from benchmarks.spark import (
    BATCH_ROWS,
    Figure,
    from_node,
    landing_of,
    rate,
    run,
    sample_blocks,
    stand_in,
    stepped,
    working,
)
from benchmarks.spark_tables import STREAM, land, measure_latency, silver_query
from rillnode.codecs.entries import Block
from rillnode.node.spark.arrow import BatchBuilder
from rillnode.node.spark.delta import add_actions
from rillnode.node.spark.delta_log import TableLog
from rillnode.node.spark.frames import BRONZE_STRUCT
from rillnode.node.spark.job_config import TypedConfig
from rillnode.node.spark.landing import fetch, in_process as landing_in_process
from rillnode.node.spark.maintenance import Maintenance, live_files
from rillnode.node.spark.parquet import write_files
from rillnode.node.spark.ranges import ClientOptions
from rillnode.node.spark.session import on_spark, open_session
from rillnode.node.spark.tables import BRONZE_SCHEMA
from rillnode.node.spark.typed.query import TypedQuery
from rillnode.node.spark.typed.schemas import SchemaSource
from rillnode.node.spark.typed.work import Engine, do, in_process

PARTS: Final = ("rate", "latency", "idle", "trickle")
FIRST: Final = "node -> bronze, sink.spark"
_COLUMNS: Final = {
    "id": "int",
    "device": "string",
    "at": "timestamp_ms",
    "readings": ["float"],
    "note": "string",
}
_DDL: Final = "id BIGINT, device STRING, at BIGINT, readings ARRAY<DOUBLE>, note STRING"
_PLACE: Final = ("stream", "partition", "index", "received_at")
_ARROW: Final = pa.schema(
    [
        *(BRONZE_SCHEMA.field(name) for name in _PLACE),
        pa.field("id", pa.int64()),
        pa.field("device", pa.string()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("readings", pa.list_(pa.float64())),
        pa.field("note", pa.string()),
    ]
)
_TRICKLE_ROWS: Final = 10


class Rates:
    """The cases of `rate`; each takes all rows, and says what it cost.

    Args:
        spark: where Spark's cases run.
        options: lead to the stand-in.
        apart: the stand-in's process.
        bronze: a bronze table of the same rows.
        place: where a case has its files.
        rows: how many there are.
    """

    def __init__(
        self,
        spark: SparkSession,
        options: ClientOptions,
        apart: int,
        bronze: Path,
        place: Path,
        rows: int,
    ) -> None:
        self._spark = spark
        self._options = options
        self._apart = apart
        self._bronze = bronze
        self._place = place
        self._rows = rows
        self.cases: Mapping[str, Callable[[], Figure]] = {
            FIRST: lambda: self._landed(on_spark(spark, fetch), 2),
            "node -> bronze, sink.python": lambda: self._landed(landing_in_process, 1),
            "bronze -> typed, sink.spark": lambda: self._typed(on_spark(spark, do)),
            "bronze -> typed, sink.python": lambda: self._typed(in_process, tasks=1),
            "bronze -> silver": lambda: self._stepped(silver_query(spark, bronze, place).step),
            "Spark's files -> Parquet": lambda: self._files(parsed=False),
            "Spark's files, from_json -> Parquet": lambda: self._files(parsed=True),
            "replay over TCP, from_json -> Parquet": self._replayed,
            "Python loop, delta-rs": self._loop,
        }

    def _landed(self, engine: Engine, tasks: int) -> Figure:
        return self._stepped(landing_of(self._options, self._place, engine, tasks).step)

    def _typed(self, engine: Engine, tasks: int = 2) -> Figure:
        query = typed_query(self._bronze, self._place / "table", engine, tasks)
        return self._stepped(query.step)

    def _files(self, *, parsed: bool) -> Figure:
        reader = self._spark.readStream.schema(BRONZE_STRUCT).option("maxFilesPerTrigger", 2)
        frame = reader.parquet(str(self._bronze))
        writer = (_parsed(frame) if parsed else frame).writeStream.format("parquet")
        writer = writer.option("compression", "zstd").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self._place / "checkpoint"))
        return rate(writer.start(str(self._place / "table")), self._rows)

    def _replayed(self) -> Figure:
        frame = _parsed(from_node(self._spark, self._options))
        return run(frame, "parquet", self._place, self._rows, self._apart)

    def _loop(self) -> Figure:
        """What one writes first: a batch of rows, parsed one by one, appended."""
        files = sorted(self._bronze.glob("*.parquet"))
        pairs = iter(list(zip(files[::2], files[1::2], strict=True)))

        def step() -> bool:
            for pair in pairs:
                rows = [row for file in pair for row in _parsed_rows(pq.read_table(str(file)))]
                batch = pa.RecordBatch.from_pylist(rows, schema=_ARROW)
                reader = pa.RecordBatchReader.from_batches(_ARROW, [batch])
                write_deltalake(self._place / "table", reader, mode="append")
                return True
            return False

        return self._stepped(step)

    def _stepped(self, step: Callable[[], bool]) -> Figure:
        return stepped(step, self._place / "table", self._rows, self._apart)


def typed_query(bronze: Path, table: Path, engine: Engine, tasks: int) -> TypedQuery:
    """The query of a typed table of the sample's columns."""
    config = TypedConfig(
        name="typed",
        streams=("*",),
        dir=str(table),
        source=SchemaSource(columns=dict(_COLUMNS)),
        batch_rows_max=BATCH_ROWS,
    )
    return TypedQuery(config, TableLog(str(bronze)), engine, tasks_max=tasks)


def _parsed(rows: DataFrame) -> DataFrame:
    """The columns of bytes that came with where they stand."""
    value = f.from_json(f.col("data").cast("string"), _DDL)
    return rows.select(*_PLACE, value.alias("value")).select(
        *_PLACE,
        "value.id",
        "value.device",
        f.timestamp_millis("value.at").alias("at"),
        "value.readings",
        "value.note",
    )


def _parsed_rows(rows: pa.Table) -> list[dict[str, Any]]:
    parsed: list[dict[str, Any]] = []
    for row in rows.select([*_PLACE, "data"]).to_pylist():
        said = json.loads(row.pop("data"))
        said["at"] = datetime.fromtimestamp(said["at"] / 1_000, UTC)
        parsed.append(row | said)
    return parsed


def measure_rates(rows: int, rounds: int, directory: Path) -> dict[str, Figure]:
    """The median of each case's rounds."""
    bronze, place = directory / "bronze", directory / "case"
    land(bronze, rows)
    spark = open_session("benchmark", master="local[2]", work_dir=directory / "work")
    figures: dict[str, list[Figure]] = {}
    with stand_in(rows) as (options, apart):
        cases = Rates(spark, options, apart, bronze, place, rows).cases
        for _ in range(rounds):
            for name, case in cases.items():
                figures.setdefault(name, []).append(case())
                shutil.rmtree(place)
    spark.stop()
    return {
        name: Figure(
            statistics.median(one.rows_per_second for one in each),
            statistics.median(one.cpu_seconds_per_million for one in each),
        )
        for name, each in figures.items()
    }


def show_rates(figures: Mapping[str, Figure]) -> None:
    """A table, each case beside bronze."""
    table = Table("case", "rows/s", "x bronze", "CPU s / million")
    bronze = figures[FIRST].rows_per_second
    for name, one in figures.items():
        ratio = one.rows_per_second / bronze
        cpu = f"{one.cpu_seconds_per_million:.1f}"
        table.add_row(name, f"{one.rows_per_second:,.0f}", f"{ratio:.2f}", cpu)
    Console().print(table)


def measure_trickle(commits: int, directory: Path) -> None:
    """Commit a few entries at a time, keep the tables as a job does, and show their files."""
    places = {"bronze": directory / "bronze", "typed": directory / "typed"}
    bronze = DeltaTable.create(places["bronze"], Schema.from_arrow(BRONZE_SCHEMA))
    keeping = Maintenance(str(places["bronze"]), 200)
    query = typed_query(places["bronze"], places["typed"], in_process, 1)
    most = dict.fromkeys(places, 0)
    (value,) = sample_blocks(1)
    for first in range(0, commits * _TRICKLE_ROWS, _TRICKLE_ROWS):
        builder = BatchBuilder()
        builder.add_block(STREAM, 0, Block(first, value), first, first + _TRICKLE_ROWS)
        files = list(write_files(str(places["bronze"]), [builder.finish()]))
        actions = add_actions(files, data_change=True)
        bronze.create_write_transaction(actions, "append", bronze.schema())
        bronze.update_incremental()
        while keeping.step(bronze):
            bronze.update_incremental()
        while query.step():
            while query.maintain():
                continue
        if first // _TRICKLE_ROWS % 20 == 0:
            for name, place in places.items():
                most[name] = max(most[name], len(live_files(DeltaTable(place))))
    table = Table("table", "commits", "rows", "files", "at most", "MiB", "on disk", "MiB on disk")
    for name, place in places.items():
        live = live_files(present := DeltaTable(place))
        disk = [one.stat().st_size for one in place.rglob("*") if one.is_file()]
        table.add_row(
            name, str(present.version()), f"{present.count():,}", str(len(live)), str(most[name]),
            f"{sum(one.size for one in live) / 2**20:.1f}", str(len(disk)),
            f"{sum(disk) / 2**20:.1f}",
        )  # fmt: skip
    Console().print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse arguments and measure."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark_typed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", default=PARTS)
    parser.add_argument("--quick", action="store_true", help="small and short: does it work?")
    parser.add_argument("--rows", type=int, default=600_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--dir", type=Path, default=None, help="a directory on a disk")
    options = parser.parse_args(arguments)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part {sorted(unknown)[0]!r}: there are {' '.join(PARTS)}")
    asked = 0 if options.quick else options.rows
    with working("rillnode-typed-", options.dir, asked) as (directory, rows):
        for part in PARTS:
            if part not in options.parts:
                continue
            print(f"{part}: load {os.getloadavg()[0]:.1f}", file=sys.stderr)
            place = directory / part
            place.mkdir()
            match part:
                case "rate":
                    show_rates(measure_rates(rows, options.rounds, place))
                case "latency":
                    for kind in ("python", "spark"):
                        seconds = 5.0 if options.quick else 20.0
                        asyncio.run(measure_latency(kind, 1_000, seconds, place / kind))
                case "idle":
                    found = idle_sink.measure(place, kind="python", streams=500, seconds=20.0)
                    print(json.dumps(asyncio.run(found)))
                case _:
                    measure_trickle(240 if options.quick else 480, place)
            shutil.rmtree(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
