"""Three machines under random faults, and clients of every protocol at them meanwhile.

    pytest -m long tests/jetstream/integration/test_random_faults.py \
        --fault-seconds 7200 --fault-seed 7

Each machine is a network namespace with a NATS server and a node. Nodes make and take snapshots,
and drop views, as often as they can. Afterwards all that was confirmed is there, at its index, and
not more often than it was pushed; and each node has the same logs.
"""

import asyncio
import random
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from mixed_users import Users, all_users, more_of, prepare
from nats_support import needs_nats
from netns_support import network
from node_processes import NodeProcess
from shared_cluster import MORE, Cluster, make_cluster
from shared_log_load import NEVER, Load

pytestmark = [needs_nats, pytest.mark.long]

HASTY: Final = str(Path(__file__).parents[2] / "support" / "hasty_node.py")
SLEEP_SECONDS_MAX: Final = 15.0
"""Longer than elections, the pings of links, and what a node waits for an answer."""

TOGETHER: Final = 2
"""Faults at one time."""

STARTS_MAX: Final = 20
"""How often a node is started that ends because it finds no servers."""

ALARMS: Final = (
    "views_differ",
    "shard_failed",
    "store_refused",
    "essential_actor_ended",
    "Traceback",
)
"""What no node may ever log."""


class Faults:
    """Has faults happen on three machines, one after the other and two at one time.

    Attributes:
        counts: how often each has happened.
    """

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._chance = random.Random(seed)
        self._busy: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.counts: dict[str, int] = {}

    async def run(self, seconds: float) -> None:
        """Go on for so long; then all is whole again."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await asyncio.sleep(self._chance.uniform(0.2, 6.0))
            while len(self._tasks) == TOGETHER or len(self._busy) == 3:
                await self._one_ends()
            self._begin()
        while self._tasks:
            await self._one_ends()

    async def _one_ends(self) -> None:
        done, self._tasks = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    def _begin(self) -> None:
        """One more, on machines that have none now."""
        free = [number for number in range(3) if number not in self._busy]
        if len(free) == 3 and self._chance.random() < 0.15:
            fault, machines = self._chance.choice(ALL), free
        elif len(free) > 1 and self._chance.random() < 0.1:
            fault, machines = lose_each_other, self._chance.sample(free, 2)
        else:
            fault, machines = self._chance.choice(ONE), [self._chance.choice(free)]
        seconds = self._chance.uniform(0.2, self._chance.choice((2.0, SLEEP_SECONDS_MAX)))
        print(f"{time.strftime('%H:%M:%S')} {fault.__name__} {machines} {seconds:.1f} s")
        self.counts[fault.__name__] = self.counts.get(fault.__name__, 0) + 1
        self._busy |= set(machines)
        self._tasks.add(asyncio.create_task(self._happen(fault, machines, seconds)))

    async def _happen(self, fault: "Fault", machines: list[int], seconds: float) -> None:
        await fault(self._cluster, machines, seconds)
        self._busy -= set(machines)


Fault = Callable[[Cluster, list[int], float], Awaitable[None]]


async def started(*nodes: NodeProcess) -> None:
    """Start nodes as an init system does: again where one has ended, as without servers it does."""
    await asyncio.gather(*(asyncio.to_thread(_start, node) for node in nodes))


def _start(node: NodeProcess) -> None:
    for _ in range(STARTS_MAX):
        node.start(wait=False)
        while node.running and not node.listens:
            time.sleep(0.05)
        if node.running:
            node.wait()
            return
    raise AssertionError(f"a node does not start:\n{node.log.read_text()[-3_000:]}")


async def node_is_killed(cluster: Cluster, machines: list[int], seconds: float) -> None:
    node = cluster.nodes[machines[0]]
    await asyncio.to_thread(node.kill)
    await asyncio.sleep(seconds)
    await started(node)


async def node_is_stopped(cluster: Cluster, machines: list[int], seconds: float) -> None:
    node = cluster.nodes[machines[0]]
    await asyncio.to_thread(node.stop)
    await asyncio.sleep(seconds)
    await started(node)


async def node_loses_its_views(cluster: Cluster, machines: list[int], seconds: float) -> None:
    """They may be deleted: they are made again."""
    node = cluster.nodes[machines[0]]
    await asyncio.to_thread(node.kill)
    shutil.rmtree(node.data / "views", ignore_errors=True)
    await asyncio.sleep(seconds)
    await started(node)


async def node_sleeps(cluster: Cluster, machines: list[int], seconds: float) -> None:
    node = cluster.nodes[machines[0]]
    await asyncio.to_thread(node.pause)
    await asyncio.sleep(seconds)
    node.resume()


async def server_is_killed(cluster: Cluster, machines: list[int], seconds: float) -> None:
    server = cluster.servers[machines[0]]
    await asyncio.to_thread(server.kill)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(server.start)


async def server_sleeps(cluster: Cluster, machines: list[int], seconds: float) -> None:
    server = cluster.servers[machines[0]]
    await asyncio.to_thread(server.pause)
    await asyncio.sleep(seconds)
    server.resume()


async def machine_is_lost(cluster: Cluster, machines: list[int], seconds: float) -> None:
    server, node = cluster.servers[machines[0]], cluster.nodes[machines[0]]
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(node.kill)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(server.start)
    await started(node)


async def machine_is_cut_off(cluster: Cluster, machines: list[int], seconds: float) -> None:
    machine = cluster.machines[machines[0]]
    await asyncio.to_thread(machine.isolate)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(machine.join)


async def lose_each_other(cluster: Cluster, machines: list[int], seconds: float) -> None:
    one, other = (cluster.machines[number] for number in machines)
    await asyncio.to_thread(one.lose, other)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(one.find, other)


async def all_servers_are_killed(cluster: Cluster, machines: list[int], seconds: float) -> None:
    for server in cluster.servers:
        await asyncio.to_thread(server.kill)
    await asyncio.sleep(seconds)
    for server in cluster.servers:
        await asyncio.to_thread(server.start)


async def all_nodes_are_killed(cluster: Cluster, machines: list[int], seconds: float) -> None:
    for node in cluster.nodes:
        await asyncio.to_thread(node.kill)
    await asyncio.sleep(seconds)
    await started(*cluster.nodes)


async def all_is_killed(cluster: Cluster, machines: list[int], seconds: float) -> None:
    await asyncio.to_thread(cluster.kill)
    await asyncio.sleep(seconds)
    for server in cluster.servers:
        await asyncio.to_thread(server.start)
    await started(*cluster.nodes)


ONE: Final[list[Fault]] = [
    node_is_killed,
    node_is_stopped,
    node_loses_its_views,
    node_sleeps,
    server_is_killed,
    server_sleeps,
    machine_is_lost,
    machine_is_cut_off,
]
ALL: Final[list[Fault]] = [all_servers_are_killed, all_nodes_are_killed, all_is_killed]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Machines that run."""
    with network() as space:
        made = make_cluster(
            space,
            tmp_path,
            tmp_path / "nats-2" / "data",
            more=lambda host: MORE + more_of(host),
            program=(HASTY,),
        )
        for node in made.nodes:
            prepare(node.data)
        try:
            made.start()
            yield made
        finally:
            made.kill()


def test_nothing_confirmed_is_lost_doubled_or_moved(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    options = request.config.option
    seconds: float = options.fault_seconds
    seed: int = options.fault_seed or random.randrange(1, 1 << 32)
    print(f"again: --fault-seconds {seconds:.0f} --fault-seed {seed}")

    async def run() -> None:
        load = Load(cluster.nodes, pause_seconds=0.25)
        users = list(all_users(cluster.nodes, [machine.host for machine in cluster.machines]))
        producers: list[Load | Users] = [load, *users]
        for one in producers:
            await one.start()
        await asyncio.gather(*(one.progress() for one in producers))
        faults = Faults(cluster, seed)
        await faults.run(seconds)
        await asyncio.gather(*(one.progress() for one in producers))
        for one in producers:
            await one.stop()
        print(f"{faults.counts}; confirmed: {load.confirmed}")
        for one in users:
            print(f"{type(one).__name__}: {len(one.confirmed)} confirmed, {dict(one.troubles)}")
        for one in producers:
            await one.check()

    asyncio.run(run())
    for node in cluster.nodes:
        lines = node.log.read_text().splitlines()
        told = [line for line in lines if any(word in line for word in (*ALARMS, *NEVER))]
        assert told == []
