"""The connections of an HTTP listener, up to the moment that one becomes a WebSocket.

An HTTP library bounds what is inside a request. What is around it is bounded here: how many
connections there are, how long one may take to ask for something, and how long it may leave an
answer unread. A connection that is upgraded leaves; its link's limits hold then. What all hold of
requests and messages that are not whole is counted for both.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

from rillnode.codecs.errors import TransportError
from rillnode.codecs.websocket import MessageScanner
from rillnode.transports.clock import Clock
from rillnode.transports.links import LinkLimits
from rillnode.transports.sweep import Sweep
from rillnode.transports.tcp_link import address_text
from rillnode.transports.unfinished import Unfinished

_logger = logging.getLogger("rillnode.transports.http")

_END_OF_HEAD: Final = b"\r\n\r\n"


class _Part(Enum):
    """What the next bytes belong to."""

    HEAD = "a request's head, or nothing yet"
    BODY = "a request whose head is whole and that is not answered"
    REST = "a request that was answered before all of it had come; then the connection ends"
    MESSAGES = "WebSocket messages"


class Upgraded(Protocol):
    """The WebSocket that a connection has become."""

    def crowded_out(self, error: TransportError) -> None:
        """Count why, and end: nothing more is read."""
        ...


class HttpConnection(asyncio.Protocol):
    """One accepted connection; hands on all that it is told to the HTTP library's protocol.

    Attributes:
        host: the peer's host.
        remote: the peer's address.
    """

    __slots__ = (
        "_asked",
        "_body_bytes",
        "_connections",
        "_handler",
        "_link",
        "_moved_at",
        "_part",
        "_scanner",
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
        self._asked = False
        self._part = _Part.HEAD
        self._tail = b""  # the last bytes of a head that is not whole
        self._body_bytes = 0
        self._scanner = MessageScanner()
        self._link: Upgraded | None = None
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
        """Hand on, and see how far the request or the message is."""
        if self._transport.is_closing():
            return  # what TLS had taken in already
        match self._part:
            case _Part.HEAD:
                self._look_for_end(data)
            case _Part.BODY:
                self._hold(self._body_bytes + len(data))
            case _Part.MESSAGES:
                begun = self._scanner.feed(data)
                self._connections.unfinished.hold(self, self._scanner.held_bytes, begun=begun)
            case _Part.REST:
                pass
        if not self._transport.is_closing():  # nor has this been too much
            self._handler.data_received(data)

    def _look_for_end(self, data: bytes) -> None:
        # Heads are not counted: the library bounds them, and time does.
        seen = self._tail + data
        end = seen.find(_END_OF_HEAD)
        if end < 0:
            self._tail = seen[1 - len(_END_OF_HEAD) :]
            return
        self._tail, self._part, self._asked = b"", _Part.BODY, True
        self._connections.silent.pop(self, None)
        self._hold(len(seen) - end - len(_END_OF_HEAD))

    def _hold(self, body_bytes: int) -> None:
        self._body_bytes = body_bytes
        self._connections.unfinished.hold(self, body_bytes, begun=False)

    def asked(self) -> None:
        """A request is being dealt with."""
        if self._part is _Part.HEAD:
            # Its head came together with the request before, and who knows how much after it.
            self._part = _Part.BODY
            self._hold(1)

    def answered(self, *, whole: bool) -> None:
        """Nothing is held of a request any more.

        Args:
            whole: all of it had come, so another may follow; else what comes is thrown away.
        """
        if self._part is _Part.BODY:
            self._part, self._body_bytes = _Part.HEAD if whole else _Part.REST, 0
            self._connections.unfinished.release(self)

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
        self._connections.release(self)
        self._connections.unfinished.release(self)
        self._handler.connection_lost(exc)

    def upgraded(self, link: Upgraded) -> None:
        """Bound it no longer: it is a link now, of which only unfinished messages are counted.

        Raises:
            TransportError: more came than the request, whose answer must be waited for (RFC 6455,
                section 4.1): where messages begin cannot be told.
        """
        self._connections.release(self)
        if self._part is not _Part.BODY or self._body_bytes:
            raise TransportError("link.early", "frames came before the upgrade was answered")
        self._link, self._part = link, _Part.MESSAGES

    def crowded_out(self, error: TransportError) -> None:
        """Count why, and end: all connections hold too much, and this one for longest."""
        if self._link is None:
            self.fail(error)
        else:
            self._link.crowded_out(error)

    def check(self, now: float) -> None:
        """Act on a peer that asks for nothing, or does not take its answer; the sweep's."""
        limits = self._connections.limits
        unread = self._transport.get_write_buffer_size()
        if not self._asked:
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
        unfinished: requests and WebSocket messages that are not whole yet.
    """

    def __init__(
        self,
        handler: Callable[[], asyncio.Protocol],
        clock: Clock,
        limits: LinkLimits,
        unfinished: Unfinished | None = None,
    ) -> None:
        self.limits = limits
        self.unfinished = unfinished or Unfinished(limits.unfinished_bytes_max)
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
