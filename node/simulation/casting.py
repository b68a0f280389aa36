"""Makes a program for each client of a scenario."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

from rillnode.node.nextgraph.simulation.audit import NextgraphAudit
from rillnode.node.nextgraph.simulation.document import Document
from rillnode.node.nextgraph.simulation.users import NextgraphUser
from rillnode.node.ockam.simulation.channel_audit import ChannelAudit
from rillnode.node.ockam.simulation.channel_users import ChannelUser
from rillnode.node.ockam.simulation.tcp_users import OckamTcpUser
from rillnode.node.ockam.simulation.users import OckamUser
from rillnode.node.simulation.clients.callers import RouteCaller
from rillnode.node.simulation.clients.examiner import Examiner
from rillnode.node.simulation.clients.producers import Producer
from rillnode.node.simulation.clients.programs import (
    Consumer,
    Follower,
    Program,
    Reader,
    Share,
    SlowReader,
)
from rillnode.node.simulation.scenario import Scenario
from rillnode.node.simulation.world import Machine
from rillnode.node.streamr.simulation.messages import StreamrMessages
from rillnode.node.streamr.simulation.users import StreamrUser

Cast = Callable[[Machine, str, int], Program]
"""Makes a program: its machine, the node that it talks to, its number among those of its kind."""

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
}
"""Kinds of clients, as a scenario names them, and the first letters of their names. A new kind goes
to the end: a client's place in the latency model is its number among all."""


def clients_count(scenario: Scenario) -> int:
    """How many programs there are."""
    return sum(getattr(scenario.clients, kind) for kind in PREFIXES)


def cast(scenario: Scenario, share: Share, names: Sequence[str]) -> dict[str, Program]:
    """Add a machine to the world for each client, and make its program.

    Args:
        scenario: says how many there are.
        share: what they have in common.
        names: of the nodes that have clients; clients are spread over them in turn.

    Returns:
        The programs by name.
    """
    makers, world = _makers(scenario, share, names), share.world
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
    audit = ChannelAudit(share.history)

    def caller(machine: Machine, node: str, _: int) -> Program:
        following = names[(names.index(node) + 1) % len(names)]
        return RouteCaller(share, machine, node, through=following)

    def channel_user(machine: Machine, node: str, number: int) -> Program:
        following = names[(names.index(node) + 1) % len(names)]
        return ChannelUser(share, machine, node, far=node if number % 2 else following, audit=audit)

    documents: dict[str, Document] = {}
    frames = NextgraphAudit(share.history)
    if clients.nextgraph_users:
        share.world.network.on_sent.append(frames.sent)

    def nextgraph_user(machine: Machine, node: str, _: int) -> Program:
        home = share.nodes[0] if share.nodes else node
        if home not in documents:
            documents[home] = Document(share.world, share.history, home)
            frames.words.append(documents[home].inner.id)
        return NextgraphUser(share, machine, node, documents[home])

    messages = StreamrMessages(share.history)
    share.world.network.on_harmed.append(messages.harmed_on)
    share.history.excuses.append(messages.is_altered)

    def plain(kind: Callable[[Share, Machine, str], Program]) -> Cast:
        return lambda machine, node, _: kind(share, machine, node)

    return {
        "producers": lambda machine, node, number: Producer(
            share, machine, node, shares[number], clients
        ),
        "followers": plain(Follower),
        "consumers": plain(Consumer),
        "slow_readers": plain(SlowReader),
        "readers": plain(Reader),
        "callers": caller,
        "ockam_users": plain(OckamUser),
        "examiners": plain(Examiner),
        "ockam_tcp_users": plain(OckamTcpUser),
        "channel_users": channel_user,
        "nextgraph_users": nextgraph_user,
        "streamr_users": lambda machine, node, _: StreamrUser(share, machine, node, messages),
    }


def _spread(total: int, parts: int) -> list[int]:
    """Divide a number as evenly as can be; those at the front get what is left over."""
    return [total // parts + (number < total % parts) for number in range(parts)] if parts else []
