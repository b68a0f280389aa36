"""Streams and subscriptions on a node with a tracer."""

from functools import partial
from typing import Any

from rillnode.actors.core.delivery import Delivery
from rillnode.actors.core.streams.context import StreamContext
from rillnode.actors.core.streams.stream import Request, StreamActor
from rillnode.actors.core.streams.subscription import SubscriptionActor
from rillnode.actors.telemetry.messages import contexts_of
from rillnode.actors.telemetry.store import TracedStore


class TracedStreamActor(StreamActor):
    """A partition whose pushes and pulls have spans, until the store has done them."""

    stands_for = StreamActor

    def __init__(
        self,
        store: TracedStore,
        context: StreamContext,
        own_address: bytes,
        name: str,
        partition: int,
    ) -> None:
        super().__init__(context, own_address, name, partition)
        self._traced = store
        self.subscription_actor = partial(TracedSubscription, store, (name, partition))

    def _take(self, message: Request) -> None:
        parents = contexts_of(message.messages) if isinstance(message, Delivery) else ()
        turn = self._traced.turn(self._name, self._partition, reads="pull", parents=parents)
        with turn:
            super()._take(message)


class TracedSubscription(SubscriptionActor):
    """A subscription whose deliveries have spans, until the store has given what is sent."""

    stands_for = SubscriptionActor

    def __init__(
        self, store: TracedStore, destination: tuple[str, int], *subscription: Any
    ) -> None:
        super().__init__(*subscription)
        self._traced = store
        self._destination = destination

    def _advance(self) -> None:
        with self._traced.turn(*self._destination, reads="deliver"):
            super()._advance()
