"""A node on NATS JetStream beside nats-py alone: same servers, replicas, settings, same run.

W1 and W2 as in `workloads`, with one server and with three (`jetstream`), W1 also by nats-py
through a relay, since a node is one more process between a client and the servers, and by the same
bytes in bare frames, which are the servers' own limit; W2 also by a node with a store of its own;
what several nodes on the same three servers confirm together, and for how long pushes at one pause
when another comes, goes or crashes (`jetstream_nodes`).
"""

import json
import shutil
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from threading import Timer
from typing import Final

import msgspec

from benchmarks.figures import Sink
from benchmarks.generator import LoadGenerator, run
from benchmarks.jobs import Endpoint, FillJob, PushJob, ReplayJob, SpreadJob
from benchmarks.nats_servers import NatsServers, start_nats_servers
from benchmarks.relay import start_relay
from benchmarks.servers import RILLNODE, Server, missing, start_rillnode
from benchmarks.workloads import Settings, in_turn

CASE: Final = "jetstream"
CASE_NODES: Final = "jetstream_nodes"
NATS_PY: Final = "nats-py"
RELAYED: Final = "nats-py-relayed"
"""Through a process that only passes bytes on: as many processes on the way as with a node."""

FRAMES: Final = "frames"
"""The same bytes in so many frames, as bare as can be: the floor of whoever uses the servers."""

EMBEDDED: Final = "rillnode-embedded"
"""A node with a store of its own, on the same disk."""

_KIB: Final = 1_024
_NODES: Final = 3
_PARTITIONS: Final = 12

_FRAMES: Final = (1, 2, 4)
"""In how many a window goes to the servers at one time; a node has up to four under way."""


def jetstream(settings: Settings, sink: Sink) -> None:
    """One node beside nats-py; each part begins with empty servers."""
    if can_run(sink):
        for part in (_push_confirm, _replay):
            for replicas in (1, 3):
                part(settings, sink, replicas)


def jetstream_nodes(settings: Settings, sink: Sink) -> None:
    """Several nodes on three servers."""
    if can_run(sink):
        _growth(settings, sink)
        _pauses(settings, sink)


def can_run(sink: Sink) -> bool:
    """Whether there is a server; a note says so where there is none."""
    reason = missing("nats")
    if reason:
        sink.note(f"without JetStream: {reason}")
    return not reason


# One node beside nats-py ---------------------------------------------------------------------


def _push_confirm(settings: Settings, sink: Sink, replicas: int) -> None:
    for turn in range(settings.rounds):
        with (
            beside(settings, replicas) as (servers, endpoints),
            _relayed(settings, dict(endpoints)[NATS_PY]) as relayed,
        ):
            endpoints.append(relayed)
            bare = msgspec.structs.replace(dict(endpoints)[NATS_PY], kind="frames")
            endpoints += [
                (f"{FRAMES}, {count}", msgspec.structs.replace(bare, frames=count))
                for count in _FRAMES
            ]
            endpoints = [
                (system, msgspec.structs.replace(endpoint, keepers=servers.pids))
                for system, endpoint in endpoints
            ]
            for message_bytes in (_KIB, 100):
                for window in (1_024, 64, 1):
                    workload = f"W1, {kept(replicas)}, {message_bytes} B, window {window}"
                    for system, endpoint in in_turn(endpoints, turn):
                        if endpoint.frames > window:
                            continue
                        job = PushJob(
                            endpoint=endpoint,
                            stream=f"{system}-{message_bytes}-{window}".replace(", ", "-"),
                            message_bytes=message_bytes,
                            window=window,
                            seconds=1.0 if settings.quick else 2.5,
                        )
                        if not sink.has_failed(system):
                            with sink.trying(system):
                                sink.add(CASE, workload, system, run(job))


def _replay(settings: Settings, sink: Sink, replicas: int) -> None:
    count = 10_000 if settings.quick else 100_000
    with (
        beside(settings, replicas) as (_, endpoints),
        start_rillnode(settings.directory / CASE / EMBEDDED) as embedded,
    ):
        endpoints.append((EMBEDDED, embedded.endpoint))
        for system, endpoint in endpoints:
            fill = FillJob(endpoint=endpoint, stream=system, message_bytes=_KIB, count=count)
            with sink.trying(system):
                run(fill)
        for turn in range(settings.rounds):
            for system, endpoint in in_turn(endpoints, turn):
                if sink.has_failed(system):
                    continue
                job = ReplayJob(
                    endpoint=endpoint,
                    stream=system,
                    count=count,
                    mode="ordered" if system == NATS_PY else "tail",
                    batch=0,
                    consumer="",
                )
                with sink.trying(system):
                    sink.add(CASE, f"W2, {kept(replicas)}, replay of {count:,}", system, run(job))


@contextmanager
def beside(
    settings: Settings, replicas: int
) -> Generator[tuple[NatsServers, list[tuple[str, Endpoint]]]]:
    """Empty servers, as many as replicas, and both ways to push to them."""
    with (
        make_home(settings) as home,
        start_nats_servers(home, replicas) as servers,
        start_node(home, 0, servers, replicas) as node,
    ):
        bare = Endpoint(kind="natspy", port=servers.ports[0], pid=servers.pid, replicas=replicas)
        yield servers, [(RILLNODE, node.endpoint), (NATS_PY, bare)]


@contextmanager
def _relayed(settings: Settings, bare: Endpoint) -> Generator[tuple[str, Endpoint]]:
    with start_relay(settings.directory / "relay.log", bare.port) as port:
        yield RELAYED, msgspec.structs.replace(bare, port=port)


def kept(replicas: int) -> str:
    """How a workload is called by how many servers keep it."""
    return f"{replicas} replica" if replicas == 1 else f"{replicas} replicas"


# Several nodes -------------------------------------------------------------------------------


def _growth(settings: Settings, sink: Sink) -> None:
    """Each node has a load of its own, on a stream of its own with several partitions."""
    workload = f"nodes together, {_KIB} B, {_PARTITIONS} x 256 unconfirmed at each"
    totals: dict[int, list[float]] = {}
    with three_servers(settings) as (home, servers), ExitStack() as stack:
        nodes: list[Server] = []
        for count in range(1, _NODES + 1):
            nodes.append(stack.enter_context(start_node(home, count, servers, 3)))
            totals[count] = [
                _together(settings, nodes, f"growth-{turn}-{count}")
                for turn in range(settings.rounds)
            ]
    for count, rounds in totals.items():
        for total, alone in zip(rounds, totals[1], strict=True):
            result = {"confirmed_per_second": total, "times_one_node": total / alone}
            sink.add(CASE_NODES, workload, f"{count} of {_NODES} nodes", result)


def _together(settings: Settings, nodes: Sequence[Server], stream: str) -> float:
    """What all nodes confirm in a second."""
    jobs = [
        _spread(settings, node, f"{stream}-{at}", window=256, seconds=3.0)
        for at, node in enumerate(nodes)
    ]
    with ExitStack() as loads, ThreadPoolExecutor(len(jobs)) as threads:
        generators = [loads.enter_context(LoadGenerator(job)) for job in jobs]
        for generator in generators:
            generator.phase()
        results = list(threads.map(LoadGenerator.phase, generators))
    return sum(result["confirmed_per_second"] for result in results)


def _pauses(settings: Settings, sink: Sink) -> None:
    """What a client of one node sees while another one joins, leaves in order, and is killed."""
    workload = f"longest pause of a partition, of {_PARTITIONS}"
    with (
        three_servers(settings) as (home, servers),
        start_node(home, 0, servers, 3) as stays,
        ExitStack() as stack,
    ):
        others: list[Server] = []

        def join() -> None:
            others.append(stack.enter_context(start_node(home, 1 + len(others), servers, 3)))

        def nothing() -> None: ...

        steps: Sequence[tuple[str, Callable[[], None]]] = (
            ("nothing happens", nothing),
            ("a node joins", join),
            ("it leaves", lambda: others[-1].process.stop()),
            ("a node joins again", join),
            ("it is killed", lambda: others[-1].process.kill()),
        )
        for number, (what, act) in enumerate(steps):
            # Half a second, then the act.
            job = _spread(settings, stays, f"pause-{number}", window=16, seconds=6.0)
            with LoadGenerator(job) as load:
                load.phase()
                timer = Timer(0.5, act)
                timer.start()
                result = load.phase()
                timer.join()
            sink.add(CASE_NODES, workload, what, result)


def _spread(
    settings: Settings, node: Server, stream: str, *, window: int, seconds: float
) -> SpreadJob:
    return SpreadJob(
        endpoint=node.endpoint,
        stream=stream,
        partitions=_PARTITIONS,
        message_bytes=_KIB,
        window=window,
        seconds=seconds / 2 if settings.quick else seconds,
    )


@contextmanager
def three_servers(settings: Settings) -> Generator[tuple[Path, NatsServers]]:
    """Three empty servers, and where their nodes may be."""
    with make_home(settings) as home, start_nats_servers(home, 3) as servers:
        yield home, servers


@contextmanager
def make_home(settings: Settings) -> Generator[Path]:
    """An empty directory, which is removed afterwards."""
    home = settings.directory / CASE
    home.mkdir()
    try:
        yield home
    finally:
        shutil.rmtree(home)


def start_node(
    home: Path, number: int, servers: NatsServers, replicas: int
) -> AbstractContextManager[Server]:
    """A node on the servers, which it finds in another order than the others do."""
    settings = (
        "store.engine=jetstream",
        f"store.servers={json.dumps(in_turn(servers.urls, number))}",
        f"store.monitors={json.dumps(servers.monitors)}",
        f"store.replicas={replicas}",
    )
    return start_rillnode(home / f"node-{number}", settings=settings)
