"""Passes the events of a link to the actor that is made for it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, cast

from msgspec import Struct

from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.links.tracing import Kind, Trace, TracedLink, trace_of
from rillnode.actors.engine.cell import GONE
from rillnode.actors.engine.system import AsyncioSystemBase, Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.ports import Clock, Link

LinkT = TypeVar("LinkT", bound=Link)


HELD_READS_MAX: Final = 2
"""Reads that may still come from a link after it was told to read no more."""

WAITING_BYTES_MAX: Final = 8_388_608
"""Bytes that wait for a link's actor, above which the link is not read: whoever sends faster than
that is handled is not to fill the memory. Messages are not counted so, but for the bound of the
mailbox: a WebSocket brings small ones one by one, and they are verified and stored together."""


class Received(Struct, frozen=True):
    """The whole messages of one read, in order.

    Attributes:
        frames: the messages.
        held: the actor has as much waiting as may, and its link is not read until it says so.
    """

    frames: list[bytes]
    held: bool = False

    def size(self) -> int:
        """Bytes of the messages."""
        frames = self.frames
        return len(frames[0]) if len(frames) == 1 else sum(map(len, frames))


@dataclass(frozen=True, slots=True)
class Closed:
    """The link is gone; `reason` is for people."""

    reason: str


def link_address(prefix: bytes, clock: Clock, numbers: Iterator[int]) -> bytes:
    """The address of a link that carries no routed messages: it can only be looked up.

    Nobody is let to it, so it need not be hard to guess; no other link has had it, nor has it after
    the node was started anew.
    """
    return b"%s%x_%d" % (prefix, clock.now_ms(), next(numbers))


def link_named(link: Link) -> dict[str, str]:
    """What a log says of a link when it opens and when it closes, so that the two can be paired."""
    info = link.info
    return {"transport": info.transport, "remote": info.remote, "peer": info.principal[:22]}


def nobody(_address: bytes, _origin: Origin) -> bool:
    """Let nobody send to an address."""
    return False


class LinkActorEvents(Generic[LinkT]):
    """Makes a link's actor when it opens; satisfies `LinkEvents`.

    The actor is sent Received for each read, and Closed as the last. A link whose actor has ended,
    or could not be made, is closed with what it brings.

    Args:
        system: where the actor lives.
        factory: what makes the actor of an open link, as `spawn` takes it.
    """

    __slots__ = ("_cell", "_factory", "_link", "_system", "_trace")

    def __init__(
        self, system: AsyncioSystemBase, factory: Callable[[LinkT], Callable[[], Worker]]
    ) -> None:
        self._system = system
        system.sizes[Received] = Received.size
        self._factory = factory
        self._cell: Cell | None = None
        self._link: LinkT | None = None
        self._trace: Trace | None = None

    @property
    def cell(self) -> Cell | None:
        """The link's actor; None before the link opens."""
        return self._cell

    def kind_of(self, link: LinkT) -> Kind:
        """What names the messages of a link in its trace; here they are all the same."""
        return lambda _: "message"

    def link_opened(self, link: LinkT) -> None:
        """Make the link's actor."""
        trace = self._trace = trace_of(link, self.kind_of)
        told = self._link = link if trace is None else cast(LinkT, TracedLink(link, trace))
        self._cell = self._system.spawn(self._factory(told))
        del self._factory  # there is one of it for each link

    def messages_received(self, messages: list[bytes]) -> None:
        """Hand the messages of one read to the actor."""
        if self._trace is not None:
            self._trace.received(messages)
        cell = self._cell
        if cell is None:
            return
        if cell.mailbox is not GONE:
            held = cell.is_full or cell.waiting_bytes >= WAITING_BYTES_MAX
            if held and self._link is not None:
                self._link.pause_reading()
            self._system.post(cell, Received(messages, held))
        elif self._link is not None:
            self._link.close("its actor has ended")

    def link_drained(self) -> None:
        """The peer took what was buffered; a held connection looks for itself."""

    def link_closed(self, reason: str) -> None:
        """The actor ends with its link."""
        self._link = None
        if self._cell is not None and not self._cell.exited:
            self._system.post(self._cell, Closed(reason))
