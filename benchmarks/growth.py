"""Growth of one node: what a push costs with ever more streams, links and entries.

    python -m benchmarks.growth [--parts streams links entries] [--sizes N ...] [--plot FILE]

Each part has a node of its own, which grows from size to size: active streams, each of which has
been pushed to; links, each of which follows a stream and pushes; entries of 100 bytes that are kept
in 16 streams. Entries are written into the node's store, but for the last 3 million, which are
pushed. Retention runs all the time: every stream has a limit, and streams beside those with all the
entries are trimmed as they grow. At each size the same number of messages is pushed, 64 at a time,
to the streams or over the links in random order; then the node is killed amid
pushes, and the time is taken until it is ready again, which is when it has written its ports.
Everything that was confirmed has to be there then. A hundred million entries need 15 GB of disk.

On a busy machine compare processor times, of a push and of a start; the rest is told as well.
"""

import argparse
import asyncio
import json
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks import machine
from benchmarks.jobs import Endpoint
from benchmarks.measure import payloads
from benchmarks.processes import cpu_seconds, disk_bytes
from benchmarks.rillnode_load import connect_to, follow_idle
from benchmarks.servers import Server, make_home, start_rillnode
from benchmarks.store import Counter
from rillnode.actors.log import Append, PutStream, Retention, StreamRecord, log_id
from rillnode.actors.log.rocks.store import RocksLogStore
from rillnode.codecs.entries import pack_body
from rillnode.codecs.errors import RillnodeError
from rillnode.node.client import Client, Stream

_ROOT: Final = Path(__file__).parent.parent
_BYTES: Final = 100
_WINDOW: Final = 64
_WARM_UP: Final = 2_000
_TOGETHER: Final = 1_000
"""Streams opened at one time."""

_LINKS_TOGETHER: Final = 20
"""Links made at one time: few, as on a busy machine each takes long."""

_KEPT: Final = 16
"""Streams that keep all entries."""

_TRIMMED: Final = 4
"""Streams that are trimmed."""

_LAST: Final = 3_000_000
"""Entries pushed to all of them before pushes are timed: more than the store's log holds."""

_BLOCK: Final = 500
"""Entries of a block, where a store is filled."""

_UNDER_WAY: Final = 200
"""Blocks."""

_LIMITS: Final = Retention(seconds=864_000.0)

_RETENTION: Final = """
[[stream]]
name = "trimmed-*"
retain_entries_max = 100000

[[stream]]
name = "*"
retain_seconds = 864000.0
"""

_AMID_SECONDS: Final = 1.0
"""Pushes go on for so long before the kill."""

_LOOKED_AT: Final = 1_000
"""Streams that are looked at after a kill, at most."""

SIZES: Final = {
    "streams": (1, 10, 100, 1_000, 10_000, 30_000, 100_000),
    "links": (1, 10, 100, 1_000, 5_000),
    "entries": (1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000),
}

QUICK: Final = {"streams": (1, 100), "links": (1, 10), "entries": (1_000, 5_000)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What a node does at one size.

    Attributes:
        part: what grows.
        cpu_us: processor time of the node for a push, all threads.
        p50_ms, p99_ms: from the call to the confirm.
        memory_bytes: resident.
        disk_bytes: below its directory of data.
        start_seconds: from the start of the process after a kill to its being ready.
        start_cpu_seconds: the processor time of that.
    """

    part: str
    size: int
    cpu_us: float
    p50_ms: float
    p99_ms: float
    memory_bytes: int
    disk_bytes: int
    start_seconds: float
    start_cpu_seconds: float


class Growing:
    """A node that grows from size to size, and the client that makes it.

    Args:
        part: what grows.
        home: where the node is.
        pushes: how many are timed at each size, at least.
    """

    def __init__(self, part: str, home: Path, pushes: int) -> None:
        self._part = part
        self._home = home
        self._pushes = pushes
        self._size = 0
        self._messages = cycle(payloads(_BYTES))
        self._now = time.time_ns() // 1_000_000
        self._records: list[StreamRecord] = []
        self._clients: list[Client] = []
        self._following: list[asyncio.Task[Any]] = []
        self._confirmed: dict[str, int] = {}

    def run(self, sizes: Sequence[int]) -> Iterator[Point]:
        """Let it grow, and tell what it does at each size.

        Raises:
            RuntimeError: something confirmed is lost after a kill.
        """
        make_home(self._home, _RETENTION)
        for size in sizes:
            if self._part == "entries":
                self._fill(size - self._size)
            self._size = size
            with start_rillnode(self._home) as server:
                found = asyncio.run(self._grown(server))
            begun = time.monotonic()
            with start_rillnode(self._home) as server:
                yield Point(
                    part=self._part,
                    size=size,
                    **found,
                    start_seconds=time.monotonic() - begun,
                    start_cpu_seconds=cpu_seconds(server.process.pid),
                )
                asyncio.run(self._check(server.endpoint))

    async def _grown(self, server: Server) -> dict[str, Any]:
        """Let the node grow to its size, time pushes, and kill it."""
        client = await self._client(server.endpoint)
        match self._part:
            case "streams":
                streams = await self._streams(client)
            case "links":
                streams = await self._links(client, server.endpoint)
            case _:
                streams = await self._entries(client)
        found = await self._timed(server, streams)
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)
        for one in self._clients:
            with suppress(RillnodeError):
                await one.close()
        self._following, self._clients = [], []
        return found

    async def _check(self, endpoint: Endpoint) -> None:
        """See that what was confirmed is there."""
        async with await connect_to(endpoint) as client:
            for name, index in islice(self._confirmed.items(), _LOOKED_AT):
                (partition,) = (await client.describe(name)).partitions
                if partition.next_index <= index:
                    raise RuntimeError(f"{name}: entry {index} was confirmed, and is lost")

    def _fill(self, count: int) -> None:
        """Write entries into the store of the node, which does not run."""
        counter, body = Counter(), pack_body(list(islice(self._messages, _BLOCK)))
        store = RocksLogStore(
            self._home / "node" / "data" / "store", complete=counter, on_health=lambda _: None
        )
        store.open()
        if not self._size:
            for number in range(_KEPT):
                record = StreamRecord(
                    name=f"kept-{number}", owner="", created_at=1, retention=_LIMITS
                )
                self._records.append(record)
                store.submit(PutStream(record=record))
            counter.wait(_KEPT)
        begun = counter.count
        for number in range(count // _BLOCK):
            log = log_id(self._records[number % _KEPT].id, 0)
            store.submit(Append(log=log, received_at=self._now, count=_BLOCK, body=body))
            counter.wait(begun + number - _UNDER_WAY)
        counter.wait(begun + count // _BLOCK)
        store.close()

    async def _client(self, endpoint: Endpoint) -> Client:
        self._clients.append(await connect_to(endpoint, reconnect=False))
        return self._clients[-1]

    async def _streams(self, client: Client) -> list[Stream]:
        """All streams, each of which is pushed to, so that it has an actor."""
        streams: list[Stream] = []
        for start in range(0, self._size, _TOGETHER):
            numbers = range(start, min(start + _TOGETHER, self._size))
            opened = await client.open_streams([f"stream-{number}" for number in numbers])
            await self._push(opened)
            streams += opened
        return streams

    async def _links(self, client: Client, endpoint: Endpoint) -> list[Stream]:
        """A stream of each link, which follows another one, in which nothing happens."""
        streams = [await client.stream("link-0")]
        while (made := len(streams)) < self._size:
            some = range(made, min(made + _LINKS_TOGETHER, self._size))
            new = await asyncio.gather(*(self._client(endpoint) for _ in some))
            self._following += await asyncio.gather(*map(follow_idle, new))
            names = [f"link-{number % _KEPT}" for number in some]
            streams += await asyncio.gather(*map(Client.stream, new, names))
        return streams

    async def _entries(self, client: Client) -> list[Stream]:
        """The streams, when so much was pushed to them that a log to be replayed is full."""
        kept = await client.open_streams([f"kept-{number}" for number in range(_KEPT)])
        trimmed = await client.open_streams([f"trimmed-{number}" for number in range(_TRIMMED)])
        streams = [*kept, *trimmed]
        count = min(_LAST, self._size // 4) // len(streams)
        await asyncio.gather(*(one.push_many(islice(self._messages, count)) for one in streams))
        return streams

    async def _timed(self, server: Server, streams: list[Stream]) -> dict[str, Any]:
        """Time pushes in random order; then kill the node amid more of them."""
        pid = server.process.pid
        chance = random.Random(1)
        await self._push(chance.choices(streams, k=_WARM_UP))
        chance.shuffle(streams)
        count = max(self._pushes, len(streams))
        begun = cpu_seconds(pid)
        latencies = sorted(await self._push(islice(cycle(streams), count)))
        cpu = cpu_seconds(pid) - begun
        memory, disk = server.process.rss_bytes(), disk_bytes(server.data)
        pushing = asyncio.create_task(self._push(cycle(streams)))
        await asyncio.sleep(_AMID_SECONDS)
        server.process.kill()
        with suppress(RillnodeError):
            await pushing
        return {
            "cpu_us": cpu / count * 1e6,
            "p50_ms": latencies[count // 2] * 1e3,
            "p99_ms": latencies[count * 99 // 100] * 1e3,
            "memory_bytes": memory,
            "disk_bytes": disk,
        }

    async def _push(self, streams: Iterable[Stream]) -> list[float]:
        """Push a message to one stream after the other; return what each took, in seconds.

        They go in groups, as large at every size; so what is measured is not how they fall apart.

        Raises:
            RillnodeError: the link was lost.
        """
        latencies: list[float] = []
        following = iter(streams)
        while group := list(islice(following, _WINDOW)):
            sent = time.perf_counter()
            pushed = [one.push_nowait(next(self._messages)) for one in group]
            try:
                for stream, confirm in zip(group, pushed, strict=True):
                    index = await confirm
                    latencies.append(time.perf_counter() - sent)
                    self._confirmed[stream.name] = max(self._confirmed.get(stream.name, 0), index)
            finally:
                await asyncio.gather(*pushed, return_exceptions=True)
        return latencies


# What is shown -------------------------------------------------------------------------------


Value = Callable[[Point], float]

PANELS: Final[dict[str, Value]] = {
    "processor time of a push, us": lambda point: point.cpu_us,
    "p99 of a push, ms": lambda point: point.p99_ms,
    "memory, MB": lambda point: point.memory_bytes / 1e6,
    "disk, MB": lambda point: point.disk_bytes / 1e6,
    "processor time of a start, s": lambda point: point.start_cpu_seconds,
    "start after a kill, s": lambda point: point.start_seconds,
}
"""What is drawn and shown of each size, by what it is and its unit."""


def draw(points: Sequence[Point], file: Path) -> None:
    """Draw a panel for each value of each part."""
    from matplotlib import rc_context  # here, as only a drawing needs it
    from matplotlib.figure import Figure

    parts = list(dict.fromkeys(point.part for point in points))
    settings = {"svg.fonttype": "none", "svg.hashsalt": "growth", "font.size": 8}
    with rc_context(settings):
        figure = Figure(figsize=(3.2 * len(parts), 1.9 * len(PANELS)), layout="constrained")
        grid = figure.subplots(len(PANELS), len(parts), squeeze=False)
        for row, (title, value) in zip(grid, PANELS.items(), strict=True):
            for axes, part in zip(row, parts, strict=True):
                some = [point for point in points if point.part == part]
                axes.plot([point.size for point in some], list(map(value, some)), marker="o")
                axes.set_xscale("log")
                axes.minorticks_off()
                axes.set_ylim(bottom=0.0)
                axes.set(title=title, xlabel=part)
                axes.grid(alpha=0.3)
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})


def show(points: Sequence[Point], console: Console) -> None:
    """Print a table."""
    table = Table("part", "size")
    for title in PANELS:
        table.add_column(title, justify="right")
    for point in points:
        values = (f"{value(point):,.3g}" for value in PANELS.values())
        table.add_row(point.part, f"{point.size:,}", *values)
    console.print(table)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth")
    parser.add_argument("--parts", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N", help="of one part")
    parser.add_argument("--pushes", type=int, default=30_000, metavar="N", help="timed, each size")
    parser.add_argument("--quick", action="store_true", help="small and short: does it work?")
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON; a part that is measured "
                        "anew replaces what the file has of it")  # fmt: skip
    parser.add_argument("--plot", type=Path, metavar="FILE", help="SVG, of all that the file has")
    parser.add_argument("--dir", type=Path, default=_ROOT / "build", metavar="DIR")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    arguments.dir.mkdir(exist_ok=True)
    output: Path = arguments.output or arguments.dir / "growth.json"
    sizes = QUICK if arguments.quick else SIZES
    for part in arguments.parts:
        with tempfile.TemporaryDirectory(prefix="growth-", dir=arguments.dir) as home:
            growing = Growing(part, Path(home), 500 if arguments.quick else arguments.pushes)
            measured: list[Point] = []
            others = [point for point in _read(output) if point.part != part]
            for point in growing.run(arguments.sizes or sizes[part]):
                print(json.dumps(asdict(point)), file=sys.stderr, flush=True)
                measured.append(point)
                _write(output, others + measured, arguments.dir)
    points = _read(output)
    if arguments.plot:
        draw(points, arguments.plot)
    show(points, Console())


def _read(file: Path) -> list[Point]:
    if not file.exists():
        return []
    return [Point(**point) for point in json.loads(file.read_text())["points"]]


def _write(file: Path, points: Sequence[Point], directory: Path) -> None:
    document = {
        "machine": machine.describe(directory),
        "points": [asdict(point) for point in points],
    }
    file.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
