"""Makes a program for each client of a scenario."""

from collections.abc import Callable, Sequence
from itertools import count
from pkgutil import resolve_name
from typing import Final

from rillnode.node.plugins import plug_in_of
from rillnode.node.simulated import world as simulated
from rillnode.node.simulated.history import History
from rillnode.node.simulated.part import Cast, MakePart, SharedNodes, SimulatedPart
from rillnode.node.simulated.programs import Program, Share
from rillnode.node.simulation.clients.callers import RouteCaller
from rillnode.node.simulation.clients.examiner import Examiner
from rillnode.node.simulation.clients.members import Group, Member
from rillnode.node.simulation.clients.producers import NumberedProducer, Producer
from rillnode.node.simulation.clients.readers import Consumer, Follower, Reader, SlowReader
from rillnode.node.simulation.clients.workers import Jobs, Worker
from rillnode.node.simulation.scenario import PREFIXES, Scenario
from rillnode.node.simulation.world import World

NAMED_PART: Final = 0.3
"""How many producers number their entries themselves, by a name."""


def shared_nodes_of(parts: Sequence[SimulatedPart]) -> SharedNodes | None:
    """The part that adds the nodes; None: each has streams of its own, or a log that all share."""
    return next((one for one in parts if isinstance(one, SharedNodes)), None)


def parts_of(scenario: Scenario, world: World, history: History) -> list[SimulatedPart]:
    """What plug-ins add to a run of a scenario, each for its table.

    Raises:
        ConfigError: as `plug_in_of`.
    """
    made: list[SimulatedPart] = []
    for table in scenario.tables:
        make: MakePart = resolve_name(plug_in_of(table.plug_in, table.table).simulated)
        made.append(make(table, scenario, world, history))
    return made


def cast(
    scenario: Scenario,
    world: World,
    share: Share,
    names: Sequence[str],
    parts: Sequence[SimulatedPart],
) -> dict[str, Program]:
    """Add a machine to the world for each client, and make its program.

    Args:
        scenario: says how many there are.
        world: where they are.
        share: what they have in common.
        names: of the nodes that have clients; clients are spread over them in turn.
        parts: what plug-ins add, which make their own clients.

    Returns:
        The programs by name.
    """
    makers = _makers(scenario, share, names)
    for part in parts:
        makers.update(part.clients(share, names))
    chance = world.network.random("whether it is examined").random()
    left_out = () if chance < scenario.clients.examined else ("e",)
    places = count(len(world.nodes))
    found: dict[str, Program] = {}
    for kind, total in scenario.clients_by_kind().items():
        for number in range(total):
            place = next(places)
            if kind in left_out:
                continue  # and its place stays empty, so that nobody else's changes
            machine = world.add_machine(f"{kind}{number}", place)
            node = names[number % len(names)]
            found[machine.name] = makers[kind](machine, node, number)
    return found


def _makers(scenario: Scenario, share: Share, names: Sequence[str]) -> dict[str, Cast]:
    clients, jobs, group = scenario.clients, Jobs(), Group()
    shares = _spread(scenario.messages, clients.producers)

    def caller(machine: simulated.Machine, node: str, _: int) -> Program:
        following = names[(names.index(node) + 1) % len(names)]
        return RouteCaller(share, machine, node, through=following)

    def producer(machine: simulated.Machine, node: str, number: int) -> Program:
        is_named = share.world.network.random(f"name of {machine.name}").random() < NAMED_PART
        kind = NumberedProducer if is_named else Producer
        return kind(share, machine, node, shares[number], clients)

    def plain(kind: Callable[[Share, simulated.Machine, str], Program]) -> Cast:
        return lambda machine, node, _: kind(share, machine, node)

    made = {
        "producers": producer,
        "followers": plain(Follower),
        "consumers": plain(Consumer),
        "slow_readers": plain(SlowReader),
        "readers": plain(Reader),
        "callers": caller,
        "examiners": plain(Examiner),
        "workers": lambda machine, node, _: Worker(share, machine, node, jobs),
        "members": lambda machine, node, _: Member(share, machine, node, group),
    }
    return {PREFIXES[kind]: make for kind, make in made.items()}


def _spread(total: int, parts: int) -> list[int]:
    """Divide a number as evenly as can be; those at the front get what is left over."""
    return [total // parts + (number < total % parts) for number in range(parts)] if parts else []
