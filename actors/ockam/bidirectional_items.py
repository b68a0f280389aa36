"""Items of bi-directional streams on their way out: which worker each one's message goes to.

An item waits, and those behind it, while the peer that it is for is not there:

- Its onward route begins with a connection or secure channel that has ended. The item is the
  subscriber's, whose connection it was, or an earlier one of the same node: it goes through the
  one that the subscriber has now, and waits until there is one.
- It begins with an alias of the static forwarding service that nobody holds now: it waits for
  ITEM_HELD_SECONDS_MAX at most.

Anything else goes at once to whom its onward route names, and is lost where there is nobody.

One service's answer is no request to another: what a service has sent is not taken to a service,
or two of them would answer each other through their streams for ever.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rillnode.actors.core.streams.context import ADDRESS_PREFIX as STREAM_PREFIX, StreamContext
from rillnode.actors.core.streams.presence import Presence
from rillnode.actors.engine.system import Cell
from rillnode.actors.ockam.bidirectional_publisher import ReturnPublishers
from rillnode.actors.ockam.static_forwarding import PREFIX as ALIAS_PREFIX
from rillnode.codecs.errors import CodecError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import NAME_BYTES_MAX
from rillnode.codecs.ockam.stream_item import decode_entry
from rillnode.codecs.routing.routes import LOCAL, Route, WireMessage, local

logger = event_logger("rillnode.actors.ockam.bidirectional_items")

_LINK: Final = re.compile(rb"(?:(?:TCP|NX)_[HC]_|MEM_)?[0-9a-f]{16}")
"""Addresses of connections and secure channels; none comes back once its link has ended."""

ITEM_HELD_SECONDS_MAX: Final = 3_600.0
"""How long an item waits for an alias that nobody holds."""


@dataclass(slots=True, kw_only=True)
class Subscription:
    """A consumer's subscription; it outlives the consumer's instances.

    Attributes:
        principal: with whose rights the stream is read and publishers push.
        stream: its name; partition 0 is read.
        subscription_id: the client id that the index is saved under.
        presence: of the subscriber.
        publishers: into the return streams of its items.
        services: addresses of workers that answer whatever they get, streams apart.
        began: told of the consumer when an instance of it begins.
        ended: told of it when one ends: what is counted for it does not wait for a message.
        opened: whether the stream has been found or made.
    """

    principal: str
    stream: str
    subscription_id: str
    presence: Presence
    publishers: ReturnPublishers
    services: frozenset[bytes]
    began: Callable[[Cell], object]
    ended: Callable[[Cell], object]
    opened: bool = False


class ItemRouting:
    """Makes the messages of one subscription's items, and knows when they can go on."""

    def __init__(
        self, context: StreamContext, own_address: bytes, subscription: Subscription
    ) -> None:
        self._own_address = own_address
        self._router = context.router
        self._clock = context.clock
        self._subscription = subscription
        self._held = (-1, 0.0)

    def message(self, data: bytes, consumer: Cell) -> WireMessage | None:
        """An item's message as it goes to its worker; None: the entry is not to be delivered.

        First in its return route stands a publisher, or the consumer where no stream is named
        that an answer could go to.
        """
        try:
            return_stream, message = decode_entry(data)
        except CodecError as error:
            self._drop("bad_item", error.code)
            return None
        sender = message.return_route[-1:]
        if self._has_service(sender) and self._has_service(message.onward_route):
            self._drop("service_loop", "from a service to a service")
            return None
        first = self._own_address
        if return_stream and len(return_stream.encode()) <= NAME_BYTES_MAX:
            first = self._subscription.publishers.address_of(return_stream, consumer)
        return message._replace(return_route=(local(first), *message.return_route))

    def _drop(self, counter: str, reason: str) -> None:
        stream = self._subscription.stream
        logger.info("item_dropped", extra={"stream": stream, "reason": reason})
        self._router.undelivered[counter] += 1

    def _has_service(self, route: Route) -> bool:
        services = self._subscription.services
        return any(
            hop.value in services or hop.value.startswith(STREAM_PREFIX)
            for hop in route
            if hop.type == LOCAL
        )

    def reachable(self, message: WireMessage, index: int) -> WireMessage | None:
        """The message of entry `index` as it can be routed now; None while it has to wait."""
        onward = message.onward_route
        if not onward or onward[0].type != LOCAL or self._router.lookup(onward[0].value):
            return message
        address = onward[0].value
        if _LINK.fullmatch(address):
            presence = self._subscription.presence
            if not presence.connected:
                return None
            return message._replace(onward_route=(presence.link, *onward[1:]))
        if address.startswith(ALIAS_PREFIX):
            now = self._clock.monotonic()
            if self._held[0] != index:
                self._held = index, now
            if now - self._held[1] < ITEM_HELD_SECONDS_MAX:
                return None
        return message
