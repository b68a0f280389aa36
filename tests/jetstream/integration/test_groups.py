"""A group of consumers at two nodes of one log, one of which is killed."""

import asyncio
from collections import Counter
from pathlib import Path

from nats_support import NatsServer, needs_nats, on_jetstream
from node_processes import NodeProcess
from nodes import CLIENT, connect_to, node_config
from rillnode.codecs.entries import Entry
from rillnode.node.client import Consumer, connect
from rillnode.node.runtime import Node
from rillnode.node.testing.contract.base import until

pytestmark = needs_nats

PARTITIONS = 4
ENTRIES = 25


async def work(consumer: Consumer[Entry], seen: Counter[tuple[int, int]]) -> None:
    async for entry in consumer:
        seen[entry.partition, entry.index] += 1


def test_what_a_killed_node_had_moves_to_the_others_members(
    tmp_path: Path, nats: NatsServer
) -> None:
    killed = NodeProcess(tmp_path / "b", [nats])
    killed.start()

    async def run() -> None:
        seen: Counter[tuple[int, int]] = Counter()
        far = await connect(
            killed.url, identity=CLIENT, node_identity=killed.identity, reconnect=False
        )
        async with (
            Node(on_jetstream(node_config(tmp_path / "a"), nats)) as node,
            await connect_to(node) as near,
        ):
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
            await asyncio.to_thread(killed.kill)
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
        killed.kill()
