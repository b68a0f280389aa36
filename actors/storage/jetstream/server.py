"""What the store asks of JetStream, and its answers in our terms: one connection on one loop."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Final, NamedTuple

from nats.js.api import DiscardPolicy, StorageType, StreamConfig, StreamInfo
from nats.js.errors import NotFoundError

from rillnode.actors.storage.jetstream.connection import Connection
from rillnode.actors.storage.jetstream.failures import (
    ExistsError,
    UnansweredError,
    lost_error,
)
from rillnode.actors.storage.jetstream.options import JetStreamOptions
from rillnode.codecs.errors import StoreError

_AGAIN_SECONDS: Final = 0.25
"""A stream that does not tell of itself is asked again after that, then after twice as long."""

_PAGE_BYTES: Final = 2_097_152
_PAGE_FIRST: Final = 2
_PAGE_MAX: Final = 64
"""A page of a scan has so many messages at first, then as many as have so many bytes if they are as
large as those before."""


class Message(NamedTuple):
    """A stored message and its place in its stream; the first has sequence 1."""

    sequence: int
    data: bytes


class Server(Connection):
    """JetStream, as the store asks it."""

    def __init__(self, options: JetStreamOptions, on_lost: Callable[[], None]) -> None:
        super().__init__(options, on_lost)
        # By stream, since when it has less than it confirmed, and when that was last seen.
        self._doubts: dict[str, tuple[float, float]] = {}

    async def make_stream(self, name: str) -> None:
        """Create a stream of one subject, unless it is there.

        Raises:
            StoreError: the cluster refuses it.
            UnansweredError: no answer came.
        """
        config = StreamConfig(
            name=name,
            subjects=[name],
            storage=StorageType.FILE,
            num_replicas=self._options.replicas,
            discard=DiscardPolicy.NEW,
            allow_direct=True,
        )
        # What it takes beside a configuration has no type.
        added = self._js.add_stream(config)  # pyright: ignore[reportUnknownMemberType]
        with suppress(ExistsError):
            await self._answer(added)

    async def publish(self, name: str, data: bytes, *, after: int) -> int:
        """Add a message to a stream if its last sequence is `after`; returns the new one.

        It is acknowledged by a majority of the stream's replicas.

        Raises:
            WrongLastSequenceError: the stream has another last sequence.
            StoreError: the cluster refuses it; it is not stored.
            UnansweredError: it is not known whether it is stored.
        """
        headers = {"Nats-Expected-Stream": name, "Nats-Expected-Last-Sequence": str(after)}
        return await self._publish(name, data, headers)

    async def last_sequence(self, name: str) -> int | None:
        """The last sequence that a stream's leader has given; None without stream.

        Raises:
            StoreError: the cluster refuses to say.
            UnansweredError: no answer came.
        """
        # Not by asking for the last message: nats-server 2.9.10 crashes when it is asked for one
        # of a stream that another client is just creating.
        try:
            info = await self._answer(self._info(name))
        except NotFoundError:
            return None
        return info.state.last_seq

    async def last(self, name: str) -> Message | None:
        """The last message, as the stream's leader has it; None without any, or without stream.

        Raises:
            StoreError: the cluster refuses to say, or has lost it.
            UnansweredError: no answer came.
        """
        sequence = await self.last_sequence(name)
        if not sequence:
            return None
        found = await self.get(name, sequence)
        if found is None:
            raise self.less(name)
        return found

    def less(self, name: str) -> StoreError | UnansweredError:
        """What to raise where a stream has less than it confirmed: lost only if it stays so."""
        now = asyncio.get_running_loop().time()
        patience = self._options.doubt_seconds
        since, last = self._doubts.get(name, (now, now))
        if now - last > patience:
            # What was missing then has come.
            since = now
        self._doubts[name] = (since, now)
        if now - since < patience:
            return UnansweredError(f"{name} has less than it confirmed, as after an election")
        return lost_error(name)

    async def get(self, name: str, sequence: int, *, committed: bool = True) -> Message | None:
        """One message; None when it is not there.

        Args:
            name: the stream.
            sequence: the message's place.
            committed: whether it is known to be there, unless it was purged: then any replica is
                asked before the leader.

        Raises:
            StoreError: the cluster refuses it.
            UnansweredError: no answer came.
        """
        if committed:
            (data,) = await self._read(name, sequence)
            if data is not None:
                return Message(sequence, data)
            # The replica that has answered may lag behind.
        try:
            found = await self._answer(self._js.get_msg(name, sequence))
        except NotFoundError:
            return None
        return Message(found.seq or 0, found.data or b"")

    async def scan(self, name: str, first: int, last: int) -> AsyncGenerator[Message, None]:
        """The messages from one sequence to another, in order, but for those that were purged.

        Two pages of them are in memory: one is read while the one before is taken.

        Raises:
            StoreError: the cluster refuses one.
            UnansweredError: no answer came.
        """
        if first > last:
            return
        count = min(_PAGE_FIRST, last + 1 - first)
        reading = asyncio.ensure_future(self._page(name, first, count))
        try:
            while first <= last:
                found = await reading
                first += count
                if not found:
                    # Only the oldest are ever purged.
                    first = max(first, await self._first_sequence(name))
                largest = max((len(data) for _, data in found), default=1)
                count = min(2 * count, _PAGE_MAX, max(1, _PAGE_BYTES // largest), last + 1 - first)
                reading = asyncio.ensure_future(self._page(name, first, count))
                for message in found:
                    yield message
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _page(self, name: str, first: int, count: int) -> list[Message]:
        """Those of some messages that are there."""
        found: list[Message] = []
        for sequence, data in enumerate(await self._read(name, first, count), first):
            if data is not None:
                found.append(Message(sequence, data))
            elif (message := await self.get(name, sequence, committed=False)) is not None:
                # The replica that was asked lags behind.
                found.append(message)
        return found

    async def purge(self, name: str, before: int) -> None:
        """Drop the messages below a sequence, if there are any.

        Raises:
            StoreError: the cluster refuses.
            UnansweredError: no answer came.
        """
        if before > 1:  # nats-server takes 1 for all of them
            with suppress(NotFoundError):
                await self._answer(self._js.purge_stream(name, seq=before))

    async def drop(self, name: str) -> None:
        """Delete a stream with all that it holds, if it is there.

        Raises:
            StoreError: the cluster refuses.
            UnansweredError: no answer came.
        """
        with suppress(NotFoundError):
            await self._answer(self._js.delete_stream(name))

    async def _first_sequence(self, name: str) -> int:
        """The first sequence that a stream still has, or will have; 0 without stream."""
        try:
            info = await self._answer(self._info(name))
        except NotFoundError:
            return 0
        return info.state.first_seq

    async def _info(self, name: str) -> StreamInfo:
        """What a stream's leader tells of it.

        nats-server leaves the question without answer while a new stream has no leader yet, as
        where another node is just making it: so it is asked again, and the first answer is taken.
        """
        asked: list[asyncio.Task[StreamInfo]] = []
        seconds = _AGAIN_SECONDS
        try:
            while True:
                asked.append(asyncio.ensure_future(self._js.stream_info(name)))
                # The first one ends in time, be it for want of an answer.
                done, _ = await asyncio.wait(
                    asked, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if done:
                    return done.pop().result()
                seconds *= 2
        finally:
            for one in asked:
                one.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
