"""A client of Streamr servers: of a rillnode's `streamr` listener, or of any other."""

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Self
from weakref import WeakValueDictionary

import aiohttp

from rillnode.actors.ports import Clock
from rillnode.codecs import arguments
from rillnode.codecs.errors import ConfigError, RequestError
from rillnode.codecs.streamr.encryption import GroupKey, RsaKey
from rillnode.codecs.streamr.ethereum import SECRET_BYTES, EthereumKey
from rillnode.codecs.streamr.json_text import write_json
from rillnode.codecs.streamr.stream_message import MessageId, StreamMessage
from rillnode.node.iteration import Iteration, iterate
from rillnode.node.streamr.client.connection import CLOSE_SECONDS, Connection
from rillnode.node.streamr.client.endpoints import Endpoints
from rillnode.node.streamr.client.key_file import GroupKeyFile
from rillnode.node.streamr.client.keys import Keys, KeyTools
from rillnode.node.streamr.client.live import Live
from rillnode.node.streamr.client.login import Login
from rillnode.node.streamr.client.message import Message
from rillnode.node.streamr.client.publisher import OnRefused, Publisher
from rillnode.node.streamr.client.reader import Reader, ReaderTools
from rillnode.node.streamr.client.resends import From, Last, Resend, resend as _resend
from rillnode.node.streamr.client.rest import Rest
from rillnode.node.streamr.client.streams import Operation, Permission, StreamInfo, Streams
from rillnode.node.streamr.client.subscription import Subscription
from rillnode.node.streamr.client.wire import open_wire
from rillnode.transports.clock import SystemClock


class Client:
    """Talks to one server; made by `connect`. All calls are made on one event loop.

    Attributes:
        address: of the client's key, in lower case; None without a key.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        key: EthereumKey | None = None,
        api_key: str | None = None,
        key_file: Path | None = None,
        on_refused: OnRefused | None = None,
        verify: bool = True,
        reconnect: bool = True,
        tls: ssl.SSLContext | None = None,
        clock: Clock | None = None,
        make_rsa_key: Callable[[], RsaKey] = RsaKey.generate,
    ) -> None:
        self.address = None if key is None else key.address.lower()
        self._key = key
        clock = clock or SystemClock(asyncio.get_running_loop())
        now_ms = _never_back(clock.now_ms)
        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls or True))
        self._open_wire = partial(open_wire, self._http, endpoints.websocket)
        self._login = Login(self._http, endpoints.rest, key=key, api_key=api_key)
        rest = Rest(self._http, endpoints.rest, self._login.token)
        self._streams = Streams(rest, clock.monotonic)
        self._live = Live()
        self._connection = Connection(self._open_wire, self._login, self._live, reconnect=reconnect)
        key_tools = KeyTools(
            # Who has no key of its own asks for the group keys of public streams with a new one.
            key=key or EthereumKey(os.urandom(SECRET_BYTES)),
            publish=self._publish_key_message,
            now_ms=now_ms,
            entropy=os.urandom,
            make_rsa_key=make_rsa_key,
            file=None if key_file is None else GroupKeyFile(key_file),
        )
        self._keys = Keys(key_tools, self._streams, self._live)
        self._tools = ReaderTools(
            streams=self._streams,
            keys=self._keys,
            publish=self._connection.publish,
            clock=clock,
            now_ms=now_ms,
            verify=verify,
        )
        self._publisher = Publisher(
            self._connection,
            self._streams,
            self._keys,
            now_ms,
            key=key,
            user_name=partial(_user_name, self._login, rest),
            on_refused=on_refused,
        )
        self._live.attach(self._connection, self._publisher.refused)
        self._numbers = count()
        self._subscriptions: WeakValueDictionary[int, Subscription] = WeakValueDictionary()

    async def open(self) -> None:
        """Log in and connect; see `connect`."""
        await self._connection.open()
        if await self._keys.load():
            await self._keys.listen()

    async def __aenter__(self) -> Self:
        """It is connected already."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    async def close(self, *, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """Hand over what is still to be published, then end all subscriptions and connections.

        Args:
            timeout_seconds: how long to wait for what is not handed over, as where the server is
                away.
        """
        arguments.seconds("timeout_seconds", timeout_seconds)
        for subscription in list(self._subscriptions.values()):
            await subscription.close()
        await self._keys.close()
        await self._connection.close(timeout_seconds=timeout_seconds)
        await self._live.close()
        await self._http.close()

    # Streams ---------------------------------------------------------------------------------

    async def create_stream(
        self,
        stream_id: str,
        *,
        partitions: int = 1,
        description: str = "",
        require_signed: bool = False,
        require_encrypted: bool = False,
    ) -> StreamInfo:
        """Create a stream.

        Args:
            stream_id: its name, for clients of all protocols.
            partitions: their number.
            description: for people.
            require_signed: unsigned messages are refused.
            require_encrypted: messages in clear are refused.

        Raises:
            RequestError: the server refuses, or there is one of that name; the code is the
                server's.
            TransportError: it is not reached.
        """
        return await self._streams.create(
            stream_id,
            partitions=partitions,
            description=description,
            require_signed=require_signed,
            require_encrypted=require_encrypted,
        )

    async def get_stream(self, stream_id: str) -> StreamInfo:
        """Tell about a stream.

        Raises:
            RequestError: `NOT_FOUND`, also where one may not know of it.
            TransportError: the server is not reached.
        """
        return await self._streams.get(stream_id, fresh=True)

    async def get_or_create_stream(self, stream_id: str, *, partitions: int = 1) -> StreamInfo:
        """Tell about a stream, which is created where there is none; raises as `create_stream`."""
        try:
            return await self.get_stream(stream_id)
        except RequestError as error:
            if error.code != "NOT_FOUND":
                raise
        return await self.create_stream(stream_id, partitions=partitions)

    async def grant(
        self, stream_id: str, *operations: Operation, user: str | None
    ) -> list[Permission]:
        """Let somebody do something with a stream; needs `share`.

        Args:
            stream_id: the stream.
            operations: what is allowed.
            user: whom: an Ethereum address; None: everybody, without logging in.

        Raises:
            RequestError: the server refuses; the code is the server's.
            TransportError: it is not reached.
        """
        return await self._streams.grant(stream_id, operations, user)

    async def revoke(
        self, stream_id: str, *operations: Operation, user: str | None
    ) -> list[Permission]:
        """Take back what `grant` has allowed; arguments and errors as of `grant`.

        Returns the permissions that there were; subscriptions that rest on one of them end.
        """
        return await self._streams.revoke(stream_id, operations, user)

    async def permissions(self, stream_id: str) -> list[Permission]:
        """All permissions on a stream; raises as `grant`."""
        return await self._streams.permissions(stream_id)

    # Publishing ------------------------------------------------------------------------------

    async def publish(
        self,
        stream_id: str,
        content: object,
        *,
        partition: int | None = None,
        partition_key: str | int | None = None,
        timestamp: int | None = None,
    ) -> MessageId:
        """Publish a message; with a private key it is signed.

        Messages of one partition keep the order of the calls. The protocol has no word for a
        message that was taken: what is refused is told to `on_refused` and to `flush`, later.
        Waits while many messages wait to be sent, also while the connection is lost.

        Args:
            stream_id: where.
            content: what JSON can express.
            partition: which; None: that of the key.
            partition_key: messages with the same key are in the same partition; None: any.
            timestamp: milliseconds since 1970; None: now.

        Returns:
            The message's number.

        Raises:
            CodecError: the content cannot be expressed.
            RequestError: the stream's partitions are not known, and the server does not tell.
            TransportError: the client is closed, or the server not reached.
        """
        return await self._publisher.publish(
            stream_id,
            write_json(content),
            partition=partition,
            partition_key=partition_key,
            timestamp=timestamp,
        )

    def _publish_key_message(self, message: StreamMessage) -> None:
        self._publisher.publish_key_message(message)

    async def flush(self) -> None:
        """Wait until everything that was published is stored, as a rillnode promises it.

        Raises:
            RequestError: a message was refused since the last call, or one of the streams may
                not be read by this client, so that it cannot tell; the code is the server's.
            TransportError: the connection was lost since the last call, and messages perhaps with
                it; each loss is told once.
        """
        await self._publisher.flush()

    async def encrypt(self, stream_id: str, key: GroupKey | None = None) -> GroupKey:
        """Encrypt what is published to a stream from now on; again: change the key.

        Subscribers ask for the key by themselves, and get it while this client is connected.
        Those who have asked are sent the next one at once, in the way that released clients read
        (`rotate` and `reset` are the specification's); whoever may not read the stream any more
        gets none. With a key file, it goes on so when the client is made the next time.

        Args:
            stream_id: which stream.
            key: with which key; None: a new one.

        Raises:
            ConfigError: `client.key`, the client has no private key; the key file cannot be
                written.
            RequestError, TransportError: the client cannot follow its key stream.
        """
        if self._key is None:
            raise ConfigError("client.key", "encryption needs a private key: subscribers ask it")
        return await self._keys.use(stream_id, key)

    async def rotate(self, stream_id: str, key: GroupKey | None = None) -> GroupKey:
        """Go on with another key, and give it to whoever has the present one.

        It is sent on each of the stream's partitions, encrypted under the present key
        (GroupKeyRotate), so that nobody has to ask; it is stored like any message. Who has lost
        the right to read keeps up as well: use `reset` then. `encrypt` is what released clients
        can follow: where one of those is subscribed, `flush` and `on_refused` tell of it by
        `UNDELIVERABLE`.

        Args:
            stream_id: a stream that is encrypted already.
            key: with which key; None: a new one.

        Raises:
            ConfigError: `client.group_key`, nothing is encrypted there yet; the key file cannot be
                written.
            RequestError, TransportError: the server does not tell of the stream, or the client
                cannot follow its key stream.
        """
        return await self._keys.rotate(stream_id, key)

    async def reset(self, stream_id: str, key: GroupKey | None = None) -> GroupKey:
        """Replace all keys of a stream by another one: those before are given to nobody any more.

        Every subscriber that has asked for a key before, and may still read the stream, is sent
        the new one (GroupKeyReset); others ask for it. Who may read no more is left behind. As
        with `rotate`, released clients cannot follow.

        Args:
            stream_id: a stream that is encrypted already.
            key: with which key; None: a new one.

        Raises:
            ConfigError: as `rotate`.
            RequestError, TransportError: likewise.
        """
        return await self._keys.reset(stream_id, key)

    async def add_group_key(self, publisher: str, stream_id: str, key: GroupKey) -> None:
        """Take a publisher's key that was agreed on in another way.

        Args:
            publisher: its address.
            stream_id: the stream that it is for; also the key's id where messages name none, as
                before version 32.
            key: the key.

        Raises:
            ConfigError: the key file cannot be written.
        """
        await self._keys.keep(publisher, stream_id, [key])

    # Reading ---------------------------------------------------------------------------------

    async def subscribe(
        self, stream_id: str, *, partition: int = 0, resend: Last | From | None = None
    ) -> Subscription:
        """Follow a partition from now on.

        Each publisher's messages come in its order, each once; missing ones are asked for. The
        subscription goes on over lost connections, with what was published meanwhile.

        Args:
            stream_id: which stream.
            partition: which partition of it.
            resend: stored messages to begin with.

        Raises:
            RequestError: the server refuses; the code is the server's.
            TransportError: the client is closed, or the server does not answer.
        """
        if resend is not None:
            await self._publisher.settle_for_reading(stream_id, partition)
        read = partial(_resend, self._open_wire, self._login, stream_id, partition)
        subscription = Subscription(
            (stream_id, partition), self._live, read, self._tools, start=resend
        )
        try:
            await self._live.follow((stream_id, partition), subscription)
            await subscription.begin()
        except BaseException:
            await subscription.close()
            raise
        self._subscriptions[next(self._numbers)] = subscription
        return subscription

    def resend(self, stream_id: str, what: Resend, *, partition: int = 0) -> Iteration[Message]:
        """Read stored messages, in ascending order of timestamp and sequence.

        What this client has published before is among them. Of one partition; messages of
        different publishers may come in another order where they wait for their keys.

        Args:
            stream_id: which stream.
            what: `Last`, `From` or `Range`.
            partition: which partition of it.

        Raises:
            RequestError: the server refuses; the code is the server's.
            TransportError: it is not reached, or the connection broke on the way.
        """
        return iterate(self._resend(stream_id, what, partition))

    async def _resend(
        self, stream_id: str, what: Resend, partition: int
    ) -> AsyncGenerator[list[Message]]:
        await self._publisher.settle_for_reading(stream_id, partition)
        wake = asyncio.Event()
        reader = Reader(self._tools, wake.set)
        try:
            stored = _resend(self._open_wire, self._login, stream_id, partition, what)
            async with aclosing(stored) as messages:
                async for message in messages:
                    if await reader.is_genuine(message):
                        yield await reader.read(message)
                    while reader.is_full:
                        yield await reader.wait(wake)
            while reader.locked:
                yield await reader.wait(wake)
        finally:
            reader.close()


def _never_back(now_ms: Callable[[], int]) -> Callable[[], int]:
    """A clock that stands still where another one goes back."""
    latest = 0

    def now() -> int:
        nonlocal latest
        latest = max(latest, now_ms())
        return latest

    return now


async def _user_name(login: Login, rest: Rest) -> str:
    """What the server calls a client without a key of its own."""
    if await login.token() is None:
        return "anonymous"
    return str((await rest.get("/users/me")).get("username"))
