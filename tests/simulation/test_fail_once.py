"""Every class of actors fails once at everything that it takes, and the contract holds."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Final, get_args

import pytest
from aiohttp import web_app

import contract_load
import contract_nextgraph
import contract_released
import contract_sink
from contract_load import MEMBER, NODE, Native, Overlay, Peer, Round, Streamr, add_nodes
from contract_nextgraph import Removed
from rillnode.actors import sink_job
from rillnode.actors.engine.faults import FAULTS, Fault, When
from rillnode.actors.engine.kinds import RESTARTS_MAX
from rillnode.actors.engine.worker import Worker
from rillnode.actors.nextgraph import wallets
from rillnode.actors.overlay.member import MemberActor
from rillnode.actors.overlay.messages import Instructed, Linked
from rillnode.actors.overlay.neighbours import NeighboursActor
from rillnode.actors.ports import Tracer
from rillnode.actors.services import static_forwarding
from rillnode.actors.streams import bidirectional_consumer, bidirectional_publisher
from rillnode.node import runtime
from rillnode.node.config import Config
from rillnode.node.pipeline import process
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

KEY_SECONDS: Final = 20.0
"""How long a sink's job has a key, instead of an hour."""

WALLET_SECONDS: Final = 5.0
"""How long a wallet waits for who fetches it, and he for the wallet, instead of ten minutes."""


@dataclass(frozen=True)
class Load:
    """What clients do at once.

    Attributes:
        rounds: their kinds.
        much: whether they send more than links hold.
    """

    rounds: tuple[type[Round], ...]
    much: bool = False


LOADS: Final = (
    Load((*contract_load.ROUNDS, *contract_sink.ROUNDS)),
    Load((Native, *contract_nextgraph.ROUNDS, *contract_released.ROUNDS)),
    Load((Native, Streamr, Overlay, Peer, Removed), much=True),
)
"""A case is tried with the first that comes to it: the others are for what is rarer."""

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
        # News of what other nodes have changed in a store that they share.
        "nextgraph.inbox.InboxActor: News",
        "nextgraph.users.UsersActor: News",
        "nextgraph.wallets.WalletsActor: News",
        # A topic follows its log only where other nodes append to it.
        "nextgraph.topic.TopicActor: Grown",
        "nextgraph.topic.TopicActor: Removed",
        "spans.nextgraph.TracedTopic: Grown",
        "spans.nextgraph.TracedTopic: Removed",
        # Streams come to hand by and by in a store that is shared.
        "streams.retention.RetentionActor: _Relist",
        # Only logouts at other nodes are watched for.
        "streamr.directory.Directory: _WatchAgain",
        # It tells nothing but what other nodes do to a store that is shared.
        "streams.following.StoreFollower: _Again",
        "streams.following.StoreFollower: _Changed",
        "streams.following.StoreFollower: _Count",
        "streams.following.StoreFollower: _Followed",
        "streams.following.StoreFollower: _Removed",
    }
)
"""What the load does not come to: no other node has a part in the store of any of its nodes."""

FIRST: Final[dict[str, tuple[type[Worker], type, int]]] = {
    # A member that begins anew tells the actors of all that is shared.
    "overlay.neighbours.NeighboursActor: BeganAnew": (MemberActor, Linked, 1),
    # It makes another where one was given up.
    "overlay.member.MemberActor: _Respawn": (NeighboursActor, Instructed, 6 * RESTARTS_MAX),
}
"""To what only a failure leads: which class fails at which message before, and how often."""


@contextmanager
def failing_first(*cases: str) -> Generator[None]:
    """Let fail what leads to some cases."""
    with ExitStack() as stack:
        for actor_class, message, times in (FIRST[case] for case in cases if case in FIRST):
            stack.enter_context(fail(actor_class, message, times))
        yield


async def run_all(rounds: list[Round]) -> None:
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
    program: Callable[[list[Round], MemoryNetwork], Awaitable[None]],
    load: Load,
    *,
    traced: bool = False,
) -> None:
    with pytest.MonkeyPatch.context() as patch, MemoryNetwork(seed=7) as network:
        for module in (bidirectional_consumer, bidirectional_publisher):
            patch.setattr(module, "STREAM_SUBSCRIBER_AWAY_SECONDS_MAX", AWAY_SECONDS)
        patch.setattr(static_forwarding, "ALIAS_KEPT_SECONDS", AWAY_SECONDS)
        patch.setattr(wallets, "NEXTGRAPH_WALLET_SECONDS", WALLET_SECONDS)
        patch.setattr(wallets, "_KEPT_MS", int(WALLET_SECONDS * 1_000))
        patch.setattr(process, "launcher", contract_sink.launcher)
        patch.setattr(sink_job, "KEY_SECONDS", KEY_SECONDS)
        if traced:
            patch.setattr(runtime, "telemetry", tracing)
        add_nodes(network, contract_sink.SINKS)

        async def application() -> None:
            rounds: list[Round] = [one(network, much=load.much) for one in load.rounds]
            await run_all(rounds)
            await program(rounds, network)

        network.run(application())
    # Of aiohttp's, for all applications of a process: it would keep the last thousand nodes.
    web_app._cached_build_middleware.cache_clear()  # pyright: ignore[reportPrivateUsage]


@cache
def reached(load: Load) -> frozenset[str]:
    """What a load comes to where nothing fails, and where only that does which leads to more."""
    found: set[str] = set()

    def note(name: str) -> bool:
        found.add(name)
        return False

    noting = [Fault(*one, 1, "before", PlantedFailure, partial(note, id_of(one))) for one in CASES]

    async def noted(rounds: list[Round], _: MemoryNetwork) -> None:
        FAULTS.extend(noting)
        try:
            await run_all(rounds)
        finally:
            for fault in noting:
                FAULTS.remove(fault)

    async def noted_after_failures(rounds: list[Round], network: MemoryNetwork) -> None:
        with failing_first(*FIRST):
            await noted(rounds, network)

    for traced in (False, True):
        with_node(noted, load, traced=traced)
    with_node(noted_after_failures, load)
    return frozenset(found)


def test_classes_declare_what_they_take() -> None:
    assert [name_of(one) for one in actor_classes() if message_types(one) is None] == []


def test_the_loads_come_to_everything_else() -> None:
    missing = {id_of(one) for one in CASES}.difference(*map(reached, LOADS))
    assert missing == UNREACHED, "this list may only become shorter"


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("load", LOADS, ids=["usual", "rare", "much"])
def test_the_contract_holds_where_nothing_fails(load: Load, *, traced: bool) -> None:
    with_node(contract_holds, load, traced=traced)


@pytest.mark.parametrize("when", get_args(When))
@pytest.mark.parametrize("case", [one for one in CASES if id_of(one) not in UNREACHED], ids=id_of)
def test_one_failure_costs_what_it_must(case: Case, when: When) -> None:
    async def once(rounds: list[Round], network: MemoryNetwork) -> None:
        with failing_first(id_of(case)), fail(*case, when=when) as fault:
            await run_all(rounds)
        assert fault.hits == 1, "the load has not come to it"
        await contract_holds(rounds, network)

    *others, last = LOADS
    load = next((one for one in others if id_of(case) in reached(one)), last)
    with_node(once, load, traced=is_traced(case))
