"""Work queues on simulated nodes that are killed and cut off, alone and on one log."""

import asyncio
from collections import Counter

import pytest

from rillnode.codecs.errors import RequestError, RillnodeError
from rillnode.node.client import Client
from rillnode.node.config import Config, GrantTable
from rillnode.node.jetstream.config import JetStreamStore
from rillnode.testing import Network

ENTRIES = 60
PARTITIONS = 2
FAULTS_SECONDS = 30.0
DRAINED_SECONDS = 120.0


class Site:
    """Nodes, the workers at them, and what was confirmed to these.

    Attributes:
        done: how often `done` was confirmed of each entry, by its place.
        order: in which order entries of a key were, by their indexes.
    """

    def __init__(self, network: Network, nodes: list[str], *, by_key: bool) -> None:
        self.network = network
        self.nodes = nodes
        self.by_key = by_key
        self.done: Counter[tuple[int, int]] = Counter()
        self.order: dict[bytes, list[int]] = {}

    async def work(self, number: int) -> None:
        """Be a worker, for ever, of one node; a worker that ends begins anew."""
        while True:
            try:
                client = await self.network.client(self.nodes[number % len(self.nodes)])
                async with client:
                    await self._work(client)
            except RillnodeError:
                await asyncio.sleep(1.0)

    async def _work(self, client: Client) -> None:
        stream = await client.stream("jobs", partitions=PARTITIONS)
        queue = stream.work(
            "q", attempts=1_000, visibility_seconds=3.0, in_flight=4, by_key=self.by_key
        )
        async with queue:
            async for job in queue:
                await asyncio.sleep(0.02)
                try:
                    await job.done()
                except RequestError as error:
                    if error.code != "queue.late":
                        raise
                else:
                    self.done[job.partition, job.index] += 1
                    key = job.key or b""
                    self.order.setdefault(key, []).append(job.index)

    async def push(self) -> None:
        """Push all entries, each until it is confirmed."""
        async with await self.network.client(self.nodes[0]) as client:
            stream = await client.stream("jobs", partitions=PARTITIONS)
            for number in range(ENTRIES):
                while True:
                    try:
                        await stream.push(b"%d" % number, key=b"%d" % (number % 3))
                        break
                    except RillnodeError:
                        await asyncio.sleep(0.5)
                await asyncio.sleep(FAULTS_SECONDS / ENTRIES / 2)

    async def drained(self) -> None:
        """Wait until nothing is open."""
        async with await self.network.client(self.nodes[0]) as client:
            async with asyncio.timeout(DRAINED_SECONDS):
                while (await client.queue("jobs", "q")).depth:
                    await asyncio.sleep(0.5)


def run(seed: int, *, shared: bool, by_key: bool = False) -> Site:
    with Network(seed=seed, shared=shared) as network:
        nodes = ["a", "b"] if shared else ["a"]
        for name in nodes:
            grants = (GrantTable(who="noise:*", streams="*", may=("create", "push", "pull")),)
            config = Config(name=name, grants=grants)
            if shared:
                store = JetStreamStore(servers=("nats://127.0.0.1:4222",))
                config = Config(name=name, grants=grants, store=store)
            network.add_node(name, config=config)
        site = Site(network, nodes, by_key=by_key)

        async def program() -> None:
            for number in range(3):
                network.start(f"worker-{number}", site.work, number)
            async with network.faults(count=8, seconds=FAULTS_SECONDS):
                await site.push()
                await asyncio.sleep(FAULTS_SECONDS / 2)
            await site.drained()

        network.run(program())
    return site


@pytest.mark.parametrize("shared", [False, True], ids=["own store", "one log"])
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 30))]
)
def test_whatever_fails_all_is_done_and_nothing_twice(seed: int, *, shared: bool) -> None:
    site = run(seed, shared=shared)
    assert {count for _, count in site.done.items()} == {1}
    # What was confirmed after its worker was gone, nobody has noted.
    assert len(site.done) >= ENTRIES - 10


@pytest.mark.parametrize("shared", [False, True], ids=["own store", "one log"])
@pytest.mark.parametrize("seed", [40, pytest.param(41, marks=pytest.mark.long)])
def test_whatever_fails_entries_of_a_key_are_done_in_order(seed: int, *, shared: bool) -> None:
    site = run(seed, shared=shared, by_key=True)
    assert max(site.done.values()) == 1
    for order in site.order.values():
        assert order == sorted(order)
