"""Numbers, encrypts, signs and sends messages, and tells what was refused."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from hashlib import sha256
from random import randrange
from typing import Final

from rillnode.codecs.errors import RequestError, RillnodeError, TransportError
from rillnode.codecs.events import event_logger
from rillnode.codecs.streamr.encryption import encrypt_message
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.codecs.streamr.partition import partition_of
from rillnode.codecs.streamr.signing import sign_message
from rillnode.codecs.streamr.stream_message import MessageId, MessageType, StreamMessage
from rillnode.node.streamr.client.connection import Connection
from rillnode.node.streamr.client.keys import Keys
from rillnode.node.streamr.client.live import Partition
from rillnode.node.streamr.client.numbering import Numbering, random_chain_id
from rillnode.node.streamr.client.streams import Streams

logger = event_logger("rillnode.node.streamr.client")

_CONVERSATION: Final = frozenset(
    (
        MessageType.GROUP_KEY_REQUEST,
        MessageType.GROUP_KEY_RESPONSE,
        MessageType.GROUP_KEY_ERROR_RESPONSE,
    )
)
"""What clients say to each other by themselves; its refusals are nothing to the application."""

OnRefused = Callable[[MessageId, RequestError], object]
"""Takes the number of a published message that the server did not accept, and why."""


class Publisher:
    """Publishes one client's messages.

    Args:
        connection: sends them.
        streams: tells how many partitions there are.
        keys: tells what to encrypt with.
        now_ms: milliseconds since 1970 that never go back.
        key: signs messages; None: they are not signed.
        user_name: what a client without a key is called.
        on_refused: told of what the server does not accept.
    """

    def __init__(
        self,
        connection: Connection,
        streams: Streams,
        keys: Keys,
        now_ms: Callable[[], int],
        *,
        key: EthereumKey | None,
        user_name: Callable[[], Awaitable[str]],
        on_refused: OnRefused | None,
    ) -> None:
        self._connection = connection
        self._streams = streams
        self._keys = keys
        self._now_ms = now_ms
        self._key = key
        self._user_name = user_name
        self._on_refused = on_refused
        self._numbering: Numbering | None = None
        self._in_turn = asyncio.Lock()  # lets callers through in the order in which they came
        self._unsettled: set[Partition] = set()
        self._loss: TransportError | None = None
        self._refusal: RequestError | None = None

    async def publish(
        self,
        stream_id: str,
        text: str,
        *,
        partition: int | None,
        partition_key: str | int | None,
        timestamp: int | None,
    ) -> MessageId:
        """Publish a message; see `Client.publish`."""
        async with self._in_turn:
            if partition is None:
                partitions = (await self._streams.get(stream_id)).partitions
                key = randrange(partitions) if partition_key is None else partition_key
                partition = partition_of(key, partitions)
            if self._numbering is None:
                publisher_id = await self._publisher_id()
                self._numbering = Numbering(publisher_id, partial(random_chain_id, os.urandom))
            await self._connection.room()
            message_id, previous = self._numbering.next(
                stream_id, partition, self._now_ms() if timestamp is None else timestamp
            )
            message = StreamMessage(id=message_id, previous=previous, content=text)
            group_key = self._keys.own(stream_id)
            if group_key is not None:
                message = encrypt_message(message, group_key, os.urandom)
            if self._key is not None:
                message = sign_message(message, self._key)
            self._connection.publish(message)
            self._unsettled.add((stream_id, partition))
            return message_id

    def publish_key_message(self, message: StreamMessage) -> None:
        """Send a message that gives keys, or asks for them.

        Raises:
            RillnodeError: the connection is over.
        """
        self._connection.publish(message)
        if message.message_type not in _CONVERSATION:
            self._unsettled.add((message.id.stream_id, message.id.partition))

    async def flush(self) -> None:
        """Wait until everything is stored or refused; see `Client.flush`."""
        for partition in sorted(self._unsettled):
            try:
                await self._settle(partition)
            except TransportError:
                self._loss = None  # it is told of now
                raise
        refusal, self._refusal = self._refusal, None
        loss, self._loss = self._loss, None
        if refusal is not None:
            raise refusal
        if loss is not None:
            raise loss

    async def settle_for_reading(self, stream_id: str, partition: int) -> None:
        """Have what was published be there before a partition's stored messages are read."""
        if (stream_id, partition) in self._unsettled:
            # Who may not read the stream is told so by what follows.
            with suppress(RillnodeError):
                await self._settle((stream_id, partition))

    def refused(self, message: StreamMessage, error: RequestError) -> None:
        """Tell of a message that the server does not accept."""
        extra = {"code": error.code, "stream": message.id.stream_id, "at": message.id.timestamp}
        logger.warning("publish_refused", extra=extra)
        if message.message_type in _CONVERSATION:
            return
        self._refusal = self._refusal or error
        if self._on_refused is not None:
            self._on_refused(message.id, error)

    async def _settle(self, partition: Partition) -> None:
        """Wait until a partition's messages are stored, as far as they were not lost.

        The answer is about what came on the same WebSocket: what was handed to one before is not
        known of.
        """
        self._unsettled.discard(partition)
        try:
            await self._connection.settle(*partition)
        except RillnodeError:
            self._unsettled.add(partition)
            raise
        finally:
            if self._connection.handed_over.take_loss(partition):
                text = "the connection was lost meanwhile, and messages perhaps with it"
                self._loss = TransportError("link.closed", text)

    async def _publisher_id(self) -> str:
        """An address, or a hash of the user's name where messages are not signed."""
        if self._key is not None:
            return self._key.address.lower()
        return sha256((await self._user_name()).encode()).hexdigest()
