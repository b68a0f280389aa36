"""Events of one topic, as they are forwarded."""

import asyncio
from collections import deque
from typing import Final, Protocol, Self

from rillnode.codecs.errors import RillnodeError, TransportError
from rillnode.codecs.nextgraph.events import EVENT, Event
from rillnode.codecs.nextgraph.responses import TopicSubRes
from rillnode.codecs.nextgraph.types import OverlayId

INBOX_BYTES_MAX: Final = 67_108_864
"""Bytes of events that may wait for the application, as many as a rillnode keeps for a client."""

TopicKey = tuple[OverlayId, bytes]
"""A topic on the overlay on which it is followed."""


class Forwarding(Protocol):
    """What a subscription needs of its client."""

    def leave(self, subscription: "Subscription") -> None:
        """Let it have no more."""
        ...


class Subscription:
    """The events of a topic from now on, in the broker's order: an async iterator.

    Each has been verified: the topic's signature and the publisher's hold. The client's own events
    are not among them.

    Attributes:
        key: overlay and topic.
        topic: the topic as it was then: its heads, and how many commits it has.
        refused: how many events were dropped because their signatures do not hold.
    """

    def __init__(self, key: TopicKey, owner: Forwarding) -> None:
        self.key = key
        self.topic: TopicSubRes
        self.refused = 0
        self._owner = owner
        self._inbox: deque[tuple[Event, int]] = deque()
        self._inbox_bytes = 0
        self._woken = asyncio.Event()
        self._error: RillnodeError | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        """It is subscribed already."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def __aiter__(self) -> Self:
        """Itself."""
        return self

    async def __anext__(self) -> Event:
        """Wait for the next event.

        Raises:
            TransportError: the connection is over; `client.overfull`, more came than may wait, and
                `Client.sync` has what is missing.
            NextGraphError: the broker broke the protocol.
        """
        while not self._inbox:
            if self._closed:
                raise StopAsyncIteration
            if self._error is not None:
                raise self._error
            self._woken.clear()
            await self._woken.wait()
        event, size = self._inbox.popleft()
        self._inbox_bytes -= size
        return event

    def close(self) -> None:
        """Take no more events; the broker keeps forwarding until `Client.unsubscribe`."""
        self._closed = True
        self._inbox.clear()
        self._owner.leave(self)
        self._woken.set()

    def received(self, event: Event) -> None:
        """Take an event that is genuine."""
        size = len(EVENT.encode(event))
        if self._inbox and self._inbox_bytes + size > INBOX_BYTES_MAX:
            text = f"more than {INBOX_BYTES_MAX:,} bytes of events wait to be taken"
            self.failed(TransportError("client.overfull", text))
            return
        self._inbox.append((event, size))
        self._inbox_bytes += size
        self._woken.set()

    def failed(self, error: RillnodeError) -> None:
        """End with an error, after what has already come."""
        self._error = self._error or error
        self._owner.leave(self)
        self._woken.set()
