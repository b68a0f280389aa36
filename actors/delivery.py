"""What routed messages travel in: where they came from, and the batch for one worker."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rillnode.codecs.ockam.routing import WireMessage

if TYPE_CHECKING:
    from rillnode.actors.cell import Cell


@dataclass(slots=True, eq=False)
class Origin:
    """Where messages came from: one connection, shared by all that it sends.

    Attributes:
        principal: who the peer has proved to be.
        message_bytes_max: largest wire message that it takes as an answer.
        native: it speaks rillnode's own protocols too, and so can be told why it was refused.
        connection: its actor, which is sent `HANDLED` when `unhandled` falls to 0.
        unhandled: batches that workers have not handled yet.
        reserved_bytes: bytes of answers that workers are preparing for it; its connection hands
            on nothing more while this is high.
        attached: actors that live no longer than the connection.
    """

    principal: str
    message_bytes_max: int
    native: bool
    connection: "Cell | None" = None
    unhandled: int = 0
    reserved_bytes: int = 0
    attached: "set[Cell]" = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Delivery:
    """Messages for one worker from one origin, in order; its address is first in each route."""

    origin: Origin
    messages: Sequence[WireMessage]
    tracked: bool = False


class Handled:
    """Tells a connection that its workers have handled what it handed on."""


HANDLED: Final = Handled()
