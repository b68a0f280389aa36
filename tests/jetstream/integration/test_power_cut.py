"""All servers lose power at one moment while clients push: nothing confirmed is lost.

SIGKILL cannot show it, as the kernel keeps what a killed process has written. Here each server has
a disk of its own, which is copied while all of them are stopped in the middle of what they do; then
they are killed, and go on with the copies.
"""

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from nats_support import NatsCluster, NatsServer, needs_nats
from node_processes import NodeProcess
from power import Disk, disks
from rillnode.codecs.errors import RillnodeError
from shared_log_load import NEVER, Load

pytestmark = [needs_nats, pytest.mark.long]

CUTS: Final = 3
DISK_MEBIBYTES: Final = 512
LOAD_SECONDS: Final = (4.0, 12.0)
"""Between two cuts: longer than the file system is idle, and shorter than it writes by itself."""


class Machines:
    """Three servers and three nodes.

    Args:
        directory: of all that they keep.
        sync: when the servers sync.
        nodes_too: whether nodes lose power with the servers.
    """

    def __init__(
        self, directory: Path, stack: ExitStack, *, sync: str = "always", nodes_too: bool = False
    ) -> None:
        self.servers = NatsCluster(directory / "nats", sync=sync).servers
        self._nodes_too = nodes_too
        self.nodes = [
            NodeProcess(
                directory / name,
                self.servers,
                replicas=3,
                sync="always" if sync == "always" else "interval",
            )
            for name in ("a", "b", "c")
        ]
        places = [server.directory / "data" for server in self.servers]
        places += [node.data for node in self.nodes] if nodes_too else []
        self._disks: Sequence[Disk] = stack.enter_context(disks(places, DISK_MEBIBYTES))
        stack.callback(self.kill)

    def start(self) -> None:
        """Start all that does not run."""
        for server in self.servers:
            server.start()
        dead = [node for node in self.nodes if not node.running]
        for node in dead:
            node.start(wait=False)
        for node in dead:
            node.wait()

    def kill(self) -> None:
        """End all that runs."""
        for node in self.nodes:
            node.kill()
        for server in self.servers:
            server.kill()

    def lose_power(self) -> None:
        """Stop what loses it, keep what is on the disks, and go on with that."""
        losers: list[NatsServer | NodeProcess] = [*self.servers]
        losers += self.nodes if self._nodes_too else []
        for one in losers:
            one.pause()
        for disk in self._disks:
            disk.copy()
        for one in losers:
            one.kill()
        for disk in self._disks:
            disk.lose_power()
        self.start()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Ends what a test has begun."""
    with ExitStack() as made:
        yield made


@pytest.mark.parametrize("nodes_too", [False, True], ids=["servers", "servers and nodes"])
def test_nothing_confirmed_is_lost_with_the_power_of(
    nodes_too: bool, tmp_path: Path, stack: ExitStack
) -> None:
    machines = Machines(tmp_path, stack, nodes_too=nodes_too)
    machines.start()

    async def run() -> None:
        load = Load(machines.nodes)
        await load.start()
        for _ in range(CUTS):
            await load.progress()
            await asyncio.sleep(random.uniform(*LOAD_SECONDS))
            before, began = load.confirmed, time.monotonic()
            await asyncio.to_thread(machines.lose_power)
            cut = time.monotonic() - began
            await load.progress()
            back = time.monotonic() - began - cut
            print(f"{before} confirmed before a cut of {cut:.1f} s, back after {back:.1f} s")
        await load.stop()
        await load.check()

    asyncio.run(run())
    for node in machines.nodes:
        assert not any(code in node.log.read_text() for code in (*NEVER, "views_differ"))


def test_servers_that_sync_later_lose_what_they_confirmed_and_nodes_say_so(
    tmp_path: Path, stack: ExitStack
) -> None:
    """What the test above finds where there is something to find."""
    machines = Machines(tmp_path, stack, sync='"2m"')
    machines.start()

    async def run() -> None:
        load = Load(machines.nodes)
        await load.start()
        await load.progress(600)
        await asyncio.to_thread(machines.lose_power)
        await load.progress()

    with pytest.raises(RillnodeError, match=r"store\.(lost|incomplete)"):
        asyncio.run(run())
