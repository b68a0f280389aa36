"""A thousand subscribers on real sockets, of which a hundred never read."""

import asyncio
import os
import resource
import socket
from collections.abc import Generator
from pathlib import Path

import pytest

from nodes import node_config
from rillnode.node.runtime import Node
from rillnode.node.streamr.config import StreamrListener
from streamr_support import STREAM, array, dump, message, publish

SUBSCRIBERS = 1_000
SLOW = 100
MESSAGES = 800
CONTENT_BYTES = 10_000
BUFFER_BYTES_MAX = 1_048_576
"""With what an operating system holds, far less than all: who reads nothing is closed."""

OTHER_BYTES = 134_217_728
"""What else a node may take meanwhile: messages on their way, unwritten entries, recent ones."""

WINDOW = 8
SECONDS = 500.0
CONTENT = f'"{"x" * CONTENT_BYTES}"'
PATH = "/api/v1/ws?controlLayerVersion=2&messageLayerVersion=32"
UPGRADE = (
    f"GET {PATH} HTTP/1.1\r\nHost: node\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
).encode()

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def many_files() -> Generator[None]:
    """Both ends of all connections are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * SUBSCRIBERS + 200
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"this machine allows {hard} open files, {needed} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Subscriber(asyncio.Protocol):
    """Counts the bytes that come; all broadcasts of the test are frames of one length."""

    def __init__(self) -> None:
        self.count = 0
        self.ready = asyncio.Event()
        self.lost = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(UPGRADE)

    def data_received(self, data: bytes) -> None:
        if self.ready.is_set():
            self.count += len(data)
        elif data.startswith(b"HTTP/1.1 101 "):
            assert data.endswith(b"\r\n\r\n")
            self.transport.write(client_frame(dump([2, 9, "s", STREAM, 0, None])))
        else:
            assert b'[2,2,"s"' in data
            self.ready.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


def client_frame(text: bytes) -> bytes:
    """A masked text frame; the mask is zero."""
    size = len(text)
    if size < 126:
        return bytes((0x81, 0x80 | size)) + bytes(4) + text
    return bytes((0x81, 0x80 | 126)) + size.to_bytes(2, "big") + bytes(4) + text


async def connect(host: str, port: int, *, reads: bool) -> Subscriber:
    raw = socket.socket()
    raw.setblocking(False)
    if not reads:
        # What the operating systems hold for it shall not hide that it does not read.
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(raw, (host, port))
    _, subscriber = await loop.create_connection(Subscriber, sock=raw)
    await subscriber.ready.wait()
    if not reads:
        subscriber.transport.pause_reading()
    return subscriber


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
async def test_who_never_reads_costs_its_buffer_and_nobody_else_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "rillnode.node.streamr.broker.STREAMR_LINK_BUFFER_BYTES_MAX", BUFFER_BYTES_MAX
    )
    listener = StreamrListener(listen="127.0.0.1:0")
    config = node_config(tmp_path).having(listener)
    async with Node(config) as node, asyncio.timeout(SECONDS):
        await node.stream(STREAM)
        host, _, port = node.addresses()["streamr"].rpartition(":")
        slow = [await connect(host, int(port), reads=False) for _ in range(SLOW)]
        good = [await connect(host, int(port), reads=True) for _ in range(SUBSCRIBERS - SLOW)]
        publisher = good[0]
        before = most = resident_bytes()
        made = [message(1_000 + n, key=None, content=CONTENT) for n in range(MESSAGES)]
        frame_bytes = 4 + len(dump([2, 0, "", array(made[0])]))
        for number, each in enumerate(made):
            publisher.transport.write(client_frame(dump(publish(each))))
            while min(one.count for one in good) < (number - WINDOW) * frame_bytes:
                await asyncio.sleep(0.001)
            most = max(most, resident_bytes())
        wanted = MESSAGES * frame_bytes
        while min(one.count for one in good) < wanted:
            await asyncio.sleep(0.01)
        assert {one.count for one in good} == {wanted}
        assert not any(one.lost for one in good)
        for one in slow:
            one.transport.resume_reading()
        while not all(one.lost for one in slow):
            await asyncio.sleep(0.01)
        assert max(one.count for one in slow) < wanted
        assert most - before < SLOW * BUFFER_BYTES_MAX + OTHER_BYTES
