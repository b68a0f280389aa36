"""What the store asks of JetStream, and its answers in our terms: one connection on one loop."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, NamedTuple

import nats.errors
from nats.aio.msg import Msg
from nats.js.api import (
    ConsumerConfig,
    DeliverPolicy,
    DiscardPolicy,
    RawStreamMsg,
    StorageType,
    StreamConfig,
)
from nats.js.errors import NotFoundError

from rillnode.actors.storage.jetstream.connection import Connection, ExistsError
from rillnode.actors.storage.jetstream.connection import UnansweredError as UnansweredError
from rillnode.actors.storage.jetstream.connection import (
    WrongLastSequenceError as WrongLastSequenceError,
)
from rillnode.actors.storage.jetstream.failures import lost_error
from rillnode.actors.storage.jetstream.options import JetStreamOptions
from rillnode.codecs.errors import StoreError

_SCANNED_AHEAD: Final = 256
"""Messages that are taken from the server before they are asked for."""

_IDLE_CONSUMER_SECONDS: Final = 1.0


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
            info = await self._answer(self._js.stream_info(name))
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
        found = None
        if committed:
            # The one that answers may lag behind.
            found = await self._found(self._js.get_msg(name, sequence, direct=True))
        if found is None:
            found = await self._found(self._js.get_msg(name, sequence))
        return found

    async def scan(self, name: str, first: int, last: int) -> AsyncGenerator[Message, None]:
        """The messages from one sequence to another, in order; the last one must be there.

        None come where there is no such stream any more.

        Raises:
            UnansweredError: they stopped coming.
        """
        if first > last:
            return
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=first,
            # Counted from the moment that nobody listens any more.
            inactive_threshold=_IDLE_CONSUMER_SECONDS,
        )
        found: asyncio.Queue[Message] = asyncio.Queue(_SCANNED_AHEAD)

        async def take(message: Msg) -> None:
            await found.put(Message(message.metadata.sequence.stream, message.data))

        subscribing = self._js.subscribe(
            name, stream=name, cb=take, ordered_consumer=True, config=config
        )
        try:
            subscription = await self._answer(subscribing)
        except NotFoundError:
            return
        wait_seconds = self._options.answer_seconds_max
        try:
            sequence = first - 1
            while sequence < last:
                if found.empty():
                    message = await self._answer(asyncio.wait_for(found.get(), wait_seconds))
                else:
                    message = found.get_nowait()
                sequence = message.sequence
                if sequence <= last:
                    yield message
        finally:
            with suppress(nats.errors.Error):
                await subscription.unsubscribe()

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

    async def _found(self, request: Coroutine[Any, Any, RawStreamMsg]) -> Message | None:
        try:
            found = await self._answer(request)
        except NotFoundError:
            return None
        return Message(found.seq or 0, found.data or b"")
