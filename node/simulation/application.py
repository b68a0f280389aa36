"""The user's application on simulated nodes: real code, virtual time, one seed.

    from rillnode.testing import Network

    async def scenario(network: Network) -> None:
        await network.node("a", actors={"greeter": Greeter})
        async with await network.client("a") as client, network.faults("kill", count=3):
            assert (await client.ask("greeter", b"Ada")).payload == b"hello, Ada"

    with Network(seed=7) as network:
        network.run(scenario(network))

Seconds pass only virtually: a test that waits for an hour takes as long as what happens in it.
"""

import asyncio
import math
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from itertools import permutations, product
from typing import Any, Final, Generic, Self, TypeVar, TypeVarTuple

from msgspec.structs import replace as changed
from thespian.actors import Actor as StockActor

from rillnode.actors.apps.actor import Actor, Handler
from rillnode.codecs.errors import ConfigError
from rillnode.node.client.client import Client
from rillnode.node.config import Config, HttpListener
from rillnode.node.config.listener_tables import WebListener
from rillnode.node.runtime import Node
from rillnode.node.simulated.history import Event, History
from rillnode.node.simulated.nodes import node_config
from rillnode.node.simulation.faults import Fault, Injector, draw_faults
from rillnode.node.simulation.latency import ConstantLatency
from rillnode.node.simulation.libraries import NotSimulated
from rillnode.node.simulation.loop import SimulationStuck
from rillnode.node.simulation.scenario import (
    LOG_KINDS,
    DiskTable,
    FaultKind,
    FaultTable,
    NetworkTable,
    RandomFaults,
    Scenario,
    StoreTable,
)
from rillnode.node.simulation.world import Machine, NodeMachine, World

T = TypeVar("T")
Web = TypeVar("Web", bound=WebListener)
Ts = TypeVarTuple("Ts")

PROGRAM: Final = "application"
"""The host that a program runs on unless another is named."""

READY_SECONDS: Final = 120.0
"""Virtual time within which a node that was struck has to run again, once all faults are over."""

LOOK_SECONDS: Final = 0.05
"""How often that is looked at."""

ActorKind = type[Actor] | type[StockActor] | Handler
"""What `Node.spawn` takes."""

OnStart = Callable[[Node], Awaitable[object]]
"""What is done with each node that has started: the application's part of its process."""

Invariant = Callable[[], object]
"""What must hold all the time: it raises, or returns False, where it does not."""


class InvariantBroken(AssertionError):
    """Something that must always hold does not.

    Attributes:
        rule: name of the invariant.
        text: what it says of it.
    """

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule
        self.text = text


class Program(Generic[T]):
    """A program on a host of its own; one that was killed begins anew when that is restarted."""

    def __init__(self, begin: "Callable[[], asyncio.Task[T]]") -> None:
        self._begin = begin
        self._ended: asyncio.Task[T] | None = None
        self._waiting: list[Callable[[], object]] = []
        self.begin()

    def begin(self) -> None:
        """Run in the process that its host has now."""
        self._begin().add_done_callback(self._end)

    def _end(self, task: "asyncio.Task[T]") -> None:
        self._ended = task
        waiting, self._waiting = self._waiting, []
        for tell in waiting:
            tell()

    async def wait(self) -> T:
        """Wait until it has come to its end, in whichever process; return its result."""
        if self._ended is None:
            loop, ended = asyncio.get_running_loop(), asyncio.Event()
            self._waiting.append(lambda: loop.call_soon(ended.set))
            await ended.wait()
        assert self._ended is not None
        return self._ended.result()


class Network:
    """Nodes and programs in this process; a context manager.

    Args:
        seed: decides delays, keys and whatever else is left to chance; the same seed gives the
            same run, to the last event.
        latency_ms: delay between any two hosts, one way.
        jitter_ms: mean of what is added to it, exponentially distributed.
        loss: part of the segments that must be sent again.
        sync_ms: median time of a disk's sync.
        shared: whether all nodes keep their streams in one log, as those on the same JetStream do.
        only: numbers of the faults that happen of those that the seed draws; None: all.

    Attributes:
        random: chance for the scenario, which the seed decides.
        seconds_max: virtual time after which a run is given up as stuck: what asks again for ever
            would have no end.
        drawn: the faults that were drawn so far, but for those that do not happen.
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
        only: Collection[int] | None = None,
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
        self._programs: dict[str, Program[Any]] = {}
        self._talking: dict[tuple[str, str], None] = {}
        self._invariants: list[Invariant] = []
        self._seed = seed
        self._shared = shared
        self._only = only
        self._drawn_count = 0
        self.drawn: list[Fault] = []
        self.random = self._world.network.random("the scenario")
        self._injectors: list[Injector] = []
        self.seconds_max = math.inf
        self._world.scheduler.on_jump = self._look

    def __enter__(self) -> Self:
        """Nothing more to do."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Take all hosts apart; nothing runs any more."""
        for injector in self._injectors:
            injector.close()
        self._world.close()

    @property
    def now(self) -> float:
        """Virtual seconds since the network was made."""
        return self._world.now

    @property
    def trace_hash(self) -> str:
        """Stands for all that was sent so far: the same in every run with the same seed."""
        return self._history.trace_hash

    @property
    def events(self) -> Sequence[Event]:
        """What was done to hosts so far, in the order of time."""
        return self._history.events

    @property
    def events_count(self) -> int:
        """How much has happened so far, down to each segment that has arrived."""
        return self._history.events_count

    @property
    def refused(self) -> Sequence[str]:
        """What code has asked the machine for that no simulation has; it may have gone on."""
        return self._world.refused

    def problems(self) -> list[str]:
        """What tasks and callbacks of all hosts have raised, and nobody has caught."""
        return self._world.errors()

    # Hosts -----------------------------------------------------------------------------------

    def add_node(
        self,
        name: str,
        *,
        peers: Iterable[str] = (),
        config: Config | None = None,
        actors: Mapping[str, ActorKind] | None = None,
        on_start: OnStart | None = None,
    ) -> str:
        """Add a node; it starts when something runs. Return its identity.

        Args:
            name: of its host.
            peers: other nodes, which it reaches as `peer/<name>`; they must have been added.
            config: a configuration; its listeners `noise`, `streamr`, `nextgraph`,
                `streamr_network` and `http` are moved to the simulated host: WebSockets are
                reached as `ws://<name>:<port>`, whether they have TLS elsewhere or not. Default:
                `noise` only, and every program may do everything.
            actors: the application's, by address; they are there each time that it has started.
                Grants of the configuration say who may send to them.
            on_start: what else the application does with a node that has started: it spawns actors
                that need more than their class, opens streams, begins tasks.

        Raises:
            ConfigError: the name is taken, or a peer is not there.
        """
        self._take_name(name)
        own = node_config(name) if config is None else _moved_config(name, config)
        for peer in peers:
            self._talking[name, self._node(peer).name] = None
        machine = self._world.add_node(name, self._numbers[name], own)
        machine.config = self._world.peer(machine.config, *peers)
        machine.on_start = partial(_equip, dict(actors or {}), on_start)
        return machine.identity.public_hex

    async def node(
        self,
        name: str,
        *,
        peers: Iterable[str] = (),
        config: Config | None = None,
        actors: Mapping[str, ActorKind] | None = None,
        on_start: OnStart | None = None,
    ) -> Node:
        """Add a node while something runs, and start it; see `add_node`.

        Returns:
            The node of this process; `running` has that of the next, when it was started again.

        Raises:
            ConfigError: the name is taken, or a peer is not there.
            Exception: what its start, or `on_start`, raises.
        """
        self.add_node(name, peers=peers, config=config, actors=actors, on_start=on_start)
        machine = self._node(name)
        await self._world.watched(machine.start())
        return machine.node

    def running(self, name: str) -> Node:
        """The node that runs on a host now.

        Raises:
            ConfigError: there is no such node, or it has not been started yet.
        """
        return self._started(self._node(name)).node

    def program_identity(self, program: str = PROGRAM) -> str:
        """The identity with which a program connects, as grants name it after `noise:`."""
        return self._machine(program).identity.public_hex

    async def client(self, node: str, *, reconnect: bool = True) -> Client:
        """Connect the program that runs to a node, once that listens.

        Raises:
            TransportError: it cannot be reached.
            HandshakeError: it does not know this program's identity.
        """
        program = self._world.machines[_running_host()]
        self._talking[program.name, self._node(node).name] = None
        return await self._world.client(program, node, reconnect=reconnect)

    def run(self, coroutine: Coroutine[Any, Any, T], *, program: str = PROGRAM) -> T:
        """Run a program, with all nodes and other programs, until it ends; return its result.

        Raises:
            SimulationStuck: it waits for what can never happen.
            InvariantBroken: something that must always hold does not.
            NotSimulated: some code has asked the machine for what no simulation has.
        """
        machine = self._program(program)

        async def main() -> T:
            for node in self._world.nodes.values():
                if not node.started:
                    await self._world.watched(node.start())
            return await self._world.on(machine, coroutine)

        result = self._world.run(main())
        self._look(self.now)
        for text in self.refused:
            raise NotSimulated(text)
        return result

    def start(
        self, program: str, function: Callable[[*Ts], Coroutine[Any, Any, T]], *args: *Ts
    ) -> Program[T]:
        """Start another program on a host of its own, which is called so."""
        machine = self._program(program)
        made: Program[T] = Program(lambda: machine.loop.create_task(function(*args)))
        self._programs[program] = made
        return made

    def always(self, invariant: Invariant) -> None:
        """Hold the run to something from now on: whenever time goes on, and at the end.

        The invariant must change nothing. Where it raises, or returns False, the run ends at once.
        """
        self._invariants.append(invariant)

    def _look(self, now: float) -> None:
        if now > self.seconds_max:
            raise SimulationStuck(f"no end in {self.seconds_max:,g} virtual seconds")
        for invariant in self._invariants:
            rule = getattr(invariant, "__name__", repr(invariant))
            try:
                broken = invariant() is False
            except Exception as error:  # it is anybody's code, and says so that it does not hold
                text = str(error) or type(error).__name__
                raise InvariantBroken(rule, text) from error
            if broken:
                raise InvariantBroken(rule, "does not hold")

    # Faults ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def faults(
        self,
        *kinds: FaultKind,
        count: int = 3,
        seconds: float = 30.0,
        nodes: Sequence[str] = (),
    ) -> AsyncGenerator[None]:
        """Have faults happen while the block runs; after it all are over, and all nodes run.

        Args:
            kinds: which are drawn; default: all that nodes survive without losing data.
            count: how many.
            seconds: from the beginning of the block, within which they happen, and after which all
                are over; the seed decides when each begins, how long it lasts, and whom it strikes.
            nodes: which nodes, or whose clients, are struck; default: any.

        Raises:
            ConfigError: `testing.faults`, there is nobody whom such a fault could strike.
            SimulationStuck: a node that was struck does not start again.
        """
        drawn = self._draw(kinds or RandomFaults().kinds, count, seconds, nodes)
        injector = Injector(self._world, self._history, self._restart)
        self._injectors.append(injector)

        async def strike() -> None:
            await injector.strike(drawn, seconds)
            injector.heal()

        task = asyncio.create_task(strike())
        try:
            yield
        finally:
            task.cancel()
            injector.heal()
        struck = [name for name in self._world.nodes if any(one.host == name for one in drawn)]
        last = self.now + READY_SECONDS
        while late := [name for name in struck if not self._world.nodes[name].ready]:
            if self.now > last:
                raise SimulationStuck(f"{', '.join(late)}: not ready again, though all is well")
            await asyncio.sleep(LOOK_SECONDS)

    def _draw(
        self, kinds: Sequence[FaultKind], count: int, seconds: float, nodes: Sequence[str]
    ) -> list[Fault]:
        for name in nodes:
            self._node(name)
        programs = [one for one in self._talking if one[0] in self._programs]
        if "kill_client" in kinds and not programs:
            kinds = [kind for kind in kinds if kind != "kill_client"]
        if not kinds or not self._world.nodes:
            raise ConfigError("testing.faults", "there is nobody yet whom it could strike")
        if not self._shared and (wrong := [kind for kind in kinds if kind in LOG_KINDS]):
            raise ConfigError("testing.faults", f"{wrong[0]}: the nodes share no log")
        first = self._drawn_count
        chance = self._world.network.random(f"kinds of faults from {first} on")
        tables = tuple(
            FaultTable(kind=chance.choice(kinds), nodes=tuple(nodes)) for _ in range(count)
        )
        links = [*self._talking] or list(permutations(self._world.nodes, 2))
        drawn = draw_faults(
            Scenario(seconds=seconds, fault=tables),
            f"{self._seed} from {first} on",
            [*self._world.nodes],
            programs,
            links,
        )
        self._drawn_count += len(drawn)
        numbered = [replace(one, number=first + one.number) for one in drawn]
        happen = [one for one in numbered if self._only is None or one.number in self._only]
        self.drawn += happen
        return happen

    def kill(self, host: str) -> None:
        """Kill a host's process; what a node has synced stays, and more may."""
        self._struck(host, "kill").end()

    def cut_power(self, host: str) -> None:
        """Let a host lose power: nobody who was connected is told."""
        self._struck(host, "power_cut").end(power=True)

    def restart(self, host: str) -> None:
        """Start a node or program that was killed or lost power."""
        self._restart(self._struck(host, "restart"))

    def _restart(self, machine: Machine) -> None:
        if machine.runs:
            return
        self._world.boot(machine)
        program = self._programs.get(machine.name)
        if program is not None:
            program.begin()

    def pause(self, host: str) -> None:
        """Let a host's process stand still."""
        self._struck(host, "pause").loop.pause()

    def resume(self, host: str) -> None:
        """Let it go on."""
        self._struck(host, "resume").loop.resume()

    def set_clock(self, host: str, ahead_seconds: float) -> None:
        """Set a host's wall clock wrongly by so much."""
        self._struck(host, "clock_jump").clock.ahead_ms = int(ahead_seconds * 1_000)

    @contextmanager
    def partition(self, *hosts: str) -> Generator[None]:
        """Cut hosts off from all others, not from each other."""
        others = [name for name in self._world.machines if name not in hosts]
        ways = [*product(hosts, others), *product(others, hosts)]
        self._world.network.block(ways)
        self._history.note(", ".join(hosts), "partition")
        try:
            yield
        finally:
            self._world.network.unblock(ways)
            self._history.note(", ".join(hosts), "partition over")

    # Inside ----------------------------------------------------------------------------------

    def _take_name(self, name: str) -> None:
        if name in self._numbers:
            raise ConfigError("testing.host", f"there is a host {name!r} already")
        self._numbers[name] = len(self._numbers)

    def _struck(self, host: str, what: str) -> Machine:
        """A host that something is done to now."""
        machine = self._world.machines.get(host)
        if machine is None:
            raise ConfigError("testing.host", f"there is no host {host!r}")
        self._history.note(host, what)
        return machine

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


async def _equip(actors: Mapping[str, ActorKind], on_start: OnStart | None, node: Node) -> None:
    """Do an application's part of a node that has started."""
    for address, actor in actors.items():
        await node.spawn(actor, address=address)
    if on_start is not None:
        await on_start(node)


def _moved_config(name: str, config: Config) -> Config:
    """A configuration whose listeners are moved to a simulated host.

    Those of WebSockets keep their ports, without TLS, which the simulated network does not carry;
    `http` is there if its table says anything.
    """
    own = node_config(name)
    return changed(
        config,
        noise=changed(config.noise, listen=own.noise.listen),
        http=own.http if config.http == HttpListener() else _moved(name, config.http),
        tables=[
            _moved(name, one) if isinstance(one, WebListener) else one for one in config.tables
        ],
    )


def _moved(name: str, table: Web) -> Web:
    listen = f"{name}:{table.address[1]}"
    return changed(table, listen=listen, tls_cert=None, tls_key=None, allow_plain=True)
