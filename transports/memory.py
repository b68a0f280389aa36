"""Links inside one process: batches of messages handed over by reference."""

from collections.abc import Callable, Sequence

from rillnode.codecs.framing import checked_lengths
from rillnode.codecs.limits import FRAME_BYTES_MAX
from rillnode.codecs.links import LinkInfo
from rillnode.transports.clock import Clock, Timer
from rillnode.transports.links import NOISE_LIMITS, LinkEvents, LinkLimits

Post = Callable[[Callable[[], object]], object]
"""Runs a call later on the loop's thread, after those posted before: `loop.call_soon`."""


class MemoryLink:
    """One end of a link inside the process; satisfies `Link`.

    What it sends waits in its own `_outbox` until the other end reads, so the bounds are the
    sender's, as on a socket.
    """

    __slots__ = (
        "_blocked",
        "_buffered",
        "_clock",
        "_closing",
        "_delivery_posted",
        "_events",
        "_gone",
        "_info",
        "_limits",
        "_outbox",
        "_paused",
        "_peer",
        "_post",
        "_reason",
    )

    _peer: "MemoryLink"

    def __init__(
        self, info: LinkInfo, events: LinkEvents, post: Post, clock: Clock, limits: LinkLimits
    ) -> None:
        self._info = info
        self._events = events
        self._post = post
        self._clock = clock
        self._limits = limits
        self._outbox: list[bytes] = []
        self._buffered = 0
        self._delivery_posted = False
        self._paused = False
        self._blocked: Timer | None = None  # runs while the outbox is above the high mark
        self._closing: Timer | None = None  # runs while closing waits for the outbox
        self._reason: str | None = None  # once closing
        self._gone = False

    def join(self, peer: "MemoryLink") -> None:
        """Make two new ends one link."""
        self._peer, peer._peer = peer, self

    @property
    def info(self) -> LinkInfo:
        """Who is at the other end."""
        return self._info

    @property
    def buffered_bytes(self) -> int:
        """Outgoing bytes that the other end has not read yet."""
        return self._buffered

    def send(self, messages: Sequence[bytes]) -> None:
        """Queue messages, in order, for the other end; no-op once closed.

        Raises:
            CodecError: a message is empty or too large; none is sent.
        """
        if self._reason is not None or not messages:
            return
        self._buffered += sum(checked_lengths(messages, self._info.message_bytes_max))
        self._outbox += messages
        self._post_delivery()
        limits = self._limits
        if self._buffered > limits.buffer_bytes_max:
            self._break("the peer reads too slowly")
        elif self._buffered > limits.buffer_high_bytes and self._blocked is None:
            self._blocked = self._clock.call_later(
                limits.drain_seconds, lambda: self._break("the peer reads too slowly")
            )

    def pause_reading(self) -> None:
        """Take nothing from the other end until `resume_reading`; idempotent."""
        self._paused = True

    def resume_reading(self) -> None:
        """Read on; idempotent."""
        self._paused = False
        self._peer._post_delivery()

    def close(self, reason: str) -> None:
        """Close both ends once the other has read what is queued, within `close_seconds`."""
        if self._reason is not None:
            return
        self._reason = reason
        if self._outbox:
            self._closing = self._clock.call_later(self._limits.close_seconds, self._finish)
        else:
            self._post(self._finish)

    def _post_delivery(self) -> None:
        if self._outbox and not self._delivery_posted:
            self._delivery_posted = True
            self._post(self._deliver)

    def _deliver(self) -> None:
        self._delivery_posted = False
        peer = self._peer
        if peer._paused or self._gone or not self._outbox:
            return
        messages, self._outbox, self._buffered = self._outbox, [], 0
        if peer._reason is None:
            peer._events.messages_received(messages)
        if self._blocked is not None:
            self._blocked.cancel()
            self._blocked = None
            if self._reason is None:
                self._events.link_drained()
        if self._reason is not None and not self._outbox:
            self._post(self._finish)

    def _break(self, reason: str) -> None:
        """Close both ends without handing over what is queued."""
        self._reason = self._reason or reason
        self._outbox.clear()
        self._buffered = 0
        self._post(self._finish)

    def _finish(self) -> None:
        """End both ends; the first of them to get here says why."""
        if self._gone:
            return
        peer = self._peer
        for end in (self, peer):
            end._gone = True
            end._outbox.clear()
            end._buffered = 0
            for timer in (end._blocked, end._closing):
                if timer is not None:
                    timer.cancel()
        peer._reason = peer._reason or "closed by the peer"
        self._events.link_closed(self._reason or "closed")
        peer._events.link_closed(peer._reason)


def connect_memory(
    dialling: LinkEvents,
    accepting: LinkEvents,
    *,
    dialling_principal: str,
    accepting_principal: str,
    post: Post,
    clock: Clock,
    limits: LinkLimits = NOISE_LIMITS,
) -> tuple[MemoryLink, MemoryLink]:
    """Make a link; both ends, `(dialling, accepting)`, are open when this returns.

    Each principal is who that end is, so what the other end sees in its `info`. `limits` bounds
    each direction as on a socket: `buffer_high_bytes`, `buffer_bytes_max`, `drain_seconds` and
    `close_seconds`. Events come through `post`, but for `link_opened`.
    """

    def end(events: LinkEvents, peer_principal: str, *, dialled: bool) -> MemoryLink:
        info = LinkInfo(
            principal=peer_principal,
            remote="memory",
            transport="memory",
            dialled=dialled,
            message_bytes_max=FRAME_BYTES_MAX,
        )
        return MemoryLink(info, events, post, clock, limits)

    near = end(dialling, accepting_principal, dialled=True)
    far = end(accepting, dialling_principal, dialled=False)
    near.join(far)
    accepting.link_opened(far)
    dialling.link_opened(near)
    return near, far
