"""One TCP link: a connection, its codec, and what bounds it in time and memory."""

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import cast

from rillnode.codecs.errors import CodecError, HandshakeError, RillnodeError, TransportError
from rillnode.codecs.framing import LinkCodec
from rillnode.codecs.links import LinkInfo
from rillnode.codecs.texts import one_text
from rillnode.transports.clock import Timer
from rillnode.transports.groups import LinkGroup
from rillnode.transports.links import LinkEvents, LinkLimits
from rillnode.transports.meters import LinkMeter


class TcpLink(asyncio.Protocol):
    """One TCP connection and its codec; satisfies `Link`.

    Whole reads go to the codec and whole batches to the user. Until the codec is established,
    nobody holds the link but `dial`, which awaits `settled`; `make_events` is called then.
    """

    __slots__ = (
        "_begun_at",
        "_blocked_at",
        "_codec",
        "_completed",
        "_deadline",
        "_error",
        "_events",
        "_group",
        "_heard",
        "_heard_at",
        "_info",
        "_make_events",
        "_paused",
        "_reason",
        "_sent",
        "_sent_at",
        "_settled",
        "_silence",
        "_transport",
        "host",
        "meter",
        "remote",
    )

    _transport: asyncio.Transport
    _info: LinkInfo
    _make_events: Callable[[], LinkEvents]  # until opened

    def __init__(
        self,
        group: LinkGroup,
        codec: LinkCodec,
        make_events: Callable[[], LinkEvents],
        settled: "asyncio.Future[None] | None" = None,
    ) -> None:
        self._group = group
        self._codec = codec
        self._make_events = make_events
        self._settled = settled
        self._events: LinkEvents | None = None  # once opened
        self._reason: str | None = None  # once closing
        self._error: RillnodeError | None = None
        self._deadline = 0.0  # of the handshake, then of a quiet link's next act, then of closing
        self._silence: Timer | None = None  # runs while the codec waits for its peer
        self._blocked_at: float | None = None
        self._heard = self._sent = self._paused = self._completed = False
        self._heard_at = self._sent_at = self._begun_at = 0.0
        now = group.clock.monotonic()
        self.meter = LinkMeter(group.transport, now, dialled=settled is not None)
        self.remote = self.host = "unknown"

    # What the user of the link calls.

    @property
    def info(self) -> LinkInfo:
        """Who is at the other end; known once the link is open."""
        return self._info

    @property
    def buffered_bytes(self) -> int:
        """Outgoing bytes that the operating system has not taken yet."""
        return self._transport.get_write_buffer_size()

    def send(self, messages: Sequence[bytes]) -> None:
        """Frame, seal and write messages, in order, as one write; no-op once closed.

        Raises:
            CodecError: a message is empty or larger than the peer takes; none is sent.
        """
        if self._reason is not None or not messages:
            return
        data = self._codec.encode(messages)
        self._transport.write(data)
        self._sent = True
        self.meter.messages_out += len(messages)
        self.meter.bytes_out += len(data)
        if (
            self._blocked_at is not None  # else it is below the high mark
            and self._transport.get_write_buffer_size() > self._group.limits.buffer_bytes_max
        ):
            self._fail(TransportError("link.buffer_full", "the peer reads too slowly"))

    def pause_reading(self) -> None:
        """Stop reading from the peer until `resume_reading`; idempotent."""
        self._paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on; idempotent."""
        self._paused = False
        self._transport.resume_reading()

    def close(self, reason: str) -> None:
        """Close after what is buffered was written, within `close_seconds`."""
        if self._reason is None:
            self._reason = reason
            self._deadline = self._group.clock.monotonic() + self._group.limits.close_seconds
            self._transport.close()

    def crowded_out(self, error: TransportError) -> None:
        """Close: the messages that all links are inside of hold too much."""
        self._group.count(self, error)
        self.close(str(error))

    # What the group's sweep calls.

    def check(self, now: float) -> None:
        """Act on deadlines; at most one sweep round late."""
        limits = self._group.limits
        if self._reason is not None:
            if now >= self._deadline:
                self._transport.abort()
        elif self._events is None:
            if now >= self._deadline:
                text = "the handshake took too long: the other side may speak another protocol here"
                self._fail(TransportError("link.handshake_timeout", text))
        elif now < self._deadline and self._quiet:
            self._begun_at = now
        elif self._blocked_at is not None and now - self._blocked_at >= limits.drain_seconds:
            self._fail(TransportError("link.not_drained", "the peer reads too slowly"))
        elif self._unfinished(now, limits.message_seconds):
            self._fail(TransportError("link.unfinished", "the peer did not finish a message"))
        else:
            self._check_idle(now, limits)

    @property
    def _quiet(self) -> bool:
        """Whether nothing has come or gone since the last look, and nothing waits to."""
        return not (self._heard or self._sent or self._paused or self._blocked_at is not None)

    def _unfinished(self, now: float, seconds: float) -> bool:
        """Whether the peer has been inside one message for too long."""
        if self._completed or self._paused:
            self._completed, self._begun_at = False, now
        try:
            self._codec.end()
        except CodecError:
            return now - self._begun_at >= seconds
        self._begun_at = now
        return False

    def _check_idle(self, now: float, limits: LinkLimits) -> None:
        # A quiet link is not looked at again until something can be due; most links are quiet.
        quiet = self._quiet and self._begun_at == now
        if not (self._heard or self._sent):
            self._codec.rest()
        # Reads and writes only set a flag, which costs less than asking the clock each time.
        if self._heard or self._paused:
            self._heard, self._heard_at = False, now
        if self._sent:
            self._sent, self._sent_at = False, now
        heard_at, sent_at, never = self._heard_at, self._sent_at, math.inf
        close_after, ping_after = limits.idle_close_seconds, limits.idle_ping_seconds
        unused_after = limits.unused_close_seconds
        close_at = never if close_after is None else heard_at + close_after
        ping_at = never if ping_after is None else sent_at + ping_after
        unused_at = never if unused_after is None else max(heard_at, sent_at) + unused_after
        if now >= close_at:
            self._fail(TransportError("link.idle", "the peer was silent for too long"))
        elif now >= ping_at:
            self._transport.write(self._codec.ping())
            self._sent_at = now
        elif now >= unused_at:
            self.close("unused")
        else:
            self._deadline = min(close_at, ping_at, unused_at) if quiet else 0.0

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the link and send the codec's first bytes."""
        self._transport = cast(asyncio.Transport, transport)
        self.host, self.remote = _peer_of(transport)
        refusal = self._group.admit(self)
        if refusal is not None:
            self._fail(refusal)
            return
        limits = self._group.limits
        self._transport.set_write_buffer_limits(
            high=limits.buffer_high_bytes, low=limits.buffer_high_bytes // 2
        )
        now = self._group.clock.monotonic()
        self.meter.connected(self._transport, now)
        self._deadline = now + limits.handshake_seconds
        self._transport.write(self._codec.start())
        self._go_on()

    def data_received(self, data: bytes) -> None:
        """Hand one read to the codec and its messages to the user."""
        if self._reason is not None:
            return
        self._heard = True
        self.meter.bytes_in += len(data)
        try:
            messages = self._codec.receive(data)
        except (CodecError, HandshakeError) as error:
            self._fail(error)
            return
        held, unfinished = self._codec.held_bytes, self._group.unfinished
        if held or unfinished.held_bytes:
            unfinished.hold(self, held, begun=bool(messages))
        if self._events is None:
            self._go_on()
        if messages and self._events is not None and self._reason is None:
            self._completed = True
            self.meter.messages_in += len(messages)
            self._events.messages_received(messages)

    def eof_received(self) -> None:
        """Close; an end inside a message is the peer's error."""
        if self._reason is not None:
            return
        try:
            self._codec.end()
        except (CodecError, TransportError) as error:
            self._fail(error)
        else:
            self.close("closed by the peer")

    def pause_writing(self) -> None:
        """Outgoing bytes are above the high mark: the drain time runs."""
        self._blocked_at = self._group.clock.monotonic()

    def resume_writing(self) -> None:
        """Outgoing bytes are below the low mark again."""
        self._blocked_at = None
        if self._events is not None and self._reason is None:
            self._events.link_drained()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the user, or `dial`, that the link is gone."""
        self._group.release(self)
        self._group.unfinished.release(self)
        self._stop_waiting()
        failed = self._reason is None
        # Nothing may be sent from here on: not all loops take what is written to a lost connection.
        self._reason = reason = self._reason or (
            f"the connection broke: {exc}" if exc else "closed by the peer"
        )
        if self._events is not None:
            self._events.link_closed(reason)
            return
        if failed:
            self._error = TransportError("link.broken", "the connection broke in the handshake")
            self._group.count(self, self._error)
        if self._settled is not None and not self._settled.done():
            error = self._error or TransportError("link.closed", reason)
            if not isinstance(error, TransportError):
                # Bytes that are no handshake: harmed on the way, perhaps, so worth another try.
                error = TransportError(error.code, str(error))
            self._settled.set_exception(error)

    def _go_on(self) -> None:
        """Write what the codec wants sent; open the link, or wait for as long as it says."""
        self._stop_waiting()
        self._transport.write(self._codec.take_output())
        if self._codec.established:
            self._opened()
        elif (seconds := self._codec.silence_seconds) is not None:
            self._silence = self._group.clock.call_later(seconds, self._peer_silent)

    def _stop_waiting(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None

    def _peer_silent(self) -> None:
        self._silence = None
        if self._reason is not None:
            return
        try:
            self._codec.silent()
        except TransportError as error:
            self._fail(error)
        else:
            self._go_on()

    def _opened(self) -> None:
        identity = self._codec.remote_identity
        self._info = LinkInfo(
            # Tables and counters of the node hold it, too: one text for all.
            principal="anonymous" if identity is None else one_text(f"noise:{identity}"),
            remote=self.remote,
            transport=self._group.transport,
            dialled=self._settled is not None,
            message_bytes_max=self._codec.message_bytes_max,
            wire_format=self._codec.wire_format,
        )
        now = self._heard_at = self._sent_at = self._begun_at = self._group.clock.monotonic()
        self._group.proved(self)
        self._group.handshakes.record(self.meter.opened(self._info.principal, now))
        self._events = self._make_events()
        del self._make_events
        self._events.link_opened(self)
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)
        self._settled = None

    def _fail(self, error: RillnodeError) -> None:
        """Close because of the peer: at once, but for a last word of the handshake."""
        self._error = error
        self._group.count(self, error)
        if self._events is None:
            self._group.unproven += 1
        last_word = self._codec.take_output()
        if last_word:
            self._transport.write(last_word)
            self.close(str(error))
        else:
            self._reason = str(error)
            self._transport.abort()


def _peer_of(transport: asyncio.BaseTransport) -> tuple[str, str]:
    """The peer's host, and its address as text."""
    name = transport.get_extra_info("peername")
    if not name:
        return "unknown", "unknown"
    return name[0], address_text(name[0], name[1])


def address_text(host: str, port: int) -> str:
    """Write `host:port`, with brackets round an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
