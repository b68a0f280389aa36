"""A world: a scheduler, a network, and on its hosts nodes and clients, all real but for time."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from rillnode.codecs.channel_key import KEY_BYTES, ChannelKey
from rillnode.codecs.errors import RillnodeError, StoreError
from rillnode.codecs.keys import SEED_BYTES, Identity
from rillnode.codecs.noise.handshake import DH_BYTES
from rillnode.codecs.noise.link import NoiseLink
from rillnode.node.client.client import Client
from rillnode.node.client.session import Connect, Session
from rillnode.node.config import Config, PeerTable
from rillnode.node.config.listener_tables import Listener
from rillnode.node.runtime import Node
from rillnode.node.simulated import world as contract
from rillnode.node.simulated.history import EPOCH_MS
from rillnode.node.simulated.nodes import NOISE_PORT, node_config
from rillnode.node.simulation.disk import Disk, make_disk
from rillnode.node.simulation.interpreter import (
    CallbackStuck,
    deterministic_interpreter,
    unheard,
    watchdog,
)
from rillnode.node.simulation.libraries import Libraries
from rillnode.node.simulation.loop import (
    MachineClock,
    ProcessLoop,
    Scheduler,
    SimulationStuck,
)
from rillnode.node.simulation.network import Host, Latency, Network
from rillnode.node.simulation.scenario import DiskTable, NetworkTable, StoreTable
from rillnode.node.simulation.shared_disk import SharedDisk, SharedServers
from rillnode.node.simulation.threads import SimulatedThreads
from rillnode.transports.links import LinkEvents
from rillnode.transports.tcp import dial

T = TypeVar("T")

AGAIN_SECONDS: Final = 1.0
"""After which a node that could not start is started again, as service managers do."""


class Machine:
    """A host and what is on it: its clock, its keys, its disk where it has one, its process.

    Attributes:
        name: its name in the network.
        identity: its key; stays the same for all its processes.
        clock: its clock.
        loop: the event loop of its process.
        session: the last of a client on it; None: there was none in this process.
    """

    def __init__(self, network: Network, host: Host) -> None:
        self.name = host.name
        self.host = host
        self._network = network
        self._drawn = 0
        self.identity = Identity.from_seed(self.entropy(SEED_BYTES))
        self.loop = host.boot()
        self.clock = MachineClock(self.loop)
        self.session: Session | None = None

    @property
    def channel_key(self) -> ChannelKey:
        """Its key for secure channels; stays the same for all its processes."""
        return _channel_key(self._network, self.name)

    @property
    def runs(self) -> bool:
        """Whether its process lives; it may be paused."""
        return self.host.runs

    @property
    def lives(self) -> int:
        """How many processes it had."""
        return self.host.lives

    def entropy(self, count: int, /) -> bytes:
        """Random bytes that the seed decides."""
        self._drawn += 1
        return self._network.secret(f"draw {self._drawn} of {self.name}", count)

    def boot(self) -> ProcessLoop:
        """Begin a new process after the last has ended."""
        self.loop = self.clock.loop = self.host.boot()
        self.session = None
        return self.loop

    def end(self, *, power: bool = False) -> None:
        """End the process at once: killed, or with the power of the machine."""
        if self.runs:
            self.host.end(power=power)


class NodeMachine(Machine):
    """A machine that runs a node.

    Attributes:
        node: the node of the last process.
        started: whether a node was ever started.
        ready: whether the node of this process has started.
        on_start: what is done with each node that has started, before it is ready; None: nothing.
    """

    node: Node

    def __init__(self, network: Network, host: Host, config: Config, disk: Disk) -> None:
        super().__init__(network, host)
        self.config = config
        self.disk = disk
        self.started = self.ready = False
        self.on_start: Callable[[Node], Awaitable[object]] | None = None
        self._threads: SimulatedThreads | None = None

    def start(self) -> "asyncio.Task[None]":
        """Start the node in the process that runs."""
        self.started = True
        disk, loop, clock = self.disk, self.loop, self.clock
        self._threads = SimulatedThreads(loop)
        has_channels = any(one.plug_in == "ockam" for one in self.config.tables)
        node = self.node = Node(
            self.config,
            make_store=partial(disk.make_store, loop, clock),
            clock=clock,
            entropy=self.entropy,
            identity=self.identity,
            given={"ockam": self.channel_key} if has_channels else None,
            threads=self._threads,
        )

        async def run() -> None:
            await node.start()
            if self.on_start is not None:
                await self.on_start(node)
            self.ready = True

        return loop.create_task(run())

    def end(self, *, power: bool = False) -> None:
        """End the process at once; the disk keeps what was synced, and perhaps more."""
        if self.runs:
            self.ready = False
            super().end(power=power)
            self.end_threads()
            self.disk.crash()

    def end_threads(self) -> None:
        """End what blocks, where it waits."""
        if self._threads is not None:
            self._threads.kill()


class World:
    """Everything that is simulated in one run.

    Attributes:
        seed: what decides everything.
        network: the hosts and what is between them.
        nodes: the machines with nodes, by name.
        machines: all machines, by name.
        sessions: of all clients that there were.
        servers: of the log that all nodes share; None: each has a store of its own.
    """

    def __init__(
        self,
        seed: object,
        latency: Latency,
        *,
        network: NetworkTable | None = None,
        disk: DiskTable | None = None,
        store: StoreTable | None = None,
        servers_place: int = 0,
    ) -> None:
        """Make it.

        Args:
            seed: what decides everything.
            latency: how long messages are on their way.
            network: what else the network does.
            disk: what disks do.
            store: what nodes keep their streams in.
            servers_place: where the servers of a shared log are in the latency model.
        """
        self.seed = seed
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, seed, latency, network or NetworkTable())
        self.machines: dict[str, Machine] = {}
        self.nodes: dict[str, NodeMachine] = {}
        self.sessions: list[Session] = []
        self._disk = disk or DiskTable()
        self._store = store or StoreTable()
        self._latency = latency
        self._servers_place = servers_place
        self.servers: SharedServers | None = None
        if self._store.engine == "shared":
            self.servers = SharedServers(self.network.secret("identity of the log", 16))
        self._loops: list[ProcessLoop] = []
        self._director = ProcessLoop(self.scheduler, "director")
        self._libraries = Libraries(seed, self._now_ms)
        self._files: TemporaryDirectory[str] | None = None

    @property
    def now(self) -> float:
        """Virtual seconds since the run began."""
        return self.scheduler.now

    # Machines --------------------------------------------------------------------------------

    def add_node(self, name: str, number: int, config: Config | None = None) -> NodeMachine:
        """Add a machine that is to run a node; `start_node` starts it."""
        host = self.network.add_host(name, number)
        config = self.with_files(config or node_config(name))
        found = NodeMachine(self.network, host, config, self._disk_of(name, number))
        self.machines[name] = self.nodes[name] = found
        self._loops.append(found.loop)
        return found

    def _disk_of(self, name: str, number: int) -> Disk:
        make_random = partial(self.network.random, f"disk of {name}")
        if self.servers is None:
            return make_disk(self._disk, make_random)
        place = self._servers_place
        seconds = self._latency.seconds(number, place) + self._latency.seconds(place, number)
        directory = self._directory / "views" / name
        return SharedDisk(
            self._disk, make_random, self.servers, self._store, directory, answer_seconds=seconds
        )

    def with_files(self, config: Config) -> Config:
        """A configuration with a directory of files for brokers' keys: no simulated disk has any.

        They are there until the world is closed.
        """
        if not any(isinstance(one, Listener) for one in config.tables):
            return config
        return replace(config, data_dir=self._directory / config.name)

    @property
    def _directory(self) -> Path:
        if self._files is None:
            self._files = TemporaryDirectory(prefix="rillnode-")
        return Path(self._files.name)

    def add_machine(self, name: str, number: int) -> Machine:
        """Add a machine for a client; `number` is its place in the latency model."""
        found = self.machines[name] = Machine(self.network, self.network.add_host(name, number))
        self._loops.append(found.loop)
        return found

    def peer(self, config: Config, *others: str) -> Config:
        """A configuration with other nodes as peers, by their names."""
        peers = tuple(
            PeerTable(
                name=name,
                noise=f"{name}:{NOISE_PORT}",
                identity=self.nodes[name].identity.public_hex,
            )
            for name in others
        )
        return replace(config, peers=peers)

    def channel_key_of(self, name: str) -> ChannelKey:
        """The key for secure channels that the machine of this name has, or will have."""
        return _channel_key(self.network, name)

    def boot(self, machine: Machine) -> None:
        """Begin a new process on a machine; a node's is started."""
        self._loops.append(machine.boot())
        if isinstance(machine, NodeMachine):
            machine.start().add_done_callback(partial(self._look_at_start, machine))

    def _look_at_start(self, machine: NodeMachine, start: "asyncio.Task[None]") -> None:
        """Where a node cannot read its disk, its process ends, and the next one begins soon.

        So it does where the application's part is told that something cannot be done now.
        """
        error = None if start.cancelled() else start.exception()
        if isinstance(error, StoreError if machine.on_start is None else RillnodeError):
            machine.end()
            self._director.call_later(AGAIN_SECONDS, self._boot_again, machine)
        elif error is not None:
            raise error

    def _boot_again(self, machine: NodeMachine) -> None:
        if not machine.runs:
            self.boot(machine)

    async def client(
        self,
        machine: contract.Machine,
        node: str,
        *,
        reconnect: bool = True,
        connect: Connect | None = None,
    ) -> Client:
        """A client on a machine, connected to a node; for the machine's own process.

        `connect` opens other links than those of the node's `noise` listener.
        """
        connect = connect or self.connector(machine, node)
        session = Session(
            connect, reconnect=reconnect, entropy=machine.entropy, elapsed=lambda: self.now
        )
        self.sessions.append(session)
        self.machines[machine.name].session = session
        await session.open()
        return Client(session)

    def session(
        self, machine: contract.Machine, node: str, *, identity: Identity, expected: str
    ) -> Session:
        """A session that is not open yet, of whoever says so with whomever is expected there."""
        connect = self.connector(machine, node, identity=identity, expected=expected)
        return Session(connect, reconnect=False, entropy=machine.entropy, elapsed=lambda: self.now)

    def connector(
        self,
        machine: contract.Machine,
        node: str,
        *,
        identity: Identity | None = None,
        expected: str | None = None,
    ) -> Callable[[LinkEvents], Awaitable[object]]:
        """A way to open links from a machine to a node."""
        own = identity or machine.identity
        there = expected or self.nodes[node].identity.public_hex

        async def connect(events: LinkEvents) -> object:
            codec = NoiseLink.initiator(
                own, node_identity=there, ephemeral=machine.entropy(DH_BYTES)
            )
            return await dial(
                node,
                NOISE_PORT,
                codec=codec,
                events=events,
                transport_name="noise",
                clock=machine.clock,
            )

        return connect

    # Running ---------------------------------------------------------------------------------

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on a loop that stands beside all machines, and all else meanwhile.

        Raises:
            SimulationStuck: it waits for what can never happen.
        """
        if asyncio._get_running_loop() is not None:
            raise RuntimeError("a world runs its own event loops: call this outside of asyncio")
        with (
            deterministic_interpreter(),
            self._libraries.in_place(),
            watchdog(lambda: self.scheduler.now),
        ):
            task = self._director.create_task(coroutine)
            try:
                self.scheduler.run_until(task)
            except CallbackStuck as stuck:
                raise SimulationStuck(str(stuck)) from None
            return task.result()

    @property
    def refused(self) -> list[str]:
        """What code has asked the machine for that no simulation has; it may have gone on."""
        return self._libraries.refused

    async def on(self, machine: contract.Machine, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in a machine's process, and wait for its result."""
        return await self.watched(machine.loop.create_task(coroutine))

    async def watched(self, task: "asyncio.Task[T]") -> T:
        """Wait for a task of another process; without end where that process dies."""
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        task.add_done_callback(lambda _: loop.call_soon(ended.set))
        await ended.wait()
        return task.result()

    def _now_ms(self, process: ProcessLoop) -> int:
        """What the clock of a process's machine says."""
        machine = self.machines.get(process.name)
        return EPOCH_MS + int(process.time() * 1_000) if machine is None else machine.clock.now_ms()

    def errors(self) -> list[str]:
        """What callbacks of all processes have raised and nobody caught."""
        found: list[str] = []
        for loop in (*self._loops, self._director):
            found += [
                f"{loop.name}: {error.get('message')}: {error.get('exception')!r}"
                for error in loop.errors
            ]
            found += [f"{loop.name}: a task failed: {text}" for text in loop.unseen_failures()]
        return found

    def close(self) -> None:
        """Take everything apart; nothing can run any more."""
        with unheard():
            for loop in (*self._loops, self._director):
                loop.close()
        for machine in self.nodes.values():
            machine.end_threads()
            machine.disk.close()
        self.network.close()
        if self._files is not None:
            self._files.cleanup()


def _channel_key(network: Network, name: str) -> ChannelKey:
    return ChannelKey(network.secret(f"channel key of {name}", KEY_BYTES))
