"""What every sink of tables does, whatever its job is: only those of Spark need Java."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

from landed_rows import log_entries, table_entries
from nodes import CLIENT, node_config
from rillnode.actors.spark import sink_job
from rillnode.node.client import connect
from rillnode.node.config import Config, Location
from rillnode.node.runtime import Node
from rillnode.node.spark.config import PythonSink, SinkTables, SparkSink
from rillnode.node.spark.delta_log import open_table
from rillnode.node.spark.process import session_members
from rillnode.node.spark.table_config import TypedTable
from table_readers import plain_rows

SECONDS_MAX = 600.0


SCRIPT = Path(__file__).with_name("sink_node.py")
KINDS = {"python": PythonSink, "spark": SparkSink}
ENGINES = [
    pytest.param("python", 1, id="python"),
    pytest.param("python", 3, id="python often", marks=pytest.mark.long),
    pytest.param("spark", 1, id="spark", marks=[pytest.mark.spark, pytest.mark.long]),
]
"""Kinds of sinks, and how often their jobs are killed."""


def config_of(directory: Path, kind: str) -> Config:
    sink = KINDS[kind](
        name="bronze",
        streams=("s*",),
        table_dir=Location(directory / "table"),
        trigger_seconds=0.1,
        batch_rows_max=500,
    )
    table = TypedTable(streams=("s",), dir=Location(directory / "typed"), columns={"id": "int"})
    sinks = (
        SinkTables(python=(sink,)) if isinstance(sink, PythonSink) else SinkTables(spark=(sink,))
    )
    return node_config(directory / "data").having(sinks).having(table)


def entry(number: int) -> bytes:
    """Every tenth does not fit."""
    return b'{"id": "%d"}' % number if number % 10 == 0 else b'{"id": %d}' % number


class Site:
    """A running node with such a sink."""

    def __init__(self, node: Node, directory: Path) -> None:
        self.node = node
        self.directory = directory
        self._pushed = 0

    async def push(self, count: int) -> None:
        stream = await self.node.client.stream("s")
        numbers = range(self._pushed, self._pushed + count)
        await stream.push_many([entry(number) for number in numbers])
        self._pushed += count

    async def sink(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self.node.client.status())["sinks"]["bronze"]
        return found

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not await holds():
            assert time.monotonic() < deadline, await self.sink()
            await asyncio.sleep(0.05)

    async def until_state(self, *states: str) -> None:
        async def holds() -> bool:
            return (await self.sink())["state"] in states

        await self.until(holds)

    async def landed(self) -> None:
        """Wait until bronze and the typed table have all that was pushed."""

        async def holds() -> bool:
            saved = await self.node.client.get_index("sink/bronze", "s") or 0
            return saved == self._pushed and self.typed() == self._pushed

        await self.until(holds)

    def typed(self) -> int:
        places = (self.directory / "typed", self.directory / "typed_rejects")
        tables = [open_table(str(place)) for place in places]
        return sum(0 if table is None else table.count() for table in tables)

    async def moved(self, stream: str, index: int) -> None:
        """Wait until the sink has saved so far."""

        async def holds() -> bool:
            return await self.node.client.get_index("sink/bronze", stream) == index

        await self.until(holds)

    async def run(self, *, run: bool) -> None:
        await self.node.client.run_sink("bronze", run=run)
        if not run:
            await self.until_state("paused")

    def gaps(self) -> list[tuple[str, int, int | None]]:
        columns = ["stream", "index", "gap_until", "kind"]
        rows = plain_rows(str(self.directory / "table")).select(columns).to_pylist()
        found = [row for row in rows if row["kind"] == "gap"]
        return sorted((row["stream"], row["index"], row["gap_until"]) for row in found)

    def data(self, stream: str) -> Counter[bytes]:
        rows = plain_rows(str(self.directory / "table")).select(["stream", "data", "kind"])
        return Counter(
            row["data"]
            for row in rows.to_pylist()
            if (row["stream"], row["kind"]) == (stream, "bytes")
        )

    def check(self) -> None:
        """Every entry once in bronze, and once in the typed table or its rejects."""
        assert self.data("s") == Counter(map(entry, range(self._pushed)))
        rows = plain_rows(str(self.directory / "typed")).column("id").to_pylist()
        assert sorted(rows) == [at for at in range(self._pushed) if at % 10]
        rejects = plain_rows(str(self.directory / "typed_rejects")).column("_index").to_pylist()
        assert sorted(rejects) == [*range(0, self._pushed, 10)]


async def kill(site: Site) -> None:
    """Kill the job while it works; it is started again."""
    await site.push(3_000)
    await asyncio.sleep(0.2)
    shown = await site.sink()
    for pid in session_members(shown["pid"]):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    async def again() -> bool:
        return bool((await site.sink())["starts"] > shown["starts"])

    await site.until(again)


async def lose(site: Site) -> None:
    """Pause the sink, trim what it has not landed, and make streams anew that it has landed."""
    client = site.node.client
    for name in ("s/trimmed", "s/removed"):
        await (await client.stream(name)).push_many([b"old"] * 4)
        await site.moved(name, 4)
    await client.stream("s/empty")
    await site.run(run=False)
    await (await client.stream("s/trimmed")).push_many([b"lost"] * 3 + [b"kept"])
    await client.trim("s/trimmed", before=7)
    await client.remove("s/removed")
    await (await client.stream("s/removed")).push_many([b"new"] * 6)


async def find_lost(site: Site) -> None:
    """See that what `lose` has taken away has left rows that say so, and nothing else is gone."""
    await site.moved("s/trimmed", 8)
    await site.moved("s/removed", 6)
    assert site.gaps() == [("s/removed", 4, None), ("s/trimmed", 4, 7)]
    assert site.data("s/trimmed") == Counter({b"old": 4, b"kept": 1})
    assert site.data("s/removed") == Counter({b"old": 4, b"new": 6})

    async def told() -> bool:  # what is saved is reported a little later
        return bool((await site.sink())["report"]["entries_lost_total"] == 3)

    await site.until(told)


async def take_away(site: Site) -> None:
    """Put a file where a paused sink's table was, as nobody can write there; bring it back."""
    table, away = site.directory / "table", site.directory / "away"
    table.rename(away)
    table.write_bytes(b"")
    await site.push(100)
    await site.run(run=True)
    await site.until_state("waiting")
    shown = await site.sink()
    assert shown["error"].startswith(f"the tables cannot be written now: {table}: ")
    table.unlink()
    away.rename(table)
    await site.landed()
    await site.until_state("running")


@pytest.mark.parametrize(("kind", "kills"), ENGINES)
def test_a_sink_loses_and_repeats_nothing(
    kind: str, kills: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_job, "BACKOFF_SECONDS", (0.5,))

    async def scenario() -> None:
        async with Node(config_of(tmp_path, kind)) as node:
            site = Site(node, tmp_path)
            await site.push(2_000)
            await site.landed()
            shown = await site.sink()
            assert (shown["kind"], shown["state"], shown["error"]) == (kind, "running", "")
            assert shown["tables"].keys() == {"bronze", "table/typed"}
            for _ in range(kills):
                await kill(site)
            await site.landed()
            site.check()
            await lose(site)
            await take_away(site)
            await find_lost(site)
            site.check()

    asyncio.run(scenario())


async def push_until_killed(process: subprocess.Popen[bytes], numbers: Iterator[int]) -> set[int]:
    """Push to a node for a while and kill it; returns what it has confirmed."""
    assert process.stdout is not None
    told = json.loads(process.stdout.readline())
    confirmed: set[int] = set()
    async with await connect(
        f"noise://{told['noise']}",
        identity=CLIENT,
        node_identity=told["identity"],
        reconnect=False,
    ) as client:
        stream = await client.stream("s")
        for _ in range(8):
            block = list(islice(numbers, 200))
            await stream.push_many([b"%d" % number for number in block])
            confirmed.update(block)
            await asyncio.sleep(0.15)
        process.kill()
        process.wait(SECONDS_MAX)
        process.stdout.close()
    return confirmed


@pytest.mark.long
@pytest.mark.parametrize("kills", [1, 3])
def test_a_node_that_is_killed_leaves_its_job_nothing_to_repeat(
    tmp_path: Path, worker_path: str, kills: int
) -> None:
    """The Spark half of this is in `test_kills.py`."""
    environment = {**os.environ, "PYTHONPATH": worker_path}
    numbers, confirmed = count(), set[int]()
    for _ in range(kills):
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(tmp_path), "python"],
            stdout=subprocess.PIPE,
            env=environment,
        )
        confirmed |= asyncio.run(push_until_killed(process, numbers))

    async def landed() -> set[int]:
        config = config_of(tmp_path, "python")
        async with Node(config) as node:
            entries = await log_entries(node.client)
            await Site(node, tmp_path).moved("s", len(entries))
            return {int(data) for data in entries.values()}

    stored = asyncio.run(landed())
    assert confirmed <= stored
    rows = [int(data) for _, data in table_entries(tmp_path / "table")]
    assert sorted(rows) == sorted(stored)
