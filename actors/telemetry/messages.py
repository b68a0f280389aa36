"""Messages that know which span they belong to, and the router that ends the spans of lost ones."""

from collections.abc import Iterable
from typing import Final

from rillnode.actors.core.delivery import Delivery
from rillnode.actors.core.router import Router
from rillnode.actors.ports import Span
from rillnode.codecs.routing.routes import WireMessage

PARENTS_MAX: Final = 64
"""Contexts that one batch remembers. Own choice: as many as a connection hands on in one turn."""


class TracedMessage(WireMessage):
    """A wire message of a trace; in all else it is the message.

    Attributes:
        context: the trace context that it came with.
        span: the forwarding that it is part of here; None until it is forwarded.
    """

    context: str
    span: Span | None

    @classmethod
    def of(cls, message: WireMessage, context: str, span: Span | None = None) -> "TracedMessage":
        """A message with what is known of its trace."""
        made = cls(*message)
        made.context = context
        made.span = span
        return made


def contexts_of(messages: Iterable[WireMessage]) -> list[str]:
    """The different trace contexts that the messages of a batch came with, in their order."""
    found: dict[str, None] = {}
    for message in messages:
        if isinstance(message, TracedMessage) and len(found) < PARENTS_MAX:
            found[message.context] = None
    return list(found)


def span_of(delivery: Delivery) -> Span | None:
    """The forwarding that a batch is part of."""
    first = delivery.messages[0] if delivery.messages else None
    return first.span if isinstance(first, TracedMessage) else None


class TracedRouter(Router):
    """A router that tells of what it cannot deliver."""

    def _note_undelivered(self, reason: str, delivery: Delivery) -> None:
        """Count messages that reach nobody, and end their spans."""
        for message in delivery.messages:
            if isinstance(message, TracedMessage) and message.span is not None:
                message.span.end({}, reason)
        super()._note_undelivered(reason, delivery)
