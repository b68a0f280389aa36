"""Following partitions: subscriptions that survive lost links."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from rillnode.codecs import native
from rillnode.codecs.entries import Block, Entry, entries_of
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.routing.routes import Route, local
from rillnode.node.client.session import Session

logger = event_logger("rillnode.node.client")

CREDIT_BYTES: Final = 4_194_304
"""Bytes of blocks that a node may send ahead, for each partition, where nothing else is said."""

GRANTS: Final = 8
"""What was taken is granted again once it is such a part of it, and not with each small batch."""


PASSING: Final = frozenset(("actor.busy", "actor.failed", "actor.stopped"))
"""Failures of the node's own that end a subscription, and that another one does not meet."""

AGAIN_SECONDS: Final = 1.0
"""Pause after such a failure."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A partition that is to be followed.

    Attributes:
        address: of the partition.
        partition: its number.
        index: where to begin.
        created_at: of the stream: a later one of its name is refused (`stream.removed`); 0: it is
            followed, too.
        where: only entries that meet this condition; empty: all.
        window_bytes: how much the node may send ahead.
    """

    address: bytes
    partition: int
    index: int
    created_at: int = 0
    where: str = ""
    window_bytes: int = CREDIT_BYTES


class Follower:
    """A reader of several partitions of a stream, in the order of each partition.

    Entries come once each, however often the link is lost. Where the stream was trimmed past the
    position, it goes on with the first entry kept, and counts what is missing in `skipped`. Where
    it ends before the position, that is logged, and nothing comes before it has grown to it.

    Attributes:
        skipped: entries that were trimmed before they came.
        ends: by partition, the end of its log as the node has told last.
    """

    def __init__(self) -> None:
        self.skipped = 0
        self.ends: dict[int, int] = {}
        self._ready: deque[tuple[_Partition | None, list[Entry], int]] = deque()
        self._held = False
        self._wake = asyncio.Event()
        self._error: RillnodeError | None = None
        self._partitions: dict[object, _Partition] = {}
        self._closed = False

    def follow(self, session: Session, wanted: Wanted) -> object:
        """Add a partition; what is returned stands for it in `take`, `lost` and `drop`."""
        followed = _Partition(self, session, wanted)
        self._partitions[followed] = followed
        followed.subscribe()
        return followed

    @property
    def ready(self) -> bool:
        """Whether `batch` would give something at once."""
        return bool(self._ready) and not self._held

    async def batch(self) -> list[Entry]:
        """Wait for the next entries of one partition; at least one, at most a block; see `take`."""
        return (await self.take())[1]

    async def take(self) -> tuple[object, list[Entry]]:
        """The same, with the partition; None: they were given once before.

        Raises:
            RillnodeError: the node refused, or the session ended.
            StopAsyncIteration: it is closed.
        """
        while not self._ready or self._held:
            if self._closed:
                raise StopAsyncIteration
            if self._error is not None:
                raise self._error
            self._wake.clear()
            await self._wake.wait()
        partition, entries, size = self._ready.popleft()
        if partition is not None:
            partition.grant(size)
        return partition, entries

    def hold(self, back: Sequence[Entry]) -> None:
        """Give nothing until `go_on`; what was given and is not used comes first then."""
        self._held = True
        runs = [(None, list(run), 0) for _, run in groupby(back, lambda one: one.partition)]
        self._ready.extendleft(reversed(runs))

    def go_on(self) -> None:
        """Give what there is; harmless when repeated."""
        self._held = False
        self._wake.set()

    def unfollow(self, number: int) -> None:
        """Follow a partition no more, and forget what has come of it; harmless when repeated."""
        for partition in [one for one in self._partitions.values() if one.number == number]:
            self.drop(partition)
        self.ends.pop(number, None)
        self._ready = deque(one for one in self._ready if one[1][0].partition != number)

    def drop(self, partition: object) -> None:
        """End one subscription; what has come of it is given still."""
        self._partitions.pop(partition).close()

    def close(self) -> None:
        """End all subscriptions."""
        for partition in self._partitions.values():
            partition.close()
        self._ready.clear()
        self._closed = True
        self._wake.set()

    def received(self, partition: "_Partition", entries: list[Entry], size: int) -> None:
        """Take a partition's next entries; `size` bytes of credit return with them."""
        self._ready.append((partition, entries, size))
        self._wake.set()

    def lost(self, partition: object, error: RillnodeError) -> None:
        """A partition's subscription is over: so is all."""
        self.fail(error)

    def fail(self, error: RillnodeError) -> None:
        """End with an error, after what has already come."""
        self._error = error
        self._wake.set()


class _Partition:
    """One partition's subscription.

    Its window is the same on every link: what was received and not taken yet counts against it,
    also when it came over a link that is lost.
    """

    def __init__(self, follower: Follower, session: Session, wanted: Wanted) -> None:
        self._follower = follower
        self._session = session
        self._wanted = wanted
        self.number = wanted.partition
        self._next = wanted.index
        self._route: Route | None = None
        self._held_bytes = 0
        self._owed_bytes = 0  # taken, and not granted to the node again
        self._again: asyncio.TimerHandle | None = None

    def subscribe(self) -> None:
        """Ask for it."""
        self._id = self._session.next_id()
        self._session.subscribe(self._id, self)

    def resume(self) -> tuple[bytes, native.SubscribeRequest]:
        """Ask for what follows the last entry that came."""
        self._route = None
        self._owed_bytes = 0
        wanted = self._wanted
        # With none at all the node would never tell the route that credit goes to.
        credit = max(1, wanted.window_bytes - self._held_bytes)
        return wanted.address, native.SubscribeRequest(
            self._id, self._next, credit, created_at=wanted.created_at, where=wanted.where
        )

    def received(self, response: native.Response, route: Route) -> None:
        """Hand on the entries that have not come yet."""
        if not isinstance(response, native.BlocksResponse | native.FoundResponse):
            return
        self._route = route
        self._follower.ends[self.number] = response.next_index
        if response.next_index < self._next:
            extra = {"index": self._next, "end": response.next_index}
            logger.warning("position_beyond_end", extra=self._about | extra)
        if response.first_index > self._next:
            skipped = response.first_index - self._next
            self._follower.skipped += skipped
            extra = {"skipped": skipped, "from": self._next}
            logger.warning("entries_trimmed", extra=self._about | extra)
            self._next = response.first_index
        for item in response.blocks:
            block = Block(item.first_index, item.value)
            entries = entries_of(block, partition=self.number, first=self._next)
            self._held_bytes += len(item.value)
            if entries:
                self._next = block.next_index
                self._follower.received(self, entries, len(item.value))
            else:
                self.grant(len(item.value))
        if isinstance(response, native.FoundResponse):
            self._next = max(self._next, response.reached)

    @property
    def _about(self) -> dict[str, object]:
        """What the log says of it."""
        address = self._wanted.address.decode(errors="replace")
        return {"address": address, "partition": self.number}

    def link_lost(self) -> None:
        """It goes on over the next one."""

    def failed(self, error: RillnodeError) -> None:
        """Follow anew where the node failed, after a pause; tell the follower of all else."""
        if error.code not in PASSING:
            self._follower.lost(self, error)
            return
        # What was on its way to the subscription that is over may be answered, too.
        self._session.unanswered += 2
        self._route = None
        self._again = asyncio.get_running_loop().call_later(AGAIN_SECONDS, self.subscribe)

    def grant(self, size: int) -> None:
        """Let the node send as much again as was taken, once that is worth a message."""
        self._held_bytes -= size
        self._owed_bytes += size
        worth = self._wanted.window_bytes // GRANTS
        if self._route is not None and self._owed_bytes >= worth:
            self._session.tell(self._route, native.CreditRequest(self._id, self._owed_bytes))
            self._owed_bytes = 0

    def close(self) -> None:
        """End the subscription."""
        if self._again is not None:
            self._again.cancel()
        self._session.unsubscribe(self._id, self._route or (local(self._wanted.address),))
