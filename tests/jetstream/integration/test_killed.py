"""Nodes and servers that are killed while clients push at every node: nothing confirmed is lost."""

import asyncio
from pathlib import Path

import pytest

from nats_support import NatsCluster, needs_nats, on_jetstream
from nodes import connect_to, node_config
from rillnode.codecs.errors import RillnodeError
from rillnode.node.client import Client
from rillnode.node.runtime import Node

pytestmark = needs_nats


async def pushed(client: Client, who: int, stop: asyncio.Event, confirmed: dict[int, bytes]) -> int:
    """Push until told to stop; what is refused is pushed again. Returns how often it was."""
    stream = await client.stream("s")
    refused = number = 0
    while not stop.is_set():
        data = b"%d %d" % (who, number)
        try:
            index = await stream.push(data)
        except RillnodeError as error:
            if not error.retryable:
                raise
            refused += 1
            await asyncio.sleep(0.05)
            continue
        assert index not in confirmed
        confirmed[index] = data
        number += 1
    return refused


@pytest.mark.long
def test_servers_and_nodes_that_are_killed_lose_nothing_confirmed(tmp_path: Path) -> None:
    """Each server in turn, and one of two nodes, while both take pushes."""
    cluster = NatsCluster(tmp_path / "nats")
    cluster.start()
    confirmed: dict[int, bytes] = {}

    async def kill_in_turn() -> None:
        for server in cluster.servers:
            before = len(confirmed)
            await asyncio.to_thread(server.kill)
            async with asyncio.timeout(120.0):
                while len(confirmed) < before + 100:
                    await asyncio.sleep(0.05)
            await asyncio.to_thread(server.start)
            # It must have what it has missed before the next one goes.
            await asyncio.sleep(10.0)

    async def run() -> None:
        configs = [
            on_jetstream(node_config(tmp_path / name), *cluster.servers, replicas=3)
            for name in "ab"
        ]
        async with Node(configs[0]) as a, await connect_to(a) as near:
            stop, stop_far = asyncio.Event(), asyncio.Event()
            pushing = asyncio.create_task(pushed(near, 0, stop, confirmed))
            b = Node(configs[1])
            await b.start()
            far = await connect_to(b)
            others = asyncio.create_task(pushed(far, 1, stop_far, confirmed))
            await kill_in_turn()
            stop_far.set()
            refused = await others
            await far.close()
            await b.stop()
            before = len(confirmed)
            async with asyncio.timeout(60.0):
                while len(confirmed) < before + 100:
                    await asyncio.sleep(0.05)
            stop.set()
            refused += await pushing
            stream = await near.stream("s")
            found: dict[int, bytes] = {}
            while entries := await stream.pull(len(found), 1_000):
                found |= {entry.index: entry.data for entry in entries}
            assert list(found) == list(range(len(found)))
            assert {index: found[index] for index in confirmed} == confirmed
            assert len(confirmed) > 400
            # What was refused may be there all the same, and then twice: at most so often.
            assert len(found) - len(set(found.values())) <= refused

    try:
        asyncio.run(run())
    finally:
        cluster.kill()
