"""A week of flights through a node: one stream per airport, and tables that answer questions.

    python examples/flights.py [--data FILE.parquet] [--out DIR] [--seconds N]

Runs a node in this process, publishes each flight to the stream of its airport of origin, in the
order of departure, and waits until the node's Spark sink has landed all of them in bronze, silver
and gold tables below DIR. `examples/flights.ipynb` asks these tables. `--seconds` spreads the
departures over so long instead of publishing as fast as it goes.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

import rillnode
from rillnode.codecs.errors import RillnodeError
from rillnode.node.config import load_config

HERE: Final = Path(__file__).parent
SINK: Final = "flights"
BATCH_ROWS: Final = 2_000
POLL_SECONDS: Final = 1.0

CONFIG: Final = """\
name = "airports"
data_dir = "data"

[noise]
listen = "127.0.0.1:0"

[http]
listen = "127.0.0.1:0"

[[sink.spark]]
name = "flights"
streams = ["flights/*"]
table_dir = "tables/bronze"
silver_dir = "tables/silver"
gold_dir = "tables/gold"
trigger_seconds = 2.0
"""


def batches(path: Path) -> Iterator[list[dict[str, Any]]]:
    """The file's flights in order, some at a time."""
    for batch in pq.ParquetFile(str(path)).iter_batches(BATCH_ROWS):
        yield batch.to_pylist()


async def publish(node: rillnode.Node, path: Path, seconds: float, bars: Progress) -> None:
    """Publish every flight and wait until each is confirmed, which is when it is durable."""
    first, last, total = span(path)
    task = bars.add_task("published", total=total)
    began = time.monotonic()
    for flights in batches(path):
        due = seconds * ((flights[0]["date"] - first) / (last - first) if last > first else 0.0)
        await asyncio.sleep(max(0.0, began + due - time.monotonic()))
        by_origin: defaultdict[str, list[bytes]] = defaultdict(list)
        for flight in flights:
            event = {**flight, "date": flight["date"].isoformat()}
            by_origin[flight["origin"]].append(json.dumps(event).encode())
        await asyncio.gather(
            *(push(node, f"flights/{origin}", events) for origin, events in by_origin.items())
        )
        bars.advance(task, len(flights))


async def push(node: rillnode.Node, name: str, events: list[bytes]) -> None:
    """Append events to a stream, which is made if there is none."""
    stream = await node.stream(name)
    await stream.push_many(events)


def span(path: Path) -> tuple[datetime, datetime, int]:
    """When the first and the last flight of a file left, and how many there are."""
    dates = pq.read_table(str(path), columns=["date"]).column("date")
    ends = pc.min_max(dates).as_py()
    return ends["min"], ends["max"], len(dates)


async def land(node: rillnode.Node, out: Path, total: int, bars: Progress) -> None:
    """Wait until every flight is in every table.

    Raises:
        SystemExit: the Spark job does not run.
    """
    tasks = {name: bars.add_task(name, total=total) for name in ("bronze", "silver", "gold")}
    counts = dict.fromkeys(tasks, 0)
    while min(counts.values()) < total:
        await asyncio.sleep(POLL_SECONDS)
        counts = await asyncio.to_thread(count, out / "tables")
        for name, task in tasks.items():
            bars.update(task, completed=counts[name])
        sink = (await node.client.status())["sinks"][SINK]
        if sink["state"] == "parked":
            raise SystemExit(f"the Spark job does not run: {sink['last_error']}")


def count(tables: Path) -> dict[str, int]:
    """How many flights each table has; gold has rows per minute, which tell how many."""
    counts = {name: 0 for name in ("bronze", "silver", "gold")}
    for name in ("bronze", "silver"):
        if (table := opened(tables / name)) is not None:
            counts[name] = table.count()
    minutes: Any = opened(tables / "gold" / "minutes")
    if minutes is not None:
        messages = minutes.to_pyarrow_table(columns=["messages"]).column("messages")
        counts["gold"] = pc.sum(messages).as_py() or 0
    return counts


def opened(directory: Path) -> DeltaTable | None:
    """A table as of now; None before its first commit."""
    try:
        return DeltaTable(directory)
    except TableNotFoundError:
        return None


async def run(data: Path, out: Path, seconds: float) -> None:
    """Run the node until all flights are in its tables."""
    out.mkdir(parents=True)
    config = out / "node.toml"
    config.write_text(CONFIG, encoding="utf-8")
    total = pq.ParquetFile(str(data)).metadata.num_rows
    columns = TextColumn("{task.description:<9}"), BarColumn(), MofNCompleteColumn()
    async with rillnode.Node(load_config(config)) as node:
        with Progress(*columns) as bars:
            await asyncio.gather(publish(node, data, seconds, bars), land(node, out, total, bars))
    print(f"{total:,} flights are in {out / 'tables'}")


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--data", type=Path, default=HERE / "data" / "flights-slice.parquet", metavar="FILE",
        help="flights in order of departure (default: a week of 2001)",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, default=Path("flights-out"), metavar="DIR",
        help="a new directory for the node and its tables (default: flights-out)",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=float, default=0.0, metavar="N",
        help="spread the departures over N seconds (default: as fast as it goes)",
    )  # fmt: skip
    args = parser.parse_args()
    if args.out.exists():
        parser.error(f"{args.out} is there already: remove it, or name another --out")
    try:
        asyncio.run(run(args.data, args.out, args.seconds))
    except RillnodeError as error:
        print(f"flights: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
