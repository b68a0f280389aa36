"""From a node into a Delta table through Spark, beside Spark's own file source and sink.

    python -m benchmarks.spark [--rows N] [--rounds R] [--dir DIRECTORY]

The node is a stand-in in a process of its own: blocks of 1 KiB JSON entries in memory behind a
plain TCP port, so that the figures are Spark's side alone. The file source reads the same rows
from Parquet files. Every round runs all cases in one Spark session, one after the other; the first
batches of a case are not counted. Ratios count; rates of a shared machine do not. The processor
time is that of all processes but the stand-in.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.table import Table

from benchmarks import machine
from rillnode.codecs.entries import Block, EntryKind, encode_block, pack_body
from rillnode.node.spark.arrow import BatchBuilder
from rillnode.node.spark.frames import BRONZE_STRUCT
from rillnode.node.spark.job_config import PythonJobConfig
from rillnode.node.spark.landing import Landing, fetch
from rillnode.node.spark.ranges import ClientOptions
from rillnode.node.spark.session import on_spark, open_session
from rillnode.node.spark.typed.work import Engine

_TESTS: Final = Path(__file__).parent.parent / "tests" / "support"
ENTRY_BYTES: Final = 1_024
BLOCK_ROWS: Final = 250
BLOCKS: Final = 400
"""Different blocks; they are repeated, too far apart for compression to notice."""
PARTITIONS: Final = 4
BATCH_ROWS: Final = 100_000
FILE_ROWS: Final = 25_000
WARM_BATCHES: Final = 3
_TICK_SECONDS: Final = 1 / os.sysconf("SC_CLK_TCK")
_WORDS: Final = [
    "pump",
    "valve",
    "north",
    "south",
    "open",
    "closed",
    "warm",
    "cold",
    "high",
    "low",
    "stable",
    "drifting",
]


@dataclass(frozen=True, slots=True)
class Figure:
    """One case's round."""

    rows_per_second: float
    cpu_seconds_per_million: float


def sample_blocks(blocks: int = BLOCKS, seed: int = 7) -> list[bytes]:
    """Blocks of JSON entries, each of exactly ENTRY_BYTES."""
    source = random.Random(seed)
    numbers = itertools.count()
    return [
        encode_block(
            count=BLOCK_ROWS,
            kind=EntryKind.BYTES,
            received_at=1_767_225_600_000 + at,
            position=0,
            body=pack_body([_entry(source, next(numbers)) for _ in range(BLOCK_ROWS)]),
        )
        for at in range(blocks)
    ]


def _entry(source: random.Random, number: int) -> bytes:
    document: dict[str, Any] = {
        "id": number,
        "device": f"pump-{source.randrange(500)}",
        "at": 1_767_225_600_000 + number,
        "readings": [round(source.gauss(20, 5), 4) for _ in range(48)],
        "note": "",
    }
    missing = ENTRY_BYTES - len(json.dumps(document))
    note = " ".join(source.choices(_WORDS, k=missing // 3))
    return json.dumps({**document, "note": note[:missing]}).encode()


def _serve(ends: Connection, rows: int) -> None:
    from fake_sink import FakeSink

    sink = FakeSink()
    blocks = itertools.cycle(sample_blocks())
    for at in range(rows // BLOCK_ROWS):
        sink.append_value("sensors", next(blocks), partition=at % PARTITIONS)
    ends.send(sink.serve())
    ends.recv()


@contextmanager
def stand_in(rows: int) -> Generator[tuple[ClientOptions, int]]:
    """A node's sink with `rows` rows in a process of its own; yields options and process id."""
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=_serve, args=(there, rows))
    child.start()
    try:
        yield here.recv(), child.pid or 0
    finally:
        here.send(None)
        child.join()


def write_landing(directory: Path, rows: int) -> None:
    """The same rows as Parquet files for Spark's file source; equal files are links."""
    directory.mkdir()
    blocks = sample_blocks()
    per_file = FILE_ROWS // BLOCK_ROWS
    different = len(blocks) // per_file
    for number in range(rows // FILE_ROWS):
        path = directory / f"{number:06}.parquet"
        if number >= different:
            os.link(directory / f"{number % different:06}.parquet", path)
            continue
        builder = BatchBuilder()
        for at, value in enumerate(blocks[number * per_file : (number + 1) * per_file]):
            block = Block(number * FILE_ROWS + at * BLOCK_ROWS, value)
            builder.add_block("sensors", 0, block, block.first_index, block.next_index)
        pq.write_table(pa.Table.from_batches([builder.finish()]), str(path))


def from_node(spark: SparkSession, options: ClientOptions) -> DataFrame:
    """The rows from the node."""
    tasks = spark.sparkContext.defaultParallelism
    return (
        spark.readStream.format("rillnode")
        .options(**options.to_options(), maxOffsetsPerTrigger=BATCH_ROWS, minPartitions=tasks)
        .load()
    )


def landing_of(options: ClientOptions, directory: Path, engine: Engine, tasks: int) -> Landing:
    """What lands the rows from the node in a bronze table, as a sink's job does."""
    config = PythonJobConfig(
        sink=options.sink,
        url=options.url,
        node_identity=options.node_identity,
        key_file=options.key_file,
        client=options.client,
        table_dir=str(directory / "table"),
        work_dir=str(directory / "work"),
        batch_rows_max=BATCH_ROWS,
    )
    return Landing(config, engine, tasks)


def stepped(step: Callable[[], bool], table: Path, rows: int, apart: int) -> Figure:
    """What a step of `BATCH_ROWS` rows costs, once it is warm."""
    for _ in range(WARM_BATCHES):
        step()
    begun_at, cpu, steps = time.monotonic(), cpu_seconds(apart), 0
    while step():
        steps += 1
    seconds = time.monotonic() - begun_at
    cpu = cpu_seconds(apart) - cpu
    if (found := DeltaTable(table).count()) != rows:
        raise RuntimeError(f"the table has {found} rows, and not {rows}")
    return Figure(steps * BATCH_ROWS / seconds, cpu / (steps * BATCH_ROWS) * 1e6)


def from_files(spark: SparkSession, landing: Path) -> DataFrame:
    """The rows from files, as many per batch."""
    files = BATCH_ROWS // FILE_ROWS
    reader = spark.readStream.schema(BRONZE_STRUCT).option("maxFilesPerTrigger", files)
    return reader.parquet(str(landing))


def run(frame: DataFrame, sink: str, directory: Path, rows: int, apart: int) -> Figure:
    """Run a query until it has read all rows."""
    table, checkpoint = directory / "table", directory / "checkpoint"
    writer = frame.writeStream.format(sink).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start(None if sink == "noop" else str(table))
    return rate(query, rows, apart)


def rate(query: StreamingQuery, rows: int, apart: int = 0) -> Figure:
    """What a query costs once it is warm; returns when it has ended."""
    begun: tuple[int, float] | None = None
    while query.isActive:
        last = query.lastProgress
        if begun is None and last is not None and last.batchId >= WARM_BATCHES - 1:
            begun = (last.batchId, cpu_seconds(apart))
        time.sleep(0.02)
    query.awaitTermination()
    counted = [p for p in query.recentProgress if p.numInputRows and p.batchId >= WARM_BATCHES]
    seconds = sum(progress.durationMs["triggerExecution"] for progress in counted) / 1000
    assert begun is not None
    cpu = cpu_seconds(apart) - begun[1]
    cpu_rows = rows - (begun[0] + 1) * BATCH_ROWS
    # Every batch is full.
    return Figure(len(counted) * BATCH_ROWS / seconds, cpu / cpu_rows * 1e6)


def cpu_seconds(apart: int) -> float:
    """Processor time of this process and all below it, but for one child."""
    times: dict[int, float] = {}
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        times[int(entry.name)] = (int(fields[11]) + int(fields[12])) * _TICK_SECONDS
        below.setdefault(int(fields[1]), []).append(int(entry.name))
    total, left = 0.0, [os.getpid()]
    while left:
        pid = left.pop()
        if pid != apart:
            total += times.get(pid, 0.0)
            left += below.get(pid, [])
    return total


def measure(rows: int, rounds: int, directory: Path) -> dict[str, list[Figure]]:
    """Every case's figures, round by round."""
    landing = directory / "landing"
    write_landing(landing, rows)
    spark = open_session("benchmark", master="local[2]", work_dir=directory / "work")
    figures: dict[str, list[Figure]] = {}
    with stand_in(rows) as (options, apart):
        place = directory / "case"
        queries: Mapping[str, tuple[Callable[[], DataFrame], str]] = {
            "node -> Spark -> Parquet": (lambda: from_node(spark, options), "parquet"),
            "files -> Parquet (Spark's own)": (lambda: from_files(spark, landing), "parquet"),
            "node -> nowhere": (lambda: from_node(spark, options), "noop"),
        }
        for _ in range(rounds):
            tasks = landing_of(options, place, on_spark(spark, fetch), 2)
            done = [("node -> Delta", stepped(tasks.step, place / "table", rows, apart))]
            shutil.rmtree(place)
            for name, (frame, sink) in queries.items():
                done.append((name, run(frame(), sink, place, rows, apart)))
                shutil.rmtree(place)
            for name, figure in done:
                figures.setdefault(name, []).append(figure)
    spark.stop()
    return figures


def show(figures: dict[str, list[Figure]]) -> None:
    """Medians as a table, with the ratio to the first case."""
    medians = {
        name: (
            statistics.median(figure.rows_per_second for figure in rounds),
            statistics.median(figure.cpu_seconds_per_million for figure in rounds),
        )
        for name, rounds in figures.items()
    }
    ours = next(iter(medians.values()))[0]
    table = Table("case", "rows/s", "ours / this", "CPU s per million rows")
    for name, (rate, cpu) in medians.items():
        table.add_row(name, f"{rate:,.0f}", f"{ours / rate:.2f}", f"{cpu:.1f}")
    Console().print(table)


@contextmanager
def working(prefix: str, where: Path | None, rows: int) -> Generator[tuple[Path, int]]:
    """A directory for a run, and as many rows as make whole batches, some of them warm.

    Tasks find the stand-in then. What is wrong with the machine is said.
    """
    sys.path.insert(0, str(_TESTS))
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(_TESTS), os.environ.get("PYTHONPATH")])
    )
    with tempfile.TemporaryDirectory(prefix=prefix, dir=where) as name:
        for text in machine.warnings(machine.describe(Path(name))):
            print(text, file=sys.stderr)
        yield Path(name), max(rows // BATCH_ROWS, WARM_BATCHES + 2) * BATCH_ROWS


def main() -> int:
    """Parse arguments, measure, show."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", type=Path, default=None, help="a directory on a disk")
    arguments = parser.parse_args()
    with working("rillnode-spark-", arguments.dir, arguments.rows) as (directory, rows):
        show(measure(rows, arguments.rounds, directory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
