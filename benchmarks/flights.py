"""A large file through the whole pipeline while its parts are killed: is every event there once?

    python -m benchmarks.flights flights-3m.parquet [--rows N] [--kills N] [--seed N] [--dir DIR]

Each row becomes one JSON event in the stream of its airport of origin, pushed over the encrypted
link to a node whose Spark sink lands it in bronze, silver and gold. Meanwhile SIGKILL ends the
driver, its Java, Python workers and the node itself, each at a moment that the seed has chosen.
Then the tables are held against the file (`flights_checks.py`). Exit code 1 where they differ.

A link that breaks leaves open whether what was under way is stored, so the publisher asks: it is
its streams' only one, and each partition's next index says how many events have arrived.
"""

import argparse
import asyncio
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table

import rillnode
from benchmarks import flights_checks, machine
from benchmarks.flights_kills import VICTIMS, strike
from benchmarks.servers import Server, start_rillnode
from rillnode.codecs.errors import RillnodeError
from rillnode.node.client import Client
from rillnode.node.spark.delta_log import open_table

SINK: Final = "flights"
BATCH_ROWS: Final = 20_000
AHEAD_ROWS: Final = 300_000
"""The publisher waits when it is so far before silver, so that kills hit it at work, too."""

STILL_SECONDS_MAX: Final = 900.0
"""A run ends when no table has got a row for so long: a kill costs a start of Spark, and a busy
machine makes several of it, but how long all of them take depends on how many there are."""

POLL_SECONDS: Final = 1.0
RECONNECT_SECONDS: Final = 0.2

SINK_CONFIG: Final = """
[[sink.spark]]
name = "flights"
streams = ["flights/*"]
table_dir = "bronze"
silver_dir = "silver"
gold_dir = "gold"
trigger_seconds = 1.0
"""


class Pipeline:
    """A node that can be killed and started again, and what its tables hold."""

    def __init__(self, directory: Path) -> None:
        home = directory / "node"
        command = [sys.executable, "-m", "rillnode", "init", str(home)]
        subprocess.run(command, check=True, capture_output=True)
        with (home / "node.toml").open("a", encoding="utf-8") as config:
            config.write(SINK_CONFIG)
        self.tables = home
        self._directory = directory
        self._running = ExitStack()
        self._server: Server | None = None

    def start(self) -> None:
        """Start the node, and with it the sink's job."""
        self._server = self._running.enter_context(start_rillnode(self._directory))

    def kill(self) -> None:
        """End the node as a crash would; its job ends when it notices."""
        assert self._server is not None
        self._server.process.kill()
        self._running.close()

    def stop(self) -> None:
        """End the node and its job properly."""
        self._running.close()

    async def connect(self) -> Client:
        """A client whose link, once lost, is lost."""
        assert self._server is not None
        end = self._server.endpoint
        return await rillnode.connect(
            f"noise://127.0.0.1:{end.port}",
            key_file=end.key_file,
            node_identity=end.node_identity,
            reconnect=False,
        )

    async def sink(self) -> dict[str, Any]:
        """The sink as the node shows it; empty while there is no node."""
        try:
            async with await self.connect() as client:
                status = await client.status()
        except (RillnodeError, OSError):
            return {}
        return dict(status["sinks"][SINK])

    def rows(self) -> dict[str, int]:
        """How many events each table has; gold has rows per minute, which tell how many."""
        found: dict[str, int] = {}
        for name in ("bronze", "silver"):
            table = open_table(str(self.tables / name))
            found[name] = 0 if table is None else table.count()
        minutes: Any = open_table(str(self.tables / "gold" / "minutes"))
        found["gold"] = 0
        if minutes is not None:
            messages = minutes.to_pyarrow_table(columns=["messages"]).column("messages")
            found["gold"] = pc.sum(messages).as_py() or 0
        return found


class Publisher:
    """Pushes every event once, whatever happens to the node.

    Attributes:
        links: how many it has made.
        landed: rows of silver, as it is told.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._stored: Counter[str] = Counter()
        self.links = 0
        self.landed = 0

    async def run(self, flights: pa.Table, bars: Progress, task: TaskID) -> float:
        """Push all flights; returns the seconds that it took."""
        started = time.monotonic()
        waiting = list(batches(flights))[::-1]
        while waiting:
            try:
                async with await self._pipeline.connect() as client:
                    self.links += 1
                    for name in self._stored:
                        (part,) = (await client.describe(name)).partitions
                        self._stored[name] = part.next_index
                    while waiting:
                        while self._stored.total() - self.landed > AHEAD_ROWS:
                            await asyncio.sleep(POLL_SECONDS / 4)
                        await self._push(client, waiting[-1])
                        waiting.pop()
                        bars.update(task, completed=self._stored.total())
            except* (RillnodeError, OSError):
                await asyncio.sleep(RECONNECT_SECONDS)
        return time.monotonic() - started

    async def _push(self, client: Client, batch: dict[str, tuple[int, list[bytes]]]) -> None:
        async def push(name: str, first: int, events: Sequence[bytes]) -> None:
            stream = await client.stream(name)
            self._stored[name] += 0  # from now on there may be events of which we know nothing
            await stream.push_many(events[max(0, self._stored[name] - first) :])
            self._stored[name] = first + len(events)

        async with asyncio.TaskGroup() as tasks:
            for name, (first, events) in batch.items():
                tasks.create_task(push(name, first, events))


def batches(flights: pa.Table) -> Iterator[dict[str, tuple[int, list[bytes]]]]:
    """Events to push at a time: by stream the number of those before, and the events."""
    pushed: Counter[str] = Counter()
    for rows in flights.to_batches(BATCH_ROWS):
        found: defaultdict[str, list[bytes]] = defaultdict(list)
        for row in rows.to_pylist():
            found[flights_checks.stream_of(row["origin"])].append(msgspec.json.encode(row))
        yield {name: (pushed[name], events) for name, events in found.items()}
        pushed.update({name: len(events) for name, events in found.items()})


async def strikes(
    pipeline: Pipeline, publisher: Publisher, plan: list[tuple[int, str]], bars: Progress
) -> Counter[str]:
    """Kill each victim when silver has so many rows; returns how often each was hit."""
    hits: Counter[str] = Counter()
    for rows, victim in plan:
        while publisher.landed < rows:
            await asyncio.sleep(POLL_SECONDS / 4)
        await strike(pipeline, victim)
        hits[victim] += 1
        bars.console.print(f"killed: {victim}, at {rows:,} rows of silver")
    return hits


def draw(total: int, kills: int, source: random.Random) -> list[tuple[int, str]]:
    """When who is killed: victims in turn, at rows spread over the run at random."""
    rows = sorted(source.randrange(total * 19 // 20) for _ in range(kills))
    victims = [VICTIMS[number % len(VICTIMS)] for number in range(kills)]
    source.shuffle(victims)
    return list(zip(rows, victims, strict=True))


async def land(pipeline: Pipeline, publisher: Publisher, total: int, bars: Progress) -> float:
    """Wait until every event is in every table; returns the seconds that it took.

    Raises:
        SystemExit: the sink is parked, or stands still.
    """
    started = moved = time.monotonic()
    before: dict[str, int] = {}
    tasks = {name: bars.add_task(name, total=total) for name in ("bronze", "silver", "gold")}
    while True:
        rows = await asyncio.to_thread(pipeline.rows)
        for name, task in tasks.items():
            bars.update(task, completed=rows[name])
        publisher.landed = rows["silver"]
        if rows != before:
            before, moved = rows, time.monotonic()
        if min(rows.values()) >= total:
            return time.monotonic() - started
        sink = await pipeline.sink()
        if sink.get("state") == "parked":
            raise SystemExit(f"the sink is parked: {sink['last_error']}")
        if time.monotonic() - moved > STILL_SECONDS_MAX:
            raise SystemExit(
                f"no event has landed for {STILL_SECONDS_MAX:g} s, and not all have: {rows}; "
                f"the sink: {sink or 'the node is not reached'}"
            )
        await asyncio.sleep(POLL_SECONDS)


async def run(flights: pa.Table, plan: list[tuple[int, str]], pipeline: Pipeline) -> bool:
    """One run; whether the tables hold what the file holds."""
    console, total = Console(), flights.num_rows
    publisher = Publisher(pipeline)
    columns = TextColumn("{task.description:<9}"), BarColumn(), MofNCompleteColumn()
    pipeline.start()
    try:
        with Progress(*columns, console=console) as bars:
            task = bars.add_task("pushed", total=total)
            pushed, hits, landed = await asyncio.gather(
                publisher.run(flights, bars, task),
                strikes(pipeline, publisher, plan, bars),
                land(pipeline, publisher, total, bars),
            )
    finally:
        pipeline.stop()
    console.print(
        f"{total:,} events pushed in {pushed:.1f} s over {publisher.links} links, in all tables "
        f"after {landed:.1f} s; killed: "
        + (", ".join(f"{count} x {victim}" for victim, count in hits.items()) or "nothing")
    )
    table = Table("check", "of the file", "of the tables", "same")
    checks = flights_checks.compare(flights, pipeline.tables)
    for check in checks:
        table.add_row(check.name, check.expected, check.found, "yes" if check.same else "NO")
    console.print(table)
    return all(check.same for check in checks)


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parquet", type=Path, help="flights, with a column `origin`")
    parser.add_argument("--rows", type=int, default=None, help="the first N rows only")
    parser.add_argument("--kills", type=int, default=8, help="default: 8")
    parser.add_argument("--seed", type=int, default=None, help="default: another every time")
    parser.add_argument("--dir", type=Path, default=Path("build"), help="default: build/")
    parser.add_argument("--keep", action="store_true", help="leave the tables there")
    options = parser.parse_args()
    seed = random.randrange(2**32) if options.seed is None else options.seed
    flights = pq.read_table(str(options.parquet)).slice(0, options.rows)
    options.dir.mkdir(parents=True, exist_ok=True)
    for text in machine.warnings(machine.describe(options.dir)):
        print(text, file=sys.stderr)
    work = Path(tempfile.mkdtemp(prefix="flights-", dir=options.dir)).absolute()
    print(f"seed {seed}, in {work}")
    plan = draw(flights.num_rows, options.kills, random.Random(seed))
    try:
        return 0 if asyncio.run(run(flights, plan, Pipeline(work))) else 1
    finally:
        if not options.keep:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
