"""Traces what NextGraph's clients are sent."""

from rillnode.actors.nextgraph.context import BrokerContext
from rillnode.actors.nextgraph.session import Session
from rillnode.actors.nextgraph.topic import TopicActor
from rillnode.actors.telemetry.store import TracedStore, counts
from rillnode.codecs.nextgraph.events import Event


class TracedTopic(TopicActor):
    """A topic whose forwarded events have spans, until the connections of all followers have them.

    An event comes to the topic from its publisher; what other nodes write is read there.
    """

    stands_for = TopicActor

    def __init__(
        self, store: TracedStore, context: BrokerContext, key: tuple[bytes, bytes]
    ) -> None:
        super().__init__(context, key)
        self._tracer = store.tracer

    def _forward(self, event: Event, publisher: Session | None) -> int:
        if not set(self._feed.followers) - {publisher}:
            return 0
        span = self._tracer.begin("deliver", self._name, parents=())
        size = super()._forward(event, publisher)
        span.end({"messaging.destination.partition.id": "0", **counts(1, size)})
        return size
