"""A process that passes bytes on to a server and back: what one more process on the way costs.

    python -m benchmarks.relay PORT SERVER_PORT

It reads, writes and does nothing else, on asyncio's own event loop, as a node's process does.
"""

import asyncio
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from benchmarks.processes import Process, free_port


@contextmanager
def start_relay(log: Path, server_port: int) -> Generator[int]:
    """Run a relay to a port of 127.0.0.1; gives the port that it listens on itself."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.relay", str(port), str(server_port)]
    with Process(command, log) as process:
        process.wait_for_port(port)
        yield port


class _Far(asyncio.Protocol):
    """The server's side: gives what it reads to the near side."""

    def __init__(self, near: asyncio.Transport) -> None:
        self._near = near

    def data_received(self, data: bytes) -> None:
        self._near.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._near.close()


class _Near(asyncio.Protocol):
    """The client's side: reads nothing before the server is reached."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._far: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        near = cast(asyncio.Transport, transport)
        near.pause_reading()
        self._reaching = asyncio.get_running_loop().create_task(self._reach(near))

    async def _reach(self, near: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        self._far, _ = await loop.create_connection(
            lambda: _Far(near), "127.0.0.1", self._server_port
        )
        near.resume_reading()

    def data_received(self, data: bytes) -> None:
        assert self._far is not None
        self._far.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._far is not None:
            self._far.close()


async def _serve(port: int, server_port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Near(server_port), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
