"""What routed messages travel in: where they came from, and the batch for one worker."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rillnode.actors.engine.cell import Cells
from rillnode.codecs.limits import LINK_BUFFER_HIGH_BYTES
from rillnode.codecs.links import WireFormat
from rillnode.codecs.ockam.routing import WireMessage

if TYPE_CHECKING:
    from rillnode.actors.engine.cell import Cell
    from rillnode.actors.ports import Link


@dataclass(slots=True, eq=False)
class Origin:
    """Where messages came from: one connection, shared by all that it sends.

    Attributes:
        principal: who the peer has proved to be.
        message_bytes_max: largest wire message that it takes as an answer.
        native: it speaks rillnode's own protocols too, and so can be told why it was refused.
        connection: its actor, which is sent `HANDLED` when `unhandled` falls to 0.
        unhandled: batches that workers have not handled yet.
        awaited: whether the connection waits for that; else it is not told.
        reserved_bytes: bytes of answers that workers are preparing for it; its connection hands
            on nothing more while this is high.
        posted_bytes: bytes that are read for it, or posted to its connection, unasked, and have not
            got to the link; who sends so waits while these and the link's are many.
        carrier: the origin of the connection whose secure channel these messages come out of.
        link: its link, for who sends to the peer unasked and must not send more than it takes.
        wire_format: how answers are written to it.
    """

    principal: str
    message_bytes_max: int
    native: bool
    connection: "Cell | None" = None
    unhandled: int = 0
    awaited: bool = True
    reserved_bytes: int = 0
    posted_bytes: int = 0
    carrier: "Origin | None" = None
    link: "Link | None" = None
    wire_format: WireFormat = "bare"
    # Most connections have nothing attached, and many nobody who watches: empty sets for each would
    # take more than all the rest. A link that is in many overlays has a watcher for each of them.
    _attached: Cells | None = field(default=None, init=False, repr=False)
    _watchers: Cells | None = field(default=None, init=False, repr=False)
    _hungry: Cells | None = field(default=None, init=False, repr=False)
    _ended: bool = field(default=False, init=False, repr=False)

    @property
    def attached(self) -> Collection["Cell"]:
        """Actors that live no longer than the connection, oldest first."""
        return self._attached or ()

    def attach(self, cell: "Cell") -> None:
        """Have an actor end with the connection; harmless when repeated.

        What a connection has sent may be handled after its end: then the actor ends at once.
        """
        if self._ended:
            cell.base.exit(cell)
            return
        if self._attached is None:
            self._attached = Cells()
        self._attached.add(cell)

    def detach(self, cell: "Cell") -> None:
        """Undo `attach`; harmless when repeated."""
        if self._attached is not None:
            self._attached.discard(cell)
            self._attached = self._attached or None

    def watch(self, cell: "Cell") -> None:
        """Have an actor sent a LinkLost at the connection's end; harmless when repeated.

        After its end it is sent soon.
        """
        if self._ended:
            cell.base.post(cell, LinkLost(self))
            return
        if self._watchers is None:
            self._watchers = Cells()
        self._watchers.add(cell)

    def unwatch(self, cell: "Cell") -> None:
        """Undo `watch`; harmless when repeated."""
        if self._watchers is not None:
            self._watchers.discard(cell)
            self._watchers = self._watchers or None

    def end(self) -> None:
        """The connection is gone: end what is attached to it, and tell who watches it."""
        self._ended = True
        for cell in tuple(self._attached or ()):
            cell.base.exit(cell)
        watchers, self._watchers = self._watchers, None
        for cell in watchers or ():
            cell.base.post(cell, LinkLost(self))

    # Room for what is sent unasked: one budget for all that a link's peer has subscribed to, so
    # that a thousand subscriptions take no more memory than one.

    @property
    def has_room(self) -> bool:
        """Whether more may be read and sent unasked; where not, `wait_for_room`."""
        link = self.link
        return link is None or self.posted_bytes + link.buffered_bytes <= LINK_BUFFER_HIGH_BYTES

    def wait_for_room(self, cell: "Cell") -> None:
        """Have an actor sent ROOM when it is its turn; who waits already keeps its place."""
        if self._hungry is None:
            self._hungry = Cells()
        self._hungry.add(cell)

    def leave_room(self, cell: "Cell") -> None:
        """An actor waits no more, and needs no turn."""
        if self._hungry is not None:
            self._hungry.discard(cell)
        self.make_room()

    def make_room(self) -> None:
        """Give the turn to who has waited longest, if there is room.

        Called when the link has taken something, and by who was given the turn and sends nothing.
        """
        if self._hungry and self.has_room:
            cell = next(iter(self._hungry))
            self._hungry.discard(cell)
            self._hungry = self._hungry or None
            cell.base.post(cell, ROOM)

    @property
    def congested(self) -> bool:
        """Whether the peer has much to take still of what was sent to it."""
        link = (self.carrier or self).link
        return link is not None and link.buffered_bytes > LINK_BUFFER_HIGH_BYTES

    @property
    def account(self) -> "Origin":
        """Whose `unhandled` and `reserved_bytes` count: the connection's, however deep inside."""
        return self.carrier or self


@dataclass(frozen=True, slots=True)
class LinkLost:
    """The connection of `origin` is gone."""

    origin: Origin


class Delivery(Struct, frozen=True):
    """Messages for one worker from one origin, in order; its address is first in each route.

    A Struct, as all that is made for each batch: in a quarter of a frozen dataclass's time.
    """

    origin: Origin
    messages: Sequence[WireMessage]
    tracked: bool = False

    def handled(self) -> None:
        """Its worker is done with it: a connection learns when all that it handed on is handled."""
        if not self.tracked:
            return
        origin = self.origin.account
        if origin.unhandled > 0:
            origin.unhandled -= 1
            if not origin.unhandled and origin.awaited and origin.connection is not None:
                origin.connection.base.post(origin.connection, HANDLED)

    def size(self) -> int:
        """Bytes of its payloads."""
        return sum(len(message.payload) for message in self.messages)

    @property
    def answers_bytes_max(self) -> int:
        """What its answers may take together, one to each message."""
        return self.origin.message_bytes_max * len(self.messages)


class Room:
    """Tells an actor that it may send what it has for a link."""


ROOM: Final = Room()


class Handled:
    """Tells a connection that its workers have handled what it handed on."""


HANDLED: Final = Handled()
