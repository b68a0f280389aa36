"""A flood: thousands of connections that want nothing, kept up while others are served.

One fourth of them say nothing; one says what a client would, a byte at a time; one stops in the
middle of its opening; one sends garbage, leaves and comes again. They come from many addresses of
127.0.0.0/8, which Linux has without being told: what bounds one address does not end the flood.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import cycle
from typing import Final, Self

_SOURCES: Final = [f"127.0.{number}.1" for number in range(1, 41)]
_AT_ONCE: Final = 100
"""Connections that are being made at one time: the listener's backlog is not what is met."""

_TICK_SECONDS: Final = 0.1
_RETURNS_PER_TICK: Final = 20

_GARBAGE: Final = (
    b"\xff" * 600,
    b"\0" * 64,
    b"\x01\xff\xff\xff\x84" + b"\x9f" * 200,
    b"GET /../../etc/passwd HTTP/9.9\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"\x16\x03\x01\x02\0\x01",
)

_WEBSOCKET: Final = (
    b" HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
_STREAMR: Final = b"GET /api/v1/ws?controlLayerVersion=2&messageLayerVersion=32" + _WEBSOCKET

OPENINGS: Final[dict[str, tuple[bytes, int]]] = {
    "noise": (b"rillnode\x01\0\0\x20" + bytes(range(32)), 44),
    "ockam": (b"\xff\xfe\x01" + b"\x40" * 65_000, 900),
    "streamr": (_STREAMR, len(_STREAMR) - 2),
    "nextgraph": (b"GET /" + _WEBSOCKET, len(_WEBSOCKET) + 5),
    "http": (b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 4_000, 40),
}
"""What a client of each listener says first, and how much of it those say who stop there. For
`noise` and `nextgraph` that is all of it, and the next message of the handshake never comes."""


class _Connection(asyncio.Protocol):
    def __init__(self, flood: "Flood") -> None:
        self._flood = flood
        self.lost = self.leaving = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._flood.lost(self)


class Flood:
    """Connections to one listener, kept up until the block is left.

    Attributes:
        counters: connections that were `made`, that were `refused`, and that the node has `ended`.
        held: those that are open.
    """

    def __init__(self, listener: str, address: str, connections: int) -> None:
        host, _, port = address.rpartition(":")
        self.counters: Counter[str] = Counter()
        self.held: set[_Connection] = set()
        self._where = host, int(port)
        self._opening, self._stops_at = OPENINGS[listener]
        self._connections = connections
        self._sources = cycle(_SOURCES)
        self._garbage = cycle(_GARBAGE)
        self._slow: list[_Connection] = []
        self._returning = 0
        self._said = 0
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._ticking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """All have connected, or were refused."""
        await asyncio.gather(*(self._begin(number) for number in range(self._connections)))
        self._ticking = asyncio.create_task(self._keep_up())
        return self

    async def __aexit__(self, *_: object) -> None:
        """All leave."""
        assert self._ticking is not None
        self._ticking.cancel()
        with suppress(asyncio.CancelledError):
            await self._ticking
        for connection in list(self.held):
            connection.leaving = True
            connection.transport.abort()

    def lost(self, connection: _Connection) -> None:
        """A connection is gone."""
        self.held.discard(connection)
        if not connection.leaving:
            self.counters["ended"] += 1

    async def _begin(self, number: int) -> None:
        kind = number % 4
        if kind == 3:
            self._returning += 1
            await self._visit()
        elif (connection := await self._connect()) is not None:
            if kind == 1:
                self._slow.append(connection)
            elif kind == 2:
                connection.transport.write(self._opening[: self._stops_at])

    async def _connect(self) -> _Connection | None:
        loop = asyncio.get_running_loop()
        connection = _Connection(self)
        async with self._room:
            try:
                await loop.create_connection(
                    lambda: connection, *self._where, local_addr=(next(self._sources), 0)
                )
            except OSError:
                self.counters["refused"] += 1
                return None
        self.counters["made"] += 1
        if not connection.lost:
            self.held.add(connection)
        return connection

    async def _visit(self) -> None:
        """Send garbage and leave, without waiting for what comes of it."""
        connection = await self._connect()
        if connection is not None:
            connection.leaving = True
            connection.transport.write(next(self._garbage))
            connection.transport.close()

    async def _keep_up(self) -> None:
        while True:
            at = self._said % len(self._opening)
            for connection in self._slow:
                if not connection.lost:
                    connection.transport.write(self._opening[at : at + 1])
            self._said += 1
            visits = [self._visit() for _ in range(min(_RETURNS_PER_TICK, self._returning))]
            await asyncio.gather(*visits)
            await asyncio.sleep(_TICK_SECONDS)


def listeners() -> Sequence[str]:
    """Names of the listeners that can be flooded."""
    return tuple(OPENINGS)
