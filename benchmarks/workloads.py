"""The workloads W1 to W6, run on rillnode beside its peers; README.md says what each measures."""

import random
import shutil
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from benchmarks.figures import Sink
from benchmarks.generator import LoadGenerator, run
from benchmarks.jobs import (
    CheckJob,
    CrashJob,
    FillJob,
    LinksJob,
    NumberedJob,
    PushJob,
    ReplayJob,
    StreamsJob,
    WorkJob,
)
from benchmarks.processes import disk_bytes
from benchmarks.servers import FLOOR, RILLNODE, SERVERS, Server, missing

_KIB: Final = 1_024

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run.

    Attributes:
        directory: where servers keep their data; removed after each.
        systems: parts of the names of those to run; empty: all.
        kills: crashes of W6.
        streams: how many streams are made where that is what is measured, one after the other.
    """

    directory: Path
    quick: bool
    rounds: int
    kills: int
    systems: Sequence[str] = ()
    streams: Sequence[int] = (1_000,)


def push_confirm(settings: Settings, sink: Sink) -> None:
    """W1: each round starts every server anew, so that noise of the machine meets all alike."""
    names = (
        RILLNODE, "redis, AOF always", "redis, AOF everysec, TLS",
        "nats", "nats, TLS", "nats, sync always", FLOOR,
    )  # fmt: skip
    systems = available(names, settings, sink)
    for turn in range(settings.rounds):
        for name in in_turn(systems, turn):
            if sink.has_failed(name):
                continue
            with sink.trying(name), _server(name, settings) as server:
                for message_bytes in (_KIB,) if settings.quick else (_KIB, 100):
                    for window in (1_024, 64, 1):
                        job = PushJob(
                            endpoint=server.endpoint,
                            stream=f"w1-{message_bytes}-{window}",
                            message_bytes=message_bytes,
                            window=window,
                            seconds=1.0 if settings.quick else 2.5,
                        )
                        sink.add("w1", f"{message_bytes} B, window {window}", name, run(job))


def numbered(settings: Settings, sink: Sink) -> None:
    """What it costs that doubles are known: W1 with numbers and without, by turns."""
    for _ in range(settings.rounds):
        with sink.trying(RILLNODE), _server(RILLNODE, settings) as server:
            for message_bytes in (_KIB,) if settings.quick else (_KIB, 100):
                for window in (1_024, 64, 1):
                    job = NumberedJob(
                        endpoint=server.endpoint,
                        message_bytes=message_bytes,
                        window=window,
                        seconds=2.0 if settings.quick else 20.0,
                    )
                    row = f"{message_bytes} B, window {window}"
                    with LoadGenerator(job) as generator:
                        for system in (RILLNODE, f"{RILLNODE}, not numbered"):
                            sink.add("numbered", row, system, generator.phase())


@dataclass(frozen=True, slots=True)
class _Reader:
    """One way to read: which workloads it stands for, and what is asked of the client."""

    workloads: tuple[str, ...]
    system: str
    server: str
    mode: str
    batch: int = 1_000


_PLAIN: Final = ("entries, not saved", "batches, not saved")
_SAVED: Final = ("entries, saved", "batches, saved")

_READERS: Final = (
    _Reader(_PLAIN[:1], RILLNODE, RILLNODE, "tail"),
    _Reader(_PLAIN[1:], RILLNODE, RILLNODE, "batches"),
    _Reader(_SAVED[:1], RILLNODE, RILLNODE, "consumer, saved"),
    _Reader(_SAVED[1:], RILLNODE, RILLNODE, "batches, saved"),
    *(
        _Reader(workloads, f"{name}, {mode.upper()} {batch}", server, mode, batch)
        for name, server in (
            ("redis", "redis, AOF everysec"),
            ("redis TLS", "redis, AOF everysec, TLS"),
        )
        for workloads, mode, batch in (
            (_PLAIN, "xread", 1_000), (_PLAIN, "xread", 100), (_SAVED, "group", 1_000)
        )
    ),
    *(
        _Reader(workloads, f"{server}, {mode}", server, mode)
        for server in ("nats", "nats, TLS")
        for workloads, mode in ((_PLAIN, "ordered"), (_SAVED, "fetch"))
    ),
)  # fmt: skip


def replay(settings: Settings, sink: Sink) -> None:
    """W2: every server is filled first, then all are read from in turn."""
    count = 20_000 if settings.quick else 200_000
    names = tuple(dict.fromkeys(reader.server for reader in _READERS))
    with ExitStack() as stack:
        servers: dict[str, Server] = {}
        for name in available(names, settings, sink):
            with sink.trying(name):
                server = stack.enter_context(_server(name, settings))
                run(FillJob(endpoint=server.endpoint, stream="w2", message_bytes=_KIB, count=count))
                servers[name] = server
        for turn in range(settings.rounds):
            for reader in _READERS:
                if reader.server not in servers or sink.has_failed(reader.system):
                    continue
                job = ReplayJob(
                    endpoint=servers[reader.server].endpoint,
                    stream="w2",
                    count=count,
                    mode=reader.mode,
                    batch=reader.batch,
                    consumer=f"{reader.mode}-{turn}",
                )
                with sink.trying(reader.system):
                    result = run(job)
                    for workload in reader.workloads:
                        sink.add("w2", workload, reader.system, result)


_ANSWERED: Final = {
    "nats": ("nats", False),
    "nats, acks answered": ("nats", True),
    "nats, sync always, acks answered": ("nats, sync always", True),
}
"""Servers that answer an acknowledgement only where that is asked for: who is run beside others."""


def work(settings: Settings, sink: Sink) -> None:
    """Work queues: every server is filled first, then each round works all of it off."""
    count = 5_000 if settings.quick else 100_000
    names = (RILLNODE, "redis, AOF always", "redis, AOF everysec", "nats", "nats, sync always")
    with ExitStack() as stack:
        servers: dict[str, Server] = {}
        for name in available(names, settings, sink):
            with sink.trying(name):
                server = stack.enter_context(_server(name, settings))
                job = FillJob(
                    endpoint=server.endpoint, stream="work", message_bytes=_KIB, count=count
                )
                run(job)
                servers[name] = server
        systems = {name: (name, False) for name in names[:3]} | _ANSWERED
        for turn in range(settings.rounds):
            for workers, in_flight in ((1, 1_000), (4, 250), (4, 16)):
                for system, (name, confirmed) in systems.items():
                    if name not in servers or sink.has_failed(system):
                        continue
                    with sink.trying(system):
                        result = run(
                            WorkJob(
                                endpoint=servers[name].endpoint,
                                stream="work",
                                count=count,
                                workers=workers,
                                in_flight=in_flight,
                                queue=f"q-{workers}-{in_flight}-{turn}-{confirmed:d}",
                                confirmed=confirmed,
                            )
                        )
                        workload = f"{workers} workers, {in_flight} in flight"
                        sink.add("work", workload, system, result)


_IDLE_SECONDS: Final = 125.0
"""A node gives up an idle stream's actor after one to two minutes."""


def many_streams(settings: Settings, sink: Sink) -> None:
    """W4: memory is the growth of the server's resident memory."""
    for count in (1_000, 10_000) if settings.quick else (10_000, 100_000):
        for name in available((RILLNODE, "redis, AOF always", "nats"), settings, sink):
            if sink.has_failed(name):
                continue
            with sink.trying(name), _server(name, settings) as server:
                job = StreamsJob(endpoint=server.endpoint, count=count, message_bytes=100)
                with LoadGenerator(job) as generator:
                    generator.phase()
                    memory, disk = server.process.rss_bytes(), disk_bytes(server.data)
                    result = generator.phase()
                    created = result.pop("streams", count)
                    result["created_memory_bytes"] = server.process.rss_bytes() - memory
                    result |= generator.phase() | generator.phase()
                    result["used_memory_bytes"] = server.process.rss_bytes() - memory
                    if not settings.quick:
                        time.sleep(_IDLE_SECONDS if name == RILLNODE else 1)
                        result["idle_memory_bytes"] = server.process.rss_bytes() - memory
                    result["disk_bytes"] = disk_bytes(server.data) - disk
                for metric in result:
                    if metric.endswith("_bytes"):
                        result[metric] /= created
                if created < count:
                    sink.note(f"w4: {name} made {created:,.0f} streams instead of {count:,}")
                sink.add("w4", f"{count:,} streams", name, result)


def idle_links(settings: Settings, sink: Sink) -> None:
    """W5: memory is the growth of the server's resident memory from the first connection on."""
    names = (RILLNODE, "redis, AOF always", "redis, AOF everysec, TLS", "nats", "nats, TLS")
    for count in (200, 1_000) if settings.quick else (1_000, 5_000):
        for name in available(names, settings, sink):
            if sink.has_failed(name):
                continue
            with sink.trying(name), _server(name, settings) as server:
                job = LinksJob(endpoint=server.endpoint, count=count)
                with LoadGenerator(job) as generator:
                    generator.phase()
                    memory = server.process.rss_bytes()
                    result = generator.phase()
                    time.sleep(1)  # the last subscriptions are on their way
                    result["memory_bytes"] = (server.process.rss_bytes() - memory) / count
                sink.add("w5", f"{count:,} connections", name, result)


def crash(settings: Settings, sink: Sink) -> None:
    """W6: kill the node under full load, start it on the same directory, look for all confirmed."""
    home = settings.directory / "w6"
    home.mkdir()
    files: list[str] = []
    total = start = 0
    chance = random.Random()
    for turn in range(settings.kills + 1):
        with SERVERS[RILLNODE](home) as server:
            if turn:
                last = turn == settings.kills
                job = CheckJob(
                    endpoint=server.endpoint,
                    stream="w6",
                    message_bytes=_KIB,
                    start=0 if last else start,
                    confirms_files=files if last else files[-1:],
                )
                result = run(job)
                start = int(result["next_index"])
                sink.add("w6", f"{total:,} confirmed", f"after {turn} kills", result)
            if turn < settings.kills:
                files.append(str(home / f"confirms-{turn}"))
                total += _kill_under_load(server, files[-1], turn, chance.uniform(0.5, 2.0))
    shutil.rmtree(home)


def _kill_under_load(server: Server, confirms_file: str, turn: int, seconds: float) -> int:
    """Return how many messages the node had confirmed when it was killed."""
    job = CrashJob(
        endpoint=server.endpoint,
        stream="w6",
        message_bytes=_KIB,
        window=_KIB,
        first=turn << 32,
        confirms_file=confirms_file,
    )
    with LoadGenerator(job) as generator:
        generator.phase()
        time.sleep(seconds)
        server.process.kill()
        return int(generator.phase()["confirmed"])


def available(
    names: Iterable[str],
    settings: Settings,
    sink: Sink,
    why_not: Callable[[str], str] | None = None,
) -> list[str]:
    """The systems that were asked for and can be started here.

    Args:
        names: all systems.
        settings: the run's.
        sink: gets a note of each that cannot.
        why_not: tells why one cannot, "" where it can; None for the peers of `servers`.
    """
    found: list[str] = []
    for name in names:
        if settings.systems and not any(part in name for part in settings.systems):
            continue
        reason = (why_not or missing)(name)
        if reason:
            sink.note(f"without {name}: {reason}")
        else:
            found.append(name)
    return found


def in_turn(systems: Sequence[T], turn: int) -> list[T]:
    """The systems, another one first in each round."""
    first = turn % max(1, len(systems))
    return [*systems[first:], *systems[:first]]


@contextmanager
def empty(
    name: str,
    settings: Settings,
    servers: Mapping[str, Callable[[Path], AbstractContextManager[T]]],
) -> Generator[T]:
    """A server with an empty directory, which is removed afterwards."""
    directory = settings.directory / name.replace(", ", "-").replace(" ", "-")
    directory.mkdir()
    try:
        with servers[name](directory) as server:
            yield server
    finally:
        shutil.rmtree(directory)


def _server(name: str, settings: Settings) -> AbstractContextManager[Server]:
    return empty(name, settings, SERVERS)
