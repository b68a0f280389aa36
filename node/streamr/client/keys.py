"""A client's group keys: its own, which it gives to subscribers, and those it was given.

Both directions of the key exchange run over the client's own key stream. It is followed from the
first time that a key is used or missing.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from rillnode.codecs.errors import CodecError, ConfigError, RequestError, RillnodeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.streamr.encryption import Entropy, GroupKey, RsaKey, generate_group_key
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.codecs.streamr.key_exchange import GroupKeyRequest
from rillnode.codecs.streamr.key_messages import (
    Dropped,
    KeyEvent,
    KeyStore,
    Publish,
    read_key_message,
)
from rillnode.codecs.streamr.key_publisher import KeyPublisher
from rillnode.codecs.streamr.key_subscriber import KeySubscriber
from rillnode.codecs.streamr.stream_message import MessageType, StreamMessage
from rillnode.node.streamr.client.key_file import GroupKeyFile
from rillnode.node.streamr.client.live import Live
from rillnode.node.streamr.client.numbering import random_chain_id
from rillnode.node.streamr.client.streams import Streams

logger = event_logger("rillnode.node.streamr.client")

_REQUESTS_MAX: Final = 1_000
"""Subscribers' requests that wait to be answered; beyond, the oldest is dropped and comes again."""

_AGAIN_SECONDS: Final = 1.0
"""Pause before the key stream is followed anew, where the server has ended that. Own choice."""

_KEY_ID_BYTES: Final = 16


class KeyReader(Protocol):
    """Takes what publishers send to this client's key stream."""

    def key_message_received(self, message: StreamMessage) -> None:
        """Take a message; it is not verified."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTools:
    """The tools that make and exchange keys.

    Attributes:
        key: signs key messages; they come to its address.
        publish: sends a message.
        now_ms: milliseconds since 1970 that never go back.
        make_rsa_key: takes about a second; called in another thread, and once.
        file: keeps keys, if there is one.
    """

    key: EthereumKey
    publish: Callable[[StreamMessage], None]
    now_ms: Callable[[], int]
    entropy: Entropy
    make_rsa_key: Callable[[], RsaKey]
    file: GroupKeyFile | None


class Keys:
    """All group keys of one client; satisfies `Inbox` for its key stream.

    Attributes:
        store: the keys that messages can be opened with.
    """

    def __init__(self, tools: KeyTools, streams: Streams, live: Live) -> None:
        self.store = KeyStore()
        self._tools = tools
        self._streams = streams
        self._live = live
        self._address = tools.key.address.lower()
        self._publisher = KeyPublisher(tools.key, random_chain_id(tools.entropy))
        self._own: dict[str, GroupKey] = {}
        self._allowed: defaultdict[str, set[str]] = defaultdict(set)
        self._readers: set[KeyReader] = set()
        self._requests: asyncio.Queue[StreamMessage] = asyncio.Queue(_REQUESTS_MAX)
        self._listening: asyncio.Task[None] | None = None
        self._answering: asyncio.Task[None] | None = None
        self._rsa_key: asyncio.Future[RsaKey] | None = None

    async def load(self) -> bool:
        """Read the key file; return whether there are keys in it that others may ask for.

        Raises:
            ConfigError: as `GroupKeyFile.read`.
        """
        if self._tools.file is not None:
            for kept in await asyncio.to_thread(self._tools.file.read):
                self.store.add(kept.publisher, kept.key)
                if kept.publisher == self._address:
                    publisher = self._publisher
                    learn = publisher.replace_keys if kept.is_reset else publisher.add_key
                    learn(kept.stream_id, kept.key)
                    self._own[kept.stream_id] = kept.key
        return bool(self._own)

    def own(self, stream_id: str) -> GroupKey | None:
        """The key that this client encrypts a stream's messages with, if any."""
        return self._own.get(stream_id)

    async def use(self, stream_id: str, key: GroupKey | None) -> GroupKey:
        """Encrypt what is published to a stream from now on; see `Client.encrypt`."""
        key = await self._take(stream_id, key)
        if stream_id in self._own:
            await self._revoke_strangers(stream_id)
            self._handle(self._publisher.announce(stream_id, key, self._tools.now_ms()))
        else:
            self._publisher.add_key(stream_id, key)
        self._own[stream_id] = key
        return key

    async def rotate(self, stream_id: str, key: GroupKey | None) -> GroupKey:
        """Go on with another key, sent on the stream; see `Client.rotate`."""
        previous = self._own_or_none_yet(stream_id)
        partitions = (await self._streams.get(stream_id)).partitions
        key = await self._take(stream_id, key)
        for partition in range(partitions):
            now_ms, entropy = self._tools.now_ms(), self._tools.entropy
            self._handle(
                self._publisher.rotate(stream_id, partition, key, previous, now_ms, entropy)
            )
        self._own[stream_id] = key
        return key

    async def reset(self, stream_id: str, key: GroupKey | None) -> GroupKey:
        """Replace all keys of a stream by another one; see `Client.reset`."""
        self._own_or_none_yet(stream_id)
        key = await self._take(stream_id, key, is_reset=True)
        await self._revoke_strangers(stream_id)
        self._handle(self._publisher.reset(stream_id, key, self._tools.now_ms()))
        self._own[stream_id] = key
        return key

    async def _take(
        self, stream_id: str, key: GroupKey | None, *, is_reset: bool = False
    ) -> GroupKey:
        """A key, or a new one, that this client is ready to be asked for."""
        await self.listen()
        if key is None:
            key = generate_group_key(self._tools.entropy(_KEY_ID_BYTES).hex(), self._tools.entropy)
        await self.keep(self._address, stream_id, [key], is_reset=is_reset)
        return key

    def _own_or_none_yet(self, stream_id: str) -> GroupKey:
        key = self._own.get(stream_id)
        if key is None:
            text = f"nothing is encrypted yet on {stream_id}: begin with `encrypt`"
            raise ConfigError("client.group_key", text)
        return key

    async def keep(
        self, publisher: str, stream_id: str, keys: Sequence[GroupKey], *, is_reset: bool = False
    ) -> None:
        """Keep keys of a publisher, in the file too; see `KeptKey` for `is_reset`.

        Raises:
            ConfigError: as `GroupKeyFile.add`.
        """
        for key in keys:
            self.store.add(publisher, key)
        if self._tools.file is not None:
            add = partial(self._tools.file.add, is_reset=is_reset)
            await asyncio.to_thread(add, publisher.lower(), stream_id, *keys)

    async def listen(self) -> None:
        """Follow the client's own key stream, from now on to the end.

        Raises:
            RequestError, TransportError: as `Live.follow`.
        """
        loop = asyncio.get_running_loop()
        if self._listening is None:
            self._listening = loop.create_task(self._follow())
        if self._answering is None:
            self._answering = loop.create_task(self._answer_requests())
        try:
            await asyncio.shield(self._listening)
        except RillnodeError:
            self._listening = None
            raise

    async def subscriber(self, reader: KeyReader) -> KeySubscriber:
        """A reader's own end of the exchange; `reader` is handed what comes for it.

        Takes about a second for the first one, for the client's RSA key.

        Raises:
            RequestError, TransportError: as `Live.follow`.
        """
        tools = self._tools
        if self._rsa_key is None:
            making = asyncio.get_running_loop().run_in_executor(None, tools.make_rsa_key)
            self._rsa_key = asyncio.ensure_future(making)
        await self.listen()
        rsa_key = await asyncio.shield(self._rsa_key)
        self._readers.add(reader)
        chain_id = random_chain_id(tools.entropy)
        return KeySubscriber(tools.key, rsa_key, self.store, chain_id, tools.entropy)

    def leave(self, reader: KeyReader) -> None:
        """Hand a reader nothing more."""
        self._readers.discard(reader)

    async def close(self) -> None:
        """Answer nobody any more."""
        for task in (self._listening, self._answering):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    # The key stream --------------------------------------------------------------------------

    def message_received(self, message: StreamMessage) -> None:
        """Take a message of the client's own key stream."""
        if message.message_type != MessageType.GROUP_KEY_REQUEST:
            for reader in self._readers:
                reader.key_message_received(message)
            return
        if self._requests.full():
            self._requests.get_nowait()
            logger.warning("key_request_dropped", extra={"code": "key.full"})
        self._requests.put_nowait(message)

    def interrupted(self) -> None:
        """Nothing to do: who has no answer asks again."""

    def resubscribed(self) -> None:
        """Likewise."""

    def failed(self, error: RillnodeError) -> None:
        """Listen again, where it was the server that has ended it: who publishes is asked for keys.

        Where the connection is over, the client's other readers are told as well.
        """
        if isinstance(error, RequestError):
            self._listening = asyncio.get_running_loop().create_task(self._listen_again())

    async def _follow(self) -> None:
        await self._live.follow((self._publisher.key_stream, 0), self)

    async def _listen_again(self) -> None:
        with suppress(RillnodeError):  # then the connection is over
            while True:
                await asyncio.sleep(_AGAIN_SECONDS)
                try:
                    return await self._follow()
                except RequestError as error:
                    logger.warning("not_resubscribed", extra={"code": error.code})

    async def _answer_requests(self) -> None:
        while True:
            message = await self._requests.get()
            try:
                await self._answer(message)
            except RillnodeError as error:
                logger.warning("key_request_dropped", extra={"code": error.code})

    async def _answer(self, message: StreamMessage) -> None:
        """Answer one request, as what the server says of its sender allows.

        Raises:
            RillnodeError: it is none, or the server cannot be asked.
        """
        content = read_key_message(message, self._address)
        if not isinstance(content, GroupKeyRequest):
            raise CodecError("key.type", "the message is no request for keys by id")
        subscriber = message.id.publisher_id.lower()
        # Strangers cannot make this client ask for streams of their choice.
        if content.stream_id in self._own:
            await self._ask_for(content.stream_id, subscriber, fresh=False)
        self._handle(self._publisher.handle(message, self._tools.now_ms()))

    async def _ask_for(self, stream_id: str, subscriber: str, *, fresh: bool) -> None:
        if await self._streams.is_subscriber(stream_id, subscriber, fresh=fresh):
            self._publisher.allow(stream_id, subscriber)
            self._allowed[stream_id].add(subscriber)
        else:
            self._publisher.revoke(stream_id, subscriber)
            self._allowed[stream_id].discard(subscriber)

    async def _revoke_strangers(self, stream_id: str) -> None:
        """Leave out of an announcement who is no subscriber any more."""
        for subscriber in sorted(self._allowed[stream_id]):
            await self._ask_for(stream_id, subscriber, fresh=True)

    def _handle(self, events: Sequence[KeyEvent]) -> None:
        for event in events:
            if isinstance(event, Publish):
                self._tools.publish(event.message)
            elif isinstance(event, Dropped):
                logger.warning("key_request_dropped", extra={"code": event.code})
