"""Simulated nodes for the tests of applications: real code, virtual time, one seed.

    from rillnode.testing import MemoryNetwork

    def test_nothing_is_lost_when_the_node_is_killed():
        with MemoryNetwork(seed=7) as network:
            network.add_node("a")

            async def application():
                client = await network.connect("a")
                stream = await client.stream("orders")
                await stream.push(b"first")
                network.kill("a")
                network.restart("a")
                assert [entry.data for entry in await stream.pull()] == [b"first"]
                await client.close()

            network.run(application())

Seconds pass only virtually: a test that waits for an hour takes as long as what happens in it.
"""

import asyncio
from collections.abc import Coroutine, Generator, Iterable
from contextlib import contextmanager
from itertools import product
from typing import Any, Final, Self, TypeVar

from rillnode.codecs.errors import ConfigError
from rillnode.node.client.client import Client
from rillnode.node.config import Config
from rillnode.node.runtime import Node
from rillnode.node.simulation.history import History
from rillnode.node.simulation.latency import ConstantLatency
from rillnode.node.simulation.node_configs import moved_config, node_config
from rillnode.node.simulation.scenario import DiskTable, NetworkTable, StoreTable
from rillnode.node.simulation.world import Machine, NodeMachine, World

T = TypeVar("T")

PROGRAM: Final = "application"
"""The host that a program runs on unless another is named."""


class MemoryNetwork:
    """Nodes and programs in this process; a context manager.

    Args:
        seed: decides delays, keys and whatever else is left to chance; the same seed gives the
            same run, to the last event.
        latency_ms: delay between any two hosts, one way.
        jitter_ms: mean of what is added to it, exponentially distributed.
        loss: part of the segments that must be sent again.
        sync_ms: median time of a disk's sync.
        shared: whether all nodes keep their streams in one log, as those on the same JetStream do.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        latency_ms: float = 1.0,
        jitter_ms: float = 0.0,
        loss: float = 0.0,
        sync_ms: float = 1.0,
        shared: bool = False,
    ) -> None:
        self._world = World(
            seed,
            ConstantLatency(latency_ms),
            network=NetworkTable(jitter_ms=jitter_ms, loss=loss),
            disk=DiskTable(sync_ms=sync_ms),
            store=StoreTable(engine="shared" if shared else "own"),
        )
        self._history = History(lambda: self.now)
        self._world.network.on_delivered.append(self._history.delivered)
        self._numbers: dict[str, int] = {}

    def __enter__(self) -> Self:
        """Nothing more to do."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Take all hosts apart; nothing runs any more."""
        self._world.close()

    @property
    def now(self) -> float:
        """Virtual seconds since the network was made."""
        return self._world.scheduler.now

    @property
    def trace_hash(self) -> str:
        """Stands for all that was sent so far: the same in every run with the same seed."""
        return self._history.trace_hash

    # Hosts -----------------------------------------------------------------------------------

    def add_node(
        self, name: str, *, peers: Iterable[str] = (), config: Config | None = None
    ) -> str:
        """Add a node; it starts when something runs. Return its identity.

        Args:
            name: of its host.
            peers: other nodes, which it reaches as `peer/<name>`; they must have been added.
            config: a configuration; its listeners `noise`, `streamr`, `nextgraph`,
                `streamr_network` and `http` are moved to the simulated host: WebSockets are
                reached as `ws://<name>:<port>`, whether they have TLS elsewhere or not. Default:
                `noise` only, and every program may do everything.

        Raises:
            ConfigError: the name is taken, or a peer is not there.
        """
        self._take_name(name)
        own = node_config(name) if config is None else moved_config(name, config)
        for peer in peers:
            self._node(peer)
        machine = self._world.add_node(name, self._numbers[name], own)
        machine.config = self._world.peer(machine.config, *peers)
        return machine.identity.public_hex

    def node(self, name: str) -> Node:
        """The node that runs on a host now, for what it tells of itself, such as its keys.

        Raises:
            ConfigError: there is no such node, or it has not been started yet.
        """
        return self._started(self._node(name)).node

    def program_identity(self, program: str = PROGRAM) -> str:
        """The identity with which a program connects, as grants name it after `noise:`."""
        return self._machine(program).identity.public_hex

    async def connect(self, node: str, *, reconnect: bool = True) -> Client:
        """Connect the program that runs to a node, once that listens.

        Raises:
            TransportError: it cannot be reached.
            HandshakeError: it does not know this program's identity.
        """
        program = self._world.machines[_running_host()]
        return await self._world.client(program, self._node(node).name, reconnect=reconnect)

    def run(self, coroutine: Coroutine[Any, Any, T], *, program: str = PROGRAM) -> T:
        """Run a program, with all nodes and other programs, until it ends; return its result.

        Raises:
            SimulationStuck: it waits for what can never happen.
        """
        machine = self._program(program)

        async def main() -> T:
            for node in self._world.nodes.values():
                if not node.started:
                    await self._world.watched(node.start())
            return await self._world.on(machine, coroutine)

        return self._world.run(main())

    def start(self, coroutine: Coroutine[Any, Any, T], *, program: str) -> "asyncio.Task[T]":
        """Start another program on a host of its own; called by one that runs."""
        return self._program(program).loop.create_task(coroutine)

    async def join(self, task: "asyncio.Task[T]") -> T:
        """Wait for another program's end."""
        return await self._world.watched(task)

    # Faults ----------------------------------------------------------------------------------

    def kill(self, host: str) -> None:
        """Kill a host's process; what a node has synced stays, and more may."""
        self._world.machines[host].end()

    def cut_power(self, host: str) -> None:
        """Let a host lose power: nobody who was connected is told."""
        self._world.machines[host].end(power=True)

    def restart(self, node: str) -> None:
        """Start a node that was killed or lost power."""
        machine = self._node(node)
        if not machine.runs:
            self._world.boot(machine)

    def pause(self, host: str) -> None:
        """Let a host's process stand still."""
        self._world.machines[host].loop.pause()

    def resume(self, host: str) -> None:
        """Let it go on."""
        self._world.machines[host].loop.resume()

    def set_clock(self, host: str, ahead_seconds: float) -> None:
        """Set a host's wall clock wrongly by so much."""
        self._world.machines[host].clock.ahead_ms = int(ahead_seconds * 1_000)

    @contextmanager
    def partition(self, *hosts: str) -> Generator[None]:
        """Cut hosts off from all others, not from each other."""
        others = [name for name in self._world.machines if name not in hosts]
        ways = [*product(hosts, others), *product(others, hosts)]
        self._world.network.block(ways)
        try:
            yield
        finally:
            self._world.network.unblock(ways)

    # Inside ----------------------------------------------------------------------------------

    def _take_name(self, name: str) -> None:
        if name in self._numbers:
            raise ConfigError("testing.host", f"there is a host {name!r} already")
        self._numbers[name] = len(self._numbers)

    def _machine(self, name: str) -> Machine:
        if name not in self._numbers:
            self._take_name(name)
            self._world.add_machine(name, self._numbers[name])
        return self._world.machines[name]

    def _program(self, name: str) -> Machine:
        """A host on which a program can run: one that was killed is started again."""
        machine = self._machine(name)
        if not machine.runs:
            self._world.boot(machine)
        return machine

    def _node(self, name: str) -> NodeMachine:
        found = self._world.nodes.get(name)
        if found is None:
            raise ConfigError("testing.host", f"there is no node {name!r}: add it first")
        return found

    def _started(self, machine: NodeMachine) -> NodeMachine:
        if not machine.started:
            text = f"the node {machine.name!r} starts when something runs"
            raise ConfigError("testing.host", text)
        return machine


def _running_host() -> str:
    return str(getattr(asyncio.get_running_loop(), "name", ""))
