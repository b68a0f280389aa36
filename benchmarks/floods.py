"""Floods: what thousands of useless connections to a listener do to the latency of good clients.

    python -m benchmarks.floods [--connections N] [--requests N] [LISTENER ...]

One good client of each kind asks a node one request at a time, first alone and then while
`benchmarks.flooding` floods that listener. Every answer is checked. Flood and clients share one
process, so a part of what is seen under the flood is the flood's own work; compare ratios.
"""

import argparse
import asyncio
import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.flooding import Flood, listeners
from benchmarks.processes import Process
from benchmarks.served import CLIENTS, Ports, Request, make_streams

_WARM_UP: Final = 50


@dataclass(frozen=True, slots=True)
class Figure:
    """One listener: seconds of each request before and during its flood, and bytes it cost."""

    listener: str
    before: list[float]
    during: list[float]
    bytes_grown: int
    ended: int


@contextmanager
def start_node(directory: Path) -> Generator[tuple[Ports, Process]]:
    """Run a node with every listener; yields its addresses and process."""
    ports_file = directory / "ports.json"
    command = [sys.executable, "-m", "rillnode", "run", "--dev", "--data-dir", str(directory)]
    for name in listeners():
        command += ["--set", f"{name}.listen=127.0.0.1:0"]
    with Process([*command, "--ports-file", str(ports_file)], directory / "node.log") as process:
        while not ports_file.exists():
            process.check_starting("ports file")
        yield json.loads(ports_file.read_text()), process


async def timed(request: Request, count: int) -> list[float]:
    """Seconds of each of `count` requests, one after the other."""
    seconds: list[float] = []
    for _ in range(count):
        begin = time.perf_counter()
        await request()
        seconds.append(time.perf_counter() - begin)
    return seconds


async def measure(
    listener: str, ports: Ports, process: Process, connections: int, count: int
) -> Figure:
    """Flood one listener."""
    async with CLIENTS[listener](ports) as request:
        await timed(request, _WARM_UP)
        before = await timed(request, count)
        memory = process.rss_bytes()
        async with Flood(listener, ports[listener], connections) as flood:
            during = await timed(request, count)
            grown = process.rss_bytes() - memory
        return Figure(listener, before, during, grown, flood.counters["ended"])


async def measure_all(
    names: list[str], ports: Ports, process: Process, connections: int, count: int
) -> list[Figure]:
    """Flood one listener after the other."""
    await make_streams(ports)
    return [await measure(name, ports, process, connections, count) for name in names]


def show(figures: list[Figure], console: Console) -> None:
    """Print a table, or JSON lines where nobody looks."""
    table = Table("listener", "p50 before", "p50 in flood", "p99 before", "p99 in flood", "memory")
    for one in figures:
        middle = [statistics.median(seconds) for seconds in (one.before, one.during)]
        late = [statistics.quantiles(s, n=100)[98] for s in (one.before, one.during)]
        if not console.is_terminal:
            document = {
                "listener": one.listener,
                "p50_seconds": middle,
                "p50_ratio": middle[1] / middle[0],
                "p99_seconds": late,
                "p99_ratio": late[1] / late[0],
                "bytes_grown": one.bytes_grown,
                "ended": one.ended,
            }
            console.out(json.dumps(document), highlight=False)
            continue
        table.add_row(
            one.listener,
            f"{middle[0] * 1e3:.2f} ms",
            f"{middle[1] * 1e3:.2f} ms ({middle[1] / middle[0]:.1f}x)",
            f"{late[0] * 1e3:.2f} ms",
            f"{late[1] * 1e3:.2f} ms ({late[1] / late[0]:.1f}x)",
            f"{one.bytes_grown / 1e6:+.1f} MB",
        )
    if console.is_terminal:
        console.print(table)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.floods", description=__doc__)
    parser.add_argument("listeners", nargs="*", metavar="LISTENER", help="default: all")
    parser.add_argument("--connections", type=int, default=2_000, metavar="N")
    parser.add_argument("--requests", type=int, default=1_000, metavar="N")
    arguments = parser.parse_args()
    for name in arguments.listeners:
        if name not in CLIENTS:
            parser.error(f"no listener {name!r}: there are {' '.join(CLIENTS)}")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    names = arguments.listeners or list(listeners())
    with (
        tempfile.TemporaryDirectory(prefix="floods-") as directory,
        start_node(Path(directory)) as (ports, process),
    ):
        figures = asyncio.run(
            measure_all(names, ports, process, arguments.connections, arguments.requests)
        )
    show(figures, Console())


if __name__ == "__main__":
    main()
