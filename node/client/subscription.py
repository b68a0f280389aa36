"""Following partitions: subscriptions that survive lost links."""

import asyncio
import logging
from collections import deque
from typing import Final

from rillnode.codecs import native
from rillnode.codecs.entries import Block, Entry, entries_of
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.routing.routes import Route, local
from rillnode.node.client.session import Session

logger = logging.getLogger("rillnode.node.client")

CREDIT_BYTES: Final = 4_194_304
"""Bytes of blocks that a node may send ahead, for each partition."""

GRANT_BYTES: Final = CREDIT_BYTES // 8
"""What was taken is granted again once it is so much, and not with each small batch."""


PASSING: Final = frozenset(("actor.busy", "actor.failed", "actor.stopped"))
"""Failures of the node's own that end a subscription, and that another one does not meet."""

AGAIN_SECONDS: Final = 1.0
"""Pause after such a failure."""


class Follower:
    """A reader of several partitions of a stream, in the order of each partition.

    Entries come once each, however often the link is lost. Where the stream was trimmed past the
    position, it goes on with the first entry kept, and counts what is missing in `skipped`.

    Attributes:
        skipped: entries that were trimmed before they came.
        ends: by partition, the end of its log as the node has told last.
    """

    def __init__(self) -> None:
        self.skipped = 0
        self.ends: dict[int, int] = {}
        self._ready: deque[tuple[_Partition, list[Entry], int]] = deque()
        self._wake = asyncio.Event()
        self._error: RillnodeError | None = None
        self._partitions: list[_Partition] = []
        self._closed = False

    def follow(
        self, session: Session, address: bytes, partition: int, index: int, where: str = ""
    ) -> None:
        """Add a partition, from `index` on: its entries that meet a condition, if there is one."""
        self._partitions.append(_Partition(self, session, address, partition, index, where))

    @property
    def ready(self) -> bool:
        """Whether `batch` would give something at once."""
        return bool(self._ready)

    async def batch(self) -> list[Entry]:
        """Wait for the next entries of one partition; at least one, at most a block.

        Raises:
            RillnodeError: the node refused, or the session ended.
            StopAsyncIteration: it is closed.
        """
        while not self._ready:
            if self._closed:
                raise StopAsyncIteration
            if self._error is not None:
                raise self._error
            self._wake.clear()
            await self._wake.wait()
        partition, entries, size = self._ready.popleft()
        partition.grant(size)
        return entries

    def close(self) -> None:
        """End all subscriptions."""
        for partition in self._partitions:
            partition.close()
        self._ready.clear()
        self._closed = True
        self._wake.set()

    def received(self, partition: "_Partition", entries: list[Entry], size: int) -> None:
        """Take a partition's next entries; `size` bytes of credit return with them."""
        self._ready.append((partition, entries, size))
        self._wake.set()

    def fail(self, error: RillnodeError) -> None:
        """End with an error, after what has already come."""
        self._error = error
        self._wake.set()


class _Partition:
    """One partition's subscription.

    Its window is the same on every link: what was received and not taken yet counts against it,
    also when it came over a link that is lost.
    """

    def __init__(
        self,
        follower: Follower,
        session: Session,
        address: bytes,
        partition: int,
        index: int,
        where: str,
    ) -> None:
        self._where = where
        self._follower = follower
        self._session = session
        self._address = address
        self._partition = partition
        self._next = index
        self._route: Route | None = None
        self._held_bytes = 0
        self._owed_bytes = 0  # taken, and not granted to the node again
        self._again: asyncio.TimerHandle | None = None
        self._subscribe()

    def _subscribe(self) -> None:
        self._id = self._session.next_id()
        self._session.subscribe(self._id, self)

    def resume(self) -> tuple[bytes, native.SubscribeRequest | native.FollowRequest]:
        """Ask for what follows the last entry that came."""
        self._route = None
        self._owed_bytes = 0
        # With none at all the node would never tell the route that credit goes to.
        credit = max(1, CREDIT_BYTES - self._held_bytes)
        if self._where:
            return self._address, native.FollowRequest(self._id, self._next, credit, self._where)
        return self._address, native.SubscribeRequest(self._id, self._next, credit)

    def link_lost(self) -> None:
        """Wait for the next link."""

    def received(self, response: native.Response, route: Route) -> None:
        """Hand on the entries that have not come yet."""
        if not isinstance(response, native.BlocksResponse | native.FoundResponse):
            return
        self._route = route
        self._follower.ends[self._partition] = response.next_index
        if response.first_index > self._next:
            skipped = response.first_index - self._next
            self._follower.skipped += skipped
            logger.warning("entries_trimmed", extra={"skipped": skipped, "from": self._next})
            self._next = response.first_index
        for item in response.blocks:
            block = Block(item.first_index, item.value)
            entries = entries_of(block, partition=self._partition, first=self._next)
            self._held_bytes += len(item.value)
            if entries:
                self._next = block.next_index
                self._follower.received(self, entries, len(item.value))
            else:
                self.grant(len(item.value))
        if isinstance(response, native.FoundResponse):
            self._next = max(self._next, response.reached)

    def failed(self, error: RillnodeError) -> None:
        """Follow anew where the node failed, after a pause; tell the follower of all else."""
        if error.code not in PASSING:
            self._follower.fail(error)
            return
        # What was on its way to the subscription that is over may be answered, too.
        self._session.unanswered += 2
        self._route = None
        self._again = asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._subscribe)

    def grant(self, size: int) -> None:
        """Let the node send as much again as was taken, once that is worth a message."""
        self._held_bytes -= size
        self._owed_bytes += size
        if self._route is not None and self._owed_bytes >= GRANT_BYTES:
            self._session.tell(self._route, native.CreditRequest(self._id, self._owed_bytes))
            self._owed_bytes = 0

    def close(self) -> None:
        """End the subscription."""
        if self._again is not None:
            self._again.cancel()
        self._session.unsubscribe(self._id, self._route or (local(self._address),))
