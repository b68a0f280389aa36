"""Dialling WebSockets: the counterpart of `accept_websocket`, on aiohttp's client.

Frames of a client are masked, so that each is made for its own link. What one turn of the loop has
for a link goes out in order; the socket's own bound on what it buffers holds the rest back.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import aiohttp
from aiohttp import WSCloseCode, WSMsgType

from rillnode.codecs.errors import CodecError, RillnodeError, TransportError
from rillnode.codecs.events import event_logger
from rillnode.codecs.links import LinkInfo
from rillnode.transports.backlog import Backlog
from rillnode.transports.clock import Clock, Timer
from rillnode.transports.groups import LinkGroup
from rillnode.transports.links import Link, LinkLimits
from rillnode.transports.meters import LinkMeter
from rillnode.transports.watched_client import WatchedConnection, WatchedConnector
from rillnode.transports.web import close_reason

_logger = event_logger("rillnode.transports.web_dialer")

_FAILURES: Final = (aiohttp.ClientError, OSError, TimeoutError, ValueError)


class DialledEvents(Protocol):
    """The events of a dialled WebSocket; see `WebSocketEvents`."""

    def link_opened(self, link: "DialledWebSocket") -> None:
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


MakeEvents = Callable[[Mapping[str, str]], DialledEvents]
"""Makes what is told of a link, of the headers of the server's answer; the link opens then.

Raises:
    CodecError: this is not the server that was meant.
    LinkUnwanted: the link is of no use any more.
"""


class LinkUnwanted(TransportError):
    """A link that this side gives up while it opens; its text is the reason that the peer is told.

    Attributes:
        close_code: what the peer is told beside it.
    """

    def __init__(self, code: str, text: str, *, close_code: int) -> None:
        super().__init__(code, text)
        self.close_code = close_code


class _Socket(aiohttp.ClientWebSocketResponse):
    """A WebSocket that remembers the headers of the server's answer, and its connection."""

    headers: Mapping[str, str]
    watched: WatchedConnection

    def __init__(
        self, reader: Any, writer: Any, protocol: Any, response: Any, *args: Any, **options: Any
    ) -> None:
        super().__init__(reader, writer, protocol, response, *args, **options)
        self.headers = response.headers
        self.watched = response.connection.protocol


class DialledWebSocket:
    """One WebSocket that this side has opened; satisfies `Link`. Its messages are text.

    Attributes:
        host: the peer's host.
        remote: the URL that was dialled.
        info: who is at the other end: nobody has proved anything.
    """

    def __init__(
        self, group: LinkGroup, socket: _Socket, url: str, *, message_bytes_max: int
    ) -> None:
        self.host = self.remote = url
        self.info = LinkInfo(
            principal="anonymous",
            remote=url,
            transport=group.transport,
            dialled=True,
            message_bytes_max=message_bytes_max,
        )
        self.meter = LinkMeter(group.transport, group.clock.monotonic(), dialled=True)
        self._group = group
        self._socket = socket
        self._outgoing: deque[bytes] = deque()
        self._outgoing_bytes = 0
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._writer: asyncio.Task[None] | None = None
        self._reason: str | None = None
        self._close_code = int(WSCloseCode.OK)
        self._bound: Timer | None = None  # of a close, while it waits for the peer
        self._backlog = Backlog(group.limits)
        self._events: DialledEvents | None = None

    @property
    def buffered_bytes(self) -> int:
        """Outgoing bytes that the socket has not taken yet."""
        return self._outgoing_bytes

    def frame(self, messages: Sequence[bytes]) -> bytes:
        """Nothing is framed for several links here: each masks its own frames."""
        return b"".join(messages)

    def send(self, messages: Sequence[bytes]) -> None:
        """Send messages, in order; no-op once closed."""
        if self._reason is not None or not messages:
            return
        size = sum(map(len, messages))
        self._outgoing.extend(messages)
        self._outgoing_bytes += size
        self.meter.messages_out += len(messages)
        self.meter.bytes_out += size
        if self._outgoing_bytes > self._group.limits.buffer_bytes_max:
            self._fail(TransportError("link.buffer_full", "the peer reads too slowly"))
        elif self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write())

    def pause_reading(self) -> None:
        """Take no more messages until `resume_reading`; idempotent."""
        self._resumed.clear()

    def resume_reading(self) -> None:
        """Read on; idempotent."""
        self._resumed.set()

    def close(self, reason: str, code: int = WSCloseCode.OK) -> None:
        """Write what is buffered, then close with a code and a reason, within `close_seconds`."""
        if self._reason is not None:
            return
        self._reason, self._close_code = reason, code
        self._resumed.set()
        # A peer that does not read keeps the writer waiting.
        group = self._group
        self._bound = group.clock.call_later(group.limits.close_seconds, self._socket.watched.abort)
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write())

    def check(self, now: float) -> None:
        """Act on a peer that does not read; the group's, once per sweep."""
        try:
            drained = self._backlog.drained(self.buffered_bytes, now)
        except TransportError as error:
            self._fail(error)
            return
        if drained and self._events is not None and self._reason is None:
            self._events.link_drained()

    def crowded_out(self, error: TransportError) -> None:
        """Count why, and end at once: all links hold too much, and this one for longest."""
        self._fail(error)

    async def run(self, events: DialledEvents) -> None:
        """Tell `events` of the link from its opening to its end."""
        self._events = events
        self._socket.watched.on_held = self._hold
        self._group.proved(self)
        self.meter.opened(self.info.principal, self._group.clock.monotonic())
        events.link_opened(self)
        # What came with the server's answer.
        self._hold(self._socket.watched.held_bytes, False)
        reason = "the connection broke"
        try:
            reason = await self._read(events)
        finally:
            self._reason = self._reason or reason
            self._socket.watched.on_held = None
            self._group.unfinished.release(self)
            self._group.release(self)
            events.link_closed(self._reason)
            if self._writer is not None:
                await asyncio.wait((self._writer,), timeout=self._group.limits.close_seconds)
                self._writer.cancel()
            await self._socket.close()
            if self._bound is not None:
                self._bound.cancel()

    def _hold(self, size: int, begun: bool) -> None:
        self._group.unfinished.hold(self, size, begun=begun)

    async def _read(self, events: DialledEvents) -> str:
        while True:
            await self._resumed.wait()
            message = await self._socket.receive()
            if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                await self._resumed.wait()  # it may have been paused meanwhile
            if self._reason is not None:
                return self._reason
            if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                data = message.data
                payload = data.encode() if isinstance(data, str) else data
                self.meter.messages_in += 1
                self.meter.bytes_in += len(payload)
                events.messages_received([payload])
            elif message.type is WSMsgType.ERROR:
                return f"the connection broke: {self._socket.exception()}"
            else:
                return "closed by the peer"

    async def _write(self) -> None:
        """Write what there is; then close, if that is asked for."""
        try:
            while self._outgoing:
                message = self._outgoing.popleft()
                await self._socket.send_str(message.decode())
                self._outgoing_bytes -= len(message)
            if self._reason is not None:
                reason = close_reason(self._reason)
                await self._socket.close(code=self._close_code, message=reason)
        except _FAILURES as error:
            _logger.debug("not_written", extra={"reason": str(error)})
        finally:
            self._writer = None

    def _fail(self, error: RillnodeError) -> None:
        self._reason = self._reason or str(error)
        self._group.count(self, error)
        self._outgoing.clear()
        self._outgoing_bytes = 0
        self._socket.watched.abort()
        self._resumed.set()


_: type[Link] = DialledWebSocket


class WebSocketDialer:
    """Opens WebSockets in the background, for callers that cannot await.

    Args:
        transport_name: as in the links' `info`.
        connect_seconds: what connecting may take, the upgrade included.
        message_bytes_max: a longer message closes its link with code 1009.
        ping_seconds: time between pings; a peer that does not answer within half of it is closed.
    """

    def __init__(
        self,
        *,
        transport_name: str,
        clock: Clock,
        limits: LinkLimits,
        connect_seconds: float,
        message_bytes_max: int,
        ping_seconds: float,
    ) -> None:
        self.group = LinkGroup(transport=transport_name, clock=clock, limits=limits)
        self._connect_seconds = connect_seconds
        self._message_bytes_max = message_bytes_max
        self._ping_seconds = ping_seconds
        self._session: aiohttp.ClientSession | None = None
        self._attempts: dict[asyncio.Task[None], None] = {}

    def dial(
        self,
        url: str,
        headers: Mapping[str, str],
        make_events: MakeEvents,
        on_failure: Callable[[RillnodeError], None],
    ) -> "asyncio.Task[None]":
        """Begin to open a link; `link_opened` or `on_failure` follows, once, later."""

        async def attempt() -> None:
            try:
                link, events = await self._open(url, headers, make_events)
            except RillnodeError as error:
                _logger.debug("not_reached", extra={"code": error.code, "url": url})
                on_failure(error)
            else:
                await link.run(events)

        task = asyncio.get_running_loop().create_task(attempt())
        self._attempts[task] = None
        task.add_done_callback(self._attempts.__delitem__)
        return task

    async def close(self, reason: str) -> None:
        """Close all links, give up what is being dialled, and wait for them."""
        await self.group.close(reason)
        for task in tuple(self._attempts):
            task.cancel()
        await asyncio.gather(*self._attempts, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def _open(
        self, url: str, headers: Mapping[str, str], make_events: MakeEvents
    ) -> tuple[DialledWebSocket, DialledEvents]:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=WatchedConnector(), ws_response_class=_Socket
            )
        # Pyright cannot see the parameters of aiohttp's class, which attrs makes.
        timeout = aiohttp.ClientWSTimeout(
            ws_close=self.group.limits.close_seconds  # pyright: ignore[reportCallIssue]
        )
        try:
            async with asyncio.timeout(self._connect_seconds):
                socket = await self._session.ws_connect(
                    url,
                    headers=headers,
                    heartbeat=self._ping_seconds,
                    max_msg_size=self._message_bytes_max,
                    timeout=timeout,
                )
        except _FAILURES as error:
            text = f"{url} cannot be reached: {error or type(error).__name__}"
            raise TransportError("link.unreachable", text, address=url) from error
        assert isinstance(socket, _Socket)
        link = DialledWebSocket(self.group, socket, url, message_bytes_max=self._message_bytes_max)
        refusal = self.group.admit(link)
        if refusal is not None:
            await socket.close(code=WSCloseCode.OK)
            raise refusal
        try:
            return link, make_events(socket.headers)
        except LinkUnwanted as error:
            self.group.release(link)
            await socket.close(code=error.close_code, message=close_reason(error.text))
            raise
        except CodecError:
            self.group.release(link)
            await socket.close(code=WSCloseCode.PROTOCOL_ERROR)
            raise
