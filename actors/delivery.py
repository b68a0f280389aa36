"""What routed messages travel in: where they came from, and the batch for one worker."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rillnode.actors.cells import Cells
from rillnode.codecs.limits import LINK_BUFFER_HIGH_BYTES
from rillnode.codecs.ockam.routing import WireMessage

if TYPE_CHECKING:
    from rillnode.actors.cell import Cell
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
        attached: actors that live no longer than the connection.
        carrier: the origin of the connection whose secure channel these messages come out of.
        link: its link, for who sends to the peer unasked and must not send more than it takes.
    """

    principal: str
    message_bytes_max: int
    native: bool
    connection: "Cell | None" = None
    unhandled: int = 0
    awaited: bool = True
    reserved_bytes: int = 0
    attached: Cells = field(default_factory=Cells)
    carrier: "Origin | None" = None
    link: "Link | None" = None

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
class Delivery:
    """Messages for one worker from one origin, in order; its address is first in each route."""

    origin: Origin
    messages: Sequence[WireMessage]
    tracked: bool = False

    @property
    def answers_bytes_max(self) -> int:
        """What its answers may take together, one to each message."""
        return self.origin.message_bytes_max * len(self.messages)


class Handled:
    """Tells a connection that its workers have handled what it handed on."""


HANDLED: Final = Handled()
