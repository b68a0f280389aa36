"""Makes a program for each client of a scenario."""

from collections.abc import Callable, Sequence
from itertools import count
from pkgutil import resolve_name
from typing import Final, Protocol, runtime_checkable

from rillnode.node.plugin import SimulatedPart, Spreading
from rillnode.node.plugins import every_plug_in
from rillnode.node.simulated.history import History
from rillnode.node.simulated.programs import (
    Consumer,
    Follower,
    Program,
    Reader,
    Share,
    SlowReader,
)
from rillnode.node.simulation.clients.callers import RouteCaller
from rillnode.node.simulation.clients.examiner import Examiner
from rillnode.node.simulation.clients.members import Member
from rillnode.node.simulation.clients.producers import NumberedProducer, Producer
from rillnode.node.simulation.clients.workers import Worker
from rillnode.node.simulation.scenario import Scenario
from rillnode.node.simulation.world import Machine, World

Cast = Callable[[Machine, str, int], Program]
"""Makes a program: its machine, the node that it talks to, its number among those of its kind."""

NAMED_PART: Final = 0.3
"""How many producers number their entries themselves, by a name."""

PREFIXES: Final = {
    "producers": "p",
    "followers": "f",
    "consumers": "c",
    "slow_readers": "s",
    "readers": "r",
    "callers": "a",
    "ockam_users": "o",
    "examiners": "e",
    "ockam_tcp_users": "t",
    "channel_users": "x",
    "nextgraph_users": "g",
    "streamr_users": "w",
    "workers": "k",
    "members": "m",
}
"""Kinds of clients, as a scenario names them, and the first letters of their names. A new kind goes
to the end: a client's place in the latency model is its number among all."""


def clients_count(scenario: Scenario) -> int:
    """How many programs there are."""
    return sum(getattr(scenario.clients, kind) for kind in PREFIXES)


@runtime_checkable
class SharedNodes(Protocol):
    """The part of a plug-in that adds the nodes of a run, which share a stream."""

    def add_nodes(self) -> None:
        """Add them all to the world."""
        ...

    async def missing(self) -> list[str]:
        """What is not as it should be yet."""
        ...

    async def repaired(self) -> list[str]:
        """What is not as it should be yet between the nodes that run."""
        ...

    async def push_aside(self, machine: Machine) -> None:
        """Push something at another node than one that is away."""
        ...

    def look_for_leftovers(self) -> None:
        """Look for what nodes should have let go of."""
        ...

    async def probe(self) -> None:
        """See how an entry of each node spreads, in quiet."""
        ...


def shared_nodes_of(parts: Sequence[SimulatedPart]) -> SharedNodes | None:
    """The part that adds the nodes; None: each has streams of its own, or a log that all share."""
    return next((one for one in parts if isinstance(one, SharedNodes)), None)


def spreading_of(scenario: Scenario, seed: int) -> Spreading:
    """The run that measures how messages spread through real nodes."""
    where = next(one.spreading for one in every_plug_in() if one.spreading)
    made: Spreading = resolve_name(where)(scenario, seed)
    return made


def parts_of(scenario: Scenario, world: World, history: History) -> list[SimulatedPart]:
    """What plug-ins add to a run of a scenario."""
    makers = [resolve_name(one.simulated) for one in every_plug_in() if one.simulated]
    made: list[SimulatedPart | None] = [make(scenario, world, history) for make in makers]
    return [one for one in made if one is not None]


def cast(
    scenario: Scenario, share: Share, names: Sequence[str], parts: Sequence[SimulatedPart]
) -> dict[str, Program]:
    """Add a machine to the world for each client, and make its program.

    Args:
        scenario: says how many there are.
        share: what they have in common.
        names: of the nodes that have clients; clients are spread over them in turn.
        parts: what plug-ins add, which make their own clients.

    Returns:
        The programs by name.
    """
    makers, world = _makers(scenario, share, names), share.world
    for part in parts:
        makers.update(part.clients(share, names))
    chance = world.network.random("whether it is examined").random()
    left_out = () if chance < scenario.clients.examined else ("examiners",)
    places = count(len(world.nodes))
    found: dict[str, Program] = {}
    for kind, prefix in PREFIXES.items():
        for number in range(getattr(scenario.clients, kind)):
            place = next(places)
            if kind in left_out:
                continue  # and its place stays empty, so that nobody else's changes
            machine = world.add_machine(f"{prefix}{number}", place)
            node = names[number % len(names)]
            found[machine.name] = makers[kind](machine, node, number)
    return found


def _makers(scenario: Scenario, share: Share, names: Sequence[str]) -> dict[str, Cast]:
    clients = scenario.clients
    shares = _spread(scenario.messages, clients.producers)

    def caller(machine: Machine, node: str, _: int) -> Program:
        following = names[(names.index(node) + 1) % len(names)]
        return RouteCaller(share, machine, node, through=following)

    def producer(machine: Machine, node: str, number: int) -> Program:
        is_named = share.world.network.random(f"name of {machine.name}").random() < NAMED_PART
        kind = NumberedProducer if is_named else Producer
        return kind(share, machine, node, shares[number], clients)

    def plain(kind: Callable[[Share, Machine, str], Program]) -> Cast:
        return lambda machine, node, _: kind(share, machine, node)

    return {
        "producers": producer,
        "followers": plain(Follower),
        "consumers": plain(Consumer),
        "slow_readers": plain(SlowReader),
        "readers": plain(Reader),
        "callers": caller,
        "examiners": plain(Examiner),
        "workers": plain(Worker),
        "members": plain(Member),
    }


def _spread(total: int, parts: int) -> list[int]:
    """Divide a number as evenly as can be; those at the front get what is left over."""
    return [total // parts + (number < total % parts) for number in range(parts)] if parts else []
