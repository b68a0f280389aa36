"""A group of links of one listener or dialler: its bounds, and its end."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from rillnode.codecs.errors import RillnodeError, TransportError
from rillnode.codecs.events import event_logger
from rillnode.transports.clock import Clock
from rillnode.transports.links import LinkLimits
from rillnode.transports.meters import (
    HANDSHAKE_BOUNDS,
    Histogram,
    LinkFailure,
    LinkMeter,
    LinkView,
    Meter,
)
from rillnode.transports.sweep import Sweep
from rillnode.transports.unfinished import Unfinished

_logger = event_logger("rillnode.transports.links")

FAILURES_KEPT_MAX: Final = 50
"""Newest failures of a group that are kept for people. Own choice: what a page shows."""

SLICE_LINKS: Final = 500
"""Links whose state is asked for in one turn of the loop: each takes a microsecond or two."""

SLICE_CLOSED: Final = 64
"""Links closed in one turn of the loop: each writes what it still has, some 20 us. Own choice."""


class Member(Protocol):
    """A link of a group, in its handshake or open. It calls `LinkGroup.release` when it is gone.

    Attributes:
        host: the peer's host, by which links are counted.
        remote: its address, for people.
        meter: what is seen of it.
    """

    host: str
    remote: str
    meter: LinkMeter

    def check(self, now: float) -> None:
        """Act on deadlines that have passed at `now` (monotonic seconds)."""
        ...

    def close(self, reason: str) -> None:
        """Close after what is buffered was written, within `close_seconds`."""
        ...


class LinkGroup:
    """Links that share their limits, one sweep timer and the count of what went wrong.

    Attributes:
        transport: the name of the listener, such as `noise`.
        counters: links that failed or were refused, by error code.
        failures: the newest of them.
        opened: links whose handshake succeeded.
        handshakes: seconds that it took, where there is one.
        unproven: links whose handshake failed or was refused.
        unfinished: messages of the links that are not whole yet.
    """

    __slots__ = (
        "_left",
        "_links",
        "_open",
        "_past",
        "_per_host",
        "_proving",
        "_sweep",
        "_unwritten",
        "clock",
        "counters",
        "failures",
        "handshakes",
        "limits",
        "opened",
        "transport",
        "unfinished",
        "unproven",
    )

    def __init__(self, *, transport: str, clock: Clock, limits: LinkLimits) -> None:
        self.transport = transport
        self.clock = clock
        self.limits = limits
        self.counters: Counter[str] = Counter()
        self.failures: list[LinkFailure] = []
        self.opened = 0
        self.unproven = 0
        self.unfinished = Unfinished(limits.unfinished_bytes_max)
        self.handshakes = Histogram(HANDSHAKE_BOUNDS)
        self._past = Meter()
        self._links: dict[Member, LinkMeter] = {}
        # The oldest first (a dict would find its first in linear time); None while there is none,
        # as an empty one takes more than most links do.
        self._proving: OrderedDict[Member, None] | None = None
        self._per_host: Counter[str] = Counter()
        self._sweep = Sweep(clock, self._links.keys(), limits.sweep_seconds)
        self._left: asyncio.Event | None = None  # once closing
        self._open = True
        self._unwritten: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._links)  # those in their handshake included

    async def states(self) -> Counter[str]:
        """How many links are in each state; of thousands some are looked at in each turn."""
        meters = list(self._links.values())
        states: Counter[str] = Counter()
        for start in range(0, len(meters), SLICE_LINKS):
            if start:
                await asyncio.sleep(0)
            states.update(meter.state for meter in meters[start : start + SLICE_LINKS])
        return states

    def views(self) -> Iterator[LinkView]:
        """Each link as it is now, for people; those in their handshake included."""
        now = self.clock.monotonic()
        return (link.meter.view(link.remote, now) for link in self._links)

    def total(self) -> Meter:
        """What all links took and gave so far, those that are gone included."""
        total = Meter()
        for meter in (self._past, *self._links.values()):
            total.messages_in += meter.messages_in
            total.messages_out += meter.messages_out
            total.bytes_in += meter.bytes_in
            total.bytes_out += meter.bytes_out
        return total

    def admit(self, link: Member) -> RillnodeError | None:
        """Take a new link in, or say why not.

        Where there is no more room, the one longest in its handshake makes some: authenticated
        peers are admitted even under a connection flood.
        """
        limits = self.limits
        if not self._open:
            return TransportError("link.stopping", "no more links are taken")
        if self._per_host[link.host] >= limits.connections_per_address_max:
            return TransportError("link.too_many_from_address", "too many links from one address")
        if len(self._links) >= limits.connections_max and not self._make_room():
            return TransportError("link.too_many", "too many links")
        self._per_host[link.host] += 1
        if self._proving is None:
            self._proving = OrderedDict()
        self._links[link] = link.meter
        self._proving[link] = None
        self._sweep.start()
        return None

    def proved(self, link: Member) -> None:
        """The handshake of a link has succeeded: it makes no room for others any more."""
        self.opened += 1
        self._proves_no_more(link)

    def _proves_no_more(self, link: Member) -> None:
        if self._proving is not None:
            self._proving.pop(link, None)
            self._proving = self._proving or None

    def release(self, link: Member) -> None:
        """Let a link go; harmless for one that was not admitted."""
        if link not in self._links:
            return
        del self._links[link]
        self._proves_no_more(link)
        self._past.add(link.meter)
        self._per_host[link.host] -= 1
        if not self._per_host[link.host]:
            del self._per_host[link.host]
        if self._left is not None:
            self._left.set()

    def count(self, link: Member, error: RillnodeError) -> None:
        """Count and log a failure: its code and who, never what was sent."""
        self.counters[error.code] += 1
        self.failures.append(
            LinkFailure(self.clock.monotonic(), link.remote, error.code, error.text)
        )
        if len(self.failures) > FAILURES_KEPT_MAX:
            del self.failures[0]
        _logger.info(
            "link_failed",
            extra={"code": error.code, "remote": link.remote, "transport": self.transport},
        )

    def _make_room(self) -> bool:
        """End the link that has been in its handshake for longest, if there is one."""
        while self._proving:
            oldest, _ = self._proving.popitem(last=False)
            if oldest.meter.state == "handshake":
                error = TransportError(
                    "link.crowded_out", "its handshake was slow, and made room for others"
                )
                self.release(oldest)
                self.count(oldest, error)
                oldest.close(str(error))
                return True
        return False

    def stop(self) -> None:
        """Take no more links in."""
        self._open = False

    def write_soon(self, write: Callable[[], None]) -> None:
        """Have a link write in the next turn of the loop, which is one callback for all links."""
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self._write)
        self._unwritten.append(write)

    def _write(self) -> None:
        unwritten, self._unwritten = self._unwritten, []
        for write in unwritten:
            try:
                write()
            except Exception:
                _logger.exception("not_written")

    async def close(self, reason: str) -> None:
        """Close every link and wait until all are gone, which the limits bound."""
        self.stop()
        for number, link in enumerate(list(self._links), 1):
            link.close(reason)
            if not number % SLICE_CLOSED:
                await asyncio.sleep(0)
        left = self._left = self._left or asyncio.Event()
        while self._links:
            left.clear()
            await left.wait()
