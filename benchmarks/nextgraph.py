"""The NextGraph broker: events published and forwarded, a topic's synchronization, blocks.

    python -m benchmarks.nextgraph [--dir DIR] [--events N] [--mebibytes N]

The load is `rillnode.nextgraph` in this process, the broker is another one. What is published is
made and signed before the time begins, so that the publisher costs less than the broker, and is
durable when it counts. Devices only open and count what is forwarded to them; who synchronizes or
reads blocks verifies each, as applications do, and that is part of the time.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
from rich.console import Console
from rich.table import Table

from benchmarks.processes import Process, cpu_seconds
from rillnode import nextgraph
from rillnode.codecs.nextgraph.adverts import sign_publisher_advert
from rillnode.codecs.nextgraph.client import STORED_BEFORE, ClientMessage
from rillnode.codecs.nextgraph.client_dialogue import ClientDialogue, ClientLogin
from rillnode.codecs.nextgraph.events import Event, EventContent, crypt_event_key, sign_event
from rillnode.codecs.nextgraph.requests import ClientRequest, PinRepo
from rillnode.codecs.nextgraph.responses import ClientResponse
from rillnode.codecs.nextgraph.start import ClientInfo, ClientType, Registration
from rillnode.codecs.nextgraph.types import ForwardedPeer
from rillnode.node.nextgraph.client.wire import Wire, open_wire

_BODY_BYTES: Final = 1_024
_WINDOW: Final = 64
_PIN_ID: Final = 1
_FIRST_EVENT_ID: Final = 2
_BLOCK_BYTES: Final = 1_048_576
_STORE: Final = os.urandom(32)
_SECRET: Final = os.urandom(32)
_OVERLAY: Final = nextgraph.inner_overlay(_STORE, _SECRET)
_ACCESS: Final = nextgraph.ReadWriteAccess(_OVERLAY, nextgraph.outer_overlay(_STORE))
_CONVERGENCE_KEY: Final = nextgraph.convergence_key(_STORE, _SECRET)
_BRANCH: Final = nextgraph.Branch(os.urandom(32), os.urandom(32), _SECRET)
_REPO_HASH: Final = nextgraph.repo_hash(_BRANCH.repo_id)


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker: where it is, and its process."""

    url: str
    peer_id: bytes
    pid: int


@dataclass(frozen=True, slots=True)
class Figure:
    """One row: how many of what took how long, processor time of the broker and of the load."""

    what: str
    count: int
    seconds: float
    cpu: float
    load_cpu: float


@contextmanager
def start_broker(directory: Path) -> Generator[Broker]:
    """Run a node whose broker is open to everybody."""
    home, ports_file = directory / "node", directory / "ports.json"
    command = [sys.executable, "-m", "rillnode"]
    subprocess.run([*command, "init", str(home)], check=True, capture_output=True)
    arguments = [
        "run", "-c", str(home / "node.toml"), "--ports-file", str(ports_file),
        "--set", "noise.listen=127.0.0.1:0", "--set", "http.enabled=false",
        "--set", "nextgraph.listen=127.0.0.1:0", "--set", "nextgraph.registration=open",
    ]  # fmt: skip
    with Process([*command, *arguments], directory / "node.log") as process:
        while not ports_file.exists():
            process.check_starting("ports file")
        ports = json.loads(ports_file.read_text())
        peer_id = bytes.fromhex(ports["nextgraph_peer_id"])
        yield Broker(f"ws://{ports['nextgraph']}", peer_id, process.pid)


def new_key() -> nextgraph.Identity:
    """A random key."""
    return nextgraph.Identity.from_seed(os.urandom(32))


class Clock:
    """Times a case, and the processor time of the broker and of this process meanwhile."""

    def __init__(self, broker: Broker) -> None:
        self._pid = broker.pid
        self._cpu = cpu_seconds(broker.pid)
        self._load_cpu = time.process_time()
        self._started = time.perf_counter()

    def figure(self, what: str, count: int) -> Figure:
        """As of now."""
        seconds = time.perf_counter() - self._started
        load_cpu = time.process_time() - self._load_cpu
        return Figure(what, count, seconds, cpu_seconds(self._pid) - self._cpu, load_cpu)


@asynccontextmanager
async def device(
    http: aiohttp.ClientSession,
    broker: Broker,
    topic: nextgraph.Identity,
    peer: nextgraph.Identity,
) -> AsyncGenerator[Wire]:
    """A bare connection that is subscribed to a topic, and may publish to it."""
    login = ClientLogin(
        user=new_key(),
        client=new_key(),
        info=ClientInfo(ClientType.NODE_SERVICE, "{}", "", 0, 0),
        registration=Registration(None),
    )
    dialogue = ClientDialogue(peer, broker.peer_id, login)
    wire = await open_wire(http, broker.url, dialogue)
    try:
        adverts = [sign_publisher_advert(topic, broker.peer_id)]
        pin = PinRepo(_REPO_HASH, _ACCESS, None, False, [], 0, [], adverts)
        await wire.send(ClientMessage(_OVERLAY, ClientRequest(_PIN_ID, pin)))
        answer = (await wire.receive()).content
        assert isinstance(answer, ClientResponse)
        assert answer.result == 0, answer
        yield wire
    finally:
        await wire.close()


async def receive(wire: Wire, count: int) -> None:
    """Count what is forwarded."""
    for _ in range(count):
        await wire.receive()


def commits(count: int) -> list[nextgraph.Object]:
    """A history without branches, of random bodies."""
    made: list[nextgraph.Object] = []
    author = new_key()
    for _ in range(count):
        acks = [made[-1].reference.id] if made else []
        made.append(
            nextgraph.make_commit(
                os.urandom(_BODY_BYTES),
                author=author,
                branch=_BRANCH,
                overlay=_OVERLAY,
                convergence_key=_CONVERGENCE_KEY,
                unix_seconds=time.time(),
                header=nextgraph.CommitHeader(acks=acks),
            )
        )
    return made


def signed_events(
    topic: nextgraph.Identity, peer: nextgraph.Identity, made: Sequence[nextgraph.Object]
) -> list[Event]:
    """The events that bring commits."""
    events: list[Event] = []
    for seq, commit in enumerate(made, 1):
        key = crypt_event_key(
            commit.reference.key,
            repo_id=_BRANCH.repo_id,
            branch_id=_BRANCH.id,
            read_cap_key=_BRANCH.read_cap_key,
            publisher=peer.public_key,
            seq=seq,
        )
        content = EventContent(
            topic=topic.public_key,
            publisher=ForwardedPeer(peer.public_key),
            seq=seq,
            blocks=commit.blocks,
            file_ids=[],
            key=key,
        )
        events.append(sign_event(content, topic, peer))
    return events


async def publish(wire: Wire, events: Sequence[Event], window: int = _WINDOW) -> None:
    """Publish in order, at most a window of events unanswered."""
    answered = 0
    for sent, event in enumerate(events):
        if sent - answered == window:
            await _confirmed(wire)
            answered += 1
        await wire.send(ClientMessage(_OVERLAY, ClientRequest(_FIRST_EVENT_ID + sent, event)))
    for _ in range(len(events) - answered):
        await _confirmed(wire)


async def _confirmed(wire: Wire) -> None:
    answer = await wire.receive()
    assert isinstance(answer.content, ClientResponse)
    assert answer.content.result == 0, answer
    assert answer.padding != STORED_BEFORE


async def events(broker: Broker, count: int, devices: int) -> list[Figure]:
    """Publish to a new topic that devices follow; without any, synchronize it afterwards."""
    topic, peer = new_key(), new_key()
    made = signed_events(topic, peer, commits(count))
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())
        publisher = await stack.enter_async_context(device(http, broker, topic, peer))
        wires = [
            await stack.enter_async_context(device(http, broker, topic, new_key()))
            for _ in range(devices)
        ]
        clock = Clock(broker)
        await asyncio.gather(publish(publisher, made), *(receive(wire, count) for wire in wires))
        figures = [clock.figure(f"events published, forwarded to {devices}", count)]
        if not devices:
            connected = nextgraph.connect(broker.url, broker=broker.peer_id, user=new_key())
            client = await stack.enter_async_context(await connected)
            await client.pin(_REPO_HASH, _ACCESS)
            clock = Clock(broker)
            found = [event async for event in client.sync(_OVERLAY, topic.public_key)]
            assert len(found) == count
            figures.append(clock.figure("events synchronized", count))
    return figures


async def blocks(broker: Broker, mebibytes: int) -> list[Figure]:
    """Put a file of random bytes, and read it; figures count megabytes."""
    made = nextgraph.split_object(
        os.urandom(mebibytes * 1_048_576), _CONVERGENCE_KEY, block_bytes=_BLOCK_BYTES
    )
    megabytes = mebibytes * 1_048_576 // 1_000_000
    connected = nextgraph.connect(broker.url, broker=broker.peer_id, user=new_key())
    async with await connected as client:
        await client.pin(_REPO_HASH, _ACCESS)
        clock = Clock(broker)
        await client.put_blocks(_OVERLAY, made.blocks)
        figures = [clock.figure("MB of blocks put", megabytes)]
        clock = Clock(broker)
        ids = [made.reference.id]
        found = [block async for block in client.get_blocks(_OVERLAY, ids, children=True)]
        assert found == made.blocks
        figures.append(clock.figure("MB of blocks got", megabytes))
    return figures


async def run(broker: Broker, count: int, mebibytes: int) -> list[Figure]:
    """All cases."""
    figures: list[Figure] = []
    for devices in (0, 1, 20):
        figures += await events(broker, count, devices)
    return figures + await blocks(broker, mebibytes)


def main() -> None:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nextgraph", description=__doc__)
    parser.add_argument("--dir", type=Path, help="on the disk to be measured; default: build/")
    parser.add_argument("--events", type=int, default=10_000, help="of each case")
    parser.add_argument("--mebibytes", type=int, default=64, help="of blocks")
    arguments = parser.parse_args()
    base: Path = arguments.dir or Path(__file__).parent.parent / "build"
    base.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=base, prefix="nextgraph-") as name,
        start_broker(Path(name)) as broker,
    ):
        figures = asyncio.run(run(broker, arguments.events, arguments.mebibytes))
    table = Table(title=f"NextGraph broker, bodies of {_BODY_BYTES:,} bytes")
    table.add_column("what")
    for heading in ("count", "per second", "broker cpu us each", "load cpu us each"):
        table.add_column(heading, justify="right")
    for figure in figures:
        rate = figure.count / figure.seconds
        each = [f"{cpu / figure.count * 1e6:,.0f}" for cpu in (figure.cpu, figure.load_cpu)]
        table.add_row(figure.what, f"{figure.count:,}", f"{rate:,.0f}", *each)
    Console().print(table)


if __name__ == "__main__":
    main()
