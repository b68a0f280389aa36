"""Load on the floor under W1, by the leanest client that Python can have."""

import asyncio
from collections.abc import AsyncGenerator
from itertools import cycle
from typing import cast

from benchmarks.floor_server import Frames
from benchmarks.jobs import Endpoint, PushJob, Result
from benchmarks.measure import Meter, payloads, push_window


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._frames = Frames(client=True)
        self._confirmed = 0
        self._waiting: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        for content in self._frames.receive(data):
            self._confirmed += int.from_bytes(content, "little")
        if self._confirmed and self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def send(self, data: bytes) -> None:
        self._transport.write(self._frames.seal(data))

    async def confirms(self) -> int:
        if not self._confirmed:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        confirmed, self._confirmed = self._confirmed, 0
        return confirmed


async def push(job: PushJob) -> AsyncGenerator[Result]:
    """W1."""
    connection = await _connect(job.endpoint)
    # Each message is packed once, and not in the measured time, as for the other peers.
    packed = [len(data).to_bytes(4, "little") + data for data in payloads(job.message_bytes)]
    yield await push_window(Meter(job), connection, cycle(packed), job.window)


async def _connect(endpoint: Endpoint) -> _Connection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(_Connection, "127.0.0.1", endpoint.port)
    return connection
