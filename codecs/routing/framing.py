"""The framings of Ockam's two TCP dialects, each for a link whose dialect is known."""

from collections.abc import Sequence
from typing import Final

from rillnode.codecs.errors import CodecError, HandshakeError, TransportError
from rillnode.codecs.framing import U16, U32, FrameCutter, MessageJoiner, with_lengths
from rillnode.codecs.limits import (
    GREETING_SECONDS_MAX,
    U16_MESSAGE_BYTES_MAX,
    U32_MESSAGE_BYTES_MAX,
)
from rillnode.codecs.links import WireFormat

GREETING: Final = b"\x01"
"""First byte of each direction in Ockam's 2024 dialect: the version of its framing."""


class U16Framing:
    """Ockam TCP, u16 dialect: both directions are frames of one wire message each.

    Layout: u16 big-endian length, then the message; no greeting. An empty frame is a heartbeat
    of later peers: it is taken and ignored, and never sent, since earlier ones close on it.

    Args:
        message_bytes_max: largest message that is sent.

    Source: Ockam, Elixir `transport/tcp` and Rust `ockam_transport_tcp`, 2021 to 2024-05.
    """

    __slots__ = ("_cutter", "message_bytes_max")

    established = True
    remote_identity: str | None = None
    wire_format: WireFormat = "bare"
    silence_seconds: float | None = None

    def __init__(self, message_bytes_max: int = U16_MESSAGE_BYTES_MAX) -> None:
        self._cutter = FrameCutter()
        self.message_bytes_max = message_bytes_max

    @property
    def held_bytes(self) -> int:
        """Bytes of the frame that is not whole yet."""
        return self._cutter.held_bytes

    def start(self) -> bytes:
        """Nothing: the dialect has no greeting."""
        return b""

    def silent(self) -> None:
        """Never called: a peer may be silent as long as it likes."""

    def receive(self, data: bytes) -> list[bytes]:
        """Cut frames; any bytes are frames of something, so this never raises."""
        return [bytes(frame) for frame in self._cutter.cut(memoryview(data)) if frame]

    def take_output(self) -> bytes:
        """Nothing: the dialect has no handshake."""
        return b""

    def encode(self, messages: Sequence[bytes]) -> bytes:
        """Frame messages of 1 to `message_bytes_max` bytes.

        Raises:
            CodecError: one is empty or larger.
        """
        return with_lengths(U16, messages, self.message_bytes_max)

    def ping(self) -> bytes:
        """Nothing: peers of 2021 close on an empty frame."""
        return b""

    def rest(self) -> None:
        """Nothing: there are no keys."""

    def end(self) -> None:
        """Check that the bytes did not end inside a frame."""
        if self._cutter.inside_frame:
            raise CodecError("codec.truncated", "the link ended inside a frame")


class U32Framing:
    """Ockam TCP, 2024 dialect: a greeting, then frames of one wire message each.

    Layout: one byte 01; then u32 big-endian length and the message, again and again. Both sides
    do the same, and greet without waiting for the other. An empty frame is ignored, as released
    nodes do.

    Source: Ockam, Elixir `transport/tcp` and Rust `ockam_transport_tcp`, since 2024-06.
    """

    __slots__ = ("_greeted", "_joiner")

    remote_identity: str | None = None
    message_bytes_max = U32_MESSAGE_BYTES_MAX
    wire_format: WireFormat = "cbor"

    def __init__(self) -> None:
        self._greeted = False
        self._joiner = MessageJoiner()

    @property
    def established(self) -> bool:
        """Whether the peer has greeted."""
        return self._greeted

    @property
    def silence_seconds(self) -> float | None:
        """How long the peer may take to greet."""
        return None if self._greeted else GREETING_SECONDS_MAX

    @property
    def held_bytes(self) -> int:
        """Bytes of the message that is not whole yet."""
        return self._joiner.held_bytes

    def start(self) -> bytes:
        """The greeting."""
        return GREETING

    def silent(self) -> None:
        """Give the peer up."""
        raise TransportError(
            "ockam.no_greeting", "the peer does not greet: does it speak the u16 dialect?"
        )

    def receive(self, data: bytes) -> list[bytes]:
        """Take one read of any size; return the messages that are now whole, in order.

        Raises:
            HandshakeError: the first byte is no greeting.
            CodecError: a length is over the limit.
        """
        if not self._greeted and data:
            if not data.startswith(GREETING):
                text = "the peer does not greet as nodes since 2024 do: does it speak u16?"
                raise HandshakeError("ockam.greeting", text)
            self._greeted = True
            data = data[1:]
        messages: list[bytes] = []
        self._joiner.feed(data, messages)
        return messages

    def take_output(self) -> bytes:
        """Nothing: the greeting waits for no answer."""
        return b""

    def encode(self, messages: Sequence[bytes]) -> bytes:
        """Frame messages of 1 to 4,194,304 bytes.

        Raises:
            CodecError: one is empty or larger.
        """
        return with_lengths(U32, messages, self.message_bytes_max)

    def ping(self) -> bytes:
        """Nothing: idle peers of this dialect send nothing either."""
        return b""

    def rest(self) -> None:
        """Nothing: there are no keys."""

    def end(self) -> None:
        """Check that the bytes did not end early."""
        if not self._greeted:
            text = "the peer closed the link before it greeted: does it speak the u16 dialect?"
            raise TransportError("link.closed_early", text)
        if self._joiner.inside_message:
            raise CodecError("codec.truncated", "the link ended inside a frame")
