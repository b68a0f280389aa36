"""A node on NATS JetStream beside nats-py alone: many streams, idle ones, servers that come back.

One message to each of N streams (`--streams`), with what a stream costs the servers' memory
(`jetstream_streams`); what the servers are asked for streams that are followed and in which nothing
happens (`jetstream_idle`); and how soon a message is confirmed once a majority of the servers is
there again (`jetstream_back`).
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final

from benchmarks.figures import Sink
from benchmarks.generator import LoadGenerator
from benchmarks.jetstream import NATS_PY, beside, can_run, kept
from benchmarks.jobs import BackJob, Endpoint, FollowJob, StreamsJob
from benchmarks.nats_servers import NatsServers
from benchmarks.processes import cpu_seconds
from benchmarks.servers import RILLNODE
from benchmarks.workloads import Settings, in_turn

CASE_STREAMS: Final = "jetstream_streams"
CASE_IDLE: Final = "jetstream_idle"
CASE_BACK: Final = "jetstream_back"

SUBJECTS: Final = "nats-py, subjects"
"""One JetStream stream with a subject for each: cheap, and without an end, a limit or a right of
its own for any of them."""

_CREATED_MAX: Final = {1: 1_000, 3: 200}
"""By replicas, JetStream streams that are made: three servers make a few of them in a second."""

_TOGETHER: Final = 8_192
"""Messages to different streams that are unconfirmed at one time."""

_SETTLE_SECONDS: Final = 6.0
_IDLE_SECONDS: Final = 20.0
_AWAY_SECONDS: Final = 8.0


def jetstream_streams(settings: Settings, sink: Sink) -> None:
    """W4 for each number of streams; each system begins with empty servers."""
    if can_run(sink):
        for count in settings.streams:
            for replicas in (1, 3):
                for turn in range(settings.rounds):
                    for system in _chosen(settings, turn, RILLNODE, NATS_PY, SUBJECTS):
                        if not sink.has_failed(system):
                            with sink.trying(system):
                                _streams(settings, sink, replicas, count, system)


def _streams(settings: Settings, sink: Sink, replicas: int, count: int, system: str) -> None:
    """A node's are rows of its shards, nats-py's are JetStream streams, or subjects of one."""
    workload = f"W4, {kept(replicas)}, {count:,} streams"
    most = _CREATED_MAX[replicas]
    if system == NATS_PY and count > most:
        sink.note(f"{CASE_STREAMS}: {NATS_PY} made {most:,} streams instead of {count:,}")
        count = most
    with beside(settings, replicas) as (servers, endpoints):
        job = StreamsJob(
            endpoint=_endpoint(endpoints, system),
            count=count,
            message_bytes=100,
            together=_TOGETHER,
            subjects=system == SUBJECTS,
        )
        with LoadGenerator(job) as generator:
            generator.phase()
            memory, live, cpu = servers.rss_bytes(), servers.live_bytes(), servers.cpu_seconds()
            result = generator.phase() | generator.phase()
            seconds = 1 / result["creates_per_second"] + 1 / result["first_pushes_per_second"]
            result["created_and_pushed_per_second"] = 1 / seconds
            result |= generator.phase()
            result["servers_cpu_us"] = (servers.cpu_seconds() - cpu) / count * 1e6
            result["servers_memory_bytes"] = (servers.rss_bytes() - memory) / count
            result["servers_live_bytes"] = (servers.live_bytes() - live) / count
    sink.add(CASE_STREAMS, workload, system, result)


def jetstream_idle(settings: Settings, sink: Sink) -> None:
    """What is asked and answered while nothing happens, as the servers count it."""
    if can_run(sink):
        count = 500 if settings.quick else 10_000
        for replicas in (1, 3):
            for system in _chosen(settings, 0, RILLNODE, NATS_PY):
                if sink.has_failed(system):
                    continue
                with sink.trying(system), beside(settings, replicas) as (servers, endpoints):
                    endpoint = _endpoint(endpoints, system)
                    with LoadGenerator(FollowJob(endpoint=endpoint, count=count)) as generator:
                        result = generator.phase()
                        result |= _idle(settings, servers, endpoint, system)
                        result |= generator.phase()
                    workload = f"{count:,} streams followed, {kept(replicas)}"
                    sink.add(CASE_IDLE, workload, system, result)


def _idle(
    settings: Settings, servers: NatsServers, endpoint: Endpoint, system: str
) -> dict[str, float]:
    """A node's connection to the servers, or that of nats-py."""
    time.sleep(_SETTLE_SECONDS)
    seconds = _IDLE_SECONDS / (4 if settings.quick else 1)

    def counted() -> dict[str, float]:
        said, told = servers.client_messages(system)
        return {
            "requests_per_second": servers.requests(),
            "messages_said_per_second": said,
            "messages_told_per_second": told,
            "servers_cpu_ms": servers.cpu_seconds() * 1e3,
            "node_cpu_ms": cpu_seconds(endpoint.pid) * 1e3,
        }

    before = counted()
    time.sleep(seconds)
    result = {name: (value - before[name]) / seconds for name, value in counted().items()}
    if system != RILLNODE:
        del result["node_cpu_ms"]  # there is no node
    return result


def jetstream_back(settings: Settings, sink: Sink) -> None:
    """Two of three servers are killed and away; one comes back, and who pushes goes on."""
    if not can_run(sink):
        return
    workload = f"two of three servers away for {_AWAY_SECONDS:.0f} s, one comes back"
    for _ in range(settings.rounds):
        with beside(settings, 3) as (servers, endpoints), ExitStack() as stack:
            generators = {
                system: stack.enter_context(
                    LoadGenerator(
                        BackJob(endpoint=endpoint, stream=system, gap_seconds=_AWAY_SECONDS / 2)
                    )
                )
                for system, endpoint in endpoints
            }
            for generator in generators.values():
                generator.phase()
            time.sleep(_SETTLE_SECONDS)
            with ThreadPoolExecutor(len(generators)) as threads:
                phases: list[Callable[[], dict[str, float]]]
                phases = [generator.phase for generator in generators.values()]
                ends = [threads.submit(phase) for phase in phases]
                for number in (1, 2):
                    servers.kill(number)
                time.sleep(_AWAY_SECONDS)
                servers.start(1)
                began = time.monotonic()
            for system, end in zip(generators, ends, strict=True):
                with sink.trying(system):
                    confirmed = end.result()["confirmed_at_seconds"] - began
                    sink.add(CASE_BACK, workload, system, {"first_confirm_ms": confirmed * 1e3})


def _chosen(settings: Settings, turn: int, *systems: str) -> list[str]:
    """The systems that were asked for, in another order with each round."""
    found = [
        system
        for system in systems
        if not settings.systems or any(part in system for part in settings.systems)
    ]
    return in_turn(found, turn)


def _endpoint(endpoints: list[tuple[str, Endpoint]], system: str) -> Endpoint:
    return dict(endpoints)[RILLNODE if system == RILLNODE else NATS_PY]
