"""What the store asks of JetStream, and its answers in our terms: one connection on one loop."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from math import ceil
from typing import Any, Final, NamedTuple, TypeVar

import nats
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import (
    ConsumerConfig,
    DeliverPolicy,
    DiscardPolicy,
    RawStreamMsg,
    StorageType,
    StreamConfig,
)
from nats.js.errors import APIError, NoStreamResponseError, NotFoundError, ServiceUnavailableError

from rillnode.actors.storage.jetstream.failures import (
    lost_error,
    refused_error,
    too_large_error,
    unreachable_error,
)
from rillnode.actors.storage.jetstream.options import JetStreamOptions, tls_context

logger = logging.getLogger("rillnode.actors.storage")

WRONG_LAST_SEQUENCE: Final = 10071
STREAM_EXISTS: Final = 10058
"""With another configuration, such as a number of replicas that was given since."""

_SCANNED_AHEAD: Final = 256
"""Messages that are taken from the server before they are asked for."""

_PING_SECONDS: Final = 10
"""A server that leaves two pings unanswered is lost."""

_IDLE_CONSUMER_SECONDS: Final = 1.0

_HEADERS_BYTES_MAX: Final = 4_096
"""Room for the headers of a message, its frame and its token."""

A = TypeVar("A")


class Message(NamedTuple):
    """A stored message and its place in its stream; the first has sequence 1."""

    sequence: int
    data: bytes


class WrongLastSequenceError(Exception):
    """Nothing was stored: another writer's message stands where this one was to stand."""


class _ExistsError(Exception):
    """A stream of this name is there already."""


class UnansweredError(Exception):
    """It is not known whether the request was carried out."""


class Server:
    """A connection to a JetStream cluster. Once lost it stays lost until `connect`."""

    def __init__(self, options: JetStreamOptions, on_lost: Callable[[], None]) -> None:
        self._options = options
        self._on_lost = on_lost
        self._servers = deque(options.servers)
        self._client = Client()
        self._js = JetStreamContext(self._client)
        self._connected = False
        # Why the last attempt failed; the client itself says only that it did.
        self._connect_error: Exception | None = None
        self._asked: set[asyncio.Future[Any]] = set()

    @property
    def room_bytes(self) -> int:
        """The most that one message takes of ours: the server's limit without headers."""
        return self._client.max_payload - _HEADERS_BYTES_MAX

    def name_of(self, part: str) -> str:
        """The JetStream stream that holds a part of the store; its subject has the same name."""
        return f"{self._options.prefix}-{part}"

    def name_of_log(self, log: int) -> str:
        """The same for one log."""
        return self.name_of(f"{log:016x}")

    async def connect(self) -> None:
        """Connect to the first server that answers, unless the connection stands.

        Raises:
            StoreError: none does, or it has no JetStream for us.
        """
        if self._connected:
            return
        errors: list[str] = []
        for _ in self._options.servers:
            # The one that was lost comes last.
            url = self._servers[0]
            self._servers.rotate(-1)
            self._connect_error = None
            try:
                await self._connect_to(url)
                await self._js.account_info()
            except (OSError, nats.errors.Error, TimeoutError, ValueError) as error:
                reason = self._connect_error or error
                errors.append(f"{url}: {str(reason) or type(reason).__name__}")
                await self.close()
            else:
                return
        raise unreachable_error("; ".join(errors))

    async def close(self) -> None:
        """Let the connection go; requests under way end with an error."""
        self._end_requests()
        try:
            await asyncio.wait_for(self._client.close(), self._options.answer_seconds_max)
        except (OSError, TimeoutError, nats.errors.Error) as error:
            logger.debug("store_connection_not_closed", extra={"reason": str(error)})

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
        with suppress(_ExistsError):
            await self._answer(added)

    async def publish(self, name: str, data: bytes, *, after: int) -> int:
        """Add a message to a stream if its last sequence is `after`; returns the new one.

        It is acknowledged by a majority of the stream's replicas.

        Raises:
            WrongLastSequenceError: the stream has another last sequence.
            StoreError: the cluster refuses it; it is not stored.
            UnansweredError: it is not known whether it is stored.
        """
        headers = {"Nats-Expected-Last-Sequence": str(after)}
        done = await self._answer(self._js.publish(name, data, stream=name, headers=headers))
        return done.seq

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
            raise lost_error(name)
        return found

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

    async def listen(self, subject: str, heard: Callable[[bytes], None]) -> None:
        """Hear what other connections tell under a subject, as long as this one stands.

        Raises:
            UnansweredError: it does not stand any more.
        """

        async def take(message: Msg) -> None:
            heard(message.data)

        subscribing = self._client.subscribe(  # pyright: ignore[reportUnknownMemberType]
            subject, cb=take
        )
        await self._answer(subscribing)

    async def tell(self, subject: str, data: bytes) -> None:
        """Tell all who listen; nobody knows whether it arrives.

        Raises:
            UnansweredError: the connection was lost.
        """
        await self._answer(self._client.publish(subject, data))

    async def _connect_to(self, url: str) -> None:
        options = self._options
        # A client that was closed once stays closed.
        self._client = client = Client()
        self._js = JetStreamContext(client, timeout=options.answer_seconds_max)

        async def lost() -> None:
            if client is self._client:
                self._lose()

        arguments: dict[str, Any] = {}
        if options.tls_ca or options.tls_cert:
            arguments["tls"] = tls_context(options)
        if options.credentials is not None:
            arguments["user_credentials"] = str(options.credentials)
        await client.connect(
            url,
            name="rillnode",
            no_echo=True,
            # Nothing may be sent later than it was meant to be: the store tries again by itself.
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            ping_interval=_PING_SECONDS,
            connect_timeout=ceil(options.answer_seconds_max),
            disconnected_cb=lost,
            closed_cb=lost,
            error_cb=self._log_error,
            **arguments,
        )
        self._connected = True

    async def _log_error(self, error: Exception) -> None:
        if not self._connected:
            self._connect_error = error
        else:
            logger.warning("store_connection_failed", extra={"reason": repr(error)})

    def _lose(self) -> None:
        if not self._connected:
            return
        self._end_requests()
        self._on_lost()

    def _end_requests(self) -> None:
        self._connected = False
        for request in self._asked:
            request.cancel()

    async def _found(self, request: Coroutine[Any, Any, RawStreamMsg]) -> Message | None:
        try:
            found = await self._answer(request)
        except NotFoundError:
            return None
        return Message(found.seq or 0, found.data or b"")

    async def _answer(self, request: Coroutine[Any, Any, A]) -> A:
        """The answer to a request; NotFoundError passes."""
        asked = asyncio.ensure_future(request)
        self._asked.add(asked)
        try:
            return await asked
        except asyncio.CancelledError:
            asking = asyncio.current_task()
            if asking is not None and asking.cancelling():
                raise
            raise UnansweredError("the connection was lost") from None
        except NotFoundError:
            raise
        except (ServiceUnavailableError, NoStreamResponseError) as error:
            raise UnansweredError(str(error)) from error
        except APIError as error:
            if error.err_code == STREAM_EXISTS:
                raise _ExistsError from error
            if error.err_code == WRONG_LAST_SEQUENCE:
                raise WrongLastSequenceError from error
            raise refused_error(error) from error
        except nats.errors.MaxPayloadError as error:
            raise too_large_error(self.room_bytes) from error
        except (OSError, TimeoutError, nats.errors.Error) as error:
            raise UnansweredError(str(error) or type(error).__name__) from error
        finally:
            self._asked.discard(asked)
