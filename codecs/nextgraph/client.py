"""The client protocol's one message, in both directions.

Requests and their answers carry the same id. Events are forwarded without being asked for, on the
overlay that they were published on. The last two kinds are of the development version of 2026-04:
a client published by then ends the connection when it gets an `InboxReceive`.

Source: the Client Protocol's specification; nextgraph-rs 9ea23f60, engine/net/src/types.rs.
"""

from enum import IntEnum
from typing import Annotated, Final

from msgspec import Struct

from rillnode.codecs.nextgraph.blocks import Block
from rillnode.codecs.nextgraph.events import Event
from rillnode.codecs.nextgraph.inbox import InboxMessage
from rillnode.codecs.nextgraph.requests import ClientRequest
from rillnode.codecs.nextgraph.responses import ClientResponse
from rillnode.codecs.nextgraph.types import V0, OverlayId

STORED_BEFORE: Final = b"stored before"
"""Padding of the answer to a PublishEvent whose commit the topic had already. The protocol has no
word for it: clients take any result but 0 for a failure, and pass over the padding."""


class InboxReceive(Struct):
    """A message from an inbox: as it came, or asked for from the queue."""

    msg: InboxMessage
    from_queue: bool


class ClientEvent(IntEnum):
    """A client's message that expects no response."""

    INBOX_POP_REQUEST = 0


ClientContent = (
    Annotated[ClientRequest, V0]
    | Annotated[ClientResponse, V0]
    | Annotated[Event, V0]
    | Annotated[Block, V0]
    | InboxReceive
    | ClientEvent
)
"""What is said; `Event` and `Block` are forwarded ones."""


class ClientMessage(Struct):
    """A message about an overlay; `padding` may hide its length, see also STORED_BEFORE."""

    overlay: OverlayId
    content: ClientContent
    padding: bytes = b""
