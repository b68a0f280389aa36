"""The channel actor: the responder's end of one secure channel, whatever route it came by.

It has two addresses. What comes to the first is the peer's: message 3 of the handshake, then
sealed messages, which go on inside the node as the peer's own. What comes to the second, as all
answers do, is sealed and goes the way back.

A channel lives as long as the connection that message 1 came over, and takes sealed messages from
there only. What its workers have not handled, and what they prepare, counts for that connection,
so that a channel never makes a node hold more than a plain connection could.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, assert_never

from rillnode.actors.core.access import Access
from rillnode.actors.core.delivery import Delivery, Origin, Slice
from rillnode.actors.core.rights import RightsChanged
from rillnode.actors.core.router import Router
from rillnode.actors.engine.described import Described
from rillnode.actors.engine.system import AsyncioSystemBase, Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.ports import Entropy
from rillnode.codecs.channel_key import ChannelKey
from rillnode.codecs.errors import CodecError, HandshakeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import ROUTE_HOPS_MAX
from rillnode.codecs.ockam.channel import ChannelResponder, encode_completed
from rillnode.codecs.ockam.channel_cipher import ChannelSession
from rillnode.codecs.routing.routes import (
    Address,
    Route,
    WireDecoder,
    WireMessage,
    encode_message,
)
from rillnode.codecs.routing.wire import message_bytes

logger = event_logger("rillnode.actors.ockam.channel")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelContext:
    """The node's parts that channels work with, and what is allowed.

    Attributes:
        key: the node's static key.
        allow: static keys that may open a channel; empty: all.
        handshake_seconds: how long message 3 may take.
        idle_seconds: how long a channel stays without a message; it goes after one to two such
            periods.
        channels_max: channels of the node.
        channels_per_connection_max: channels over one connection, those inside others included.
        counters: what became of channels and their messages, by reason.
        open: the channels that there are, and the origin of the connection that carries each.
        per_connection: how many each connection carries.
    """

    system: AsyncioSystemBase
    router: Router
    access: Access
    entropy: Entropy
    key: ChannelKey
    allow: frozenset[bytes]
    handshake_seconds: float
    idle_seconds: float
    channels_max: int
    channels_per_connection_max: int
    counters: Counter[str] = field(default_factory=Counter)
    open: dict[Cell, Origin] = field(default_factory=dict[Cell, Origin])
    per_connection: Counter[Origin] = field(default_factory=Counter[Origin])

    def opened(self, cell: Cell, account: Origin) -> None:
        """There is a channel more."""
        self.open[cell] = account
        self.per_connection[account] += 1

    def closed(self, cell: Cell) -> None:
        """A channel has ended; harmless when repeated."""
        account = self.open.pop(cell, None)
        if account is not None:
            self.per_connection[account] -= 1
            if not self.per_connection[account]:
                del self.per_connection[account]


@dataclass(frozen=True, slots=True)
class Begin:
    """A channel's first message: the handshake, whose message 2 is written.

    It is no argument of the actor, because a cell keeps those: the ephemeral key shall be
    forgotten with the handshake.
    """

    responder: ChannelResponder


@dataclass(frozen=True, slots=True)
class _Late:
    """Message 3 must have come by now."""


@dataclass(frozen=True, slots=True)
class _Look:
    """Time to see whether the channel is still in use."""


class ChannelActor(Worker):
    """A secure channel, from message 2 on; the first thing that it must get is `Begin`.

    Args:
        context: the node's parts.
        origin: where message 1 came from.
        sealed: the address that the peer sends to.
        plain: the address that stands for the peer inside the node.
    """

    mailbox_messages_max = 8_192
    spare: ClassVar = {Begin: 1}
    on_failure = "stop"

    def __init__(
        self, context: ChannelContext, origin: Origin, sealed: Address, plain: Address
    ) -> None:
        self._context = context
        self._origin = origin
        self._responder: ChannelResponder | None = None
        self._sealed = sealed
        self._plain = plain
        self._session: ChannelSession | None = None
        self._inner = Origin("", 0, native=False)
        self._peer_route: Route = ()
        self._decoder = WireDecoder()
        self._granted = False
        self._in_use = False
        self._reason = ""

    def started(self) -> None:
        """Wait for message 3, within a bound."""
        self.wake_after(self._context.handshake_seconds, _Late())

    def handle(
        self, message: Delivery | Begin | _Late | _Look | RightsChanged, sender: Cell | None
    ) -> None:
        """Take the peer's messages, and the node's for the peer."""
        if self._reason:
            if isinstance(message, Delivery):  # as if it had come a little later
                self._context.router.undeliverable("unknown_address", message)
            return
        match message:
            case Delivery(messages=messages) if messages[0].onward_route[0] == self._plain:
                self._seal(messages)
            case Delivery(origin=origin, messages=messages, tracked=tracked):
                if origin is not self._origin:
                    self._drop("channel.other_connection", len(messages))
                else:
                    self._receive(messages, tracked)
            case Begin(responder=responder):
                self._responder = responder
            case _Late():
                if self._session is None:
                    self._close("channel.handshake_time", "message 3 did not come in time")
            case _Look():
                self._look()
            case RightsChanged():
                if self._granted and not self._is_granted():
                    self._close("channel.revoked", "no grant names its principal any more")
            case _:
                assert_never(message)

    def stopped(self) -> None:
        """Give the addresses back; end what lives no longer than the channel."""
        for address in (self._sealed, self._plain):
            self._context.router.unregister(address.value)
        self._context.closed(self.address)
        self._origin.detach(self.address)
        self._inner.end()
        reason = self._reason or "its connection ended"
        logger.info("channel_closed", extra={"reason": reason, "peer": self._inner.principal[:22]})

    def described(self, address: bytes) -> Described:
        """The channel, which who is at its other end may close."""
        return Described(
            "channel",
            owner=self._inner.principal,
            origin=self._inner,
            open_to="owner",
            stop=partial(self._close, "channel.stopped", "it was stopped at its address"),
        )

    # The handshake ---------------------------------------------------------------------------

    def _receive(self, messages: Sequence[WireMessage], tracked: Slice | None) -> None:
        """Take message 3 if it is still to come, and sealed messages then."""
        responder, self._responder = self._responder, None
        if responder is not None:
            try:
                self._finish(responder, messages[0])
            except (CodecError, HandshakeError) as error:
                self._close(error.code, error.text)
                return
            messages = messages[1:]
        if self._session is not None and messages:
            self._open(self._session, messages, tracked)

    def _finish(self, responder: ChannelResponder, wire: WireMessage) -> None:
        """Read message 3, and let the peer in if its key is allowed.

        Raises:
            CodecError, HandshakeError: it is none, or the key is not allowed.
        """
        context = self._context
        session = responder.finish(wire.payload)
        key = responder.remote_key
        if context.allow and key not in context.allow:
            text = f"{key.hex()} is not in ockam.channel.allow"
            raise HandshakeError("channel.not_allowed", text)
        if len(wire.return_route) > ROUTE_HOPS_MAX:
            raise CodecError("codec.limit", f"route has more than {ROUTE_HOPS_MAX} hops")
        self._session = session
        self._peer_route = wire.return_route
        self._inner = Origin(
            principal=context.access.principal_of(f"ockam:{key.hex()}"),
            message_bytes_max=self._room(session),
            native=False,
            connection=self.address,
            carrier=self._origin.account,
        )
        self._granted = self._is_granted()
        self._in_use = True
        self.wake_after(context.idle_seconds, _Look())
        context.counters["opened"] += 1
        logger.info(
            "channel_opened",
            extra={"peer": self._inner.principal[:22], "level": session.level.value},
        )
        if responder.callback is not None:
            told = encode_completed(self._plain, responder.handshake_hash)
            message = WireMessage((responder.callback,), (self._plain,), told)
            context.router.route(self._inner, [message])

    def _is_granted(self) -> bool:
        return self._context.access.known(self._inner.principal)

    def _room(self, session: ChannelSession) -> int:
        """The largest message that goes through the channel to the peer."""
        origin = self._origin
        limit, onward = origin.message_bytes_max, self._peer_route[1:]
        around = message_bytes(origin.wire_format, onward, (self._sealed,), limit) - limit
        return max(0, session.plaintext_bytes_max(limit - around))

    def _look(self) -> None:
        if not self._in_use:
            self._close("channel.idle", "no message came for it")
        else:
            self._in_use = False
            self.wake_after(self._context.idle_seconds, _Look())

    # Messages --------------------------------------------------------------------------------

    def _open(
        self, session: ChannelSession, messages: Sequence[WireMessage], tracked: Slice | None
    ) -> None:
        """Send what the peer sealed on; what does not open changes nothing."""
        opened: list[WireMessage] = []
        settled = session.settled
        for wire in messages:
            try:
                (message,) = self._decoder.decode((session.open(wire.payload),))
            except CodecError as error:
                self._drop(error.code)
                continue
            traced = (self._plain, *message.return_route)
            opened.append(WireMessage(message.onward_route, traced, message.payload))
        if session.settled and not settled:
            self._inner.message_bytes_max = self._room(session)
        if opened:
            self._in_use = True
            self._context.router.route(self._inner, opened, tracked=tracked)

    def _seal(self, messages: Sequence[WireMessage]) -> None:
        """Send messages to the peer, as far as they fit and the channel has nonces."""
        session = self._session
        if session is None:
            self._drop("channel.early", len(messages))
            return
        sealed: list[WireMessage] = []
        for onward_route, return_route, payload in messages:
            try:
                frame = encode_message(onward_route[1:], return_route, payload)
            except CodecError as error:
                self._drop(error.code)
                continue
            if len(frame) > self._inner.message_bytes_max:
                self._drop("channel.too_large")
                continue
            try:
                sealed.append(WireMessage(self._peer_route, (self._sealed,), session.seal(frame)))
            except CodecError as error:
                self._close(error.code, error.text)
                break
        if sealed:
            self._in_use = True
            self._context.router.route(self._origin, sealed)

    def _drop(self, code: str, count: int = 1) -> None:
        self._context.counters[code] += count
        logger.debug("channel_message_dropped", extra={"code": code, "messages": count})

    def _close(self, code: str, reason: str) -> None:
        self._context.counters[code] += 1
        self._reason = reason
        self.system.exit(self.address)
