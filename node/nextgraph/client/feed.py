"""Holds what a broker sends unasked until the application takes it."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, Self, TypeVar

from rillnode.codecs.errors import RillnodeError, TransportError

FEED_BYTES_MAX: Final = 67_108_864
"""Bytes that may wait for the application, as many as a rillnode keeps for a client."""

Item = TypeVar("Item")


class Feed(Generic[Item]):
    """Items as they come, in the broker's order: an async iterator."""

    def __init__(self, leave: Callable[[], None]) -> None:
        """Begin; `leave` is called when it takes nothing more."""
        self._leave = leave
        self._waiting: deque[tuple[Item, int]] = deque()
        self._waiting_bytes = 0
        self._woken = asyncio.Event()
        self._error: RillnodeError | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        """It is open already."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def __aiter__(self) -> Self:
        """Itself."""
        return self

    async def __anext__(self) -> Item:
        """Wait for the next item.

        Raises:
            TransportError: the connection is over; `client.overfull`, more came than may wait.
            NextGraphError: the broker broke the protocol.
        """
        while not self._waiting:
            if self._closed:
                raise StopAsyncIteration
            if self._error is not None:
                raise self._error
            self._woken.clear()
            await self._woken.wait()
        item, size = self._waiting.popleft()
        self._waiting_bytes -= size
        return item

    def close(self) -> None:
        """Take nothing more."""
        self._closed = True
        self._waiting.clear()
        self._leave()
        self._woken.set()

    def take(self, item: Item, size: int) -> None:
        """Take an item of so many bytes."""
        if self._waiting and self._waiting_bytes + size > FEED_BYTES_MAX:
            text = f"more than {FEED_BYTES_MAX:,} bytes wait to be taken"
            self.failed(TransportError("client.overfull", text))
            return
        self._waiting.append((item, size))
        self._waiting_bytes += size
        self._woken.set()

    def failed(self, error: RillnodeError) -> None:
        """End with an error, after what has already come."""
        self._error = self._error or error
        self._leave()
        self._woken.set()
