"""From bronze to silver, and from an event to its row of silver and of a typed table.

    python -m benchmarks.spark_tables rate [--rows N] [--rounds R] [--dir DIRECTORY]
    python -m benchmarks.spark_tables latency [--kind KIND] [--per-second N] [--seconds S]
                                              [--dir DIRECTORY]

`rate` lands 1 KiB JSON entries in a bronze table and makes silver of them, beside what Spark does
by itself with the same files: its file source, JSON parsed, duplicates left out by its state store,
its Parquet sink. The first batches of a case are not counted.

`latency` runs a node with a sink of either kind, pushes events over the encrypted link at a steady
rate and looks at a typed table afterwards, and with Spark at silver: from the time that an event
says it was made at to the commit that holds it, and from the start of the node to the first commit.
The memory is that of the job's Java virtual machine and of all its processes together,
each process's share of what they share, at its highest.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from pyspark.sql import SparkSession, functions as f
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.table import Table

import rillnode
from benchmarks.spark import (
    BATCH_ROWS,
    BLOCK_ROWS,
    Figure,
    rate,
    sample_blocks,
    show,
    stepped,
    working,
)
from rillnode.codecs.entries import Block
from rillnode.node.config import Config, GrantTable, HttpListener, Location, NoiseListener
from rillnode.node.keys.files import read_or_make_key
from rillnode.node.runtime import Node
from rillnode.node.spark.arrow import BatchBuilder
from rillnode.node.spark.config import PythonSink, SinkTables, SparkSink
from rillnode.node.spark.delta import add_actions
from rillnode.node.spark.delta_log import live_files, open_table
from rillnode.node.spark.frames import BRONZE_STRUCT
from rillnode.node.spark.job_config import DerivedConfig
from rillnode.node.spark.parquet import TableFile, write_files
from rillnode.node.spark.process import session_members
from rillnode.node.spark.session import on_spark, open_session
from rillnode.node.spark.silver import SilverQuery, write_rows
from rillnode.node.spark.table_config import TypedTable
from rillnode.node.spark.tables import BRONZE_SCHEMA

DUPLICATE_SECONDS: Final = 600.0
STREAM: Final = "sensors"
PUSHES_PER_SECOND: Final = 20
WARM_SECONDS: Final = 10.0
"""Time after the first rows whose events are not counted: Spark's code is compiled meanwhile."""
LAND_SECONDS_MAX: Final = 300.0


def land(bronze: Path, rows: int) -> None:
    """Write `rows` rows to a bronze table, two files and `BATCH_ROWS` rows per version."""
    DeltaTable.create(bronze, Schema.from_arrow(BRONZE_SCHEMA))
    blocks = sample_blocks()
    for first in range(0, rows, BATCH_ROWS):
        files: list[TableFile] = []
        for half in range(first, first + BATCH_ROWS, BATCH_ROWS // 2):
            builder = BatchBuilder()
            for at in range(half, half + BATCH_ROWS // 2, BLOCK_ROWS):
                block = Block(at, blocks[at // BLOCK_ROWS % len(blocks)])
                builder.add_block(STREAM, 0, block, block.first_index, block.next_index)
            files += write_files(str(bronze), [builder.finish()])
        table = DeltaTable(bronze)
        table.create_write_transaction(
            add_actions(files, data_change=True), "append", table.schema()
        )


def silver_query(spark: SparkSession, bronze: Path, place: Path) -> SilverQuery:
    """The query of silver."""
    config = DerivedConfig(
        bronze_dir=str(bronze),
        silver_dir=str(place / "table"),
        checkpoint_dir=str(place / "checkpoint"),
        consumer="benchmark",
        duplicate_seconds=DUPLICATE_SECONDS,
        batch_rows_max=BATCH_ROWS,
    )
    return SilverQuery(config, on_spark(spark, write_rows), tasks_max=2)


def sparks(spark: SparkSession, bronze: Path, place: Path) -> StreamingQuery:
    """The same work with what Spark has."""
    reader = spark.readStream.schema(BRONZE_STRUCT).option("maxFilesPerTrigger", 2)
    text = f.col("data").cast("string")
    once = (
        reader.parquet(str(bronze))
        .withColumn("content", text)
        .withColumn("format", f.when(f.expr("try_parse_json(content)").isNotNull(), "json"))
        .withColumn("_said", f.xxhash64("content"))
        .drop("data")
        .withWatermark("received_at", f"{DUPLICATE_SECONDS:g} seconds")
        .dropDuplicatesWithinWatermark(["stream", "partition", "index", "_said"])
    )
    writer = once.writeStream.format("parquet").option("compression", "zstd")
    writer = writer.option("checkpointLocation", str(place / "checkpoint"))
    return writer.trigger(availableNow=True).start(str(place / "table"))


def measure_rate(rows: int, rounds: int, directory: Path) -> None:
    """Run both cases in turn and show the medians."""
    bronze = directory / "bronze"
    land(bronze, rows)
    spark = open_session("benchmark", master="local[2]", work_dir=directory / "work")
    figures: dict[str, list[Figure]] = {}
    for number in range(rounds):
        ours, theirs = directory / f"{number}-ours", directory / f"{number}-theirs"
        query = silver_query(spark, bronze, ours)
        found = {
            "bronze -> silver": stepped(query.step, ours / "table", rows, apart=0),
            "Spark's file source, JSON, duplicates, Parquet sink": rate(
                sparks(spark, bronze, theirs), rows
            ),
        }
        for name, figure in found.items():
            figures.setdefault(name, []).append(figure)
    spark.stop()
    show(figures)


def _config(directory: Path, client: str, kind: str, *, silver: bool) -> Config:
    common: dict[str, Any] = {
        "name": "bronze",
        "streams": (STREAM,),
        "table_dir": Location(directory / "bronze"),
        "trigger_seconds": 1.0,
    }
    if kind == "python":
        sinks = SinkTables(python=(PythonSink(**common),))
    else:
        place = Location(directory / "silver") if silver else None
        sinks = SinkTables(spark=(SparkSink(**common, silver_dir=place),))
    typed = TypedTable(
        name="typed",
        streams=(STREAM,),
        dir=Location(directory / "typed"),
        columns={"at": "timestamp_ms", "note": "string"},
    )
    return Config(
        name="bench",
        data_dir=directory / "data",
        noise=NoiseListener(listen="127.0.0.1:0"),
        http=HttpListener(enabled=False),
        grants=(GrantTable(who=client, streams="*", may=("create", "push")),),
        tables=[sinks, typed],
    )


async def measure_latency(
    kind: str, per_second: int, seconds: float, directory: Path, *, silver: bool = False
) -> None:
    """Push events, wait until the tables have them, and show how long each took."""
    directory.mkdir(exist_ok=True)
    key = directory / "client.key"
    identity = read_or_make_key(key, os.urandom(32))
    memory = [(0, 0)]
    tables = [directory / "typed", *([directory / "silver"] if silver else [])]
    started = time.time()
    config = _config(directory, f"noise:{identity.public_hex}", kind, silver=silver)
    async with Node(config) as node:
        url = f"noise://{node.addresses()['noise']}"
        async with await rillnode.connect(url, key_file=key, node_identity=node.identity) as client:
            stream = await client.stream(STREAM, partitions=4)
            pushed, begin, until = 0, time.time(), None
            while until is None or time.time() < until:
                due = round((time.time() - begin) * per_second)
                if due > pushed:
                    await stream.push_many(_events(due - pushed))
                    pushed = due
                if int(time.time() - begin) >= len(memory):
                    memory.append(_memory(node.status()["sinks"]["bronze"]["pid"]))
                    if until is None and all(_rows(one) for one in tables):
                        until = time.time() + WARM_SECONDS + seconds
                    elif until is None and time.time() - begin > LAND_SECONDS_MAX:
                        raise RuntimeError("nothing is landed")
                await asyncio.sleep(1 / PUSHES_PER_SECOND)
        deadline = time.monotonic() + LAND_SECONDS_MAX
        while any(_rows(one) < pushed for one in tables):
            if time.monotonic() > deadline:
                raise RuntimeError("not every event is landed")
            await asyncio.sleep(0.5)
    java, everything = (max(sizes) / 2**20 for sizes in zip(*memory, strict=True))
    shown = Table(
        "sink", "table", "first row s", "events", "p50 s", "p95 s", "max s", "Java MiB", "all MiB",
    )  # fmt: skip
    for one in tables:
        latencies = sorted(_latencies(one, round((until - seconds) * 1000)))
        first = min(_commits(one).values()) / 1000 - started
        shown.add_row(
            f"sink.{kind}", one.name, f"{first:.1f}", f"{len(latencies):,}",
            *(f"{latencies[min(len(latencies) - 1, int(len(latencies) * share))] / 1000:.2f}"
              for share in (0.5, 0.95, 1.0)),
            f"{java:,.0f}", f"{everything:,.0f}",
        )  # fmt: skip
    Console().print(shown)


def _events(count: int) -> list[bytes]:
    at = time.time_ns() // 1_000_000
    return [json.dumps({"at": at, "note": "x" * 980}).encode() for _ in range(count)]


def _rows(table: Path) -> int:
    present = open_table(str(table))
    return 0 if present is None else present.count()


def _latencies(table: Path, since_ms: int) -> Iterator[int]:
    """Milliseconds from each event's time to the commit of its file."""
    commits = _commits(table)
    for file in live_files(DeltaTable(table)):
        rows = pq.read_table(str(table / file.path))
        times: list[int]
        if "at" in rows.column_names:
            times = (
                rows.column("at").cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_pylist()
            )
        else:
            times = [json.loads(text)["at"] for text in rows.column("content").to_pylist()]
        yield from (commits[file.path] - at for at in times if at >= since_ms)


def _commits(table: Path) -> dict[str, int]:
    """When each file of the table was committed, ms since 1970."""
    found: dict[str, int] = {}
    for log in sorted((table / "_delta_log").glob("*.json")):
        actions: list[dict[str, Any]] = [json.loads(line) for line in log.open()]
        added = [action["add"]["path"] for action in actions if "add" in action]
        found |= dict.fromkeys(added, int(log.stat().st_mtime * 1000))
    return found


def _memory(pid: int | None) -> tuple[int, int]:
    """Bytes of the job's Java virtual machine, and of all its processes."""
    java = everything = 0
    for member in session_members(pid) if pid else ():
        with suppress(OSError):
            lines = Path(f"/proc/{member}/smaps_rollup").read_text().splitlines()
            size = next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
            everything += size
            if Path(f"/proc/{member}/comm").read_text().strip() == "java":
                java += size
    return java, everything


def main() -> int:
    """Parse arguments and measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_tables", description=__doc__)
    parser.add_argument("case", choices=("rate", "latency"))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--per-second", type=int, default=5_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--kind", choices=("spark", "python"), default="spark")
    parser.add_argument("--dir", type=Path, default=None, help="a directory on a disk")
    arguments = parser.parse_args()
    with working("rillnode-spark-", arguments.dir, arguments.rows) as (directory, rows):
        if arguments.case == "rate":
            measure_rate(rows, arguments.rounds, directory)
        else:
            kind, seconds = arguments.kind, arguments.seconds
            silver = kind == "spark"
            asyncio.run(
                measure_latency(kind, arguments.per_second, seconds, directory, silver=silver)
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
