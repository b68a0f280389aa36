"""Every class of actors fails once at everything that it takes, and the contract holds."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache, partial
from typing import Final, get_args

import pytest

from contract_load import MEMBER, NODE, ROUNDS, Round, add_nodes
from rillnode.actors.engine.faults import FAULTS, Fault, When
from rillnode.actors.engine.worker import Worker
from rillnode.actors.nextgraph import wallets
from rillnode.actors.ports import Tracer
from rillnode.actors.services import static_forwarding
from rillnode.actors.streams import bidirectional_consumer, bidirectional_publisher
from rillnode.node import runtime
from rillnode.node.config import Config
from rillnode.node.simulation.leftovers import leftovers
from rillnode.node.telemetry import Telemetry, Tracing
from rillnode.testing import MemoryNetwork, PlantedFailure, actor_classes, fail, message_types
from span_support import Kept

FORGOTTEN_SECONDS: Final = 130.0
"""Virtual time after which a node has let go of idle instances and of links that are gone."""

LINKS: Final = {NODE: 3, MEMBER: 2}
"""The links of nodes to others when all clients are gone: to a peer, and to who shares streams."""

AWAY_SECONDS: Final = 30.0
"""How long aliases and subscriptions wait for whose they are here, instead of an hour."""

WALLET_SECONDS: Final = 5.0
"""How long a wallet waits for who fetches it, and he for the wallet, instead of ten minutes."""

Case = tuple[type[Worker], type | None]


def name_of(actor_class: type[Worker]) -> str:
    return f"{actor_class.__module__.removeprefix('rillnode.actors.')}.{actor_class.__qualname__}"


def is_traced(case: Case) -> bool:
    """Whether only nodes that make spans have such actors."""
    return case[0].__module__.startswith("rillnode.actors.spans.")


def id_of(case: Case) -> str:
    actor_class, message = case
    return f"{name_of(actor_class)}: {'any' if message is None else message.__name__}"


CASES: Final[list[Case]] = [
    (actor_class, message)
    for actor_class in actor_classes()
    for message in message_types(actor_class) or (None,)
]

UNREACHED: Final[frozenset[str]] = frozenset(
    {
        "nextgraph.connection.ConnectionActor: CatchUp",
        "nextgraph.connection.ConnectionActor: Expelled",
        "nextgraph.connection.ConnectionActor: _Close",
        "nextgraph.connection.ConnectionActor: _Continue",
        "nextgraph.inbox.InboxActor: News",
        "nextgraph.topic.TopicActor: Again",
        "nextgraph.topic.TopicActor: Grown",
        "nextgraph.topic.TopicActor: Removed",
        "nextgraph.topic.TopicActor: StreamRemoved",
        "nextgraph.topic.TopicActor: Unused",
        "nextgraph.users.UsersActor: Administration",
        "nextgraph.users.UsersActor: News",
        "nextgraph.wallets.WalletsActor: News",
        "nextgraph.wallets.WalletsActor: _Late",
        "overlay.member.MemberActor: LinkLost",
        "overlay.member.MemberActor: _Respawn",
        "overlay.neighbours.NeighboursActor: BeganAnew",
        "overlay.neighbours.NeighboursActor: _Announce",
        "overlay.resending.ResendingActor: RightsChanged",
        "overlay.tracker.TrackerActor: _Late",
        "peers.connection.ConnectionActor: _Continue",
        "spans.links.TracedConnection: _Continue",
        "spans.nextgraph.TracedTopic: Again",
        "spans.nextgraph.TracedTopic: Grown",
        "spans.nextgraph.TracedTopic: Removed",
        "spans.nextgraph.TracedTopic: StreamRemoved",
        "spans.nextgraph.TracedTopic: Unused",
        "spans.streams.TracedSink: Delivery",
        "spans.streams.TracedSink: StopSink",
        "spans.streams.TracedSink: _Exited",
        "spans.streams.TracedSink: _Measure",
        "spans.streams.TracedSink: _RenewKey",
        "spans.streams.TracedSink: _Start",
        "spans.streams.TracedSubscription: _Retry",
        "spark_sink.SparkSinkActor: Delivery",
        "spark_sink.SparkSinkActor: StopSink",
        "spark_sink.SparkSinkActor: _Exited",
        "spark_sink.SparkSinkActor: _Measure",
        "spark_sink.SparkSinkActor: _RenewKey",
        "spark_sink.SparkSinkActor: _Start",
        "streamr.directory.Directory: _WatchAgain",
        "streamr.resend.ResendActor: RightsChanged",
        "streams.bidirectional_consumer.ConsumerActor: Renewed",
        "streams.bidirectional_consumer.ConsumerActor: RightsChanged",
        "streams.bidirectional_consumer.ConsumerActor: _GoOn",
        "streams.bidirectional_consumer.ConsumerActor: _Look",
        "streams.bidirectional_consumer.ConsumerActor: _More",
        "streams.bidirectional_consumer.ConsumerActor: _Open",
        "streams.bidirectional_publisher.PublisherActor: _Again",
        "streams.following.StoreFollower: _Again",
        "streams.following.StoreFollower: _Changed",
        "streams.following.StoreFollower: _Count",
        "streams.following.StoreFollower: _Followed",
        "streams.following.StoreFollower: _Removed",
        "streams.subscription.SubscriptionActor: _Retry",
    }
)
"""What the load does not come to: it has neither Spark, nor released nodes, nor a shared log."""


async def load(rounds: list[Round]) -> None:
    """Two rounds of all clients at once, whatever they are told."""
    for _ in range(2):
        await asyncio.gather(*(one.run() for one in rounds))


async def contract_holds(rounds: list[Round], network: MemoryNetwork) -> None:
    """All clients come again, are served, and find what was confirmed; the node is well."""
    for one in rounds:
        one.strict = True
        await one.run()
        await one.check()
    await asyncio.sleep(FORGOTTEN_SECONDS)
    for name, sockets in LINKS.items():
        node = network.node(name)
        assert [check for check in node.checks() if not check.ok] == []
        assert list(leftovers(node.observed, sockets=sockets)) == []


def tracing(config: Config, tracer: Tracer | None) -> Telemetry:
    """What a node is made of that makes spans."""
    del config, tracer
    return Tracing(Kept().tracer)


def with_node(
    program: Callable[[list[Round], MemoryNetwork], Awaitable[None]], *, traced: bool = False
) -> None:
    with pytest.MonkeyPatch.context() as patch, MemoryNetwork(seed=7) as network:
        for module in (bidirectional_consumer, bidirectional_publisher):
            patch.setattr(module, "STREAM_SUBSCRIBER_AWAY_SECONDS_MAX", AWAY_SECONDS)
        patch.setattr(static_forwarding, "ALIAS_KEPT_SECONDS", AWAY_SECONDS)
        patch.setattr(wallets, "NEXTGRAPH_WALLET_SECONDS", WALLET_SECONDS)
        patch.setattr(wallets, "_KEPT_MS", int(WALLET_SECONDS * 1_000))
        if traced:
            patch.setattr(runtime, "telemetry", tracing)
        add_nodes(network)

        async def application() -> None:
            rounds: list[Round] = [one(network) for one in ROUNDS]
            await load(rounds)
            await program(rounds, network)

        network.run(application())


@cache
def reached() -> frozenset[str]:
    """What a load comes to; nothing fails."""
    found: set[str] = set()

    def note(name: str) -> bool:
        found.add(name)
        return False

    noting = [Fault(*one, 1, "before", PlantedFailure, partial(note, id_of(one))) for one in CASES]

    async def noted(rounds: list[Round], _: MemoryNetwork) -> None:
        FAULTS.extend(noting)
        try:
            await load(rounds)
        finally:
            for fault in noting:
                FAULTS.remove(fault)

    for traced in (False, True):
        with_node(noted, traced=traced)
    return frozenset(found)


def test_classes_declare_what_they_take() -> None:
    assert [name_of(one) for one in actor_classes() if message_types(one) is None] == []


def test_the_load_comes_to_everything_else() -> None:
    missing = {id_of(one) for one in CASES} - reached()
    assert missing == UNREACHED, "this list may only become shorter"


@pytest.mark.parametrize("traced", [False, True])
def test_the_contract_holds_where_nothing_fails(*, traced: bool) -> None:
    with_node(contract_holds, traced=traced)


@pytest.mark.parametrize("when", get_args(When))
@pytest.mark.parametrize("case", [one for one in CASES if id_of(one) not in UNREACHED], ids=id_of)
def test_one_failure_costs_what_it_must(case: Case, when: When) -> None:
    async def once(rounds: list[Round], network: MemoryNetwork) -> None:
        with fail(*case, when=when) as fault:
            await load(rounds)
        assert fault.hits == 1, "the load has not come to it"
        await contract_holds(rounds, network)

    with_node(once, traced=is_traced(case))
