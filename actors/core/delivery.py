"""Wraps routed messages: their origin, and the batch for one worker."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rillnode.actors.core.room import Room
from rillnode.actors.engine.cell import Cells
from rillnode.codecs.limits import LINK_BUFFER_HIGH_BYTES
from rillnode.codecs.links import WireFormat
from rillnode.codecs.routing.routes import WireMessage

if TYPE_CHECKING:
    from rillnode.actors.engine.cell import Cell
    from rillnode.actors.log import LogStore
    from rillnode.actors.ports import Link


@dataclass(slots=True, eq=False)
class Origin:
    """The origin of messages: one connection, shared by all that it sends.

    Attributes:
        principal: who the peer has proved to be.
        message_bytes_max: largest wire message that it takes as an answer.
        native: it speaks rillnode's own protocols too, and so can be told why it was refused.
        connection: its actor.
        reserved_bytes: bytes that workers keep of what it has sent; its connection hands on
            nothing more while this is high.
        carrier: the origin of the connection whose secure channel these messages come out of.
        link: its link, for who sends to the peer unasked and must not send more than it takes.
        own_room: where what is for the peer is read; made by `room` for the first who reads.
        wire_format: how answers are written to it.
        appender: the actor that appends to many partitions for it, once it has asked for that.
    """

    principal: str
    message_bytes_max: int
    native: bool
    connection: "Cell | None" = None
    reserved_bytes: int = 0
    carrier: "Origin | None" = None
    link: "Link | None" = None
    wire_format: WireFormat = "bare"
    appender: "Cell | None" = None
    own_room: Room | None = None
    # Most connections have nothing attached, and many nobody who watches: empty sets for each would
    # take more than all the rest. A link that is in many overlays has a watcher for each of them.
    _attached: Cells | None = field(default=None, init=False, repr=False)
    _watchers: Cells | None = field(default=None, init=False, repr=False)
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

    @property
    def ended(self) -> bool:
        """Whether the connection is gone."""
        return self._ended

    def end(self) -> None:
        """The connection is gone: end what is attached to it, and tell who watches it."""
        self._ended = True
        if self.own_room is not None:
            self.own_room.close()
        for cell in tuple(self._attached or ()):
            cell.base.exit(cell)
        watchers, self._watchers = self._watchers, None
        for cell in watchers or ():
            cell.base.post(cell, LinkLost(self))

    def room(self, store: "LogStore") -> Room | None:
        """Of the connection's link, where it has one: what is for its peer is read through that."""
        account = self.carrier or self
        cell = account.connection
        if account.own_room is None and account.link is not None and cell is not None:
            later = cell.base.timing.call_later
            account.own_room = Room(store, account.link, later, cell)
            if account._ended:
                account.own_room.close()
        return account.own_room

    @property
    def congested(self) -> bool:
        """Whether the peer has much to take still of what was sent to it."""
        link = (self.carrier or self).link
        return link is not None and link.buffered_bytes > LINK_BUFFER_HIGH_BYTES

    @property
    def account(self) -> "Origin":
        """Whose `reserved_bytes` count: the connection's, however deep inside."""
        return self.carrier or self


@dataclass(frozen=True, slots=True)
class LinkLost:
    """The connection of `origin` is gone."""

    origin: Origin


class Slice:
    """A batch that a connection hands on; it waits until workers have handled it.

    Attributes:
        unhandled: batches of it that workers have not handled yet.
        waiter: is sent `HANDLED` when there is none any more; None: nobody waits for that.
    """

    __slots__ = ("unhandled", "waiter")

    def __init__(self) -> None:
        self.unhandled = 0
        self.waiter: Cell | None = None


class Delivery(Struct, frozen=True):
    """Messages for one worker from one origin, in order; its address is first in each route.

    A Struct, as all that is made for each batch: in a quarter of a frozen dataclass's time.

    Attributes:
        tracked: what it is a part of until it is handled; None: nobody waits for that.
    """

    origin: Origin
    messages: Sequence[WireMessage]
    tracked: Slice | None = None

    def again(self) -> None:
        """Who has it posts it on as it is: it is to be handled once more."""
        if self.tracked is not None:
            self.tracked.unhandled += 1

    def handled(self) -> None:
        """Its worker is done with it: a connection learns when all that it handed on is handled."""
        part_of = self.tracked
        if part_of is None or not part_of.unhandled:
            return
        part_of.unhandled -= 1
        if not part_of.unhandled and part_of.waiter is not None:
            part_of.waiter.base.post(part_of.waiter, HANDLED)

    def size(self) -> int:
        """Bytes of its payloads."""
        messages = self.messages
        if len(messages) == 1:  # as mostly, where messages travel one by one
            return len(messages[0].payload)
        return sum([len(message.payload) for message in messages])

    @property
    def answers_bytes_max(self) -> int:
        """What its answers may take together, one to each message."""
        return self.origin.message_bytes_max * len(self.messages)


class Handled:
    """Tells a connection that its workers have handled what it handed on."""


HANDLED: Final = Handled()
