"""Two Spark sinks of a node share one Java virtual machine, and nothing else."""

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nodes import node_config
from rillnode.actors.spark import sink_job
from rillnode.node.config import Location
from rillnode.node.runtime import Node
from rillnode.node.spark.config import SinkTables, SparkSink
from rillnode.node.spark.process import session_members

pytestmark = [pytest.mark.spark, pytest.mark.long]

SECONDS_MAX = 240.0


def java(session: int) -> int:
    """How many virtual machines there are."""
    found = 0
    for pid in session_members(session):
        with suppress(OSError):
            found += (Path("/proc") / str(pid) / "comm").read_text().strip() == "java"
    return found


def silver_runs(sink: dict[str, Any]) -> bool:
    return bool(sink["tables"]["silver"]["state"] == "running")


class Site:
    def __init__(self, node: Node) -> None:
        self.client = node.client
        self._pushed = dict.fromkeys("ab", 0)

    async def sink(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.client.status())["sinks"][name]
        return found

    async def until(self, name: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + SECONDS_MAX
        while not holds(shown := await self.sink(name)):
            assert time.monotonic() < deadline, shown
            await asyncio.sleep(0.1)
        return shown

    async def land(self, *names: str) -> None:
        """Push to the stream of each, and wait until it has landed."""
        for name in names:
            await (await self.client.stream(name)).push_many([b"%d" % at for at in range(100)])
            self._pushed[name] += 100
        deadline = time.monotonic() + SECONDS_MAX
        for name in names:
            while await self.client.get_index(f"sink/{name}", name) != self._pushed[name]:
                assert time.monotonic() < deadline, await self.sink(name)
                await asyncio.sleep(0.1)

    async def pause(self, name: str) -> None:
        await self.client.run_sink(name, run=False)
        await self.until(name, lambda sink: sink["state"] == "paused")

    async def resume(self, name: str) -> None:
        await self.client.run_sink(name, run=True)


def test_sinks_share_an_application_and_fail_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_job, "BACKOFF_SECONDS", (0.5,))
    sinks = [
        SparkSink(
            name=name,
            streams=(name,),
            table_dir=Location(tmp_path / name),
            silver_dir=Location(tmp_path / f"{name}-silver"),
            trigger_seconds=0.2,
        )
        for name in "ab"
    ]
    config = node_config(tmp_path / "data").having(SinkTables(spark=tuple(sinks)))

    async def scenario() -> None:
        async with Node(config) as node:
            site = Site(node)
            await site.land("a", "b")
            pids = {(await site.sink(name))["pid"] for name in "ab"}
            (pid,) = pids
            assert java(pid) == 1
            for name in "ab":  # both have a query of silver
                await site.until(name, silver_runs)
            await site.pause("b")
            await site.land("a")
            log = max((tmp_path / "b" / "_delta_log").glob("*.json"))
            whole = log.read_bytes()
            log.write_bytes(whole[:20])
            await site.resume("b")
            broken = await site.until("b", lambda sink: sink["failures"] >= 2)
            assert f"{log}, version " in broken["last_error"]
            await site.land("a")
            assert (await site.sink("a"))["pid"] == pid
            assert (await site.sink("a"))["starts"] == 1
            log.write_bytes(whole)
            await site.resume("b")  # on a busy machine it has failed often enough to be parked
            await site.land("b")
            assert (await site.sink("b"))["pid"] == pid
            for name in "ab":
                await site.pause(name)
            assert not session_members(pid)
            await site.resume("b")
            await site.land("b")
            again = await site.sink("b")
            assert again["pid"] not in (pid, None)
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)

    asyncio.run(scenario())
    assert not (tmp_path / "data" / "sinks" / "b.log").exists()
