"""Workers and nodes that are killed: nothing that was done is given again, and nothing is lost."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from nodes import CLIENT
from proxy import Proxy
from rillnode.codecs.errors import RillnodeError
from rillnode.node.client import Client, connect

HERE = Path(__file__).parent
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": f"{HERE.parents[1] / 'support'}:{HERE.parents[2] / 'src'}",
}
PARTITIONS = 3
DRAINED_SECONDS = 60.0


def start_node(directory: Path) -> tuple[subprocess.Popen[str], dict[str, str]]:
    """A node, and where it is."""
    child = subprocess.Popen(
        [sys.executable, str(HERE / "node_process.py"), str(directory)],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    return child, json.loads(child.stdout.readline())


def start_worker(address: str, identity: str, journal: Path) -> subprocess.Popen[bytes]:
    program = [sys.executable, str(HERE / "queue_worker.py")]
    return subprocess.Popen(
        [*program, f"noise://{address}", identity, str(journal)],
        env=ENVIRONMENT,
        stderr=subprocess.DEVNULL,
    )


async def kill_at_random(
    directory: Path, seed: int, *, entries: int, kills: int
) -> tuple[list[str], set[str]]:
    """Have entries worked on while all that takes part is killed; return the journal, and all."""
    chance = Random(seed)
    journal = directory / "journal"
    journal.touch()
    node, told = start_node(directory / "node")
    workers: list[subprocess.Popen[bytes]] = []
    try:
        async with Proxy(told["noise"]) as proxy:
            url = f"noise://{proxy.address}"
            client = await connect(url, identity=CLIENT, node_identity=told["identity"])
            async with client:
                stream = await client.stream("jobs", partitions=PARTITIONS)
                names = [f"{number}" for number in range(entries)]
                for _ in range(3):
                    workers.append(start_worker(proxy.address, told["identity"], journal))
                pushed = 0
                for kill in range(kills):
                    until = entries * (kill + 1) // kills
                    for name in names[pushed:until]:
                        await stream.push(name.encode(), partition=int(name) % PARTITIONS)
                    pushed = until
                    await asyncio.sleep(chance.uniform(0.0, 0.6))
                    if kill % 3 == 2:
                        node.kill()
                        node.wait()
                        node, told = start_node(directory / "node")
                        proxy.point_to(told["noise"])
                        proxy.cut()
                    else:
                        number = chance.randrange(len(workers))
                        workers[number].kill()
                        workers[number].wait()
                        address, identity = proxy.address, told["identity"]
                        workers[number] = start_worker(address, identity, journal)
                await drained(client)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
        node.kill()
        node.wait()
    return journal.read_text().splitlines(), set(names)


async def drained(client: Client) -> None:
    """Wait until nothing of the queue is open."""
    async with asyncio.timeout(DRAINED_SECONDS):
        while True:
            try:
                if not (await client.queue("jobs", "q")).depth:
                    return
            except RillnodeError as error:
                if not error.retryable:
                    raise
            await asyncio.sleep(0.2)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_what_was_done_is_not_given_again_and_all_is_done(tmp_path: Path, seed: int) -> None:
    lines, names = asyncio.run(kill_at_random(tmp_path, seed, entries=300, kills=9))
    done: set[str] = set()
    given: set[str] = set()
    for line in lines:
        word, name, *_ = line.split()
        if word == "done":
            assert name not in done, f"{name} was done twice"
            done.add(name)
        elif word == "got":
            assert name not in done, f"{name} was done, and given again"
            given.add(name)
    assert given == names
