"""A node with a Python sink: what it lands, what stops it, and what is killed; without Java."""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from landed_rows import table_entries
from nodes import node_config
from rillnode.node.config import Config, Location
from rillnode.node.runtime import Node
from rillnode.node.spark.config import PythonSink, SinkTables, TypedTable
from rillnode.node.spark.delta_log import open_table
from table_readers import plain_rows

SECONDS_MAX = 120.0


def config_of(directory: Path, **changes: Any) -> Config:
    sink = PythonSink(
        name="bronze",
        streams=("s*",),
        table_dir=Location(directory / "table"),
        trigger_seconds=0.1,
        batch_rows_max=500,
    )
    table = TypedTable(streams=("s",), dir=Location(directory / "typed"), columns={"id": "int"})
    sinks = SinkTables(python=(msgspec.structs.replace(sink, **changes),))
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

    def check(self) -> None:
        """Every entry once in bronze, and once in the typed table or its rejects."""
        counts = Counter(key for key, _ in table_entries(self.directory / "table"))
        assert counts == Counter({(0, at): 1 for at in range(self._pushed)})
        rows = plain_rows(str(self.directory / "typed")).column("id").to_pylist()
        assert sorted(rows) == [at for at in range(self._pushed) if at % 10]
        rejects = plain_rows(str(self.directory / "typed_rejects")).column("_index").to_pylist()
        assert sorted(rejects) == [*range(0, self._pushed, 10)]


def test_a_sink_lands_waits_pauses_and_survives_kills(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Node(config_of(tmp_path)) as node:
            site = Site(node, tmp_path)
            await site.push(2_000)
            await site.landed()
            shown = await site.sink()
            assert (shown["kind"], shown["state"], shown["error"]) == ("python", "running", "")
            assert shown["tables"].keys() == {"bronze", "table/typed"}
            for _ in range(3):
                await site.push(3_000)
                await asyncio.sleep(0.2)
                os.kill((await site.sink())["pid"], signal.SIGKILL)
                await site.until_state("waiting to start again")
                await site.until_state("running")
            await site.landed()
            site.check()
            await node.client.run_sink("bronze", run=False)
            await site.until_state("paused")
            await site.push(10)
            await node.client.run_sink("bronze", run=True)
            await site.landed()
            site.check()

    asyncio.run(scenario())
    log = (tmp_path / "data" / "sinks" / "bronze.log").read_text()
    assert log == ""
    # The node has stopped, and its job with it; the next one goes on.

    async def again() -> None:
        async with Node(config_of(tmp_path)) as node:
            site = Site(node, tmp_path)
            site._pushed = 11_010  # pyright: ignore[reportPrivateUsage]
            await site.push(90)
            await site.landed()
            site.check()

    asyncio.run(again())
