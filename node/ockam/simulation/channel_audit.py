"""Eavesdrops on secure channels, and repeats and changes what passes.

He has every message between a client and its channel's other end, in both directions, as a node
has that hands them on. He sees no plain data, and no key and nonce used twice; and he sends copies
on, as they were or changed, which both ends must take no notice of.
"""

from collections.abc import Iterator
from random import Random
from typing import Final

from rillnode.codecs import native
from rillnode.codecs.errors import CodecError
from rillnode.codecs.noise.handshake import DH_BYTES
from rillnode.codecs.ockam.channel_cipher import Level, unwrap
from rillnode.codecs.routing.routes import Route, WireMessage
from rillnode.codecs.varint import read_data
from rillnode.node.client.messages import Keeper, Messages, OnMessage
from rillnode.node.simulated.programs import MARKER
from rillnode.node.simulated.sealing import HEAD_BYTES, Sealing

COPY_CHANCE: Final = 0.15


class ChannelAudit(Sealing):
    """An audit of all channels of a run."""

    def clear(self, who: str, payload: bytes) -> None:
        """Look for data in clear."""
        if MARKER in payload:
            self._history.broken("plain-data", f"{who} sends data in clear through a channel")


class _Direction:
    """The sealed messages of one direction of a channel."""

    def __init__(self, audit: ChannelAudit, who: str, level: Level) -> None:
        self._audit = audit
        self._who = who
        self._level = level
        self._numbers: dict[bytes, None] = {}
        self._heads: dict[bytes, None] = {}

    def message(self, payload: bytes) -> None:
        self._audit.clear(self._who, payload)
        if native.is_native(payload):
            return  # a node's word, in clear, that it could not hand something on
        try:
            sealed = unwrap(self._level, payload)
        except CodecError:
            return  # nothing sealed, which the other end has to see
        size = self._level.nonce_bytes
        self._audit.sealed(self._who, sealed[:size], self._numbers)
        self._audit.sealed(self._who, sealed[size : size + HEAD_BYTES], self._heads)


class Interceptor(Messages):
    """The messages of a client's link, with somebody on the way; for one channel.

    Args:
        messages: of the link.
        level: of the channel.
        random: what is chance in his deeds.
    """

    def __init__(
        self, messages: Messages, level: Level, name: str, audit: ChannelAudit, random: Random
    ) -> None:
        super().__init__(send=_never, settled=_nothing, entropy=messages.entropy)
        self._messages = self._sending = messages
        self._level = level
        self._name = name
        self._audit = audit
        self._random = random
        self._out = _Direction(audit, name, level)
        self._in = _Direction(audit, f"the node of {name}", level)
        self._begun = False
        self._last = b""

    def attach(
        self, on_message: OnMessage, keeper: Keeper | None = None, *, address: bytes | None = None
    ) -> bytes:
        """Let messages come to an address, and copies of them."""

        def came(wire: WireMessage) -> None:
            self._in.message(wire.payload)
            on_message(wire)
            for payload in self._copies(wire.payload):
                on_message(wire._replace(payload=payload))

        return self._messages.attach(came, keeper, address=address)

    def send_over(self, messages: Messages) -> None:
        """Send over another link from now on; what comes back comes over the first."""
        self._sending = messages

    def detach(self, address: bytes) -> None:
        """Forget an address."""
        self._messages.detach(address)

    def send(self, route: Route, payload: bytes, return_route: Route = ()) -> None:
        """Send a message, and copies of it; the first ends the handshake."""
        if self._begun:
            self._out.message(payload)
        self._begun = True
        self._sending.send(route, payload, return_route)
        for copy in self._copies(payload):
            self._sending.send(route, copy, return_route)

    async def ask(
        self, route: Route, payload: bytes, *, seconds: float, **_: object
    ) -> WireMessage:
        """Send the handshake's first message, and take the second."""
        self._audit.shown(self._name, self._handshake(payload)[:DH_BYTES])
        answer = await self._messages.ask(route, payload, seconds=seconds)
        begin = self._handshake(answer.payload)[:DH_BYTES]
        self._audit.shown(f"the node of {self._name}", begin)
        return answer

    def _handshake(self, payload: bytes) -> bytes:
        """The Noise message in a payload."""
        if not self._level.wrapped:
            return payload
        start, end = read_data(payload, 0)
        return payload[start:end]

    def _copies(self, payload: bytes) -> Iterator[bytes]:
        """Now and then a message once more, with a bit flipped, cut short, or the one before."""
        random, last, self._last = self._random, self._last, payload
        if random.random() >= COPY_CHANCE:
            return
        place = random.randrange(len(payload))
        flipped = bytearray(payload)
        flipped[place] ^= 1 << random.randrange(8)
        yield random.choice((payload, bytes(flipped), payload[: place + 1], last or payload))


def _never(frame: bytes, needs_link: bool) -> None:
    raise AssertionError("what is sent goes over the link")


def _nothing() -> None:
    pass
