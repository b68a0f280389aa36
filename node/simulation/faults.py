"""Faults: which a seed draws, and how each begins and ends.

Whether a fault is drawn or left out changes no other, so that a list of faults can be shortened.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from rillnode.actors.engine.faults import When
from rillnode.node.simulated.history import History, log_of
from rillnode.node.simulation.disk import SLOW_FACTOR
from rillnode.node.simulation.failing_actors import plant
from rillnode.node.simulation.scenario import FaultKind, FaultTable, Scenario
from rillnode.node.simulation.shared_disk import SharedDisk
from rillnode.node.simulation.world import Machine, NodeMachine, World

KINDS: Final[dict[FaultKind, str]] = {
    "kill": "a node's process is killed; its machine tells who was connected",
    "power_cut": "a node's machine loses power: unsynced writes may be lost or torn, and nobody is "
    "told",
    "pause": "a node's process is suspended",
    "lost_disk": "a node loses power and comes back with an empty disk; with a shared log nothing "
    "confirmed is lost",
    "clock_jump": "a node's wall clock is wrong by up to an hour",
    "partition": "a node is cut off from everyone",
    "one_way": "what a node sends is lost; what is sent to it arrives",
    "clog": "nothing gets through between a client and its node, or two nodes of an overlay",
    "disk_full": "a node's disk is full; nothing happens with a shared log",
    "disk_failing": "the next syncs of a node's disk fail",
    "disk_slow": "a node's disk takes 200 times as long",
    "bit_flip": "the next blocks that a node reads have a wrong checksum; nothing happens with a "
    "shared log",
    "corrupt_record": "a bit flips in a record between the same two as with `clog`",
    "replayed_record": "a record between the same two arrives twice",
    "kill_client": "a client is killed, and starts again with what it saved on its node",
    "actor": "actors of one class of a node fail at some messages, before or after their effects",
    "log_cut": "a node cannot reach the servers of the shared log",
    "log_slow": "their answers to a node are up to 40 times as late",
    "log_unanswered": "they store or lose the next frames of a node, and do not answer",
    "log_delayed": "they store the next frames of a node only when the fault is over",
}
"""What each kind of fault does; the last four need `engine = "shared"`."""

SECONDS_MAX: Final = 8.0
"""How long a drawn fault lasts at most."""

CLOCK_MS_MAX: Final = 3_600_000

Undo = Callable[[], None]
Restart = Callable[[Machine], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of one run.

    Attributes:
        number: its place in the run's whole list; names it in `--faults`.
        kind: what goes wrong.
        at: when it begins, virtual seconds.
        seconds: how long it lasts.
        host: whom it strikes.
        other: the other end, for what happens between two hosts.
        strength: from 0 to 1, for what can be more or less bad.
        actor: name of the class of actors that fails; None: any that the node has.
        when: whether it fails before or after a message's effects; None: either.
        times: how often; None: a few times.
    """

    number: int
    kind: FaultKind
    at: float
    seconds: float
    host: str
    other: str
    strength: float
    actor: str | None = None
    when: When | None = None
    times: int | None = None

    def __str__(self) -> str:
        return (
            f"{self.number}: {self.kind} of {self.host} at {self.at:.2f} for {self.seconds:.2f} s"
        )


def draw_faults(
    scenario: Scenario,
    seed: object,
    nodes: Sequence[str],
    clients: Sequence[tuple[str, str]],
    links: Sequence[tuple[str, str]] = (),
) -> list[Fault]:
    """Draw a run's faults.

    Args:
        scenario: what is asked for.
        seed: of the run.
        nodes: names of all nodes.
        clients: names of all clients, each with that of its node.
        links: pairs of nodes that talk to each other.
    """
    wanted: list[tuple[FaultKind, FaultTable | None]] = [
        (table.kind, table) for table in scenario.fault for _ in range(table.count)
    ]
    kinds = Random(f"{seed} kinds of faults")
    drawn = scenario.random_faults
    for _ in range(drawn.count):
        wanted.append((kinds.choice(drawn.kinds), None))
    found: list[Fault] = []
    for number, (kind, table) in enumerate(wanted):
        random = Random(f"{seed} fault {number}")
        at, seconds = random.uniform(0, scenario.seconds), random.uniform(0.1, SECONDS_MAX)
        struck = table.nodes if table is not None else ()
        talking = clients if kind == "kill_client" else [*clients, *links]
        near = [one for one in talking if not struck or one[1] in struck] or talking
        client, node = random.choice(near) if near else (random.choice(nodes),) * 2
        host, other = random.choice(nodes), random.choice(nodes)
        strength = random.random()
        if table is not None:
            at = at if table.at_seconds is None else table.at_seconds
            seconds = seconds if table.seconds is None else table.seconds
            host = table.nodes[number % len(table.nodes)] if table.nodes else host
        if kind == "kill_client":
            host = client
        elif kind in _BETWEEN:
            # Where something is said: between a client or node and a node, or the other way round.
            host, other = (client, node) if strength < 0.5 else (node, client)
        said = table or FaultTable(kind=kind)
        actor = said.actor, said.when, said.times
        found.append(Fault(number, kind, at, seconds, host, other, strength, *actor))
    return found


_BETWEEN: Final = ("clog", "corrupt_record", "replayed_record")


class Injector:
    """Begins and ends faults in a world."""

    def __init__(self, world: World, history: History, restart: Restart) -> None:
        self._world = world
        self._history = history
        self._restart = restart
        self._active: dict[Fault, Undo] = {}
        self._planted: list[Undo] = []

    @property
    def active(self) -> list[Fault]:
        """Those that last now."""
        return list(self._active)

    def begin(self, fault: Fault) -> None:
        """Let a fault happen; nothing happens where its host is dead already."""
        machine = self._world.machines[fault.host]
        if not machine.runs:
            return
        self._history.note(fault.host, "fault", fault.kind)
        undo = self._do(fault, machine)
        if undo is not None:
            self._active[fault] = undo

    def end(self, fault: Fault) -> None:
        """Undo a fault; harmless when it never began or is over."""
        undo = self._active.pop(fault, None)
        if undo is not None:
            self._history.note(fault.host, "fault over", fault.kind)
            undo()

    async def strike(self, faults: Sequence[Fault], seconds: float) -> None:
        """Begin and end each fault in its time, for so many seconds from now."""
        begin, end = self.begin, self.end
        plan = [(one.at, 0, one.number, begin, one) for one in faults]
        plan += [(one.at + one.seconds, 1, one.number, end, one) for one in faults]
        start = self._world.now
        for at, _, _, act, fault in sorted(plan, key=lambda one: one[:3]):
            if at > seconds:
                break
            await asyncio.sleep(start + at - self._world.now)
            act(fault)
        await asyncio.sleep(start + seconds - self._world.now)

    def heal(self) -> None:
        """Undo all that lasts, and what has not struck yet strikes no more."""
        for fault in tuple(self._active):
            self.end(fault)
        self._world.network.spare()

    def _do(self, fault: Fault, machine: Machine) -> Undo | None:
        match fault.kind:
            case "kill" | "kill_client":
                machine.end()
                return lambda: self._restart(machine)
            case "power_cut" | "lost_disk":
                machine.end(power=True)
                if (
                    fault.kind == "lost_disk"
                    and isinstance(machine, NodeMachine)
                    and machine.disk.replace()
                ):
                    self._history.lost[log_of(machine.name)] = None
                return lambda: self._restart(machine)
            case "pause":
                loop = machine.loop
                loop.pause()
                return loop.resume
            case "clock_jump":
                self._history.clocks_wrong = True
                return self._set_clock(machine, int((2 * fault.strength - 1) * CLOCK_MS_MAX))
            case "partition" | "one_way" | "clog":
                return self._cut(fault)
            case "actor":
                assert isinstance(machine, NodeMachine)
                return self._fail(fault, machine)
            case "corrupt_record" | "replayed_record":
                how = fault.kind.removesuffix("_record")
                how = "corrupted" if how == "corrupt" else how
                self._world.network.harm(fault.host, fault.other, how)
                return None
            case "log_cut" | "log_slow" | "log_unanswered" | "log_delayed":
                assert isinstance(machine, NodeMachine)
                disk = machine.disk
                assert isinstance(disk, SharedDisk)
                disk.harm_log(fault.kind, fault.strength)
                return disk.heal_log
            case _:
                assert isinstance(machine, NodeMachine)
                return self._harm_disk(fault, machine)

    def close(self) -> None:
        """What lasts beyond this world ends: it is not healed."""
        for undo in self._planted:
            undo()

    def _fail(self, fault: Fault, machine: NodeMachine) -> Undo:
        kinds = machine.node.observed.system.life.kinds if machine.ready else {}
        living = [actor_class for actor_class, kind in kinds.items() if kind.cells]
        chance = Random(f"{fault.strength} of {fault.number}")
        host, failed = machine.name, self._history.failed

        def struck() -> None:
            failed[host] += 1

        undo = plant(
            host, living, chance, struck, actor=fault.actor, when=fault.when, times=fault.times
        )
        self._planted.append(undo)
        return undo

    def _set_clock(self, machine: Machine, jump_ms: int) -> Undo:
        """Set a clock by so much; jumps of one clock may overlap, and end in any order."""

        def set_back() -> None:
            machine.clock.ahead_ms -= jump_ms

        machine.clock.ahead_ms += jump_ms
        return set_back

    def _cut(self, fault: Fault) -> Undo:
        network = self._world.network
        others = [fault.other] if fault.kind == "clog" else list(network.hosts)
        ways = [(fault.host, other) for other in others if other != fault.host]
        if fault.kind != "one_way":
            ways += [(target, source) for source, target in ways]
        network.block(ways)
        return lambda: network.unblock(ways)

    def _harm_disk(self, fault: Fault, machine: NodeMachine) -> Undo:
        disk = machine.disk
        match fault.kind:
            case "disk_full":
                disk.faults.capacity_bytes = disk.durable_bytes
            case "disk_failing":
                disk.faults.failing_syncs = 1 + int(3 * fault.strength)
                disk.faults.surviving = int(4 * fault.strength)
            case "disk_slow":
                disk.slow = SLOW_FACTOR
            case _:
                disk.spoil(1 + int(10 * fault.strength))
        return disk.repair
