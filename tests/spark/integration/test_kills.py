"""Exactly once, whatever is killed: the node, the driver, Java, a worker, at any moment.

What the table holds in the end is held against the node's own log, entry by entry.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from itertools import count, cycle
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from landed_rows import log_entries, table_entries
from nodes import CLIENT
from pausing import pause
from rillnode.codecs.errors import RillnodeError
from rillnode.node.client import Client, connect
from rillnode.node.spark.process import session_members

pytestmark = [pytest.mark.spark, pytest.mark.long]

SECONDS_MAX = 900.0
PARTITIONS = 2
BLOCK = 200
SEED = 20_261_121
BETWEEN = "between commit and save"
SCRIPT = Path(__file__).with_name("sink_node.py")


class SinkNode:
    """A node with a Spark sink, that is killed and started again."""

    def __init__(self, directory: Path, python_path: str) -> None:
        self.directory = directory
        self.table = directory / "table"
        self.checkpoint = self.table / "_checkpoints" / "bronze"
        self._environment = {**os.environ, "PYTHONPATH": python_path}
        self.process: subprocess.Popen[bytes] | None = None
        self.told: dict[str, str] = {}

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(self.directory)],
            stdout=subprocess.PIPE,
            env=self._environment,
        )
        assert self.process.stdout is not None
        self.told = json.loads(self.process.stdout.readline())

    def end(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)  # nothing happens to one that has ended
        self.process.wait(SECONDS_MAX)
        assert self.process.stdout is not None
        self.process.stdout.close()

    async def client(self) -> Client:
        return await connect(
            f"noise://{self.told['noise']}",
            identity=CLIENT,
            node_identity=self.told["identity"],
            reconnect=False,
        )

    def log(self) -> str:
        path = self.directory / "data" / "sinks" / "bronze.log"
        return path.read_text() if path.exists() else ""

    def job(self) -> int | None:
        """The process id of the job, if one runs."""
        assert self.process is not None
        for entry in Path("/proc").iterdir():
            with suppress(OSError, IndexError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if (
                    int(fields[1]) == self.process.pid
                    and b"--report-to" in (entry / "cmdline").read_bytes()
                ):
                    return int(entry.name)
        return None

    def version(self) -> int:
        """Number of the table's last version, as its log's file names tell."""
        with suppress(FileNotFoundError):
            names = os.listdir(self.table / "_delta_log")
            numbers = [name.removesuffix(".json") for name in names if name.endswith(".json")]
            return max((int(number) for number in numbers if number.isdecimal()), default=-1)
        return -1

    def is_past(self, version: int) -> bool:
        return self.version() > version

    def landed(self) -> int:
        """Number of entries that the table has."""
        with suppress(TableNotFoundError):
            return DeltaTable(self.table).count()
        return 0

    async def saved(self) -> int:
        """Number of entries of which the node knows that they are in the table."""
        async with await self.client() as client:
            found = [
                await client.get_index("sink/bronze", "s", partition=partition) or 0
                for partition in range(PARTITIONS)
            ]
        return sum(found)

    async def until(self, condition: Callable[[], bool], pause: float = 0.02) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not condition():
            assert time.monotonic() < deadline, self.log()
            await asyncio.sleep(pause)


def named(pids: list[int], name: str) -> list[int]:
    found: list[int] = []
    for pid in pids:
        with suppress(OSError):
            if (Path("/proc") / str(pid) / "comm").read_text().strip().startswith(name):
                found.append(pid)
    return found


def kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Pusher:
    """Pushes numbered entries as long as the node lives, and knows what was confirmed."""

    def __init__(self, node: SinkNode) -> None:
        self._node = node
        self._numbers = count()
        self._partitions = cycle(range(PARTITIONS))
        self.confirmed: set[bytes] = set()
        self.stop = False

    async def run(self) -> None:
        while not self.stop:
            with suppress(RillnodeError, OSError):
                async with await self._node.client() as client:
                    stream = await client.stream("s", partitions=PARTITIONS)
                    while not self.stop:
                        items = [b"%0100d" % next(self._numbers) for _ in range(BLOCK)]
                        await stream.push_many(items, partition=next(self._partitions))
                        self.confirmed.update(items)
                        await asyncio.sleep(0.25)
            await asyncio.sleep(0.2)


async def strike(node: SinkNode, victim: str, source: random.Random) -> bool:
    """Kill one part of a running pipeline in a batch; whether the table was ahead of the node."""
    before = node.version()
    await node.until(lambda: node.is_past(before) and node.job() is not None)
    job = node.job()
    assert job is not None
    members = session_members(job)
    if victim == BETWEEN:
        await node.until(partial(node.is_past, node.version()), pause=0.001)
        pause(job)
        ahead = await node.saved() < node.landed()
    else:
        await asyncio.sleep(source.uniform(0, 0.5))
        ahead = False
    match victim:
        case "node":
            node.end(signal.SIGKILL)
        case "java":
            kill(named(members, "java"))
        case "worker":
            kill(named([pid for pid in members if pid != job], "python"))
        case _:
            kill([job])
    if victim == "node":
        # The job ends by itself when it has read the end of its standard input.
        await node.until(lambda: not session_members(job))
        node.start()
    return ahead


@pytest.fixture
def node(tmp_path: Path, worker_path: str) -> Generator[SinkNode]:
    node = SinkNode(tmp_path, worker_path)
    node.start()
    yield node
    node.end(signal.SIGKILL)  # its job ends with it


def test_what_is_killed_loses_and_repeats_nothing(node: SinkNode) -> None:
    source = random.Random(SEED)
    victims = ["node", "java", "worker", *[BETWEEN] * 3]
    source.shuffle(victims)
    ahead: list[bool] = []

    async def scenario() -> dict[tuple[int, int], bytes]:
        pusher = Pusher(node)
        pushing = asyncio.create_task(pusher.run())
        for victim in victims:
            ahead.append(await strike(node, victim, source))
        pusher.stop = True
        await pushing
        async with await node.client() as client:
            entries = await log_entries(client)
            deadline = time.monotonic() + SECONDS_MAX
            while await node.saved() < len(entries):
                assert time.monotonic() < deadline, node.log()
                await asyncio.sleep(0.2)
        assert pusher.confirmed <= set(entries.values())
        return entries

    entries = asyncio.run(scenario())
    node.end(signal.SIGTERM)
    landed = table_entries(node.table)
    counts = Counter(key for key, _ in landed)
    assert set(counts.values()) == {1}, f"seed {SEED}"
    assert dict(landed) == entries
    assert any(ahead), "the kills have not hit the moment between commit and save"
