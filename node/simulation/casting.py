"""Makes a program for each client of a scenario."""

from collections.abc import Callable, Sequence
from itertools import count
from pkgutil import resolve_name
from typing import Final

from rillnode.codecs.errors import ConfigError
from rillnode.node.plugins import usable_plug_ins
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


def clients_count(scenario: Scenario) -> int:
    """How many programs there are."""
    return sum(len(scenario.clients_named(kind)) for kind in _kinds(scenario))


def _kinds(scenario: Scenario) -> list[str]:
    return [*PREFIXES, *scenario.clients.others]


def shared_nodes_of(parts: Sequence[SimulatedPart]) -> SharedNodes | None:
    """The part that adds the nodes; None: each has streams of its own, or a log that all share."""
    return next((one for one in parts if isinstance(one, SharedNodes)), None)


def parts_of(scenario: Scenario, world: World, history: History) -> list[SimulatedPart]:
    """What plug-ins add to a run of a scenario; those add nothing whose extras are missing.

    Raises:
        ConfigError: nobody has an overlay.
    """
    usable, _ = usable_plug_ins()
    makers: list[MakePart] = [resolve_name(one.simulated) for one in usable if one.simulated]
    made = [make(scenario, world, history) for make in makers]
    parts = [one for one in made if one is not None]
    if scenario.overlay and shared_nodes_of(parts) is None:
        raise _nobody_has("overlay: no plug-in has one")
    return parts


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

    Raises:
        ConfigError: nobody has clients of a kind.
    """
    makers = _makers(scenario, share, names)
    for part in parts:
        makers.update(part.clients(share, names))
    chance = world.network.random("whether it is examined").random()
    left_out = () if chance < scenario.clients.examined else ("examiners",)
    places = count(len(world.nodes))
    found: dict[str, Program] = {}
    for kind in _kinds(scenario):
        if kind not in makers and scenario.clients_named(kind):
            raise _nobody_has(f"clients: no plug-in has clients that are called {kind!r}")
        for number, name in enumerate(scenario.clients_named(kind)):
            place = next(places)
            if kind in left_out:
                continue  # and its place stays empty, so that nobody else's changes
            machine = world.add_machine(name, place)
            node = names[number % len(names)]
            found[machine.name] = makers[kind](machine, node, number)
    return found


def _nobody_has(text: str) -> ConfigError:
    """Say so, and which plug-ins might have it, were their extras installed."""
    _, lacking = usable_plug_ins()
    code = "plugin.extra" if lacking else "scenario.value"
    return ConfigError(code, "; ".join((text, *(error.text for error in lacking))))


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

    return {
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


def _spread(total: int, parts: int) -> list[int]:
    """Divide a number as evenly as can be; those at the front get what is left over."""
    return [total // parts + (number < total % parts) for number in range(parts)] if parts else []
