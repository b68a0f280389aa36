"""One run of a scenario: real nodes and clients, faults, then peace, then the account."""

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice, permutations
from random import Random
from typing import Final

from rillnode.codecs.errors import RillnodeError
from rillnode.node.simulated.history import History
from rillnode.node.simulated.nodes import SHARED_STREAM, examined_config
from rillnode.node.simulated.programs import Program, Share
from rillnode.node.simulation.casting import cast, parts_of, shared_nodes_of
from rillnode.node.simulation.clients.examiner import Examiner
from rillnode.node.simulation.ending import end_streams
from rillnode.node.simulation.faults import Fault, Injector, draw_faults
from rillnode.node.simulation.invariants import check_logs
from rillnode.node.simulation.latency import make_latency
from rillnode.node.simulation.leftovers import leftovers
from rillnode.node.simulation.loop import SimulationStuck
from rillnode.node.simulation.quiet import rest, rests, see_strangers_off, start_one_again
from rillnode.node.simulation.reading import Reading
from rillnode.node.simulation.results import Result
from rillnode.node.simulation.scenario import Scenario
from rillnode.node.simulation.shared_checks import check_views, keep_open
from rillnode.node.simulation.wire import WireAudit
from rillnode.node.simulation.world import Machine, NodeMachine, World
from rillnode.node.testing.failing import PlantedFailure

LOOK_SECONDS: Final = 0.25
"""How often it is looked whether all clients have got what they must, in virtual time."""

IDLE_SECONDS: Final = 130.0
"""From the clients' end to the last reading: what is idle is passivated by then, and what new links
bring up to date is over."""

SILENT_PART: Final = 0.25
"""In how many runs clients go without a word: it takes nodes longer to forget them."""

NOTICED_SECONDS: Final = 75.0
"""Within which a node notices that nobody is there any more."""


class Run:
    """A scenario with one seed; `run` may be called once.

    Args:
        scenario: what is simulated.
        seed: decides everything that the scenario leaves open.
        only: numbers of the faults that happen; None: all.

    Attributes:
        parts: what plug-ins add.
        on_settled: called when all has happened, before the nodes are stopped.
    """

    def __init__(self, scenario: Scenario, seed: int, *, only: Sequence[int] | None = None) -> None:
        self.scenario = scenario
        self.seed = seed
        clients = sum(scenario.clients_by_kind().values())
        hosts = scenario.nodes + len(scenario.more_nodes) + clients
        servers_place, hosts = hosts, hosts + scenario.is_shared
        latency = make_latency(scenario.latency, hosts, Random(f"{seed} places"))
        self.world = World(
            seed,
            latency,
            network=scenario.network,
            disk=scenario.checked_disk,
            store=scenario.store,
            servers_place=servers_place,
        )
        self.world.network.processing_seconds = scenario.processing_ms / 1_000
        scheduler = self.world.scheduler
        self.history = History(lambda: scheduler.now)
        self.world.network.on_sent.append(WireAudit(self.history).sent)
        self.world.network.on_delivered.append(self.history.delivered)
        self.history.shared = scenario.sharing is not None
        self.parts = parts_of(scenario, self.world, self.history)
        self.programs: dict[str, Program]
        self._shared = shared_nodes_of(self.parts)
        self.on_settled: Callable[[], object] | None = None
        self._healed_at = 0.0
        self._add_nodes()
        stream = "" if self._shared is None else SHARED_STREAM
        nodes = tuple(self._names) if scenario.is_shared else ()
        share = self._share = Share(
            self.world, self.history, scenario.partitions, scenario.seconds, stream, nodes
        )
        self.programs = cast(scenario, self.world, share, self._names, self.parts)
        drawn = draw_faults(
            scenario,
            seed,
            list(self.world.nodes),
            [(program.name, program.node) for program in self.programs.values()],
            self._node_pairs(),
        )
        self.faults = [fault for fault in drawn if only is None or fault.number in only]
        self._injector = Injector(self.world, self.history, self._restart)

    def run(self) -> Result:
        """Run it; the result is complete even where rules were broken."""
        started = time.perf_counter()
        result = Result(self.seed, faults=self.faults)
        try:
            self.world.run(self._direct(result))
        except (SimulationStuck, RillnodeError) as error:
            self.history.broken("no-progress", str(error))
        self._injector.close()
        for session in self.world.sessions:
            if session.unasked > session.unanswered:
                self.history.broken("answered-twice", f"{session.unasked} answers too many")
        for text in self.world.errors():
            self.history.broken("unhandled-error", text)
        self.world.close()
        self._account(result)
        result.wall_seconds = time.perf_counter() - started
        return result

    @property
    def active_faults(self) -> list[Fault]:
        """Faults that last now."""
        return self._injector.active

    # Who there is ----------------------------------------------------------------------------

    def _add_nodes(self) -> None:
        world, names = self.world, self._names
        if self._shared is None:
            for number, name in enumerate(names):
                world.add_node(name, number, examined_config(name))
        else:
            self._shared.add_nodes(examined_config)
        for name in names:
            machine = world.nodes[name]
            config = machine.config
            for part in self.parts:
                config = part.configured(config)
            machine.config = world.with_files(config)
        if self.scenario.clients.callers or any(one.needs_peers for one in self.scenario.tables):
            for name, following in zip(names, islice(cycle(names), 1, None), strict=False):
                if name != following:
                    machine = world.nodes[name]
                    others = [peer.name for peer in machine.config.peers]
                    machine.config = world.peer(machine.config, *others, following)

    @property
    def _names(self) -> list[str]:
        """The nodes that have clients."""
        return [f"n{number}" for number in range(self.scenario.nodes)]

    def _node_pairs(self) -> list[tuple[str, str]]:
        """Nodes that talk to each other whoever their clients are."""
        return [] if self._shared is None else list(permutations(self.world.nodes, 2))

    def _restart(self, machine: Machine) -> None:
        if machine.runs:
            return
        self.world.boot(machine)
        program = self.programs.get(machine.name)
        if program is not None:
            program.start()

    # What happens ----------------------------------------------------------------------------

    async def _direct(self, result: Result) -> None:
        world = self.world
        for node in world.nodes.values():
            await world.watched(node.start())
        for program in self.programs.values():
            program.start()
        await self._injector.strike(self.faults, self.scenario.seconds)
        self._injector.heal()
        for machine in world.machines.values():
            self._restart(machine)
        self._healed_at = world.now
        self.history.note("checker", "healed")
        for program in self.programs.values():
            program.healed()
        missing = await self._reached()
        if not missing:
            result.healed_seconds = world.now - self._healed_at
            if self._shared is None and rests(self.seed):
                await rest(world, self.history, self.programs.values(), self.scenario.partitions)
                missing = await self._reached()
        for text in missing:
            self.history.broken("no-progress", text)
        await self._end_clients()
        for program in islice(self.programs.values(), 1):
            await see_strangers_off(world, self.history, world.machines[program.name], program.node)
        self._look_for_leftovers()
        if self._shared is not None and not missing:
            self._shared.look_for_leftovers()
            await self._shared.probe()
        if not missing:
            await start_one_again(world, self.history, self._shared)
        if self.world.servers is not None:
            if any(isinstance(one, Examiner) for one in self.programs.values()):
                await keep_open(world, self.world.servers)
            await check_views(world, self.world.servers, self.history)
        reader = Reading(
            world,
            self.history,
            shared=self._shared is not None,
            streams=self._share.streams if self._share.nodes else (),
        )
        logs = await reader.read(self.scenario.heal_seconds)
        check_logs(self.history, logs, self.world.network.dials)
        for part in self.parts:
            part.check(logs)
        for part in self.parts:
            await part.read(self.scenario.heal_seconds)
        if self.on_settled is not None:
            self.on_settled()
        await end_streams(world, self.history)
        for machine in world.nodes.values():
            await self._end(machine)

    async def _reached(self) -> list[str]:
        """Wait until everybody has what they must; what is missing when the time is over."""
        deadline = self.world.now + self.scenario.heal_seconds
        while True:
            missing = self._missing()
            if not missing and self._shared is not None:
                missing = await self._shared.missing()
            if not missing or self.world.now > deadline:
                return missing
            await asyncio.sleep(LOOK_SECONDS)

    def _missing(self) -> list[str]:
        """What clients have not got yet."""
        lost, healed_at = self.history.lost, self._healed_at
        programs = [one for one in self.programs.values() if one.log_name not in lost]
        return [f"{one.name}: {text}" for one in programs for text in one.missing(healed_at)]

    async def _end_clients(self) -> None:
        """End all clients, in some runs without a word: nodes have to notice by themselves."""
        chance = self.world.network.random("who goes without a word")
        silent = self._shared is None and chance.random() < SILENT_PART
        for program in self.programs.values():
            self.world.machines[program.name].end(power=silent and chance.choice((True, False)))
        await asyncio.sleep(IDLE_SECONDS + (NOTICED_SECONDS if silent else 0.0))

    def _look_for_leftovers(self) -> None:
        for name, machine in self.world.nodes.items():
            sockets = len(machine.loop.sockets)
            for text in leftovers(machine.node.observed, sockets) if machine.ready else ():
                self.history.broken("left-over", f"{name} has {text}")
            for check in machine.node.checks() if machine.ready else ():
                if not check.ok:
                    text = f"{name} is not ready: {check.name}: {check.reason}"
                    self.history.broken("no-progress", text)

    async def _end(self, machine: NodeMachine) -> None:
        """Ask a node how its actors are, and stop it as an operator does."""
        if not machine.ready:
            self.history.broken("no-progress", f"{machine.name} has not started again")
            return
        for name, stats in machine.node.observed.system.stats().items():
            planted = stats.failure_reasons.get(PlantedFailure.__name__, 0)
            if stats.failures > planted:
                text = f"{machine.name}: {name} failed {stats.failures - planted} times"
                self.history.broken("unhandled-error", text)
        try:
            async with asyncio.timeout(self.scenario.heal_seconds):
                await self.world.on(machine, machine.node.stop())
        except TimeoutError:
            self.history.broken("no-progress", f"{machine.name} does not stop")

    # The account -----------------------------------------------------------------------------

    def _account(self, result: Result) -> None:
        history, network = self.history, self.world.network
        result.trace_hash = history.trace_hash
        result.violations = history.violations
        result.events, result.events_count = history.events, history.events_count
        result.virtual_seconds = self.world.now
        pushes = history.pushes.values()
        result.pushed = len(pushes)
        result.latencies_ms = [
            (push.confirmed_at - push.pushed_at) * 1_000
            for push in pushes
            if push.index is not None
        ]
        for seen in history.first_seen.values():
            found = zip(map(history.pushes.get, seen), seen.values(), strict=True)
            result.deliveries_ms += [
                (at - push.pushed_at) * 1_000 for push, at in found if push is not None
            ]
        result.bytes_sent = dict(sorted(network.bytes_sent.items()))
        result.network = dict(sorted(network.counts.items()))
