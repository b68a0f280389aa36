"""The pub/sub service: what is sent to a topic's address goes to all of its subscribers.

A request's payload is `name:topic`; it is sent back from the topic's address, `pub_sub_t_<topic>`.
The name tells a principal's subscriptions to one topic apart: subscribing again replaces. A
subscription ends with the connection that it was made through, a topic with its last subscription.
What is published while a subscriber still has much to read does not reach it.

Source: the Elixir nodes of 2021 to 2024 (`pub_sub_service`, later `pub_sub`), where subscriptions
never end, and a name belongs to whoever uses it last.
"""

from functools import cached_property, partial
from typing import Final, NamedTuple

from rillnode.actors.core.delivery import Delivery, Origin
from rillnode.actors.core.return_routes import leads_out
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.ockam.context import Allowance, ServiceContext
from rillnode.actors.ockam.forwarder import Forwarder
from rillnode.codecs.errors import CodecError
from rillnode.codecs.ockam.hub import TEXT, decode_topic
from rillnode.codecs.routing.routes import WireMessage

PREFIX: Final = b"pub_sub_t_"


class _Subscriber(NamedTuple):
    """The owner of a subscription."""

    principal: str
    name: str


class _Subscription(NamedTuple):
    """What forwards to a subscriber, and the origin of its connection."""

    cell: Cell
    origin: Origin


class PubSubService(Worker):
    """The pub_sub service: has its own addresses and those of all topics."""

    on_failure = "resume"

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._topics: dict[bytes, dict[_Subscriber, _Subscription]] = {}
        self._subscriptions: dict[Cell, tuple[bytes, _Subscriber]] = {}

    @cached_property
    def _allowance(self) -> Allowance:
        """Made for the first who asks: at most nodes nobody does."""
        return Allowance()

    def handle(self, message: Delivery, sender: Cell | None) -> None:
        """Take requests, and what is published."""
        # One delivery's messages are all for one address.
        topic = self._topics.get(message.messages[0].onward_route[0].value)
        if topic is not None:
            self._publish(message, topic)
            return
        for wire in message.messages:
            self._request(message.origin, wire)

    def _publish(self, delivery: Delivery, topic: dict[_Subscriber, _Subscription]) -> None:
        for cell, receiver in topic.values():
            if receiver.congested:
                # A subscriber that is slow to read misses something; it must not hold up others.
                self._context.router.undelivered["congested"] += len(delivery.messages)
                continue
            if not cell.exited:
                delivery.again()
                self.system.post(cell, delivery)

    def _request(self, origin: Origin, wire: WireMessage) -> None:
        context, route = self._context, wire.return_route
        try:
            name, topic = decode_topic(wire.payload)
        except CodecError as error:
            context.refuse("pub_sub", error.code, origin, wire)
            return
        address, subscriber = PREFIX + topic.encode(), _Subscriber(origin.principal, name)
        replaced = self._topics.get(address, {}).get(subscriber)
        if not leads_out(context.router, origin, route):
            context.refuse("pub_sub", "return_route", origin, wire)
        elif replaced is None and not self._allowance.permits(origin):
            context.refuse("pub_sub", "too_many_subscriptions", origin, wire)
        else:
            if replaced is not None:
                self._forget(replaced.cell)
                context.system.exit(replaced.cell)
            factory = partial(Forwarder, context.router, None, origin, route, self._forget)
            cell = context.system.spawn(factory, parent=self.address)
            self._allowance.take(origin, cell)
            self._topics.setdefault(address, {})[subscriber] = _Subscription(cell, origin)
            self._subscriptions[cell] = address, subscriber
            context.router.register(address, self.address)
            context.router.reply(origin, address, [(route, TEXT.encode(f"{name}:{topic}"))])

    def _forget(self, cell: Cell) -> None:
        self._allowance.give_back(cell)
        if cell not in self._subscriptions:
            return
        address, subscriber = self._subscriptions.pop(cell)
        topic = self._topics[address]
        del topic[subscriber]
        if not topic:
            del self._topics[address]
            self._context.router.unregister(address)
