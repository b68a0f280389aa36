"""Follows partitions, as tails, single consumers and members of groups do."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

from rillnode.codecs import native
from rillnode.codecs.entries import Entry
from rillnode.codecs.errors import RillnodeError, StreamRemoved
from rillnode.node.client.consumer import Ledger, Saving, behind
from rillnode.node.client.session import Session, closed_error
from rillnode.node.client.subscription import Follower
from rillnode.node.iteration import kept


class Terms(NamedTuple):
    """The terms of a consumer of either kind.

    Attributes:
        created_at: of the stream: positions say nothing of a later one of its name.
        describe: tells the addresses and ends of all partitions.
        save_seconds: after which positions are saved.
        consumers: what the client finishes, if it is closed first.
    """

    created_at: int
    describe: Callable[[], Awaitable[native.StreamInfo]]
    save_seconds: float
    consumers: set[Callable[[], Awaitable[None]]]


class Opened(ABC):
    """Follows partitions, once it was found out where they begin; satisfies `Source`."""

    def __init__(self) -> None:
        self._follower = Follower()
        self._opening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begin; called again, and cancelled, it goes on."""
        if self._opening is None:
            self._opening = kept(self._open())
        if not self._opening.done():
            # What is at the end now must not be asked again: entries would be passed over.
            await asyncio.wait((self._opening,))
        if not self._opening.cancelled():
            self._opening.result()

    async def fetch(self) -> list[Entry]:
        """Wait for the next entries of a partition."""
        await self.open()
        return await self._follower.batch()

    async def close(self) -> None:
        """End all subscriptions."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        self._follower.close()

    @abstractmethod
    async def _open(self) -> None:
        """Find out what is followed from where, and follow it."""


class Reading(Opened):
    """A consumer's part of a stream; satisfies `Feed`.

    Args:
        session: asks the node.
        stream: name of the stream.
        name: under which positions are saved.
        ledger: the consumer's.
        terms: what holds for it.
    """

    def __init__(
        self, session: Session, stream: str, name: str, ledger: Ledger[Entry], terms: Terms
    ) -> None:
        super().__init__()
        self._session = session
        self._stream = stream
        self._name = name
        self._ledger = ledger
        self._created_at, self._describe, self._save_seconds, self._consumers = terms
        self._saving = Saving(ledger.positions, self._save_position)
        self.save = self._saving.save

    async def fetch(self) -> list[Entry]:
        """Wait for the next entries of a partition."""
        try:
            return await super().fetch()
        except StreamRemoved:
            # Saved now, they would be those of a later stream of the name.
            for partition in tuple(self._ledger.positions):
                self._lose(partition)
            raise

    def stop(self) -> None:
        """End all subscriptions; what it has of the stream it keeps until it is closed."""
        if self._opening is not None:
            self._opening.cancel()
        self._follower.close()

    async def close(self) -> None:
        """End all subscriptions, save the positions, and let others have what this one had."""
        await super().close()
        await self._finish()

    async def _finish(self) -> None:
        self._saving.end()
        try:
            with suppress(StreamRemoved):  # with which its positions went
                await self.save()
        finally:
            await self._leave()
            # Not before: a client that is closed meanwhile has to save them too.
            self._consumers.discard(self._finish)
            # Of its client's end nothing else may tell who reads: perhaps it follows nothing yet.
            self._follower.fail(closed_error())

    @property
    def ready(self) -> bool:
        """Whether entries are here."""
        return self._follower.ready

    @property
    def lag(self) -> int | None:
        """Entries that are not processed; None before all ends are known."""
        return behind(self._follower.ends, self._ledger.positions)

    @abstractmethod
    async def _save_position(self, partition: int, index: int) -> None:
        """Save one position."""

    @abstractmethod
    async def _leave(self) -> None:
        """Be no consumer any more, as far as the node can be told."""

    def _lose(self, partition: int) -> None:
        """A partition is this consumer's no more."""
        self._ledger.revoke(partition)

    async def _load_position(self, partition: int) -> int | None:
        request = native.LoadIndexRequest(
            self._session.next_id(), self._name, self._stream, partition
        )
        response = await self._session.request(b"stream_index", request, native.SavedIndexResponse)
        return response.index

    async def _find_ends(self) -> native.StreamInfo:
        described = await self._describe()
        self._follower.ends |= {one.partition: one.next_index for one in described.partitions}
        return described

    async def _follow_ends(self) -> None:
        """Ask where the ends are while it is behind: else all that comes has told them."""
        if self.lag:
            with suppress(RillnodeError):
                await self._find_ends()
