"""Every class of actors, what it fails at once, and the loads under which the contract is to hold.

A case is a class of actors and a class of messages that it takes. It is tried under the smallest
load that comes to it, so that all of them take minutes and not hours: what goes on at once beside
it is looked for where nothing fails, by simulations, and by a long test under all clients at once.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
import pytest
from aiohttp import web_app

import contract_groups
import contract_load
import contract_queues
import contract_serving
import contract_shared
import contract_stopped
from contract_load import NODE, Round
from contract_rooms import PARTS, add_nodes
from contract_shared import OTHER, TELL_SECONDS, add_shared_nodes
from deleted_rooms import deleted_rooms
from one_run import ONE_RUN
from rillnode.actors.core import introduction
from rillnode.actors.engine.faults import FAULTS, Fault, When
from rillnode.actors.engine.worker import Worker
from rillnode.node import runtime
from rillnode.node.plugin import Host, PlugIn, Variants
from rillnode.node.plugins import PlugIns, make_plug_ins
from rillnode.node.simulation.leftovers import leftovers
from rillnode.node.telemetry.telemetry import Tracing
from rillnode.testing import Network, PlantedFailure, actor_classes, fail, message_types
from rooms import TESTS
from span_support import Kept

LOADS: Final = Path(__file__).parent / "data" / "loads.json"
"""Under which load each case is tried. To look for them takes as long as all that is tried: a test
of the long part looks, and what has come since is looked for once in a run."""

FORGOTTEN_SECONDS: Final = 130.0
"""Virtual time after which a node has let go of idle instances and of links that are gone."""

TIMES: Final = 2
"""Rounds under which something fails: they take long enough for what comes by itself."""


@dataclass(frozen=True)
class Load:
    """The load that clients make at once.

    Attributes:
        rounds: their kinds.
        much: whether they send more than links hold.
        shared: whether two nodes of one store are used, and not one that has its own.
    """

    rounds: tuple[type[Round], ...]
    much: bool = False
    shared: bool = False


_EVERY: Final[tuple[type[Round], ...]] = (
    *contract_load.ROUNDS,
    *contract_serving.ROUNDS,
    *contract_groups.ROUNDS,
    *contract_queues.ROUNDS,
    contract_stopped.Stopped,
    *contract_shared.ROUNDS,
    *(one for part in PARTS for one in part.rounds),
)
KINDS: Final = {one.__name__: one for one in _EVERY}
"""All kinds of clients by their names: those of plug-ins that are not there are left out."""

_RARE: Final = [one.__name__ for part in PARTS for one in part.rare]


def _load(*names: str, much: bool = False, shared: bool = False) -> Load:
    """A load of those kinds that are there."""
    return Load(tuple(KINDS[name] for name in names if name in KINDS), much, shared)


USUAL: Final = _load(*(KINDS.keys() - {"Away", "Leaving", *_RARE}))
RARE: Final = _load("Native", *_RARE)
MUCH: Final = _load("Native", "Streamr", "Overlay", "Peer", "Removed", much=True)
SHARED: Final = _load(
    "Native", "Ockam", "Streamr", "Nextgraph", "Grouped", "Registrar", "Removed", "Worked", "Away",
    "Leaving", shared=True,
)  # fmt: skip

EVERYBODY: Final = tuple(dict.fromkeys((*USUAL.rounds, *RARE.rounds)))
TOGETHER: Final = (Load(EVERYBODY), Load(EVERYBODY, much=True), SHARED)
"""All kinds of clients at once; no node has both a store of its own and one that is shared."""

ALONE: Final = _load(
    "Sink", "Ockam", "Served", "Grouped", "Patterned", "Worked", "Hub", "Released", "Native",
    "Stopped", "Operator", "Removed", "Nextgraph", "Registrar", "Channel", "Overlay", "Streamr",
    "Peer",
).rounds  # fmt: skip
"""The kinds of clients, the cheapest first."""

TOGETHER_MAX: Final = 2
"""So many kinds do at once what a case is tried under, of those that come to it by themselves."""

FURTHER: Final = (
    _load("Sink", "Hub"),
    _load("Native", "Overlay"),
    _load("Channel", "Operator"),
    _load("Hub", "Operator"),
    _load("Hub", "Removed"),
    _load("Nextgraph", "Removed"),
    _load("Native", "Channel"),
    _load("Streamr", much=True),
    _load("Overlay", much=True),
    _load("Removed", much=True),
    _load("Away", shared=True),
    _load("Leaving", shared=True),
    _load("Registrar", shared=True),
    _load("Native", shared=True),
    _load("Grouped", shared=True),
    _load("Removed", shared=True),
    _load("Nextgraph", shared=True),
)
"""What comes to the cases that no kind comes to by itself."""

Case = tuple[type[Worker], type | None]


ROOMS: Final = {
    "apps": ("apps.",),
    "links": ("core.links.",),
    "queues": ("core.queues.",),
    "streams": (
        "core.backup.",
        "core.groups.",
        "core.introduction.",
        "core.lookup.",
        "core.status.",
        "core.streams.",
        "spark.",
    ),
    **{
        path.parts[-3]: (f"{path.parts[-3]}.",)
        for path in TESTS.glob("*/unit/test_failing_once.py")
    },
}
"""Where actors are, by the file of tests in which each of theirs fails: a file is one worker's."""


def name_of(actor_class: type[Worker]) -> str:
    return f"{actor_class.__module__.removeprefix('rillnode.actors.')}.{actor_class.__qualname__}"


def id_of(case: Case) -> str:
    actor_class, message = case
    return f"{name_of(actor_class)}: {'any' if message is None else message.__name__}"


def is_traced(case: Case) -> bool:
    """Whether only nodes that make spans have such actors."""
    return case[0].__module__.startswith("rillnode.actors.telemetry.")


CASES: Final[list[Case]] = [
    (actor_class, message)
    for actor_class in actor_classes()
    for message in message_types(actor_class) or (None,)
]


def cases_of(room: str) -> list[Case]:
    """The cases that are one file's."""
    return [one for one in CASES if name_of(one[0]).startswith(ROOMS[room])]


FIRST: Final = {case: what for part in PARTS for case, what in part.first.items()}
"""To what only a failure leads: which class fails at which message before, and how often."""


@contextmanager
def failing_first(*cases: str) -> Generator[None]:
    """Let fail what leads to some cases."""
    with ExitStack() as stack:
        for actor_class, message, times in (FIRST[case] for case in cases if case in FIRST):
            stack.enter_context(fail(actor_class, message, times))
        yield


async def run_all(rounds: list[Round], times: int) -> None:
    """Rounds of all clients at once, whatever they are told."""
    for _ in range(times):
        await asyncio.gather(*(one.run() for one in rounds))


async def contract_holds(rounds: list[Round], network: Network) -> None:
    """All clients come again, are served, and find what was confirmed; the nodes are well."""
    for one in rounds:
        one.strict = True
        await one.run()
        await one.check()
    await asyncio.sleep(FORGOTTEN_SECONDS)
    world = network._world  # pyright: ignore[reportPrivateUsage]
    links = world.network.connections()
    assert all(number == 1 and world.nodes.keys() >= {*ends} for ends, number in links.items())
    members = {name for part in PARTS for name in part.members}
    for name in world.nodes.keys() & {NODE, OTHER, *members}:
        node = network.running(name)
        assert [check for check in node.checks() if not check.ok] == []
        sockets = sum(number for ends, number in links.items() if name in ends)
        assert list(leftovers(node.observed, sockets=sockets)) == []


class Spans(PlugIn):
    """Has a node make spans, whatever its configuration says."""

    def __init__(self, host: Host, kept: Kept) -> None:
        super().__init__(host)
        self._kept = kept

    @property
    def variants(self) -> Variants:
        return Tracing(self._kept.tracer)


def with_spans(kept: Kept, host: Host) -> PlugIns:
    return PlugIns([Spans(host, kept), *make_plug_ins(host)])


def with_node(
    program: Callable[[list[Round], Network], Awaitable[None]],
    load: Load,
    *,
    traced: bool = False,
) -> None:
    with (
        pytest.MonkeyPatch.context() as patch,
        Network(seed=7, shared=load.shared) as network,
    ):
        for part in PARTS:
            part.quicken(patch)
        patch.setattr(introduction, "TELL_SECONDS", TELL_SECONDS)
        if traced:
            # OpenTelemetry starts threads to make one, which simulated nodes cannot.
            patch.setattr(runtime, "make_plug_ins", partial(with_spans, Kept()))
        if load.shared:
            add_shared_nodes(network, load.rounds)
        else:
            add_nodes(network, load.rounds)
        second = OTHER if load.shared else NODE

        async def application() -> None:
            rounds = [one(network, much=load.much, second=second) for one in load.rounds]
            await run_all(rounds, 1)
            await program(rounds, network)

        network.run(application())
    # Of aiohttp's, for all applications of a process: it would keep the last thousand nodes.
    web_app._cached_build_middleware.cache_clear()  # pyright: ignore[reportPrivateUsage]


@cache
def reached(load: Load, *, traced: bool = False, after: str = "") -> frozenset[str]:
    """What a load comes to where nothing fails, or only what has to before one case.

    It is looked for once in a run of the tests: its processes leave for each other what they find.
    """
    names = [one.__qualname__ for one in load.rounds]
    name = json.dumps([names, load.much, load.shared, traced, after])
    file = Path(os.environ[ONE_RUN], f"reached-{sha256(name.encode()).hexdigest()}.json")
    if not file.exists():
        mine = file.with_suffix(f".{os.getpid()}")
        mine.write_text(json.dumps(sorted(_look_for(load, traced=traced, after=after))))
        mine.replace(file)
    return frozenset(json.loads(file.read_text()))


def _look_for(load: Load, *, traced: bool, after: str) -> set[str]:
    found: set[str] = set()

    def note(name: str) -> bool:
        found.add(name)
        return False

    noting = [Fault(*one, 1, "before", PlantedFailure, partial(note, id_of(one))) for one in CASES]

    async def noted(rounds: list[Round], _: Network) -> None:
        FAULTS.extend(noting)
        try:
            with failing_first(after):
                await run_all(rounds, TIMES)
        finally:
            for fault in noting:
                FAULTS.remove(fault)

    with_node(noted, load, traced=traced)
    return found


def comes_to(load: Load, case: Case) -> bool:
    """Whether a load comes to a case."""
    name = id_of(case)
    after = name if name in FIRST else ""
    return name in reached(load, traced=is_traced(case), after=after)


def look_for_load(case: Case) -> Load | None:
    """The smallest that comes to a case; None: there is none."""
    traced = is_traced(case)
    alone = (one for one in ALONE if comes_to(Load((one,)), case))
    # A class that makes spans does what its base does, which is tried itself.
    if kinds := tuple(islice(alone, 1 if traced else TOGETHER_MAX)):
        return Load(kinds)
    return next((one for one in FURTHER if comes_to(one, case)), None)


@cache
def _recorded() -> dict[str, dict[str, Any]]:
    return msgspec.json.decode(LOADS.read_bytes(), type=dict[str, dict[str, Any]])


def record_of(load: Load | None) -> dict[str, Any] | None:
    """What `LOADS` has of a load."""
    if load is None:
        return None
    names = [one.__name__ for one in load.rounds]
    return {"rounds": names, "much": load.much, "shared": load.shared}


def load_of(case: Case) -> Load | None:
    """The smallest that comes to a case, as it was found before; None: it was not."""
    record = _recorded().get(id_of(case))
    if record is None or not KINDS.keys() >= {*record["rounds"]}:
        return look_for_load(case)
    return _load(*record["rounds"], much=record["much"], shared=record["shared"])


def load_together(case: Case) -> Load | None:
    """That of all clients at once, where it comes to a case; None: none does.

    A few cases are come to only by chance where much goes on.
    """
    return next((one for one in TOGETHER if comes_to(one, case)), None) or load_of(case)


def each_case_of(room: str) -> pytest.MarkDecorator:
    """Call a test with each `case` of a file, and each time with `when` it fails.

    In the quick part each class fails before the first of its messages, and after the last one.
    """
    return pytest.mark.parametrize(
        ("case", "when"),
        [
            pytest.param(
                case,
                when,
                marks=() if _is_quick(case, when) else pytest.mark.long,
                id=f"{id_of(case)}, {when}",
            )
            for case in cases_of(room)
            for when in get_args(When)
        ],
    )


def _is_quick(case: Case, when: When) -> bool:
    messages = [message for actor_class, message in CASES if actor_class is case[0]]
    if when == "before":
        return case[1] is messages[0]
    return len(messages) > 1 and case[1] is messages[-1]


def costs_what_it_must(
    case: Case, when: When, choose: Callable[[Case], Load | None] = load_of
) -> None:
    """Have an actor fail once under a load: the contract holds."""
    load = choose(case)
    if load is None and deleted_rooms():
        pytest.skip("what comes to it was deleted")
    assert load is not None, "no load comes to it"
    if not _tried(case, when, load):
        other = look_for_load(case)  # what is written down is no longer so
        assert other not in (None, load), "the load has not come to it"
        assert _tried(case, when, other), "the load has not come to it"


def _tried(case: Case, when: When, load: Load) -> bool:
    """Have an actor fail once: the contract holds. False: the load has not come to it."""
    hits: list[int] = []

    async def once(rounds: list[Round], network: Network) -> None:
        with failing_first(id_of(case)), fail(*case, when=when) as fault:
            await run_all(rounds, TIMES)
        hits.append(fault.hits)
        if fault.hits:
            await contract_holds(rounds, network)

    with_node(once, load, traced=is_traced(case))
    return hits == [1]
