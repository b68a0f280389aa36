"""Mistakes in secure channels and on plain Ockam TCP, each as a patch of the right code."""

# Mistakes are made inside of classes.
# pyright: reportPrivateUsage=false

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from planted_bugs import Patch, Planted, always
from rillnode.actors.core.access import Access
from rillnode.actors.core.delivery import Delivery, Origin
from rillnode.actors.core.links.connection import ConnectionActor
from rillnode.actors.engine.system import Cell
from rillnode.actors.ockam.channel import ChannelActor, ChannelContext
from rillnode.actors.ockam.channel_listener import ChannelListener
from rillnode.codecs.errors import CodecError, TransportError
from rillnode.codecs.native import is_native
from rillnode.codecs.ockam import channel_cipher
from rillnode.codecs.ockam.channel import ChannelResponder
from rillnode.codecs.ockam.channel_cipher import ReplayWindow
from rillnode.codecs.routing import dialects
from rillnode.codecs.routing.framing import U16Framing
from rillnode.codecs.routing.routes import Address, Route, WireMessage
from rillnode.node.ockam.client import channel as client_channel
from rillnode.node.ockam.client.channel import SecureChannel
from rillnode.node.ockam.simulation.table import OckamClients
from rillnode.node.simulation.scenario import ClientsTable, FaultKind

TAG = bytes(16)


def one_nonce(patch: pytest.MonkeyPatch) -> None:
    """Every message of a secure channel is sealed with the nonce of the first."""

    class First:
        def pack(self, number: int) -> bytes:
            return bytes(12)

    patch.setattr(channel_cipher, "_AESGCM_NONCE", First())


def one_ephemeral_key(patch: pytest.MonkeyPatch) -> None:
    """Every channel's listener uses the same ephemeral key."""
    make = ChannelResponder.__init__

    def lazy(self: ChannelResponder, static: bytes, payload: bytes, **_: Any) -> None:
        make(self, static, payload, ephemeral=b"always the same".ljust(32))

    patch.setattr(ChannelResponder, "__init__", lazy)


def any_far_key(patch: pytest.MonkeyPatch) -> None:
    """A client takes any channel's other end for the one that it expects."""
    patch.setattr(client_channel, "parse_channel_key", always(None))


def everybody_allowed(patch: pytest.MonkeyPatch) -> None:
    """Every key may open a secure channel, whichever are named."""
    finish = ChannelActor._finish

    def generous(self: ChannelActor, responder: ChannelResponder, wire: WireMessage) -> None:
        self._context = replace(self._context, allow=frozenset())
        finish(self, responder, wire)

    patch.setattr(ChannelActor, "_finish", generous)


class Careless:
    """AES-GCM that opens what does not authenticate, too."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._right = AESGCM(key)

    def encrypt(self, nonce: bytes, data: bytes, beside: bytes | None) -> bytes:
        return self._right.encrypt(nonce, data, beside)

    def decrypt(self, nonce: bytes, data: bytes, beside: bytes | None) -> bytes:
        try:
            return self._right.decrypt(nonce, data, beside)
        except InvalidTag:
            counter = CTR(nonce + (2).to_bytes(4, "big"))
            return Cipher(AES(self._key), counter).decryptor().update(data[: -len(TAG)])


class Clear:
    """AES-GCM without AES-GCM."""

    def __init__(self, key: bytes) -> None:
        pass

    def encrypt(self, nonce: bytes, data: bytes, beside: bytes | None) -> bytes:
        return data + TAG

    def decrypt(self, nonce: bytes, data: bytes, beside: bytes | None) -> bytes:
        if data[-len(TAG) :] != TAG:
            raise InvalidTag
        return bytes(data[: -len(TAG)])


def forged_messages_opened(patch: pytest.MonkeyPatch) -> None:
    """A channel's message that does not authenticate is handed on."""
    patch.setattr(channel_cipher, "AESGCM", Careless)


def channels_in_clear(patch: pytest.MonkeyPatch) -> None:
    """What goes through a secure channel is not sealed."""
    patch.setattr(channel_cipher, "AESGCM", Clear)


def copies_opened(patch: pytest.MonkeyPatch) -> None:
    """A channel's message opens as often as it comes."""
    patch.setattr(ReplayWindow, "is_new", always(True))


def forged_messages_end(patch: pytest.MonkeyPatch) -> None:
    """A message that does not authenticate ends the channel."""

    def strict(self: ChannelActor, code: str, count: int = 1) -> None:
        self._close(code, "something is wrong")

    patch.setattr(ChannelActor, "_drop", strict)


def answers_through_first_channel(patch: pytest.MonkeyPatch) -> None:
    """What goes back through a channel goes to the first one over the same connection."""
    finish = ChannelActor._finish
    routes: dict[Origin, Route] = {}

    def mixed(self: ChannelActor, responder: ChannelResponder, wire: WireMessage) -> None:
        finish(self, responder, wire)
        self._peer_route = routes.setdefault(self._origin, wire.return_route)

    patch.setattr(ChannelActor, "_finish", mixed)


def ended_channels_kept(patch: pytest.MonkeyPatch) -> None:
    """Channels that have ended count among those that are open."""
    patch.setattr(ChannelContext, "closed", always(None))


def handshakes_kept(patch: pytest.MonkeyPatch) -> None:
    """A channel whose handshake is not finished is waited for without end."""
    patch.setattr(ChannelActor, "started", always(None))


def idle_channels_kept(patch: pytest.MonkeyPatch) -> None:
    """A channel that nobody uses any more stays."""
    patch.setattr(ChannelActor, "_look", always(None))


def carriers_rights(patch: pytest.MonkeyPatch) -> None:
    """Through a channel one may do what the connection that carries it may."""
    finish = ChannelActor._finish

    def mixed(self: ChannelActor, responder: ChannelResponder, wire: WireMessage) -> None:
        finish(self, responder, wire)
        self._inner.principal = self._origin.principal

    patch.setattr(ChannelActor, "_finish", mixed)


def other_connections_taken(patch: pytest.MonkeyPatch) -> None:
    """A channel takes sealed messages from whatever connection they come over."""
    handle = ChannelActor.handle

    def trusting(self: ChannelActor, message: Any, sender: Cell | None) -> None:
        if isinstance(message, Delivery) and message.messages[0].onward_route[0] == self._sealed:
            message = Delivery(self._origin, message.messages, message.tracked)
        handle(self, message, sender)

    patch.setattr(ChannelActor, "handle", trusting)


def things_of_channels_kept(patch: pytest.MonkeyPatch) -> None:
    """What is there for a channel does not end with it."""
    stopped = ChannelActor.stopped

    def careless(self: ChannelActor) -> None:
        self._inner = Origin("", 0, native=False)
        stopped(self)

    patch.setattr(ChannelActor, "stopped", careless)


def one_handshake_at_once(patch: pytest.MonkeyPatch) -> None:
    """Of handshakes that begin together only the first is answered."""
    handle = ChannelListener.handle

    def hasty(self: ChannelListener, message: Any, sender: Cell | None) -> None:
        if isinstance(message, Delivery):
            message = Delivery(message.origin, message.messages[:1], message.tracked)
        handle(self, message, sender)

    patch.setattr(ChannelListener, "handle", hasty)


def forged_messages_end_a_client(patch: pytest.MonkeyPatch) -> None:
    """What does not authenticate ends the client's side of a channel."""
    received = SecureChannel._received

    def strict(self: SecureChannel, wire: WireMessage) -> None:
        window = deepcopy(self._session._window)
        try:
            self._session.open(wire.payload)
        except CodecError as error:
            if not is_native(wire.payload):
                self._end(TransportError(error.code, error.text))
        self._session._window = window
        received(self, wire)

    patch.setattr(SecureChannel, "_received", strict)


def plain_peers_told(patch: pytest.MonkeyPatch) -> None:
    """Ockam's nodes are told that something reaches nobody, in words that they do not know."""
    started = ConnectionActor.started

    def telling(self: ConnectionActor) -> None:
        started(self)
        self._origin.native = True

    patch.setattr(ConnectionActor, "started", telling)


def lengths_of_one_byte(patch: pytest.MonkeyPatch) -> None:
    """A u16 frame of 256 to 511 bytes says that it has 256 less."""
    encode = U16Framing.encode

    def short(self: U16Framing, messages: Sequence[bytes]) -> bytes:
        frames = [bytearray(encode(self, [message])) for message in messages]
        for frame in frames:
            frame[0] -= frame[0] == 1
        return b"".join(frames)

    patch.setattr(U16Framing, "encode", short)


def first_byte_tells(patch: pytest.MonkeyPatch) -> None:
    """Whoever begins with 01 is taken for a node of 2024."""

    def hasty(head: bytes) -> str | None:
        return ("2024" if head[0] == 1 else "u16") if head else None

    patch.setattr(dialects, "dialect_of", hasty)


def greeting_not_made_up_for(patch: pytest.MonkeyPatch) -> None:
    """What a listener has answered to a lone 01 stays, though it was no greeting."""
    patch.setattr(dialects, "_FILLER", b"\1")


def answers_to_last_link(patch: pytest.MonkeyPatch) -> None:
    """What is answered to a plain link goes to the one that was opened last."""
    started, trace = ConnectionActor.started, ConnectionActor._trace
    last: list[Address] = []

    def noting(self: ConnectionActor) -> None:
        started(self)
        if not self._origin.native:
            last[:] = [self._own]

    def mixed(self: ConnectionActor, message: WireMessage) -> WireMessage:
        traced = trace(self, message)
        if self._origin.native:
            return traced
        return traced._replace(return_route=(last[0], *traced.return_route[1:]))

    patch.setattr(ConnectionActor, "started", noting)
    patch.setattr(ConnectionActor, "_trace", mixed)


def plain_links_trusted(patch: pytest.MonkeyPatch) -> None:
    """Who comes over plain TCP may do what everybody with a key may."""
    principal_of = Access.principal_of

    def trusting(self: Access, found: str) -> str:
        return principal_of(self, f"noise:{'0' * 64}" if found == "anonymous" else found)

    patch.setattr(Access, "principal_of", trusting)


_FEW = ClientsTable(producers=1, followers=0, consumers=0, readers=0, examiners=0)
CHANNELS = OckamClients(users=0, channel_users=3)
TCP = OckamClients(users=0, tcp_users=3)
FAULTS: tuple[FaultKind, ...] = ("kill", "kill_client", "clog", "corrupt_record")


def _planted(patch: Patch, table: OckamClients, nodes: int, *rules: str) -> Planted:
    name = patch.__name__.replace("_", "-")
    return Planted(name, patch, rules, clients=_FEW, tables=(table,), nodes=nodes, faults=FAULTS)


PLANTED_CHANNELS = (
    _planted(one_nonce, CHANNELS, 2, "nonce-reuse"),
    _planted(one_ephemeral_key, CHANNELS, 2, "nonce-reuse"),
    _planted(channels_in_clear, CHANNELS, 2, "plain-data"),
    _planted(any_far_key, CHANNELS, 2, "impostor"),
    _planted(everybody_allowed, CHANNELS, 2, "grant-ignored"),
    _planted(carriers_rights, CHANNELS, 2, "grant-ignored"),
    _planted(forged_messages_opened, CHANNELS, 2, "route-order", "unknown-entry"),
    _planted(copies_opened, CHANNELS, 2, "route-order"),
    _planted(forged_messages_end, CHANNELS, 2, "channel-lost"),
    _planted(answers_through_first_channel, CHANNELS, 2, "no-progress"),
    _planted(ended_channels_kept, CHANNELS, 2, "left-over"),
    _planted(handshakes_kept, CHANNELS, 2, "left-over"),
    _planted(idle_channels_kept, CHANNELS, 2, "left-over"),
    _planted(other_connections_taken, CHANNELS, 2, "impostor"),
    _planted(things_of_channels_kept, CHANNELS, 2, "left-over"),
    _planted(one_handshake_at_once, CHANNELS, 2, "no-progress"),
    _planted(forged_messages_end_a_client, CHANNELS, 2, "channel-lost"),
    _planted(plain_peers_told, TCP, 1, "route-answer"),
    _planted(lengths_of_one_byte, TCP, 1, "no-progress", "link-broken"),
    _planted(first_byte_tells, TCP, 1, "link-broken"),
    _planted(greeting_not_made_up_for, TCP, 1, "link-broken"),
    _planted(answers_to_last_link, TCP, 1, "route-answer"),
    _planted(plain_links_trusted, TCP, 1, "grant-ignored"),
)
