"""`make demo`: events through a node, a consumer that is killed, and a Delta table.

It starts a node as a process, publishes events through an encrypted client, consumes them in a
second process that is killed half-way and goes on from its saved position, waits until the node's
Spark sink has landed them in a table, and lets Spark draw a report. Each number of its last line is
counted where it names: confirmed indexes, entries that the consumer noted, rows of the table.
"""

import argparse
import asyncio
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

import rillnode
from demo_events import DemoError, Event, load_events, partition_of
from demo_page import Recording, write_page
from demo_processes import Entry, Noted, Processes, tail
from rillnode.codecs.errors import RillnodeError

HERE = Path(__file__).parent
STREAM = "events"
SINK = "bronze"
PARTITIONS = 4
WINDOW = 500
"""Events that may be unconfirmed at a time."""

WORK_SECONDS = 4
"""How long the consumer takes for all events, so that there is a middle to kill it in."""

START_SECONDS = 60
CONSUME_SECONDS = 120
LAND_SECONDS = 300
JOB_STARTS_MAX = 3
REMOVE_TRIES = 30

CONFIG = """
[[grant]]
who = "{producer}"
streams = "{stream}"
may = ["create", "push"]

[[grant]]
who = "{consumer}"
streams = "{stream}"
may = ["pull", "subscribe"]

[[sink.spark]]
name = "{sink}"
streams = ["{stream}"]
table_dir = {table}
trigger_seconds = 1.0
"""

Advance = Callable[[int], None]


class Demo:
    """One run, in a directory of its own.

    Args:
        args: the command line.
        work: the directory.
        processes: what it starts; the caller ends what is left of it.
    """

    def __init__(self, args: argparse.Namespace, work: Path, processes: Processes) -> None:
        self._args = args
        self._work = work
        self._processes = processes
        self._console = Console(highlight=False)
        self._began = time.monotonic()
        self._events: list[Event] = []
        self._pushed: set[Entry] = set()
        self._recording = Recording()

    async def run(self) -> int:
        """Run the demo; return the exit code.

        Raises:
            DemoError, RillnodeError: it came to no verdict.
        """
        args = self._args
        self._events = load_events(args.data, args.key_field, args.time_field)
        self._say(f"{len(self._events):,} events in {args.data}")
        node = await self._start_node()
        noted = Noted(self._work / "noted.log")
        self._recording = recording = Recording()
        columns = TextColumn("        {task.description}"), BarColumn(), MofNCompleteColumn()
        try:
            with Progress(*columns, console=self._console) as progress:

                def bar(name: str, series: str) -> Advance:
                    task = progress.add_task(f"{name:<9}", total=len(self._events))
                    return recording.noting(
                        series, lambda count: progress.update(task, completed=count)
                    )

                bars = (
                    bar("published", "published"),
                    bar("consumed", "consumed"),
                    bar("in table", "table"),
                )
                # Before both: the consumer may not create it, and must not come to an unknown one.
                async with await self._connect_producer() as client:
                    await client.stream(STREAM, partitions=PARTITIONS)
                await asyncio.gather(self._publish(bars[0]), self._consume(noted, bars[1]))
                await self._wait_for_table(bars[2])
                self._say("the Spark sink has landed everything")
        finally:
            noted.close()
        await self._processes.stop(node)
        self._say("the node has drained and stopped; Spark reads the table")
        self._plant_in_table()
        return await self._verdict(noted)

    def _say(self, text: str) -> None:
        elapsed = time.monotonic() - self._began
        self._console.print(f"[dim]{elapsed:5.1f} s[/dim] {text}", soft_wrap=True)

    # The node --------------------------------------------------------------------------------

    async def _start_node(self) -> asyncio.subprocess.Process:
        """Make keys and configuration with the command line, and start the node."""
        work, run = self._work, self._processes.run
        await run("-m", "rillnode", "init", work / "node", log=work / "init.log")
        principals: dict[str, str] = {}
        for who in ("producer", "consumer"):
            made = work / f"{who}.json"
            await run("-m", "rillnode", "key", "new", work / f"{who}.key", log=made)
            principals[who] = json.loads(made.read_text())["principal"]
        config = work / "node" / "node.toml"
        with config.open("a", encoding="utf-8") as file:
            table = json.dumps(str(self._table))
            file.write(CONFIG.format(stream=STREAM, sink=SINK, table=table, **principals))
        node = await self._processes.start(
            "-m", "rillnode", "run", "-c", config, "--ports-file", self._ports,
            "--set", "noise.listen=127.0.0.1:0", "--set", "http.listen=127.0.0.1:0",
            log=work / "node.log",
        )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS
        while not self._ports.exists():
            if node.returncode is not None or time.monotonic() > deadline:
                raise DemoError(f"the node does not start:\n{tail(work / 'node.log')}")
            await asyncio.sleep(0.05)
        ports = json.loads(self._ports.read_text())
        self._say(f"node {ports['identity'][:8]}, process {node.pid}, on noise://{ports['noise']}")
        return node

    @property
    def _ports(self) -> Path:
        return self._work / "ports.json"

    @property
    def _table(self) -> Path:
        return self._work / "table"

    async def _connect(self, key: Path) -> rillnode.Client:
        ports = json.loads(self._ports.read_text())
        return await rillnode.connect(
            f"noise://{ports['noise']}", key_file=key, node_identity=ports["identity"]
        )

    async def _connect_producer(self) -> rillnode.Client:
        return await self._connect(self._work / "producer.key")

    async def _connect_admin(self) -> rillnode.Client:
        return await self._connect(self._work / "node" / "data" / "admin.key")

    # The way of the events -------------------------------------------------------------------

    async def _publish(self, advance: Advance) -> None:
        """Push all events in order, and note where the confirmed ones stand."""
        skipped = 1 if self._args.plant == "unpublished" else 0
        async with await self._connect_producer() as client:
            stream = await client.stream(STREAM)
            for start in range(skipped, len(self._events), WINDOW):
                window: list[tuple[int, asyncio.Future[int]]] = []
                for number, event in enumerate(self._events[start : start + WINDOW], start):
                    partition = partition_of(event, number, PARTITIONS)
                    confirm = stream.push_nowait(event.data, partition=partition)
                    window.append((partition, confirm))
                for partition, confirm in window:
                    self._pushed.add((partition, await confirm))
                advance(len(self._pushed))

    async def _consume(self, noted: Noted, advance: Advance) -> None:
        """Consume in a process that is killed half-way, then in one that goes on."""
        command: list[str | Path] = [
            HERE / "demo_consumer.py", self._ports, self._work / "consumer.key", STREAM,
            self._work / "noted.log", "--rate", str(len(self._events) / WORK_SECONDS),
        ]  # fmt: skip
        if self._args.plant == "unconsumed":
            first = partition_of(self._events[0], 0, PARTITIONS)
            command += ["--forget", f"{first}:0"]
        log = self._work / "consumer.log"
        deadline = time.monotonic() + CONSUME_SECONDS
        consumer = await self._processes.start(*command, log=log)
        while noted.read() < len(self._events) // 2:
            await self._pause(consumer, log, deadline)
            advance(len(noted.entries))
        consumer.kill()
        self._recording.killed()
        await consumer.wait()
        before = noted.read()
        consumer = await self._processes.start(*command, log=log)
        self._recording.resumed()
        async with await self._connect_admin() as client:
            while not await self._consumed(client):
                await self._pause(consumer, log, deadline)
                advance(noted.read())
        await self._processes.stop(consumer)
        advance(noted.read())
        again = noted.deliveries - len(noted.entries)
        self._say(
            f"consumer killed after {before:,} entries, its successor went on from the saved "
            f"position: {again:,} came again"
        )
        self._recording.ended(f"killed after {before:,}; went on by itself, {again:,} came again")

    async def _consumed(self, client: rillnode.Client) -> bool:
        """Whether the consumer has saved that it has processed all that was pushed."""
        if len(self._pushed) < len(self._events) - (self._args.plant == "unpublished"):
            return False
        saved = {
            one.partition: one.index
            for one in await client.indexes(STREAM)
            if one.client_id == "demo"
        }
        ends = {
            partition.partition: partition.next_index
            for partition in (await client.describe(STREAM)).partitions
        }
        return all(saved.get(partition, 0) == end for partition, end in ends.items())

    async def _pause(
        self, consumer: asyncio.subprocess.Process, log: Path, deadline: float
    ) -> None:
        if consumer.returncode is not None:
            raise DemoError(f"the consumer ended with code {consumer.returncode}:\n{tail(log)}")
        if time.monotonic() > deadline:
            raise DemoError(f"the consumer has not come to an end in {CONSUME_SECONDS} s")
        await asyncio.sleep(0.05)

    async def _wait_for_table(self, advance: Advance) -> None:
        """Wait until the sink has landed everything."""
        deadline = time.monotonic() + LAND_SECONDS
        async with await self._connect_admin() as client:
            while (rows := await asyncio.to_thread(self._rows)) < len(self._pushed):
                advance(rows)
                sink = (await client.status())["sinks"][SINK]
                if sink["starts"] > JOB_STARTS_MAX or time.monotonic() > deadline:
                    log = self._work / "node" / "data" / "sinks" / f"{SINK}.log"
                    raise DemoError(f"the Spark job does not land the events:\n{tail(log)}")
                await asyncio.sleep(0.25)
            advance(rows)

    def _rows(self) -> int:
        try:
            return DeltaTable(str(self._table)).count()
        except TableNotFoundError:
            return 0

    # The verdict -----------------------------------------------------------------------------

    def _plant_in_table(self) -> None:
        """Lose or repeat a row of the table, if asked to: the check must find it."""
        if self._args.plant in ("unlanded", "duplicate"):
            table: Any = DeltaTable(str(self._table))
            partition, index = min(self._pushed)
            row = f'partition = {partition} AND "index" = {index}'
            if self._args.plant == "unlanded":
                table.delete(row)
            else:
                filters = [("partition", "=", partition), ("index", "=", index)]
                write_deltalake(table, table.to_pyarrow_table(filters=filters), mode="append")

    async def _verdict(self, noted: Noted) -> int:
        """Let Spark report and count, compare everything, print the last line."""
        args = self._args
        counts = self._work / "counts.json"
        picture = args.out / "report.png"
        await self._processes.run(
            HERE / "demo_report.py", self._table, counts, picture, self._work / "spark",
            "--key-field", args.key_field, "--time-field", args.time_field,
            "--top-field", args.top_field, log=self._work / "report.log", show=True,
        )  # fmt: skip
        found = json.loads(counts.read_text())
        pushed, consumed = len(self._pushed), len(noted.entries)
        numbers = (
            f"pushed={pushed} consumed={consumed} table={found['rows']} "
            f"duplicates={found['duplicates']}"
        )
        wrong = [
            text
            for text, bad in (
                (f"{len(self._events)} events were to be pushed", pushed != len(self._events)),
                ("the consumer noted something else", noted.entries != self._pushed),
                ("the table does not hold one row for each entry", found["rows"] != pushed),
                ("the table repeats entries", found["duplicates"] != 0),
            )
            if bad
        ]
        failed = f"demo FAILED: {numbers}: {'; '.join(wrong)}"
        verdict = failed if wrong else f"demo ok: {numbers}"
        page = args.out / "index.html"
        write_page(page, self._recording, self._events, args.top_field, verdict)
        self._console.print(f"\nthe picture: {picture}", soft_wrap=True)
        self._console.print(f"the run, to watch in a browser: {page}", soft_wrap=True)
        print(verdict)
        return 1 if wrong else 0


async def run(args: argparse.Namespace, work: Path, processes: Processes) -> int:
    """Run the demo and end what it started, also when it is interrupted."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        return await Demo(args, work, processes).run()
    finally:
        await processes.stop_all()


def remove(directory: Path) -> None:
    """Remove a directory, in which a process that was just killed may still have been writing."""
    for _ in range(REMOVE_TRIES):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return
        time.sleep(0.1)


def main() -> int:
    """Parse the command line, run, clean up; return the exit code."""
    parser = argparse.ArgumentParser(description="Events through a node into a Delta table.")
    parser.add_argument(
        "--data", type=Path, default=HERE / "data" / "earthquakes.json", metavar="FILE",
        help="GeoJSON, or one JSON object per line (default: a week of earthquakes)",
    )  # fmt: skip
    fields = parser.add_argument_group("fields of the events; dots lead into inner objects")
    fields.add_argument("--key-field", default="properties.net", help="partitions the events")
    fields.add_argument("--time-field", default="properties.time", help="milliseconds since 1970")
    fields.add_argument("--top-field", default="properties.mag", help="a number to find the top of")
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="for the picture")
    parser.add_argument(
        "--plant", choices=["unpublished", "unconsumed", "unlanded", "duplicate"],
        help="lose or repeat one event on the way, to see that the check finds it",
    )  # fmt: skip
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="work-", dir=args.out)).absolute()
    processes = Processes()
    try:
        return asyncio.run(run(args, work, processes))
    except (DemoError, RillnodeError) as error:
        print(f"demo FAILED: {error}")
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("demo: interrupted", file=sys.stderr)
        return 130
    finally:
        processes.kill_all()
        remove(work)


if __name__ == "__main__":
    sys.exit(main())
