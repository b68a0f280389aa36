"""A group of consumers at two nodes of one log, one of which is killed."""

import asyncio
from collections import Counter
from pathlib import Path

from nats_support import NatsServer, needs_nats
from node_processes import NodeProcess
from nodes import CLIENT
from rillnode.codecs.entries import Entry
from rillnode.node.client import Client, Consumer, connect
from rillnode.node.testing.contract.base import until

pytestmark = needs_nats

PARTITIONS = 4
ENTRIES = 25


async def client_of(node: NodeProcess, *, reconnect: bool = True) -> Client:
    return await connect(
        node.url, identity=CLIENT, node_identity=node.identity, reconnect=reconnect
    )


async def work(consumer: Consumer[Entry], seen: Counter[tuple[int, int]]) -> None:
    async for entry in consumer:
        seen[entry.partition, entry.index] += 1


def test_what_a_killed_node_had_moves_to_the_others_members(
    tmp_path: Path, nats: NatsServer
) -> None:
    nodes = [NodeProcess(tmp_path / name, [nats]) for name in ("a", "b")]
    for node in nodes:
        node.start()

    async def run() -> None:
        seen: Counter[tuple[int, int]] = Counter()
        near, far = await client_of(nodes[0]), await client_of(nodes[1], reconnect=False)
        async with near:
            stream = await near.stream("s", partitions=PARTITIONS)
            consumers = [
                one.consumer("g", group=True, save_seconds=0.05)
                for one in (stream, await far.stream("s"))
            ]
            for one in consumers:
                await one.__aenter__()
            await until(lambda: [len(one.partitions) for one in consumers] == [2, 2])
            working = [asyncio.create_task(work(one, seen)) for one in consumers]
            for partition in range(PARTITIONS):
                await stream.push_many([b"x"] * ENTRIES, partition=partition)
            await until(lambda: len(seen) == PARTITIONS * ENTRIES)
            assert max(seen.values()) == 1
            (group,) = await near.groups("s")
            assert sorted(len(one.partitions) for one in group.members) == [2, 2]
            await asyncio.sleep(0.5)
            kept = set(consumers[0].partitions)
            await asyncio.to_thread(nodes[1].kill)
            await until(lambda: len(consumers[0].partitions) == PARTITIONS)
            assert kept < set(consumers[0].partitions)
            for partition in range(PARTITIONS):
                await stream.push(b"y", partition=partition)
            every = {(nr, at) for nr in range(PARTITIONS) for at in range(ENTRIES + 1)}
            await until(lambda: every <= seen.keys())
            # The one that it had in hand when it was lost comes again, at most.
            assert sum(count - 1 for count in seen.values()) <= 1
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)
            await consumers[0].aclose()

    try:
        asyncio.run(run())
    finally:
        for node in nodes:
            node.kill()
