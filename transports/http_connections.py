"""The connections of an HTTP listener, up to the moment that one becomes a WebSocket.

An HTTP library bounds what is inside a request. What is around it is bounded here: how many
connections there are, how long one may take to ask for something, and how long it may leave an
answer unread. A connection that is upgraded leaves; its link's limits hold then.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from rillnode.codecs.errors import TransportError
from rillnode.transports.clock import Clock
from rillnode.transports.links import LinkLimits
from rillnode.transports.sweep import Sweep
from rillnode.transports.tcp_link import address_text

_logger = logging.getLogger("rillnode.transports.http")

_END_OF_HEAD: Final = b"\r\n\r\n"


class HttpConnection(asyncio.Protocol):
    """One accepted connection; hands on all that it is told to the HTTP library's protocol.

    Attributes:
        host: the peer's host.
        remote: the peer's address.
    """

    __slots__ = (
        "_connections",
        "_handler",
        "_moved_at",
        "_tail",
        "_transport",
        "_unread_bytes",
        "host",
        "remote",
    )

    _transport: asyncio.Transport

    def __init__(self, connections: "HttpConnections", handler: asyncio.Protocol) -> None:
        self.host = "unknown"
        self.remote = "unknown"
        self._connections = connections
        self._handler = handler
        # The last bytes of a head that is not whole; None once a request was made.
        self._tail: bytes | None = b""
        self._moved_at = 0.0
        self._unread_bytes: int = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand on, if there is room."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        name = transport.get_extra_info("peername") or (self.host, 0)
        self.host, self.remote = name[0], address_text(name[0], name[1])
        self._handler.connection_made(transport)
        self._moved_at = self._connections.admit(self)

    def data_received(self, data: bytes) -> None:
        """Hand on, and see whether the first request's head is whole."""
        if self._tail is not None:
            seen = self._tail + data
            if _END_OF_HEAD in seen:
                self._tail = None
                self._connections.silent.pop(self, None)
            else:
                self._tail = seen[1 - len(_END_OF_HEAD) :]
        self._handler.data_received(data)

    def eof_received(self) -> bool | None:
        """Hand on."""
        return self._handler.eof_received()

    def pause_writing(self) -> None:
        """Hand on."""
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        """Hand on."""
        self._handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Hand on; the connection's place is free."""
        self.upgraded()
        self._handler.connection_lost(exc)

    def upgraded(self) -> None:
        """Bound it no longer: it is a link now, or gone."""
        self._connections.release(self)

    def check(self, now: float) -> None:
        """Act on a peer that asks for nothing, or does not take its answer; the sweep's."""
        limits = self._connections.limits
        unread = self._transport.get_write_buffer_size()
        if self._tail is not None:
            if now - self._moved_at >= limits.handshake_seconds:
                self.fail(TransportError("http.head_timeout", "no request within the limit"))
        elif not unread or unread != self._unread_bytes:
            self._moved_at, self._unread_bytes = now, unread
        elif now - self._moved_at >= limits.drain_seconds:
            self.fail(TransportError("link.not_drained", "the peer reads too slowly"))

    def fail(self, error: TransportError) -> None:
        """Count why, and end the connection at once."""
        self._connections.count(self, error)
        self._transport.abort()


class HttpConnections:
    """Makes the connections of one listener, and keeps within its limits.

    Where there is no more room, the one that has been silent for longest makes some: who does ask
    for something gets in however many connect and do not.

    Attributes:
        limits: what bounds the connections.
        counters: those that failed or were refused so far, by error code.
        silent: those that have not asked for anything, the oldest first.
    """

    def __init__(
        self, handler: Callable[[], asyncio.Protocol], clock: Clock, limits: LinkLimits
    ) -> None:
        self.limits = limits
        self.counters: Counter[str] = Counter()
        self.silent: dict[HttpConnection, None] = {}
        self._handler = handler
        self._clock = clock
        self._connections: dict[HttpConnection, None] = {}
        self._per_host: Counter[str] = Counter()
        self._sweep = Sweep(clock, self._connections.keys(), limits.sweep_seconds)

    def __len__(self) -> int:
        return len(self._connections)

    def __call__(self) -> HttpConnection:
        """A protocol for one more connection, as `create_server` asks for it."""
        return HttpConnection(self, self._handler())

    def admit(self, connection: HttpConnection) -> float:
        """Take a connection in, or end it; returns the time, in monotonic seconds."""
        limits = self.limits
        if self._per_host[connection.host] >= limits.connections_per_address_max:
            text = "too many connections from one address"
            connection.fail(TransportError("http.too_many_from_address", text))
        elif len(self) >= limits.connections_max and not self.silent:
            connection.fail(TransportError("http.too_many", "too many connections"))
        else:
            if len(self) >= limits.connections_max:
                oldest = next(iter(self.silent))
                self.release(oldest)
                oldest.fail(TransportError("http.crowded_out", "it was silent, and others came"))
            self._per_host[connection.host] += 1
            self._connections[connection] = self.silent[connection] = None
            self._sweep.start()
        return self._clock.monotonic()

    def release(self, connection: HttpConnection) -> None:
        """Let a connection go; harmless for one that was not admitted."""
        if connection not in self._connections:
            return
        del self._connections[connection]
        self.silent.pop(connection, None)
        self._per_host[connection.host] -= 1
        if not self._per_host[connection.host]:
            del self._per_host[connection.host]

    def count(self, connection: HttpConnection, error: TransportError) -> None:
        """Count and log a failure: its code and who, never what was sent."""
        self.counters[error.code] += 1
        extra = {"code": error.code, "remote": connection.remote}
        _logger.info("http_connection_failed", extra=extra)
