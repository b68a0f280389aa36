"""WebSocket links on the aiohttp server, where several protocols share a port with HTTP.

A message for many links is made into a server frame once (`server_frame`: frames of a server carry
no mask), and that same frame is written to each. What one turn of the loop has for a link goes out
as one write.
"""

import asyncio
import struct
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from aiohttp import WSCloseCode, WSMsgType, web

from rillnode.codecs.errors import RillnodeError, TransportError
from rillnode.codecs.links import LinkInfo
from rillnode.transports.backlog import Backlog
from rillnode.transports.clock import Timer
from rillnode.transports.groups import LinkGroup
from rillnode.transports.http_connections import HttpConnection
from rillnode.transports.links import Link
from rillnode.transports.meters import LinkMeter
from rillnode.transports.tcp_link import address_text

_FIN_TEXT: Final = 0x81
_FIN_BINARY: Final = 0x82
_FIN_CLOSE: Final = 0x88
_SHORT: Final = struct.Struct(">BB")
_MEDIUM: Final = struct.Struct(">BBH")
_LONG: Final = struct.Struct(">BBQ")

_REASON_BYTES_MAX: Final = 123
"""RFC 6455, section 5.5: a close frame holds 125 bytes, two of them the code."""


def server_frame(message: bytes, *, text: bool) -> bytes:
    """One whole unmasked WebSocket frame (RFC 6455, section 5.2) around a message.

    Args:
        message: the payload; UTF-8 where `text` is set.
        text: a text frame, else a binary one.
    """
    opcode = _FIN_TEXT if text else _FIN_BINARY
    size = len(message)
    if size < 126:
        return _SHORT.pack(opcode, size) + message
    if size < 65_536:
        return _MEDIUM.pack(opcode, 126, size) + message
    return _LONG.pack(opcode, 127, size) + message


def close_reason(text: str) -> bytes:
    """As much of a text as a close frame holds."""
    return text.encode()[:_REASON_BYTES_MAX].decode(errors="ignore").encode()


class WebSocketEvents(Protocol):
    """The events of a WebSocket link; see `LinkEvents`. Messages are those of its frames."""

    def link_opened(self, link: "WebSocketLink") -> None:
        """The link is open; the first event."""
        ...

    def messages_received(self, messages: list[bytes]) -> None:
        """Whole messages, in order; none after `close`."""
        ...

    def link_drained(self) -> None:
        """Outgoing bytes fell below the low mark after having been above the high one."""
        ...

    def link_closed(self, reason: str) -> None:
        """The link is gone; the last event, only ever after `link_opened`."""
        ...


class WebSocketLink:
    """One accepted WebSocket; satisfies `Link`. What it sends is text or binary, one kind per link.

    Attributes:
        host: the peer's host.
        remote: the peer's address.
        info: who is at the other end: nobody has proved anything yet.
    """

    def __init__(
        self,
        group: LinkGroup,
        socket: web.WebSocketResponse,
        transport: asyncio.Transport,
        *,
        text: bool,
        either: bool = False,
        message_bytes_max: int,
    ) -> None:
        name = transport.get_extra_info("peername") or ("unknown", 0)
        self.host: str = name[0]
        self.remote = address_text(name[0], name[1])
        self.info = LinkInfo(
            principal="anonymous",
            remote=self.remote,
            transport=group.transport,
            dialled=False,
            message_bytes_max=message_bytes_max,
        )
        self._loop = asyncio.get_running_loop()
        self._group = group
        self._socket = socket
        self._transport = transport
        self._text = text
        self._either = either
        self._events: WebSocketEvents | None = None
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._reason: str | None = None
        self._closing: asyncio.Task[None] | None = None
        self._bound: Timer | None = None  # of a close, while it waits for the peer
        self._backlog = Backlog(group.limits)
        self.meter = LinkMeter(group.transport, group.clock.monotonic(), dialled=False)

    @property
    def buffered_bytes(self) -> int:
        """Outgoing bytes that the operating system has not taken yet."""
        return self._outgoing_bytes + self._transport.get_write_buffer_size()

    def frame(self, messages: Sequence[bytes]) -> bytes:
        """Frame messages, in order, for every link of this kind."""
        return b"".join([server_frame(message, text=self._text) for message in messages])

    def send(self, messages: Sequence[bytes]) -> None:
        """Send messages, in order; no-op once closed."""
        self.send_framed(self.frame(messages), len(messages))

    def send_framed(self, framed: bytes, count: int) -> None:
        """Send what `frame` has made of `count` messages; no-op once closed."""
        if self._reason is not None or not framed:
            return
        if not self._outgoing:
            self._group.write_soon(self._flush)
        self._outgoing.append(framed)
        size = len(framed)
        self._outgoing_bytes += size
        meter = self.meter
        meter.messages_out += count
        meter.bytes_out += size
        if self.buffered_bytes > self._group.limits.buffer_bytes_max:
            self._fail(TransportError("link.buffer_full", "the peer reads too slowly"))

    def pause_reading(self) -> None:
        """Take no more messages until `resume_reading`; idempotent.

        aiohttp stops reading the socket by itself when a few messages wait.
        """
        self._resumed.clear()

    def resume_reading(self) -> None:
        """Read on; idempotent."""
        self._resumed.set()

    def close(self, reason: str, code: int = WSCloseCode.OK) -> None:
        """Write what is buffered, then close with a code and a reason, within `close_seconds`."""
        if self._reason is not None:
            return
        self._flush()
        self._reason = reason
        if self._events is not None:  # else it is in its handshake, and `run` closes it
            self._closing = self._loop.create_task(self._end(reason, code))
            # A peer that does not read keeps it waiting.
            group = self._group
            self._bound = group.clock.call_later(group.limits.close_seconds, self._transport.abort)
        self._resumed.set()

    def check(self, now: float) -> None:
        """Act on a peer that does not read; the group's, once per sweep."""
        try:
            drained = self._backlog.drained(self.buffered_bytes, now)
        except TransportError as error:
            self._fail(error)
            return
        if drained and self._events is not None and self._reason is None:
            self._events.link_drained()

    async def run(self, events: WebSocketEvents) -> None:
        """Tell `events` of the link from its opening to its end."""
        reason = "the connection broke"
        if self._reason is not None:
            self._group.release(self)
            await self._end(self._reason, WSCloseCode.OK)
            return
        self._events = events
        self._group.proved(self)
        self.meter.connected(self._transport, self._group.clock.monotonic())
        self.meter.opened(self.info.principal, self._group.clock.monotonic())
        events.link_opened(self)
        try:
            reason = await self._read(events)
        finally:
            self._reason = self._reason or reason
            self._group.release(self)
            events.link_closed(self._reason)
        if self._closing is not None:
            # The peer's answer to the close; its wait is bounded.
            await self._closing
        if self._bound is not None:
            self._bound.cancel()

    async def _end(self, reason: str, code: int) -> None:
        await self._socket.close(code=code, message=close_reason(reason))

    def _flush(self) -> None:
        outgoing, self._outgoing, self._outgoing_bytes = self._outgoing, [], 0
        if self._reason is None and outgoing:
            self._transport.write(outgoing[0] if len(outgoing) == 1 else b"".join(outgoing))

    async def _read(self, events: WebSocketEvents) -> str:
        expected = [WSMsgType.TEXT if self._text else WSMsgType.BINARY]
        if self._either:
            expected = [WSMsgType.TEXT, WSMsgType.BINARY]
        while True:
            await self._resumed.wait()
            message = await self._socket.receive()
            if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                await self._resumed.wait()  # it may have been paused meanwhile
            if self._reason is not None:
                return self._reason
            if message.type in expected:
                self.meter.messages_in += 1
                self.meter.bytes_in += len(message.data)
                events.messages_received([message.data])
            elif message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                kind = "text" if self._text else "binary"
                self.close(f"only {kind} messages are taken here", WSCloseCode.UNSUPPORTED_DATA)
            elif message.type is WSMsgType.ERROR:
                return f"the connection broke: {self._socket.exception()}"
            else:
                return "closed by the peer"

    def message_too_long(self, error: TransportError) -> None:
        """Count why, and close; what the peer is still sending is thrown away meanwhile."""
        if self._reason is None:
            self._group.count(self, error)
            self.close(str(error), WSCloseCode.MESSAGE_TOO_BIG)

    def crowded_out(self, error: TransportError) -> None:
        """Close: the messages that all links are inside of hold too much."""
        self.fail_with(error, WSCloseCode.TRY_AGAIN_LATER)

    def fail_with(self, error: TransportError, code: int) -> None:
        """Close at once because of the peer, with a last frame that says why."""
        if self._reason is not None:
            self._transport.abort()
            return
        self._group.count(self, error)
        self._flush()
        self._reason = str(error)
        payload = struct.pack(">H", code) + close_reason(self._reason)
        self._transport.write(_SHORT.pack(_FIN_CLOSE, len(payload)) + payload)
        self._transport.close()
        self._resumed.set()

    def _fail(self, error: RillnodeError) -> None:
        self._group.count(self, error)
        self._reason = str(error)
        self._outgoing, self._outgoing_bytes = [], 0
        self._transport.abort()
        self._resumed.set()


_: type[Link] = WebSocketLink


async def accept_websocket(
    request: web.Request,
    events: WebSocketEvents,
    group: LinkGroup,
    *,
    text: bool,
    either: bool = False,
    message_bytes_max: int,
    ping_seconds: float | None,
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    """Answer an upgrade and serve the link to its end: the body of an aiohttp handler.

    Args:
        request: the upgrade.
        events: told of the link.
        group: its limits bound the link; where it admits no more the answer is HTTP 503.
        text: the link carries text messages, else binary ones.
        either: it takes both.
        message_bytes_max: a longer message closes the link with code 1009, which the peer hears
            even while it is sending.
        ping_seconds: time between pings; a peer that does not answer within half of it is closed.
        headers: added to those of the answer.
    """
    socket = web.WebSocketResponse(
        compress=False,
        # The connection sees to the length, and to it that the peer hears of it; the library does
        # neither, and refuses what is exactly as long as it is told.
        max_msg_size=message_bytes_max + 1,
        heartbeat=ping_seconds,
        timeout=group.limits.close_seconds,
        decode_text=False,
    )
    transport = request.transport
    if transport is None:
        return web.Response(status=400, text="The connection is gone\n")
    connection = transport.get_protocol()
    if isinstance(connection, HttpConnection):
        transport = connection.transport
    socket.headers.update(headers or {})
    link = WebSocketLink(
        group, socket, transport, text=text, either=either, message_bytes_max=message_bytes_max
    )
    refusal = group.admit(link)
    if refusal is not None:
        group.count(link, refusal)
        return web.Response(status=503, text=f"{refusal.text}\n")
    try:
        await socket.prepare(request)
    except BaseException:
        group.release(link)
        raise
    if isinstance(connection, HttpConnection):
        try:
            connection.upgraded(link, message_bytes_max)
        except TransportError as error:
            link.fail_with(error, WSCloseCode.PROTOCOL_ERROR)
    await link.run(events)
    return socket
