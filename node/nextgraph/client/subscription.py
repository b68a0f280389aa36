"""Events of one topic, as they are forwarded."""

from collections.abc import Callable

from rillnode.codecs.nextgraph.events import EVENT, Event
from rillnode.codecs.nextgraph.responses import TopicSubRes
from rillnode.codecs.nextgraph.types import OverlayId
from rillnode.node.nextgraph.client.feed import Feed

TopicKey = tuple[OverlayId, bytes]
"""A topic on the overlay on which it is followed."""


class Subscription(Feed[Event]):
    """The events of a topic from now on, in the broker's order: an async iterator.

    Each has been verified: the topic's signature and the publisher's hold. The client's own events
    are not among them. Where more came than may wait (`client.overfull`), `Client.sync` has what is
    missing. The broker keeps forwarding after `close`, until `Client.unsubscribe`.

    Attributes:
        key: overlay and topic.
        topic: the topic as it was then: its heads, and how many commits it has.
        refused: how many events were dropped because their signatures do not hold.
    """

    def __init__(self, key: TopicKey, leave: Callable[["Subscription"], None]) -> None:
        super().__init__(lambda: leave(self))
        self.key = key
        self.topic: TopicSubRes
        self.refused = 0

    def received(self, event: Event) -> None:
        """Take an event that is genuine."""
        self.take(event, len(EVENT.encode(event)))
