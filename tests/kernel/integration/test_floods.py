"""Two thousand connections that want nothing, on each listener, while good clients are served."""

import asyncio
import os
import resource
import sys
from collections.abc import Generator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from benchmarks.flooding import OPENINGS, Flood, listeners
from benchmarks.floods import start_node
from benchmarks.processes import Process
from benchmarks.served import CLIENTS, Ports, make_streams
from rillnode.codecs.limits import U32_MESSAGE_BYTES_MAX, UNFINISHED_BYTES_MAX

CONNECTIONS = 2_000
REQUESTS = 100
RETURNS = 10
"""How often the good client comes anew while the flood lasts."""

UNFINISHED_BYTES = 4_000_000
FRAME_BYTES = 1_000_000
"""Of the smallest message that listeners which share a port with HTTP take."""

SECONDS = 300.0
MEMORY_BYTES = 200_000_000
"""What a flood of 2,000 may cost a node, whatever it sends: 100 kB for each."""

TIMEOUTS = {
    "noise": "link.handshake_timeout",
    "ockam": "",
    "streamr": "http.head_timeout",
    "nextgraph": "http.head_timeout",
    "http": "http.head_timeout",
}
"""What the log says of those that were ended."""

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="all of 127.0.0.0/8 is needed, and /proc"),
]


@pytest.fixture(autouse=True)
def many_files() -> Generator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = CONNECTIONS + 500
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"this machine allows {hard} open files, {needed} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def be_served(listener: str, ports: Ports, requests: int) -> None:
    """Come, and have every request answered right."""
    async with CLIENTS[listener](ports) as request:
        for _ in range(requests):
            await request()


UNFINISHED = {
    "ockam": b"\x01" + U32_MESSAGE_BYTES_MAX.to_bytes(4, "big"),
    "streamr": OPENINGS["streamr"][0],
    "nextgraph": OPENINGS["nextgraph"][0],
    "http": b"POST /v1/route HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    % FRAME_BYTES,
}
"""What leads to a message, or a request's body, that never ends."""


@pytest.mark.parametrize("listener", UNFINISHED)
def test_messages_that_never_end_cost_bounded_memory(tmp_path: Path, listener: str) -> None:
    async def begin(address: str) -> asyncio.StreamWriter:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(UNFINISHED[listener])
        size = UNFINISHED_BYTES
        if b"Upgrade:" in UNFINISHED[listener]:
            size = FRAME_BYTES
            assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
            kind = 0x81 if listener == "streamr" else 0x82
            writer.write(bytes([kind, 0xFF]) + (size + 1).to_bytes(8) + b"mask")
        elif listener == "http":
            size = FRAME_BYTES - 1
        writer.write(bytes(size))
        with suppress(ConnectionError):  # it may be ended already
            await writer.drain()
        return writer

    async def run(ports: Ports, node: Process) -> None:
        await make_streams(ports)
        before = node.rss_bytes()
        size = UNFINISHED_BYTES if listener == "ockam" else FRAME_BYTES
        count = 2 * UNFINISHED_BYTES_MAX // size
        writers = [await begin(ports[listener]) for _ in range(count)]
        await be_served(listener, ports, REQUESTS)
        assert node.rss_bytes() - before < UNFINISHED_BYTES_MAX + MEMORY_BYTES
        for writer in writers:
            writer.transport.abort()
        await be_served(listener, ports, REQUESTS)

    with start_node(tmp_path) as (ports, node):
        asyncio.run(asyncio.wait_for(run(ports, node), SECONDS))
    log = (tmp_path / "node.log").read_text()
    # Where bodies are refused before they are read, there is no crowd.
    assert ("link.unfinished_crowd" in log) == (listener != "http")
    assert "Traceback" not in log


@pytest.mark.parametrize("flooded", listeners())
def test_good_clients_are_served_while_a_listener_is_flooded(tmp_path: Path, flooded: str) -> None:
    async def run(ports: Ports, node: Process) -> None:
        soft, hard = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
        assert soft == hard, "the node takes as many files as it may"
        open_files = partial(os.listdir, f"/proc/{node.pid}/fd")
        await make_streams(ports)
        await asyncio.gather(*(be_served(name, ports, 3) for name in listeners()))
        before, files = node.rss_bytes(), len(open_files())
        async with Flood(flooded, ports[flooded], CONNECTIONS) as flood:
            assert flood.counters["made"] >= CONNECTIONS
            # One client stays, another comes again and again, and so do those of other listeners.
            await asyncio.gather(
                be_served(flooded, ports, REQUESTS),
                returning(flooded, ports),
                *(be_served(name, ports, RETURNS) for name in listeners()),
            )
            assert node.rss_bytes() - before < MEMORY_BYTES
            # All but those that come and go are inside their opening, whose time is limited.
            if flooded != "ockam":  # where silence is nothing wrong
                while flood.counters["ended"] < CONNECTIONS * 3 // 4:
                    await asyncio.sleep(0.1)
        # Nothing of the flood stays behind.
        while len(open_files()) > files + 50:
            await asyncio.sleep(0.1)
        await asyncio.gather(*(be_served(name, ports, 3) for name in listeners()))

    async def returning(listener: str, ports: Ports) -> None:
        for _ in range(RETURNS):
            await be_served(listener, ports, 1)

    with start_node(tmp_path) as (ports, node):
        asyncio.run(asyncio.wait_for(run(ports, node), SECONDS))
    log = (tmp_path / "node.log").read_text()
    assert "Traceback" not in log
    assert log.count(TIMEOUTS[flooded]) >= CONNECTIONS // 4
