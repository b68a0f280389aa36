"""`rillnode bench`: quick figures of this machine, over an encrypted link to a node of its own."""

import argparse
import os
import signal
import sys
import tempfile
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from rillnode.codecs.errors import TransportError
from rillnode.node.cli.parsing import Commands, UsageError, add_verb, positive_number, seconds
from rillnode.node.cli.terminal import Terminal

if TYPE_CHECKING:
    import asyncio

    from rillnode.node.client import Client, Stream

_WINDOWS: Final = (1, 64, 1_024)
_START_SECONDS_MAX: Final = 60.0
_STREAM: Final = "bench"
_MEGA: Final = 1e6


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_verb(
        commands, "bench", bench,
        summary="measure what this machine can do, in a node of its own",
        text="Starts a node on a free port of loopback, pushes to it over its encrypted link with\n"
        "1, 64 and 1,024 entries unconfirmed at a time, each confirmed when it is synced to\n"
        "disk, and reads all of them back. The node's data is removed afterwards.",
        examples=["rillnode bench", "rillnode bench --dir /mnt/data --seconds 10 --size 200"],
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=seconds, default=3.0, metavar="S", help="per figure (default: 3)"
    )
    parser.add_argument(
        "--size", type=positive_number, default=1_024, metavar="BYTES",
        help="of an entry (default: 1024)",
    )  # fmt: skip
    parser.add_argument(
        "--dir", type=Path, dest="directory", default=Path(), metavar="DIR",
        help="an existing directory on the disk to measure (default: here)",
    )  # fmt: skip


async def bench(args: argparse.Namespace, terminal: Terminal) -> None:
    """Measure."""
    if not args.directory.is_dir():
        raise UsageError(args.command, f"--dir {args.directory}: no such directory")
    rows: list[dict[str, Any]] = []
    # As Ctrl-C does: else the node would run on, and its data stay.
    signal.signal(signal.SIGTERM, lambda _, __: signal.raise_signal(signal.SIGINT))
    disk = args.directory.resolve()  # the node runs in a directory of its own
    with tempfile.TemporaryDirectory(prefix="rillnode-bench-", dir=disk) as home:
        async with _node(Path(home)) as client:
            stream = await client.stream(_STREAM)
            # What was never run is slow once: code is loaded, files are made.
            await _push(stream, 64, min(0.5, args.seconds), args.size)
            for window in _WINDOWS:
                terminal.message(f"pushing, {window} unconfirmed, {args.seconds:g} s")
                rows.append(await _push(stream, window, args.seconds, args.size))
            terminal.message("reading back")
            rows.append(await _replay(client, args.seconds, args.size))
    terminal.rows(rows, empty="")


async def _push(stream: "Stream", window: int, duration: float, size: int) -> dict[str, Any]:
    payload = os.urandom(size)
    unconfirmed: deque[tuple[asyncio.Future[int], float]] = deque()
    waited: list[float] = []
    begun = now = perf_counter()
    while now - begun < duration or unconfirmed:
        if now - begun < duration:
            while len(unconfirmed) < window:
                unconfirmed.append((stream.push_nowait(payload), now))
        await unconfirmed[0][0]
        now = perf_counter()
        while unconfirmed and unconfirmed[0][0].done():
            confirm, sent = unconfirmed.popleft()
            confirm.result()
            waited.append(now - sent)
    return _row(f"push, {window} unconfirmed", len(waited), now - begun, size, waited)


async def _replay(client: "Client", duration: float, size: int) -> dict[str, Any]:
    """Read from the start, until the end or for this long."""
    (partition,) = (await client.describe(_STREAM)).partitions
    stream = await client.stream(_STREAM)
    count = 0
    begun = perf_counter()
    async for batch in stream.batches(start="start"):
        count += len(batch)
        if count >= partition.next_index or perf_counter() - begun > duration:
            break
    return _row("read", count, perf_counter() - begun, size, [])


def _row(case: str, count: int, elapsed: float, size: int, waited: list[float]) -> dict[str, Any]:
    import statistics

    per_second = count / elapsed
    percentiles = statistics.quantiles(waited, n=100) if len(waited) > 1 else None
    return {
        "case": case,
        "entries_per_second": round(per_second),
        "megabytes_per_second": round(per_second * size / _MEGA, 1),
        "p50_ms": percentiles and round(1_000 * percentiles[49], 3),
        "p99_ms": percentiles and round(1_000 * percentiles[98], 3),
    }


@asynccontextmanager
async def _node(home: Path) -> "AsyncGenerator[Client]":
    """A node in a process of its own, and a client of it; the process is ended afterwards."""
    import asyncio

    import msgspec

    from rillnode.codecs.keys import Identity
    from rillnode.node.client import connect

    ports = home / "ports.json"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "rillnode", "run", "--dev", "-q", "--data-dir", str(home / "data"),
        "--ports-file", str(ports), "--set", "noise.listen=127.0.0.1:0",
        "--set", "http.enabled=false", "--set", "log.level=warning",
        cwd=home, stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = perf_counter() + _START_SECONDS_MAX
        while not ports.exists():
            if process.returncode is not None or perf_counter() > deadline:
                raise TransportError("bench.node", "the node to be measured did not start")
            await asyncio.sleep(0.05)
        bound = msgspec.json.decode(ports.read_bytes(), type=dict[str, str])
        async with await connect(
            f"noise://{bound['noise']}",
            identity=Identity.generate(),
            node_identity=bound["identity"],
        ) as client:
            yield client
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()
