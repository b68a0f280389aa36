"""Growth, shown by counting: what an entry costs the servers and the nodes of a shared log.

    python -m benchmarks.jetstream_growth [--nodes 1 2 4 8] [--servers 3 5] [--entries N]
        [--scattered]

The same entries go to the same streams in each run, by clients that are divided among 1, 2, 4 and
8 nodes, on 3 and on 5 servers that keep each frame three times. A few cores cannot show rates; so
what is done is counted: bytes on the servers' disks, operations that nodes carry out on their
views, and processor time. Clients are divided by the shards of their streams; with `--scattered` by
chance, so that each node needs many views.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.generator import LoadGenerator
from benchmarks.jetstream import start_node
from benchmarks.jobs import DividedJob
from benchmarks.nats_servers import NatsServers, start_nats_servers
from benchmarks.processes import cpu_seconds, disk_bytes
from benchmarks.rillnode_load import connect_to
from benchmarks.servers import Server
from rillnode.actors.jetstream.log import JetStreamLog
from rillnode.actors.jetstream.options import JetStreamOptions
from rillnode.actors.log.shared.frames import decode_frame
from rillnode.actors.log.shared.placement import Placement

_ROOT: Final = Path(__file__).parent.parent
_REPLICAS: Final = 3
_SHARDS: Final = 16
_STREAMS: Final = 64
_READ_BYTES: Final = 4_194_304
_CAUGHT_UP_SECONDS: Final = 60.0

Sequences = Mapping[int, int]
"""By shard, the last frame that a view has carried out."""


@dataclass(frozen=True, slots=True)
class Growth:
    """The cost of the same entries to so many servers and nodes; all but three fields for one.

    Attributes:
        views_max: shards that the busiest node has.
        servers_bytes: on the disks of all servers.
        server_bytes_max: on that of the fullest one.
        node_bytes_max: on that of the fullest node.
        applied: how often an operation is carried out, by all nodes.
        applied_max: the same by the busiest node.
        nodes_cpu_us: processor time of all nodes.
        node_cpu_us_max: that of the busiest one.
        servers_cpu_us: that of all servers.
    """

    servers: int
    nodes: int
    views_max: int
    servers_bytes: float
    server_bytes_max: float
    node_bytes_max: float
    applied: float
    applied_max: float
    nodes_cpu_us: float
    node_cpu_us_max: float
    servers_cpu_us: float


def measure(home: Path, servers: int, nodes: int, entries: int, *, scattered: bool) -> Growth:
    """Push the entries, and count."""
    with start_nats_servers(home, servers) as running, ExitStack() as stack:
        started = [
            stack.enter_context(start_node(home, number, running, _REPLICAS))
            for number in range(nodes)
        ]
        jobs = [
            DividedJob(
                endpoint=node.endpoint,
                streams=_streams_of(number, nodes, scattered=scattered),
                count=entries // _STREAMS,
                message_bytes=1_024,
            )
            for number, node in enumerate(started)
        ]
        loads = [stack.enter_context(LoadGenerator(job)) for job in jobs]
        for load in loads:
            load.phase()
        before = _Count(running, started)
        with ThreadPoolExecutor(nodes) as threads:
            list(threads.map(LoadGenerator.phase, loads))
        after = _Count(running, started)
        for node in started:
            node.process.stop()  # it writes what its views still have in memory
        bytes_max = max(disk_bytes(node.data) for node in started)
        return _growth(running, before, after, bytes_max, entries // _STREAMS * _STREAMS)


def _streams_of(node: int, nodes: int, *, scattered: bool) -> list[str]:
    names = [f"growth-{number}" for number in range(_STREAMS)]
    if scattered:
        return names[node::nodes]
    placement = Placement(_SHARDS)
    return [name for name in names if placement.of_stream(name) % nodes == node]


class _Count:
    """What can be counted at one moment, when all nodes have carried out what there is."""

    def __init__(self, servers: NatsServers, nodes: Sequence[Server]) -> None:
        self.applied = [asyncio.run(_applied(node)) for node in nodes]
        self.servers_bytes = [disk_bytes(one) for one in servers.directories]
        self.servers_cpu = servers.cpu_seconds()
        self.nodes_cpu = [cpu_seconds(node.process.pid) for node in nodes]


async def _applied(node: Server) -> Sequences:
    deadline = time.monotonic() + _CAUGHT_UP_SECONDS
    async with await connect_to(node.endpoint) as client:
        while True:
            views: list[dict[str, Any]] = (await client.status())["store"]["log"]["views"]
            if not any(view["behind"] for view in views):
                return {view["shard"]: view["sequence"] for view in views}
            if time.monotonic() > deadline:
                raise RuntimeError(f"a node does not catch up: {views}")
            await asyncio.sleep(0.1)


def _growth(
    servers: NatsServers, before: _Count, after: _Count, node_bytes: int, entries: int
) -> Growth:
    last = Counter[int]()
    for views in after.applied:
        for shard, sequence in views.items():
            last[shard] = max(last[shard], sequence)
    operations = asyncio.run(_operations(servers, last))
    by_node = [
        sum(
            sum(operations[shard][views_before.get(shard, 0) : sequence])
            for shard, sequence in views.items()
        )
        for views_before, views in zip(before.applied, after.applied, strict=True)
    ]
    begun = {shard: max(views.get(shard, 0) for views in before.applied) for shard in operations}
    written = sum(sum(operations[shard][begun[shard] :]) for shard in operations)
    servers_bytes = _grown(before.servers_bytes, after.servers_bytes)
    nodes_cpu = _grown(before.nodes_cpu, after.nodes_cpu)
    return Growth(
        servers=len(servers_bytes),
        nodes=len(by_node),
        views_max=max(map(len, after.applied)),
        servers_bytes=sum(servers_bytes) / entries,
        server_bytes_max=max(servers_bytes) / entries,
        node_bytes_max=node_bytes / entries,
        applied=sum(by_node) / written,
        applied_max=max(by_node) / written,
        nodes_cpu_us=sum(nodes_cpu) / entries * 1e6,
        node_cpu_us_max=max(nodes_cpu) / entries * 1e6,
        servers_cpu_us=(after.servers_cpu - before.servers_cpu) / entries * 1e6,
    )


def _grown(before: Sequence[float], after: Sequence[float]) -> list[float]:
    return [b - a for a, b in zip(before, after, strict=True)]


async def _operations(servers: NatsServers, last: Sequences) -> dict[int, list[int]]:
    """By shard, how many operations each frame of its log has."""
    log = JetStreamLog(
        JetStreamOptions(servers=tuple(servers.urls), monitors=tuple(servers.monitors))
    )
    await log.open(_SHARDS, lambda shard, sequence: None)
    try:
        found: dict[int, list[int]] = {}
        for shard, end in last.items():
            counts = found[shard] = list[int]()
            while len(counts) < end:
                frames = await log.read(shard, len(counts), _READ_BYTES)
                counts += [len(decode_frame(frame.data).operations) for frame in frames]
            del counts[end:]  # what was written since nobody has counted
        return found
    finally:
        await log.close()


def show(figures: Sequence[Growth], console: Console) -> None:
    """Print a table, or JSON lines where nobody looks."""
    if not console.is_terminal:
        for one in figures:
            print(json.dumps(asdict(one)), flush=True)
        return
    names = list(asdict(figures[0]))
    table = Table(*(name.replace("_", " ") for name in names))
    for one in figures:
        values = asdict(one).values()
        table.add_row(*(f"{v:,.2f}" if isinstance(v, float) else str(v) for v in values))
    console.print(table)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.jetstream_growth", description=__doc__
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4, 8], metavar="N")
    parser.add_argument("--servers", type=int, nargs="+", default=[3, 5], metavar="N")
    parser.add_argument("--entries", type=int, default=64_000, metavar="N")
    parser.add_argument("--scattered", action="store_true", help="clients are anywhere")
    parser.add_argument("--dir", type=Path, default=_ROOT / "build", metavar="DIR")
    arguments = parser.parse_args()
    arguments.dir.mkdir(exist_ok=True)
    figures: list[Growth] = []
    for servers in arguments.servers:
        for nodes in arguments.nodes:
            with tempfile.TemporaryDirectory(prefix="growth-", dir=arguments.dir) as home:
                figures.append(
                    measure(
                        Path(home), servers, nodes, arguments.entries, scattered=arguments.scattered
                    )
                )
    show(figures, Console())


if __name__ == "__main__":
    main()
