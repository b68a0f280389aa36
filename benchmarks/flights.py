"""A large file through the whole node: Parquet rows to a Delta table, the job killed on the way.

    python -m benchmarks.flights flights-3m.parquet [--dir DIR]

Each row becomes one JSON event. The events are pushed through the encrypted client, the Spark job
is killed once with SIGKILL while it lands them, and the table is counted: rows, and distinct
(partition, index) pairs. Exit code 1 when a confirmed event is not there exactly once.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError
from rich.progress import Progress

import rillnode
from rillnode.node.config import (
    Config,
    GrantTable,
    HttpListener,
    Location,
    NoiseListener,
    SinkTables,
    SparkSink,
)
from rillnode.node.keyfiles import read_or_make_key
from rillnode.node.pipeline.process import session_members
from rillnode.node.runtime import Node

PARTITIONS: Final = 4
BATCH_ROWS: Final = 20_000
STREAM: Final = "flights"
KILL_SHARE: Final = 0.3
"""Share of the rows that have landed when the job is killed."""

LAND_SECONDS_MAX: Final = 1_800


def batches(path: Path) -> Iterator[list[bytes]]:
    """The file's rows as JSON, in order."""
    encode = msgspec.json.encode
    for batch in pq.ParquetFile(str(path)).iter_batches(BATCH_ROWS):
        yield [encode(row) for row in batch.to_pylist()]


def landed(table: Path, *, distinct: bool = False) -> int:
    """Rows of the table, or its distinct (partition, index) pairs."""
    try:
        delta = DeltaTable(str(table))
    except TableNotFoundError:
        return 0
    if not distinct:
        return delta.count()
    query = QueryBuilder().register("flights", delta)
    result = query.execute(
        "SELECT count(*) AS n FROM (SELECT DISTINCT partition, index FROM flights)"
    ).read_all()
    return int(result["n"][0].as_py())


async def push(url: str, key: Path, identity: str, path: Path, total: int) -> float:
    """Push every row and wait for every confirm; returns the seconds it took."""
    started = time.monotonic()
    async with await rillnode.connect(url, key_file=key, node_identity=identity) as client:
        stream = await client.stream(STREAM, partitions=PARTITIONS)
        with Progress() as progress:
            task = progress.add_task("pushed", total=total)
            for nth, items in enumerate(batches(path)):
                await stream.push_many(items, partition=nth % PARTITIONS)
                progress.advance(task, len(items))
    return time.monotonic() - started


async def land(table: Path, work: Path, total: int) -> tuple[float, int]:
    """Wait until the rows are there, killing the job once; returns seconds and kills."""
    started, kills = time.monotonic(), 0
    with Progress() as progress:
        task = progress.add_task("landed", total=total)
        while time.monotonic() - started < LAND_SECONDS_MAX:
            rows = await asyncio.to_thread(landed, table)
            progress.update(task, completed=rows)
            if rows >= total:
                break
            if not kills and rows >= total * KILL_SHARE:
                kills = 1
                for pid in session_members(job_pid(work)):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(1.0)
    return time.monotonic() - started, kills


def job_pid(work: Path) -> int:
    """The job's process, found by the configuration file that it was started with."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
                if os.fsencode(work / "data/sinks/bronze/job.json") in arguments:
                    return int(entry.name)
    raise SystemExit("the job does not run: see the sink's log")


async def run(path: Path, work: Path) -> int:
    """One run; returns the exit code."""
    key = read_or_make_key(work / "client.key", os.urandom(32))
    table = work / "table"
    config = Config(
        name="flights",
        data_dir=work / "data",
        noise=NoiseListener(listen="127.0.0.1:0"),
        http=HttpListener(enabled=False),
        grants=(GrantTable(who=f"noise:{key.public_hex}", streams="*", may=("admin",)),),
        sink=SinkTables(
            spark=(
                SparkSink(
                    name="bronze",
                    streams=(STREAM,),
                    table_dir=Location(work / "table"),
                    trigger_seconds=1.0,
                ),
            )
        ),
    )
    total = pq.ParquetFile(str(path)).metadata.num_rows
    async with Node(config) as node:
        url = f"noise://{node.addresses()['noise']}"
        pushing = asyncio.create_task(push(url, work / "client.key", node.identity, path, total))
        land_seconds, kills = await land(table, work, total)
        push_seconds = await pushing
    rows, distinct = landed(table), landed(table, distinct=True)
    result = {
        "pushed": total,
        "push_seconds": round(push_seconds, 1),
        "pushed_per_second": round(total / push_seconds),
        "rows": rows,
        "distinct": distinct,
        "landed_seconds": round(land_seconds, 1),
        "job_kills": kills,
    }
    print(json.dumps(result))
    return 0 if rows == distinct == total and kills else 1


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parquet", type=Path)
    parser.add_argument("--dir", type=Path, default=Path("build"), help="default: build/")
    options = parser.parse_args()
    options.dir.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="flights-", dir=options.dir)).absolute()
    try:
        return asyncio.run(run(options.parquet, work))
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
