"""Counts what links did in plain numbers, which whoever watches reads."""

import asyncio
import socket
import struct
from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

_TCP_INFO: Final[int | None] = getattr(socket, "TCP_INFO", None)
_ROUND_TRIP: Final = struct.Struct("=68xI")
"""Linux, `struct tcp_info`: tcpi_rtt, microseconds, is the u32 at byte 68."""

HANDSHAKE_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper bounds of the histogram of handshakes, seconds."""


class Meter:
    """The bytes and messages that a link, or a group of links, took and gave.

    Attributes:
        messages_in: whole messages received.
        messages_out: messages sent.
        bytes_in: bytes received, framing and encryption included where the link makes them.
        bytes_out: bytes sent, likewise.
    """

    __slots__ = ("bytes_in", "bytes_out", "messages_in", "messages_out")

    def __init__(self) -> None:
        self.messages_in = self.messages_out = 0
        self.bytes_in = self.bytes_out = 0

    def add(self, other: "Meter") -> None:
        """Add what another one has counted."""
        self.messages_in += other.messages_in
        self.messages_out += other.messages_out
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out


class Histogram:
    """A count of values below each bound.

    Attributes:
        bounds: ascending upper bounds; a value is at most its bound.
        counts: for each bound, and last for what is above all.
        total: sum of the values.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def record(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass(frozen=True, slots=True)
class LinkFailure:
    """A link that failed or was refused: when (monotonic seconds), who, and why."""

    at: float
    remote: str
    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkView:
    """One link as it is now, for people.

    Attributes:
        peer: the principal at the other end; empty before it is known.
        round_trip_seconds: the operating system's estimate; None where it has none.
        seconds: time since the link was made.
        buffered_bytes: outgoing bytes that the peer has not taken yet.
    """

    protocol: str
    remote: str
    direction: str
    state: str
    peer: str
    round_trip_seconds: float | None
    seconds: float
    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int
    buffered_bytes: int


class LinkMeter(Meter):
    """The figures of one link.

    Args:
        protocol: the name of the listener or dialler, such as `noise`.
        now: monotonic seconds.
        dialled: whether this end made the link.
    """

    __slots__ = ("_dialled", "_made_at", "_peer", "_protocol", "_transport")

    def __init__(self, protocol: str, now: float, *, dialled: bool) -> None:
        super().__init__()
        self._protocol = protocol
        self._made_at = now
        self._dialled = dialled
        self._peer: str | None = None
        self._transport: asyncio.Transport | None = None

    def connected(self, transport: asyncio.Transport, now: float) -> None:
        """There is a connection, whose handshake begins."""
        self._transport, self._made_at = transport, now

    def opened(self, peer: str, now: float) -> float:
        """The handshake has shown the principal `peer`; return how long it took."""
        self._peer = peer
        return now - self._made_at

    @property
    def state(self) -> str:
        """`handshake`, `open` or `closing`."""
        if self._transport is not None and self._transport.is_closing():
            return "closing"
        return "handshake" if self._peer is None else "open"

    def view(self, remote: str, now: float) -> LinkView:
        """How the link is now, for people."""
        transport = self._transport
        return LinkView(
            protocol=self._protocol,
            remote=remote,
            direction="out" if self._dialled else "in",
            state=self.state,
            peer=self._peer or "",
            round_trip_seconds=None if transport is None else _round_trip_seconds(transport),
            seconds=now - self._made_at,
            messages_in=self.messages_in,
            messages_out=self.messages_out,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            buffered_bytes=0 if transport is None else transport.get_write_buffer_size(),
        )


def _round_trip_seconds(transport: asyncio.BaseTransport) -> float | None:
    """The kernel's smoothed estimate of a TCP connection's round trip; None where it has none."""
    raw = transport.get_extra_info("socket")
    if raw is None or _TCP_INFO is None:
        return None
    try:
        info = raw.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _ROUND_TRIP.size)
    except OSError:
        return None
    if len(info) < _ROUND_TRIP.size:
        return None
    microseconds: int = _ROUND_TRIP.unpack(info)[0]
    return microseconds / 1e6 if microseconds else None
