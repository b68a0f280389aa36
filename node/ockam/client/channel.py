"""Secure channels that a client opens: end to end to a listener behind any route.

The nodes on the way carry sealed messages only. None of the levels has a message that ends a
channel: the other end closes it when it is idle, or when the connection that carries it is gone.
"""

from typing import Literal, Self

from rillnode.codecs import native
from rillnode.codecs.channel_key import KEY_BYTES, ChannelKey, parse_channel_key
from rillnode.codecs.errors import CodecError, HandshakeError, RillnodeError, TransportError
from rillnode.codecs.events import event_logger
from rillnode.codecs.noise.handshake import DH_BYTES
from rillnode.codecs.ockam.channel import ChannelInitiator
from rillnode.codecs.ockam.channel_cipher import ChannelSession, Level
from rillnode.codecs.routing.routes import Route, WireMessage, decode_message, local
from rillnode.node.client.client import Client
from rillnode.node.client.correspondent import Correspondent
from rillnode.node.client.messages import (
    ANSWER_SECONDS,
    Messages,
    as_route,
    failure_of,
    fresh_address,
)
from rillnode.node.client.serving import CALLS_MAX, Handler
from rillnode.node.ockam.client.serving import PlainService

logger = event_logger("rillnode.node.ockam.client.channel")

ChannelLevel = Literal["elixir-2021", "rust-2021", "2022"]
"""What the listener speaks; rillnode's own speaks all."""


class SecureChannel(Correspondent):
    """One end of an open channel, as `open` makes it.

    When the client's link is lost, so is the channel: open another one.

    Attributes:
        remote_key: the listener's X25519 static key, hex.
        address: the client's own address that sealed messages come to.
        messages: messages to any worker that the channel leads to.
    """

    def __init__(
        self, messages: Messages, session: ChannelSession, peer_route: Route, remote_key: bytes
    ) -> None:
        self.remote_key = remote_key.hex()
        self._outer = messages
        self._session = session
        self._peer_route = peer_route
        super().__init__(Messages(send=self._send, settled=lambda: None, entropy=messages.entropy))
        self._error: RillnodeError | None = None
        self.address = messages.attach(self._received)

    @classmethod
    async def open(
        cls,
        client: Client,
        route: Route | str,
        *,
        level: ChannelLevel = "2022",
        key: ChannelKey | None = None,
        remote_key: str | None = None,
        timeout_seconds: float = ANSWER_SECONDS,
    ) -> "SecureChannel":
        """Open an Ockam secure channel, end to end through all nodes of a route.

        Args:
            client: carries it; the channel is closed when the client is.
            route: leads to the listener: `SC_listener` on its node, or `peer/core;SC_listener`.
            level: what the listener speaks; rillnode's speaks all.
            key: this end's static key, whose principal is `ockam:` and its public half. None: a
                new one, which no grant can name.
            remote_key: the listener's public key (hex): no other one learns who asks. None:
                the attribute `remote_key` tells afterwards.
            timeout_seconds: how long the listener may take to answer.

        Raises:
            ConfigError: `remote_key` is no key.
            HandshakeError: the listener has another key, or speaks another level.
            RequestError, ActorError, TransportError: as `ask`.
        """
        channel = await open_channel(
            client.messages,
            as_route(route),
            level=level,
            key=key or ChannelKey(client.messages.entropy(KEY_BYTES)),
            remote_key=remote_key,
            seconds=timeout_seconds,
        )
        client.closes(channel)
        return channel

    async def __aenter__(self) -> Self:
        """Nothing more to do: the channel is open."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Forget the channel; questions that are open fail."""
        self._end(TransportError("channel.closed", "the channel is closed"))

    async def serve(
        self, address: str, handler: Handler, *, calls_max: int = CALLS_MAX
    ) -> PlainService:
        """Have an address at this end of the channel: only who is at the other end reaches it.

        The other end sends to the channel, then to `address`; it has learned the way there from a
        message of this end, such as `send(route, b"here", return_address=b"printer")`. Where there
        is no answer it is told nothing: Ockam has no word for it.

        Args:
            address: a name of at most 512 bytes.
            handler: as of `Client.serve`; the principal is `ockam:` and the other end's key.
            calls_max: calls that are open at a time, 1 to 4,096; others are dropped and counted.

        Raises:
            RequestError: `address.taken`, this end serves it already; `address.invalid`, nobody
                can; `serve.limit`, wrong numbers.
            TransportError: the channel is closed.
        """
        principal = f"ockam:{self.remote_key}"
        return PlainService(
            self.messages, address, handler, principal=principal, calls_max=calls_max
        )

    def _send(self, frame: bytes, needs_link: bool) -> None:
        if self._error is not None:
            raise self._error
        try:
            sealed = self._session.seal(frame)
        except CodecError as error:
            self._end(TransportError(error.code, error.text))
            raise TransportError(error.code, error.text) from None
        self._outer.send(self._peer_route, sealed, (local(self.address),))

    def _received(self, wire: WireMessage) -> None:
        """Take a sealed message, or a node's word that the channel is not there any more."""
        try:
            message = decode_message(self._session.open(wire.payload))
        except CodecError as error:
            failure = _failure_in(wire.payload)
            if failure is not None:
                self._end(failure)
            else:
                logger.warning("channel_message_dropped", extra={"code": error.code})
            return
        self.messages.received(message)

    def _end(self, error: RillnodeError) -> None:
        if self._error is None:
            self._error = error
            self._outer.detach(self.address)
            self.messages.fail(error)


async def open_channel(
    messages: Messages,
    route: Route,
    *,
    level: ChannelLevel,
    key: ChannelKey,
    remote_key: str | None,
    seconds: float,
) -> SecureChannel:
    """Do the handshake with the listener at the end of `route`; see `SecureChannel.open`."""
    expected = None if remote_key is None else parse_channel_key(remote_key)
    speaks = Level(level)
    entropy = messages.entropy
    initiator = ChannelInitiator(speaks, key.private, ephemeral=entropy(DH_BYTES))
    answer = await messages.ask(route, initiator.message_1(), seconds=seconds)
    try:
        initiator.read_message_2(answer.payload)
    except CodecError as error:
        text = f"the answer is no secure channel's of level {level}: {error.text}"
        raise HandshakeError("channel.answer", text) from None
    found = initiator.remote_key
    if expected is not None and found != expected:
        # It has not learned who asks.
        text = f"the key there is {found.hex()}, not {expected.hex()}: something sits between"
        raise HandshakeError("channel.wrong_key", text)
    # Elixir tells its second address for the channel, Rust nothing; this end has no second one.
    message_3, session = initiator.finish(b"" if speaks.wrapped else fresh_address(entropy))
    channel = SecureChannel(messages, session, answer.return_route, found)
    messages.send(answer.return_route, message_3, (local(channel.address),))
    return channel


def _failure_in(payload: bytes) -> RillnodeError | None:
    if not native.is_native(payload):
        return None
    try:
        response = native.decode_response(payload)
    except CodecError:
        return None
    return failure_of(response) if isinstance(response, native.Failure) else None
