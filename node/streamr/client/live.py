"""The stream partitions that a client follows, by however many of its readers.

The server knows of one subscription for each partition; it is made again on each new WebSocket.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from rillnode.codecs.errors import RequestError, RillnodeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.streamr.stream_message import StreamMessage
from rillnode.node.streamr.client.connection import Connection

logger = event_logger("rillnode.node.streamr.client")

Partition = tuple[str, int]
"""Stream id, partition."""


class Inbox(Protocol):
    """Takes what one partition brings; all calls on the loop's thread."""

    def message_received(self, message: StreamMessage) -> None:
        """Take a message as it came."""
        ...

    def interrupted(self) -> None:
        """The connection was lost and is made again: nothing of it has come yet."""
        ...

    def resubscribed(self) -> None:
        """Messages come again, and before this some may be missing."""
        ...

    def failed(self, error: RillnodeError) -> None:
        """Nothing more will come."""
        ...


@dataclass(slots=True)
class _Followed:
    subscribing: asyncio.Task[None]
    inboxes: list[Inbox] = field(default_factory=list[Inbox])


class Live:
    """Follows partitions over one connection; satisfies `ConnectionEvents`."""

    def __init__(self) -> None:
        self._followed: dict[Partition, _Followed] = {}
        self._connection: Connection | None = None
        self._on_refused: Callable[[StreamMessage, RequestError], object] | None = None
        self._ending: set[asyncio.Task[None]] = set()

    def attach(
        self,
        connection: Connection,
        on_refused: Callable[[StreamMessage, RequestError], object],
    ) -> None:
        """Say which connection it is, before it opens, and who is told of refused messages."""
        self._connection = connection
        self._on_refused = on_refused

    async def follow(self, partition: Partition, inbox: Inbox) -> None:
        """Let an inbox have every message from now on.

        Raises:
            RequestError: the server refuses; the code is the server's.
            TransportError: the connection is over.
        """
        followed = self._followed.get(partition)
        if followed is None:
            task = asyncio.get_running_loop().create_task(self._subscribe(partition))
            followed = self._followed[partition] = _Followed(task)
        followed.inboxes.append(inbox)
        try:
            await asyncio.shield(followed.subscribing)
        except BaseException:
            self.leave(partition, inbox)
            raise

    def leave(self, partition: Partition, inbox: Inbox) -> None:
        """Let it have no more; the last one ends the subscription."""
        followed = self._followed.get(partition)
        if followed is None or inbox not in followed.inboxes:
            return
        followed.inboxes.remove(inbox)
        if not followed.inboxes:
            del self._followed[partition]
            ending = asyncio.get_running_loop().create_task(self._unsubscribe(partition, followed))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Wait until the server has heard of every subscription that ended."""
        await asyncio.gather(*self._ending)

    # Connection events -----------------------------------------------------------------------

    def connection_opened(self) -> None:
        """Subscribe again to what was subscribed to."""
        for partition, followed in self._followed.items():
            # What the server has not answered yet, the connection asks again by itself.
            if followed.subscribing.done():
                for inbox in followed.inboxes:
                    inbox.interrupted()
                again = self._resubscribe(partition, followed)
                followed.subscribing = asyncio.get_running_loop().create_task(again)

    def message_received(self, message: StreamMessage) -> None:
        """Hand a message to those who follow its partition."""
        followed = self._followed.get((message.id.stream_id, message.id.partition))
        if followed is not None:
            for inbox in followed.inboxes:
                inbox.message_received(message)

    def subscription_ended(self, stream_id: str, partition: int, error: RequestError) -> None:
        """Tell those who follow the partition; whoever follows it next asks the server anew."""
        if (followed := self._followed.get((stream_id, partition))) is not None:
            self._end((stream_id, partition), followed, error)

    def message_refused(self, message: StreamMessage, error: RequestError) -> None:
        """Tell whoever publishes."""
        assert self._on_refused is not None
        self._on_refused(message, error)

    def connection_failed(self, error: RillnodeError) -> None:
        """Tell everybody."""
        for followed in self._followed.values():
            for inbox in followed.inboxes:
                inbox.failed(error)

    # Subscriptions ---------------------------------------------------------------------------

    async def _subscribe(self, partition: Partition) -> None:
        assert self._connection is not None
        await self._connection.subscribe(*partition)

    async def _resubscribe(self, partition: Partition, followed: _Followed) -> None:
        try:
            await self._subscribe(partition)
        except RillnodeError as error:
            logger.warning("not_resubscribed", extra={"code": error.code})
            self._end(partition, followed, error)
            return
        for inbox in (*followed.inboxes,):
            inbox.resubscribed()

    def _end(self, partition: Partition, followed: _Followed, error: RillnodeError) -> None:
        """The server sends nothing of a partition any more."""
        if self._followed.get(partition) is followed:  # else others follow it anew
            del self._followed[partition]
        for inbox in (*followed.inboxes,):
            inbox.failed(error)

    async def _unsubscribe(self, partition: Partition, followed: _Followed) -> None:
        # An error says that there is no subscription any more, or no connection.
        with suppress(RillnodeError):
            await followed.subscribing
            assert self._connection is not None
            if partition not in self._followed:
                await self._connection.unsubscribe(*partition)
