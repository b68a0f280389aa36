"""The connections of an HTTP listener, up to the moment that one becomes a WebSocket.

An HTTP library bounds what is inside a request. What is around it is bounded here: how many
connections there are, how long one may take to ask for something, and how long it may leave an
answer unread. A connection that is upgraded leaves; its link's limits hold then. What all hold of
requests and messages that are not whole is counted for both.

A connection that is closed with bytes unread is reset by the system, and its peer loses what it has
not read yet: the frame that says why. So a WebSocket's connection lingers: what comes is thrown
away until the peer has closed its side too, for a bounded time.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, Protocol, cast

from rillnode.codecs.errors import TransportError
from rillnode.codecs.events import event_logger
from rillnode.codecs.websocket import MessageScanner
from rillnode.transports.clock import Clock, Timer
from rillnode.transports.links import LinkLimits
from rillnode.transports.sweep import Sweep
from rillnode.transports.tcp_link import address_text
from rillnode.transports.unfinished import Unfinished

_logger = event_logger("rillnode.transports.http")

_END_OF_HEAD: Final = b"\r\n\r\n"

_THROWN_BYTES_MAX: Final = 268_435_456
"""What is read and thrown away of a peer that goes on sending while its WebSocket is closed."""

_TAKEN_BYTES_MIN: Final = 65_536
"""As much of what waits for it a peer has to take in `drain_seconds`, if not all of it: one that
takes a byte now and then would hold its place for ever. Own choice, 2 kB/s."""

_LINGERING_MAX: Final = 256
"""Connections of one listener whose peers are given time to see why their WebSocket is closed."""


class _Part(Enum):
    """What the next bytes belong to."""

    HEAD = "a request's head, or nothing yet"
    BODY = "a request whose head is whole and that is not answered"
    REST = "a request that was answered before all of it had come; then the connection ends"
    MESSAGES = "WebSocket messages"
    THROWN = "what comes while a WebSocket is closed, or after a message that is too long"


class Upgraded(Protocol):
    """The WebSocket that a connection has become."""

    def message_too_long(self, error: TransportError) -> None:
        """Count why, and close: nothing more of what is read is handed on."""
        ...

    def crowded_out(self, error: TransportError) -> None:
        """Count why, and end: nothing more is read."""
        ...


class _LibrarysTransport(asyncio.Transport):
    """A connection's transport as the HTTP library has it: to close is for the connection.

    What is written to one that is lost is gone, on whatever loop: uvloop would raise RuntimeError.
    """

    __slots__ = ("_connection", "_transport")

    def __init__(self, connection: "HttpConnection", transport: asyncio.Transport) -> None:
        super().__init__()
        self._connection = connection
        self._transport = transport

    def close(self) -> None:
        self._connection.close()

    def is_closing(self) -> bool:
        return self._connection.lingers or self._transport.is_closing()

    def pause_reading(self) -> None:
        if not self._connection.lingers:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def is_reading(self) -> bool:
        return self._transport.is_reading()

    def abort(self) -> None:
        self._transport.abort()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._transport.is_closing():
            self._connection.written_bytes += len(data)
            self._transport.write(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        if not self._transport.is_closing():
            pieces = tuple(list_of_data)
            self._connection.written_bytes += sum(map(len, pieces))
            self._transport.writelines(pieces)

    def write_eof(self) -> None:
        if not self._transport.is_closing():
            self._transport.write_eof()

    def can_write_eof(self) -> bool:
        return self._transport.can_write_eof()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._transport.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: object = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._transport.get_protocol()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._transport.set_protocol(protocol)


class HttpConnection(asyncio.Protocol):
    """One accepted connection; hands on all that it is told to the HTTP library's protocol.

    Attributes:
        host: the peer's host.
        remote: the peer's address.
        written_bytes: how much was written to it.
        lingers: it is closed as far as others know, and the peer is given time to see that.
        transport: what it is made of.
    """

    __slots__ = (
        "_asked",
        "_body_bytes",
        "_connections",
        "_handler",
        "_link",
        "_message_bytes_max",
        "_moved_at",
        "_part",
        "_scanner",
        "_tail",
        "_taken_bytes",
        "_thrown_bytes",
        "host",
        "lingers",
        "remote",
        "transport",
        "written_bytes",
    )

    transport: asyncio.Transport

    def __init__(self, connections: "HttpConnections", handler: asyncio.Protocol) -> None:
        self.host = "unknown"
        self.remote = "unknown"
        self.lingers = False
        self._connections = connections
        self._handler = handler
        self._asked = False
        self._part = _Part.HEAD
        self._tail = b""  # the last bytes of a head that is not whole
        self._body_bytes = 0
        self._scanner = MessageScanner()
        self._link: Upgraded | None = None
        self._message_bytes_max: int = 0
        self._thrown_bytes: int = 0
        self._moved_at = 0.0
        self.written_bytes = self._taken_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand on, if there is room."""
        # By shape only: uvloop's are not asyncio's.
        self.transport = transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername") or (self.host, 0)
        self.host, self.remote = name[0], address_text(name[0], name[1])
        self._handler.connection_made(_LibrarysTransport(self, transport))
        self._moved_at = self._connections.admit(self)

    def data_received(self, data: bytes) -> None:
        """Hand on, and see how far the request or the message is."""
        if self.transport.is_closing():
            return  # what TLS had taken in already
        match self._part:
            case _Part.HEAD:
                self._look_for_end(data)
            case _Part.BODY:
                self._hold(self._body_bytes + len(data))
            case _Part.MESSAGES:
                begun = self._scanner.feed(data)
                if self._scanner.longest_bytes > self._message_bytes_max:
                    self._throw(data)
                    return
                self._connections.unfinished.hold(self, self._scanner.held_bytes, begun=begun)
            case _Part.THROWN:
                self._scanner.feed(data)
                self._throw(data)
                return
            case _Part.REST:
                pass
        if not self.transport.is_closing():  # nor has this been too much
            self._handler.data_received(data)

    def _throw(self, data: bytes) -> None:
        """Have the link closed, if it is not, and read on until the peer has seen that."""
        link = self._link
        if self._part is _Part.MESSAGES and link is not None:
            # What has come of the message stays counted: the library has it until the end.
            self._part = _Part.THROWN
            text = f"messages of at most {self._message_bytes_max:,} bytes are taken here"
            link.message_too_long(TransportError("link.message_too_long", text))
        self._thrown_bytes += len(data)
        if self.lingers and (self._scanner.closed or self._thrown_bytes > _THROWN_BYTES_MAX):
            self.end()

    def close(self) -> None:
        """Close, or linger where the peer may not have seen yet that a WebSocket is closed."""
        if self.lingers or self.transport.is_closing():
            return
        if self._part not in (_Part.MESSAGES, _Part.THROWN) or self._scanner.closed:
            self.transport.close()
            return
        self.lingers, self._part = True, _Part.THROWN
        self.transport.resume_reading()
        self._connections.linger(self)

    def end(self) -> None:
        """Linger no longer; what the peer has not taken by now is given up."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

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
        return None if self.lingers else self._handler.eof_received()

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

    def upgraded(self, link: Upgraded, message_bytes_max: int) -> None:
        """Bound it no longer: it is a link now, of whose messages the length is seen to.

        Raises:
            TransportError: more came than the request, whose answer must be waited for (RFC 6455,
                section 4.1): where messages begin cannot be told.
        """
        self._connections.release(self)
        if self._part is not _Part.BODY or self._body_bytes:
            raise TransportError("link.early", "frames came before the upgrade was answered")
        self._link, self._part = link, _Part.MESSAGES
        self._message_bytes_max = message_bytes_max

    def crowded_out(self, error: TransportError) -> None:
        """Count why, and end: all connections hold too much, and this one for longest."""
        if self._link is None:
            self.fail(error)
        else:
            self._link.crowded_out(error)

    def check(self, now: float) -> None:
        """Act on a peer that asks for nothing, or does not take its answer; the sweep's."""
        limits = self._connections.limits
        unread = self.transport.get_write_buffer_size()
        if not self._asked:
            if now - self._moved_at >= limits.handshake_seconds:
                self.fail(TransportError("http.head_timeout", "no request within the limit"))
        elif not unread or self.written_bytes - unread - self._taken_bytes >= _TAKEN_BYTES_MIN:
            self._moved_at, self._taken_bytes = now, self.written_bytes - unread
        elif now - self._moved_at >= limits.drain_seconds:
            self.fail(TransportError("link.not_drained", "the peer reads too slowly"))

    def fail(self, error: TransportError) -> None:
        """Count why, and end the connection at once."""
        self._connections.count(self, error)
        self.transport.abort()


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
        self._lingering: dict[HttpConnection, Timer] = {}
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
                oldest.fail(
                    TransportError("http.crowded_out", "it was idle, and made room for others")
                )
            self._per_host[connection.host] += 1
            self._connections[connection] = self.silent[connection] = None
            self._sweep.start()
        return self._clock.monotonic()

    def linger(self, connection: HttpConnection) -> None:
        """Give a connection's peer time to see that it is closed; the longest given makes room."""
        if len(self._lingering) >= _LINGERING_MAX:
            next(iter(self._lingering)).end()
        timer = self._clock.call_later(self.limits.close_seconds, connection.end)
        self._lingering[connection] = timer

    def end(self) -> None:
        """Give nobody any more time."""
        for connection in tuple(self._lingering):
            connection.end()

    def release(self, connection: HttpConnection) -> None:
        """Let a connection go; harmless for one that was not admitted."""
        if (timer := self._lingering.pop(connection, None)) is not None:
            timer.cancel()
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
