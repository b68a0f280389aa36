"""Turns: how long a node's loop is kept busy in one go, by class of actor and by callback.

    python -m benchmarks.turns [--streams N] [--links N] [--subscriptions N] [--store DIR]

A node with many streams, links and subscriptions is started, loaded in every way phase by phase,
given another configuration, and stopped. All streams have limits, so that retention has work; each
link has a grant of its own. The node runs in this process, where every turn is timed; its clients
are another process. Judge by processor time: the time on the clock holds what the machine did
beside, and so does the longest gap of a loop that does nothing, which is measured first.
"""

import argparse
import asyncio
import json
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.generator import LoadGenerator
from benchmarks.jobs import Endpoint, TurnsJob
from benchmarks.store import Counter
from benchmarks.turns_load import PHASES, identity, stream_name
from benchmarks.turns_probe import STOP, Probe, Work
from rillnode.actors.core.streams.stream import StreamActor
from rillnode.actors.log import Append, PutStream, Retention, StreamRecord, log_id
from rillnode.actors.log.rocks.store import RocksLogStore
from rillnode.codecs.entries import pack_body
from rillnode.node.cli import process
from rillnode.node.config import Config, load_config
from rillnode.node.runtime import Node

LIMIT_SECONDS: Final = 0.005
"""What no turn may take."""

_IDLE_SECONDS: Final = 10.0
"""Time after which a stream's actor is idle: so that a run need not wait for minutes."""

_FLOOR_SECONDS: Final = 20.0

_COLUMNS: Final = (
    "what", "count", "over 5 ms", "p99.9, ms", "longest, ms", "on the clock, ms", "at", "in",
)  # fmt: skip
_TIMES: Final = ("p999_seconds", "longest_seconds", "longest_on_the_clock_seconds")

_WINDOW: Final = 2_000
_SHOWN: Final = 12
_SETTLE_SECONDS: Final = 3.0

_LIMITS: Final = Retention(seconds=86_400.0, entries_max=2)
_OWN_GRANTS: Final = 10
"""One of so many streams has grants of its own, as those that are made by Streamr's clients."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The size of the node."""

    streams: int
    links: int
    subscriptions: int
    partitions: int
    repeat: int
    idle_seconds: float


def fill(store_dir: Path, sizes: Sizes) -> None:
    """Write the streams, each with an entry, into the store of a node that does not run."""
    counter = Counter()
    store = RocksLogStore(store_dir, complete=counter, on_health=lambda _: None)
    store.open()
    body, done = pack_body([b"x" * 100]), 0
    numbers = iter(range(sizes.streams))
    while some := list(islice(numbers, _WINDOW)):
        made = [PutStream(record=_record(number, sizes)) for number in some]
        for put in made:
            store.submit(put)
        counter.wait(done + len(made))
        for put in made:
            store.submit(Append(log=log_id(put.record.id, 0), received_at=1, count=1, body=body))
        done += 2 * len(made)
        counter.wait(done)
    store.close()


def _record(number: int, sizes: Sizes) -> StreamRecord:
    """A stream of one of the links' principals; some have grants of their own and a name."""
    owner = f"noise:{identity(1 + number % (sizes.links - 1)).public_hex}"
    grants: dict[str, tuple[str, ...]] = {f"eth:0x{number:040x}": ("push", "subscribe", "pull")}
    name = stream_name(number)
    if number % _OWN_GRANTS:
        return StreamRecord(name=name, owner=owner, created_at=1, retention=_LIMITS)
    return StreamRecord(
        name=name, owner=owner, created_at=1, retention=_LIMITS, grants=grants,
        attributes={"name": f"Number {number}"},
    )  # fmt: skip


def configure(directory: Path, sizes: Sizes, *, more: bool) -> Path:
    """Write the node's configuration: a grant for each link, and `more` that are taken back."""
    rows = [
        'name = "turns"', 'data_dir = "data"',
        '[noise]\nlisten = "127.0.0.1:0"',
        '[streamr]\nlisten = "127.0.0.1:0"',
        '[nextgraph]\nlisten = "127.0.0.1:0"\nregistration = "open"',
        '[http]\nlisten = "127.0.0.1:0"',
        '[overlay]\nstreams = ["shared*"]',
        '[[quota]]\nwho = "noise:*"\nstreams_max = 100000\nbytes_max = 1000000000',
        '[[stream]]\nname = "*"\nretain_seconds = 86400.0\nretain_entries_max = 2',
        _grant(f"noise:{identity(0).public_hex}", "*", "admin"),
        _grant("anonymous", "hot*", "admin"),
    ]  # fmt: skip
    for number in range(100):
        rows.append(f'[[stream]]\nname = "shared-{number}"\nretain_seconds = 3600.0')
    verbs = ("create", "push", "pull", "subscribe")
    for number in range(1, sizes.links):
        rows.append(_grant(f"noise:{identity(number).public_hex}", "*", *verbs))
    if more:
        rows.append(_grant("noise:*", "s0000*", "admin"))
    file = directory / "node.toml"
    file.write_text("\n".join(rows) + "\n")
    return file


def _grant(who: str, streams: str, *may: str) -> str:
    return f'[[grant]]\nwho = "{who}"\nstreams = "{streams}"\nmay = {json.dumps(may)}'


async def floor(seconds: float) -> Work:
    """The longest gaps of a loop that does nothing but look at the time."""
    probe = Probe()
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await probe.watch()
    return probe.gap


async def measure(directory: Path, sizes: Sizes, probe: Probe, note: "Note") -> None:
    """Run the node through all phases."""
    config = load_config(configure(directory, sizes, more=True))
    watching = asyncio.create_task(probe.watch())
    with probe.installed():
        note("start")
        node = Node(config)
        await node.start()
        process.freeze()
        await asyncio.sleep(_SETTLE_SECONDS)
        with LoadGenerator(_job(node, sizes)) as load:
            for phase in PHASES:
                note(phase)
                await asyncio.to_thread(load.phase)
                if phase == "removals":
                    note("idle")
                    await asyncio.sleep(sizes.idle_seconds)
                    note("reload")
                    config = await asyncio.to_thread(_configuration, directory, sizes)
                    asyncio.get_running_loop().call_soon(_reload, node, config)
                    await asyncio.sleep(_SETTLE_SECONDS)
            probe.count_usual(node.observed.system.life.kinds.values())
            note(STOP)
            await node.stop()
    watching.cancel()


def _configuration(directory: Path, sizes: Sizes) -> Config:
    """The configuration that the node is to take over; as `rillnode run`, read in a thread."""
    return load_config(configure(directory, sizes, more=False))


def _reload(node: Node, config: Config) -> None:
    node.take_over(config)


def _job(node: Node, sizes: Sizes) -> TurnsJob:
    ports = {name: int(address.rpartition(":")[2]) for name, address in node.addresses().items()}
    return TurnsJob(
        endpoint=Endpoint(kind="turns", port=ports["noise"], pid=0, node_identity=node.identity),
        streamr_port=ports["streamr"],
        nextgraph_port=ports["nextgraph"],
        http_port=ports["http"],
        broker=node.facts["nextgraph_peer_id"] or "",
        streams=sizes.streams,
        links=sizes.links,
        subscriptions=sizes.subscriptions,
        partitions=sizes.partitions,
        repeat=sizes.repeat,
    )


class Note:
    """Tells on standard error what is being done, and the probe."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._since = time.monotonic()

    def __call__(self, phase: str) -> None:
        """A phase begins."""
        now = time.monotonic()
        if self._probe.phase:
            took = now - self._since
            print(f"{self._probe.phase}: {took:.1f} s", file=sys.stderr, flush=True)
        self._since = now
        self._probe.phase = phase


def show(probe: Probe, idle: Work, console: Console) -> None:
    """Print a table for each kind of work, or JSON lines where nobody looks."""
    turns, last = probe.turns.values(), [work for work in probe.turns.values() if work.is_last]
    parts = {
        "turns": _longest(work for work in turns if not work.is_last),
        "turns of the stop": _longest(last),
        "callbacks": _longest(probe.callbacks.values()),
        "garbage collector": _longest(probe.pauses.values()),
        "gap of an idle loop": [idle],
        "gap of the node's loop": [probe.gap],
    }
    if not console.is_terminal:
        for part, found in parts.items():
            for work in found:
                console.out(json.dumps({"part": part, **_document(work)}), highlight=False)
        return
    for part, found in parts.items():
        table = Table(title=part, title_justify="left")
        for name in _COLUMNS:
            table.add_column(name, justify="left" if name in ("what", "at", "in") else "right")
        for work in found[:_SHOWN]:
            row = _document(work)
            times = [f"{row[key] * 1e3:.2f}" for key in _TIMES]
            counts = [f"{work.count:,}", f"{row['too_long']:,}"]
            table.add_row(work.what, *counts, *times, work.message, work.phase)
        console.print(table)


def _longest(found: Iterable[Work]) -> list[Work]:
    return sorted(found, key=lambda work: -work.longest)


def _document(work: Work) -> dict[str, Any]:
    return {
        "what": work.what,
        "count": work.count,
        "too_long": work.above(LIMIT_SECONDS),
        "p999_seconds": work.quantile(0.999),
        "longest_seconds": work.longest,
        "longest_on_the_clock_seconds": work.longest_wall,
        "message": work.message,
        "phase": work.phase,
    }


def _put_store(kept: Path | None, sizes: Sizes, data_dir: Path) -> None:
    """Put a filled store into `data_dir`; where it is kept, the next run of that size copies it."""
    source = (kept or data_dir.parent) / f"streams-{sizes.streams}-{sizes.links}"
    if not source.exists():
        partial = source.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        begun = time.monotonic()
        fill(partial, sizes)
        partial.rename(source)
        print(f"fill: {time.monotonic() - begun:.1f} s", file=sys.stderr)
    shutil.copytree(source, data_dir / "store")


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.turns")
    parser.add_argument("--streams", type=int, default=100_000, metavar="N")
    parser.add_argument("--links", type=int, default=5_000, metavar="N")
    parser.add_argument("--subscriptions", type=int, default=1_000, metavar="N")
    parser.add_argument("--quick", action="store_true", help="small and short: does it work?")
    parser.add_argument("--store", type=Path, metavar="DIR", help="keep the filled store here")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="on the disk to be measured")
    arguments = parser.parse_args()
    sizes = Sizes(
        streams=arguments.streams,
        links=arguments.links,
        subscriptions=arguments.subscriptions,
        partitions=1_024,
        repeat=10,
        idle_seconds=2.5 * _IDLE_SECONDS,
    )
    if arguments.quick:
        sizes = Sizes(
            streams=1_000, links=50, subscriptions=20, partitions=64, repeat=1, idle_seconds=0.0
        )
    logging.disable(logging.ERROR)
    process.prepare()
    StreamActor.idle_seconds = _IDLE_SECONDS
    probe = Probe()
    with tempfile.TemporaryDirectory(prefix="turns-", dir=arguments.dir) as name:
        directory = Path(name)
        data_dir = directory / "data"
        data_dir.mkdir()
        _put_store(arguments.store, sizes, data_dir)
        idle = asyncio.run(floor(1.0 if arguments.quick else _FLOOR_SECONDS))
        asyncio.run(measure(directory, sizes, probe, Note(probe)))
    show(probe, idle, Console())


if __name__ == "__main__":
    main()
