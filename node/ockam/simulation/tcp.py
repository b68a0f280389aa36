"""Ockam's plain TCP as released nodes speak it, in both dialects: the other end of a listener.

Frames are cut and made here, apart from the codecs under test: what both sides of one codec got
wrong would be right between them.
"""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from rillnode.codecs.errors import CodecError, TransportError
from rillnode.codecs.limits import CONNECT_SECONDS_MAX, U16_MESSAGE_BYTES_MAX, U32_MESSAGE_BYTES_MAX
from rillnode.codecs.links import LinkInfo
from rillnode.codecs.routing.dialects import Dialect
from rillnode.codecs.routing.routes import decode_message, encode_message
from rillnode.node.client.session import Connect
from rillnode.node.ockam.simulation.cbor import decode_cbor, encode_cbor
from rillnode.node.simulated.history import History
from rillnode.node.simulated.world import NodeMachine
from rillnode.transports.links import LinkEvents

OCKAM_PORT: Final = 4_000

LENGTH_BYTES: Final[dict[Dialect, int]] = {"u16": 2, "2024": 4}
GREETING: Final = b"\x01"

SPLIT_BYTES: Final = (2, 8)
"""Before which a link's first bytes are mostly split: what tells the dialects is there."""

SPLIT_SECONDS: Final = (0.0, 0.05, 0.3)
"""Between the two parts; a listener wonders after 0.1 s what comes."""

SILENT_CHANCE: Final = 0.1
SILENT_SECONDS: Final = 6.0
"""How long a node that speaks u16 may say nothing at first; one of 2024 greets at once."""

SOON_SECONDS: Final = 4.0
"""Within which a listener ends no link of which nothing comes, as it may when faults keep bytes."""

HEARTBEAT_CHANCE: Final = 0.05
"""Of an empty frame before a message."""


class OckamTcpLink(asyncio.Protocol):
    """One connection of an Ockam node; a session's link, whose messages are in BARE.

    Args:
        events: of the session.
        dialect: what this node speaks.
        random: what is chance in how it speaks.
        machine: of the node that listens.
        name: of the client.
        history: takes what must not come.

    Attributes:
        opened: done when messages can be sent.
    """

    _transport: asyncio.Transport  # once connected

    def __init__(
        self,
        events: LinkEvents,
        dialect: Dialect,
        random: Random,
        machine: NodeMachine,
        name: str,
        history: History,
    ) -> None:
        self._events = events
        self._dialect: Dialect = dialect
        self._random = random
        self._machine = machine
        self._name = name
        self._history = history
        self._process, self._began_at, self._failed = 0, 0.0, 0
        self._answered = False
        self._received = bytearray()
        self._greeted = dialect == "u16"
        # Nodes of 2024 may wait for the other side's greeting, or not.
        self._patient = not self._greeted and random.random() < 0.5
        self._held: bytearray | None = bytearray()  # what is not sent yet, until the first message
        self._split = False
        self._addresses: dict[bytes, None] = {}
        self._open = False
        self._reason = ""
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # What the session calls ------------------------------------------------------------------

    @property
    def info(self) -> LinkInfo:
        """Nobody has proved anything."""
        largest = U16_MESSAGE_BYTES_MAX if self._dialect == "u16" else U32_MESSAGE_BYTES_MAX
        return LinkInfo(
            principal="anonymous",
            remote=self._machine.name,
            transport="ockam",
            dialled=True,
            message_bytes_max=largest,
        )

    @property
    def buffered_bytes(self) -> int:
        """Outgoing bytes that were not taken yet."""
        return self._transport.get_write_buffer_size()

    def send(self, messages: Sequence[bytes]) -> None:
        """Send messages, each in a frame."""
        data = bytearray()
        size = LENGTH_BYTES[self._dialect]
        for message in map(decode_message, messages):
            self._addresses |= {hop.value: None for hop in message.return_route[:1]}
            frame = encode_message(*message) if size == 2 else encode_cbor(message)
            if self._random.random() < HEARTBEAT_CHANCE:
                data += bytes(size)
            data += len(frame).to_bytes(size, "big") + frame
        self._write(data)

    def pause_reading(self) -> None:
        """Stop reading."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        self._transport.resume_reading()

    def close(self, reason: str) -> None:
        """Close once all is written."""
        self._reason = self._reason or reason
        self._transport.close()

    def give_up(self) -> None:
        """Close, if there is a connection yet: it has taken too long to open."""
        if hasattr(self, "_transport"):
            self.close("given up")

    # What asyncio calls ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet, where the dialect does, and open."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._process, self._began_at = self._machine.lives, self._history.now()
        self._failed = self._history.failed[self._machine.name]
        if self._patient:
            transport.write(GREETING)
            return
        assert self._held is not None
        self._held += b"" if self._greeted else GREETING
        self._begin()

    def data_received(self, data: bytes) -> None:
        """Cut frames; an empty one says nothing."""
        received = self._received
        received += data
        if not self._greeted:
            if not received.startswith(GREETING):
                self._wrong("does not greet")
                return
            del received[:1]
            self._greeted = True
            if self._patient:
                self._begin()
        size, frames = LENGTH_BYTES[self._dialect], list[bytes]()
        while len(received) >= size:
            end = size + int.from_bytes(received[:size], "big")
            if len(received) < end:
                break
            if end > size:
                frames.append(bytes(received[size:end]))
            del received[:end]
        try:
            messages = [self._checked(frame) for frame in frames]
        except CodecError as error:
            self._wrong(f"sends what is no message: {error}")
            return
        self._answered = self._answered or bool(messages)
        if messages and not self._reason:
            self._events.messages_received(messages)

    def eof_received(self) -> None:
        """Close, too."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the session, or who connects; a node that fails at nothing ends no link."""
        soon = self._history.now() - self._began_at < SOON_SECONDS
        same = self._machine.runs and self._machine.lives == self._process
        same = same and self._history.failed[self._machine.name] == self._failed
        if not self._reason and same and (self._answered or soon):
            self._wrong("has ended a link")
        reason = self._reason or f"the connection broke: {exc}"
        if self._open:
            self._events.link_closed(reason)
        elif not self.opened.done():
            self.opened.set_exception(TransportError("link.closed", reason))

    # Inside ----------------------------------------------------------------------------------

    def _begin(self) -> None:
        if not self.opened.done():
            self._open = True
            self._events.link_opened(self)
            self.opened.set_result(None)

    def _write(self, data: bytearray) -> None:
        """Write; a link's first message in two parts."""
        if self._held is None:
            self._transport.write(data)
            return
        self._held += data
        if not self._split:
            self._split = True
            random, size = self._random, len(self._held)
            place = random.randrange(random.choice((*SPLIT_BYTES, size)))
            if place:
                self._transport.write(self._held[:place])
            del self._held[:place]
            pause = random.choice(SPLIT_SECONDS)
            if not place and self._dialect == "u16" and random.random() < SILENT_CHANCE:
                pause = SILENT_SECONDS
            asyncio.get_running_loop().call_later(pause, self._write_held)

    def _write_held(self) -> None:
        held, self._held = self._held, None
        self._transport.write(held or b"")

    def _wrong(self, what: str) -> None:
        """Close, as the node does what it must not: nothing harms plain links."""
        self._history.broken("link-broken", f"{self._machine.name} {what} ({self._name})")
        self.close(what)

    def _checked(self, frame: bytes) -> bytes:
        """A message in BARE; it must be for an address that was given over this very link.

        Raises:
            CodecError: the frame has no message.
        """
        u16 = self._dialect == "u16"
        message = decode_message(frame, strict=True) if u16 else decode_cbor(frame)
        onward = message.onward_route
        if onward and onward[0].value not in self._addresses:
            text = f"{self._name} gets what is for {onward[0].value!r}, which is not its own"
            self._history.broken("route-answer", text)
        return encode_message(*message)


def tcp_connect(make_link: Callable[[LinkEvents], OckamTcpLink], node: str) -> Connect:
    """A way to open links to a node's `ockam` listener."""

    async def connect(events: LinkEvents) -> object:
        link, loop = make_link(events), asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                await loop.create_connection(lambda: link, node, OCKAM_PORT)
                await link.opened
        except OSError as error:  # TimeoutError is one
            link.give_up()
            raise TransportError("link.unreachable", f"{node} is not reached: {error}") from None
        return link

    return connect
