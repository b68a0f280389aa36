"""From bronze to silver, and from an event to its row of silver.

    python -m benchmarks.spark_tables rate [--rows N] [--rounds R] [--dir DIRECTORY]
    python -m benchmarks.spark_tables latency [--per-second N] [--seconds S] [--dir DIRECTORY]

`rate` lands 1 KiB JSON entries in a bronze table and makes silver of them, beside what Spark does
by itself with the same files: its file source, JSON parsed, duplicates left out with the same state
store, its Parquet sink. The first batches of a case are not counted.

`latency` runs a node with a sink, pushes events over the encrypted link at a steady rate and looks
at the silver table afterwards: from the time that an event says it was made at to the commit that
holds it. The memory is that of the job's Java virtual machine and of all its processes together,
each process's share of what they share, at its highest.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.table import Table

import rillnode
from benchmarks import machine
from benchmarks.spark import (
    BATCH_ROWS,
    BLOCK_ROWS,
    TESTS,
    WARM_BATCHES,
    Figure,
    cpu_seconds,
    sample_blocks,
    show,
)
from rillnode.codecs.entries import Block
from rillnode.node.config import Config, GrantTable, HttpListener, Location, NoiseListener
from rillnode.node.keys.files import read_or_make_key
from rillnode.node.runtime import Node
from rillnode.node.spark.arrow import BatchBuilder
from rillnode.node.spark.config import SinkTables, SparkSink
from rillnode.node.spark.delta import add_actions
from rillnode.node.spark.delta_log import live_files, open_table
from rillnode.node.spark.parquet import TableFile, write_files
from rillnode.node.spark.process import session_members
from rillnode.node.spark.session import open_session
from rillnode.node.spark.silver import start_silver
from rillnode.node.spark.structs import BRONZE_STRUCT
from rillnode.node.spark.tables import BRONZE_SCHEMA

DUPLICATE_SECONDS: Final = 600.0
STREAM: Final = "sensors"
PUSHES_PER_SECOND: Final = 20
WARM_SECONDS: Final = 25.0
"""Events before then are not counted: Spark's code is compiled and its workers are started."""
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


def ours(spark: SparkSession, bronze: Path, place: Path) -> StreamingQuery:
    """The query of silver."""
    return start_silver(
        spark,
        bronze=str(bronze),
        table=str(place / "table"),
        checkpoint=str(place / "checkpoint"),
        drain_file=place / "drain",
        rows_max=BATCH_ROWS,
        duplicate_seconds=DUPLICATE_SECONDS,
        trigger={"availableNow": True},
    )


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


def rate(query: StreamingQuery, rows: int) -> Figure:
    """What a query costs once it is warm; returns when it has ended."""
    begun: tuple[int, float] | None = None
    while query.isActive:
        last = query.lastProgress
        if begun is None and last is not None and last.batchId >= WARM_BATCHES - 1:
            begun = (last.batchId, cpu_seconds(apart=0))
        time.sleep(0.02)
    query.awaitTermination()
    assert begun is not None
    cpu = cpu_seconds(apart=0) - begun[1]
    counted = [p for p in query.recentProgress if p.numInputRows and p.batchId >= WARM_BATCHES]
    seconds = sum(progress.durationMs["triggerExecution"] for progress in counted) / 1000
    million = (rows - (begun[0] + 1) * BATCH_ROWS) / 1e6
    return Figure(len(counted) * BATCH_ROWS / seconds, cpu / million)


def measure_rate(rows: int, rounds: int, directory: Path) -> None:
    """Run both cases in turn and show the medians."""
    bronze = directory / "bronze"
    land(bronze, rows)
    spark = open_session("benchmark", master="local[2]", work_dir=directory / "work")
    cases: dict[str, Callable[[SparkSession, Path, Path], StreamingQuery]] = {
        "bronze -> silver": ours,
        "Spark's file source, JSON, duplicates, Parquet sink": sparks,
    }
    figures: dict[str, list[Figure]] = {}
    for number in range(rounds):
        for name, start in cases.items():
            place = directory / f"{number}-{start.__name__}"
            figures.setdefault(name, []).append(rate(start(spark, bronze, place), rows))
    if DeltaTable(directory / "0-ours" / "table").count() != rows:
        raise RuntimeError("silver does not hold every row once")
    spark.stop()
    show(figures)


def _config(directory: Path, client: str) -> Config:
    sink = SparkSink(
        name="bronze",
        streams=(STREAM,),
        table_dir=Location(directory / "bronze"),
        silver_dir=Location(directory / "silver"),
        trigger_seconds=1.0,
    )
    return Config(
        name="bench",
        data_dir=directory / "data",
        noise=NoiseListener(listen="127.0.0.1:0"),
        http=HttpListener(enabled=False),
        grants=(GrantTable(who=client, streams="*", may=("create", "push")),),
        tables=[SinkTables(spark=(sink,))],
    )


async def measure_latency(per_second: int, seconds: float, directory: Path) -> None:
    """Push events, wait until silver has them, and show how long each took."""
    key = directory / "client.key"
    identity = read_or_make_key(key, os.urandom(32))
    memory = [(0, 0)]
    async with Node(_config(directory, f"noise:{identity.public_hex}")) as node:
        url = f"noise://{node.addresses()['noise']}"
        async with await rillnode.connect(url, key_file=key, node_identity=node.identity) as client:
            stream = await client.stream(STREAM, partitions=4)
            pushed, begin = 0, time.time()
            total = round(per_second * (WARM_SECONDS + seconds))
            while pushed < total:
                due = min(total, round((time.time() - begin) * per_second))
                if due > pushed:
                    await stream.push_many(_events(due - pushed))
                    pushed = due
                if int(time.time() - begin) > len(memory):
                    memory.append(_memory(node.status()["sinks"]["bronze"]["pid"]))
                await asyncio.sleep(1 / PUSHES_PER_SECOND)
        deadline = time.monotonic() + LAND_SECONDS_MAX
        while _rows(directory / "silver") < total:
            if time.monotonic() > deadline:
                raise RuntimeError("silver does not have every event")
            await asyncio.sleep(0.5)
    latencies = sorted(_latencies(directory / "silver", round((begin + WARM_SECONDS) * 1000)))
    java, everything = (max(sizes) / 2**20 for sizes in zip(*memory, strict=True))
    table = Table("events", "p50 s", "p95 s", "max s", "Java MiB", "all processes MiB")
    table.add_row(
        f"{len(latencies):,}",
        *(f"{latencies[min(len(latencies) - 1, int(len(latencies) * share))] / 1000:.2f}"
          for share in (0.5, 0.95, 1.0)),
        f"{java:,.0f}", f"{everything:,.0f}",
    )  # fmt: skip
    Console().print(table)


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
        rows = pq.read_table(str(table / file.path), columns=["content"])
        content: list[str] = rows.column("content").to_pylist()
        for text in content:
            at: int = json.loads(text)["at"]
            if at >= since_ms:
                yield commits[file.path] - at


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
    parser.add_argument("--dir", type=Path, default=None, help="a directory on a disk")
    arguments = parser.parse_args()
    rows = max(arguments.rows // BATCH_ROWS, WARM_BATCHES + 2) * BATCH_ROWS
    sys.path.insert(0, str(TESTS))
    with tempfile.TemporaryDirectory(prefix="rillnode-spark-", dir=arguments.dir) as name:
        directory = Path(name)
        about = machine.describe(directory)
        for text in machine.warnings(about):
            print(text, file=sys.stderr)
        if arguments.case == "rate":
            measure_rate(rows, arguments.rounds, directory)
        else:
            asyncio.run(measure_latency(arguments.per_second, arguments.seconds, directory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
