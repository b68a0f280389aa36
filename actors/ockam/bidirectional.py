"""The subscription service of bi-directional streams: makes consumers and publishers for peers.

    stream_bidirectional            consume `stream_name` on this node; there is no answer
    stream_bidirectional_publisher  make a publisher into `publisher_stream` whose answers go to
                                    `consumer_stream`; answered from the publisher's address

Asking again for the same gives the same: the subscriber's new connection takes the place of the
old one. A subscription and a publisher go on for STREAM_SUBSCRIBER_AWAY_SECONDS_MAX after the
connection that they were asked for through has ended, as released nodes ask through a connection
of its own; neither outlives the node. What a consumer had not delivered by then is delivered after
the next subscription, for the index is saved.

A request that is malformed, not allowed or too much has no answer; it is counted and logged.

Source: ockam-network/proposals, design 0009, bidirectional_worker; the Elixir nodes since 2021-05,
whose examples have the service at `stream_subscribe`.
"""

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Final, NamedTuple

from rillnode.actors.core.delivery import Delivery, Origin
from rillnode.actors.core.return_routes import leads_out
from rillnode.actors.core.streams.context import StreamContext
from rillnode.actors.core.streams.presence import Presence
from rillnode.actors.core.tally import Tally
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.ockam.bidirectional_consumer import PREFIX, ConsumerActor, Renewed
from rillnode.actors.ockam.bidirectional_items import Subscription
from rillnode.actors.ockam.bidirectional_publisher import (
    PublisherSettings,
    ReturnPublishers,
    spawn_publisher,
)
from rillnode.codecs.errors import CodecError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import NAME_BYTES_MAX
from rillnode.codecs.ockam.limits import (
    STREAM_PUBLISHERS_PER_PRINCIPAL_MAX,
    STREAM_SUBSCRIPTIONS_PER_PRINCIPAL_MAX,
)
from rillnode.codecs.routing.routes import WireMessage
from rillnode.codecs.routing.stream import (
    BidirectionalPublisherRequest,
    BidirectionalRequest,
    decode_request,
)

logger = event_logger("rillnode.actors.ockam.bidirectional")

ADDRESSES: Final = (b"stream_subscribe", b"stream_subscribe_service")

DEFAULT_SUBSCRIPTION: Final = "default"

PUBLISHER_ANSWER: Final = b"irrelevant"
"""The answer's payload in released nodes; what counts is its return route."""


class _Key(NamedTuple):
    """What makes two requests the same."""

    principal: str
    streams: tuple[str, ...]
    subscription_id: str


@dataclass(frozen=True, slots=True)
class _Made:
    """A worker made for a peer."""

    cell: Cell
    address: bytes
    presence: Presence


@dataclass(slots=True)
class _Workers:
    """The workers of one kind, and how many each principal has."""

    _made: dict[_Key, _Made] = field(default_factory=dict[_Key, _Made])
    _keys: dict[Cell, _Key] = field(default_factory=dict[Cell, _Key])
    _principals: Tally[str] = field(default_factory=Tally)

    def get(self, key: _Key) -> _Made | None:
        """The worker of a key."""
        made = self._made.get(key)
        if made is not None and made.cell.exited:
            # It could not be made, again and again.
            self.forget(made.cell)
            return None
        return made

    def may_have(self, principal: str, most: int) -> bool:
        """Whether a principal may have another one."""
        if self._principals[principal] >= most:
            for made in [one for one in self._made.values() if one.cell.exited]:
                self.forget(made.cell)
        return self._principals[principal] < most

    def add(self, key: _Key, made: _Made) -> None:
        """Count a worker; harmless when repeated."""
        if made.cell in self._keys:
            return
        self._made[key] = made
        self._keys[made.cell] = key
        self._principals[key.principal] += 1

    def forget(self, cell: Cell) -> None:
        """A worker of either kind has ended."""
        key = self._keys.pop(cell, None)
        if key is not None:
            del self._made[key]
            self._principals.drop(key.principal)


class SubscriptionService(Worker):
    """The service of bi-directional streams, at `stream_subscribe`; one per node.

    Args:
        context: the node's parts.
        index_service: saves the indexes of subscriptions.
        services: addresses of workers that answer whatever they get, streams apart.
    """

    on_failure = "resume"

    def __init__(
        self, context: StreamContext, index_service: Cell, services: frozenset[bytes]
    ) -> None:
        self._context = context
        self._index_service = index_service
        self._services = services

    # Made for the first who asks: at most nodes nobody does.

    @cached_property
    def _consumers(self) -> _Workers:
        return _Workers()

    @cached_property
    def _publishers(self) -> _Workers:
        return _Workers()

    def handle(self, message: Delivery, sender: Cell | None) -> None:
        """Take requests."""
        for wire in message.messages:
            self._request(message.origin, wire)

    def _request(self, origin: Origin, wire: WireMessage) -> None:
        if not leads_out(self._context.router, origin, wire.return_route):
            self._refuse(origin, wire, "return_route")
            return
        try:
            request = decode_request(wire.payload)
        except CodecError as error:
            self._refuse(origin, wire, error.code)
            return
        match request:
            case BidirectionalRequest():
                self._subscribe(origin, wire, request)
            case BidirectionalPublisherRequest():
                self._ensure_publisher(origin, wire, request)
            case _:
                self._refuse(origin, wire, "request.unknown")

    def _subscribe(self, origin: Origin, wire: WireMessage, request: BidirectionalRequest) -> None:
        context, principal, stream = self._context, origin.principal, request.stream_name
        key = _Key(principal, (stream,), request.subscription_id or DEFAULT_SUBSCRIPTION)
        made = self._consumers.get(key)
        if made is not None:
            made.presence.renew(origin, wire.return_route[0])
            self.system.post(made.cell, Renewed())
        elif not (
            _are_names(*key.streams, key.subscription_id)
            and context.access.allows(principal, "pull", stream)
        ):
            self._refuse(origin, wire, "not_allowed")
        elif not self._consumers.may_have(principal, STREAM_SUBSCRIPTIONS_PER_PRINCIPAL_MAX):
            self._refuse(origin, wire, "too_many_subscriptions")
        else:
            address = PREFIX + context.entropy(8).hex().encode()
            presence = Presence(context.router, context.clock, origin, wire.return_route[0])

            def began(cell: Cell) -> None:
                self._consumers.add(key, _Made(cell, address, presence))

            subscription = Subscription(
                principal=principal,
                stream=stream,
                subscription_id=key.subscription_id,
                presence=presence,
                publishers=ReturnPublishers(context, principal, stream),
                services=self._services,
                began=began,
                ended=self._consumers.forget,
            )
            factory = partial(ConsumerActor, context, self._index_service, address, subscription)
            began(self.system.spawn(factory, parent=self.address))

    def _ensure_publisher(
        self, origin: Origin, wire: WireMessage, request: BidirectionalPublisherRequest
    ) -> None:
        context, principal = self._context, origin.principal
        streams = request.publisher_stream, request.consumer_stream
        key = _Key(principal, streams, request.subscription_id or DEFAULT_SUBSCRIPTION)
        made = self._publishers.get(key)
        if made is not None:
            made.presence.renew(origin, wire.return_route[0])
        elif not (
            _are_names(*streams, key.subscription_id)
            and context.access.allows(principal, "push", request.publisher_stream)
        ):
            self._refuse(origin, wire, "not_allowed")
            return
        elif not self._publishers.may_have(principal, STREAM_PUBLISHERS_PER_PRINCIPAL_MAX):
            self._refuse(origin, wire, "too_many_publishers")
            return
        else:
            presence = Presence(context.router, context.clock, origin, wire.return_route[0])
            settings = PublisherSettings(
                principal=principal,
                publisher_stream=request.publisher_stream,
                consumer_stream=request.consumer_stream,
                create=True,
                ended=self._publishers.forget,
                presence=presence,
            )
            address, cell = spawn_publisher(context, settings, self.address)
            made = _Made(cell, address, presence)
            self._publishers.add(key, made)
        context.router.reply(origin, made.address, [(wire.return_route, PUBLISHER_ANSWER)])

    def _refuse(self, origin: Origin, wire: WireMessage, reason: str) -> None:
        logger.info("request_refused", extra={"service": "stream_subscribe", "reason": reason})
        self._context.router.undeliverable("refused", Delivery(origin, [wire]))


def _are_names(*names: str) -> bool:
    return all(0 < len(name.encode()) <= NAME_BYTES_MAX for name in names)
