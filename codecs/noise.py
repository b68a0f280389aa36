"""rillnode's own link: a Noise session that carries messages.

After its opening (`noise_xx`), both directions are records: u16 big-endian length and that many
sealed bytes. The plaintexts of all records of a direction make one byte stream of messages, each a
u32 big-endian length and its bytes: a record may hold many, and a message may span records.
Length 0 is a ping, which is ignored.
"""

from collections.abc import Callable, Sequence
from typing import Final

from rillnode.codecs.errors import CodecError, HandshakeError, TransportError
from rillnode.codecs.framing import FrameCutter, MessageJoiner, joined_messages, u16_frame
from rillnode.codecs.keys import Identity
from rillnode.codecs.limits import (
    FRAME_BYTES_MAX,
    NOISE_PLAINTEXT_BYTES_MAX,
    NOISE_REKEY_RECORDS,
)
from rillnode.codecs.links import WireFormat
from rillnode.codecs.noise_cipher import CipherState, Suite
from rillnode.codecs.noise_xx import Local, Session, Steps, initiate, respond

_PING: Final = bytes(4)


class NoiseLink:
    """The codec of one side of a link; made by `initiator` or `responder`."""

    __slots__ = (
        "_buffer",
        "_cutter",
        "_dead",
        "_joiner",
        "_output",
        "_session",
        "_steps",
        "_wanted",
    )

    message_bytes_max = FRAME_BYTES_MAX
    wire_format: WireFormat = "bare"
    silence_seconds: float | None = None

    def __init__(self, steps: Steps, output: bytearray) -> None:
        self._steps: Steps | None = steps
        self._output = output
        self._wanted = next(steps)
        self._buffer = b""  # of the handshake: the message that is not whole yet
        self._session: Session | None = None
        self._cutter = FrameCutter()
        self._joiner = MessageJoiner()
        self._dead = False

    @classmethod
    def initiator(
        cls,
        identity: Identity,
        *,
        node_identity: str | None = None,
        suite: Suite = Suite.AESGCM_SHA256,
        ephemeral: bytes | None = None,
        rekey_records: int = NOISE_REKEY_RECORDS,
    ) -> "NoiseLink":
        """The side that dials.

        `node_identity` (hex; several have commas between) is the node to expect; without it, any
        node is taken for the right one. `ephemeral` and `rekey_records` are for tests; both sides
        need the same of the latter.
        """
        output = bytearray()
        local = Local(identity, output, ephemeral, rekey_records)
        return cls(initiate(local, node_identity, suite), output)

    @classmethod
    def responder(
        cls,
        identity: Identity,
        *,
        accept: Callable[[str], bool],
        ephemeral: bytes | None = None,
        rekey_records: int = NOISE_REKEY_RECORDS,
    ) -> "NoiseLink":
        """The side that listens; `accept` is asked whether a proved identity (hex) is known."""
        output = bytearray()
        local = Local(identity, output, ephemeral, rekey_records)
        return cls(respond(local, accept), output)

    @property
    def established(self) -> bool:
        """Whether the handshake is done and messages may be sent."""
        return self._session is not None

    @property
    def remote_identity(self) -> str | None:
        """The identity that the peer has proved, once established."""
        return None if self._session is None else self._session.remote_identity

    @property
    def held_bytes(self) -> int:
        """Bytes of the handshake, or of the record and the message, that are not whole yet."""
        return len(self._buffer) + self._cutter.held_bytes + self._joiner.held_bytes

    def start(self) -> bytes:
        """The initiator's preamble and first message; nothing for the responder."""
        return self.take_output()

    def take_output(self) -> bytes:
        """What the handshake wants sent."""
        taken = bytes(self._output)
        self._output.clear()
        return taken

    def silent(self) -> None:
        """Never called: only the handshake's own limit counts."""

    def receive(self, data: bytes) -> list[bytes]:
        """Take one read of any size; return the messages that are now whole, in order.

        Raises:
            HandshakeError: the peer is not authentic, not accepted or not the expected one.
            CodecError: a record does not authenticate, or a message is over its limit.
        """
        if self._dead:
            raise CodecError("noise.dead", "the session has failed before")
        try:
            if self._session is None:
                data = self._shake_hands(data)
            return [] if self._session is None else self._open(self._session.opener, data)
        except (CodecError, HandshakeError):
            self._dead = True
            raise

    def encode(self, messages: Sequence[bytes]) -> bytes:
        """Seal messages of 1 to `FRAME_BYTES_MAX` bytes into as few records as hold them.

        Raises:
            CodecError: one is empty or larger; none is sealed.
        """
        return self._seal(joined_messages(messages)) if messages else b""

    def ping(self) -> bytes:
        """A record that the peer reads and ignores."""
        return self._seal(_PING)

    def rest(self) -> None:
        """Let go of expanded keys."""
        if self._session is not None:
            self._session.sealer.rest()
            self._session.opener.rest()

    def end(self) -> None:
        """Check that the bytes did not end early."""
        if self._session is None:
            raise TransportError(
                "link.closed_early",
                "the peer closed the link during the handshake: is it a rillnode noise listener?",
            )
        if self._cutter.inside_frame or self._joiner.inside_message:
            raise CodecError("codec.truncated", "the link ended inside a message")

    def _open(self, opener: CipherState, data: bytes) -> list[bytes]:
        messages: list[bytes] = []
        for record in self._cutter.cut(memoryview(data)):
            self._joiner.feed(opener.open(record), messages)
        return messages

    def _seal(self, plaintext: bytes) -> bytes:
        if self._session is None or self._dead:
            raise CodecError("noise.closed", "the session is not open")
        seal, size = self._session.sealer.seal, NOISE_PLAINTEXT_BYTES_MAX
        if len(plaintext) <= size:
            return u16_frame(seal(plaintext))
        view = memoryview(plaintext)
        pieces = (view[at : at + size] for at in range(0, len(view), size))
        return b"".join([u16_frame(seal(piece)) for piece in pieces])

    def _shake_hands(self, data: bytes) -> bytes:
        """Go on with the handshake; return the bytes that follow it, if it is done."""
        assert self._steps is not None
        buffer, at = self._buffer + data, 0
        try:
            while len(buffer) - at >= self._wanted:
                chunk = buffer[at : at + self._wanted]
                at += len(chunk)
                self._wanted = self._steps.send(chunk)
        except StopIteration as done:
            self._session = done.value
            self._steps = None
        rest = buffer[at:]
        self._buffer = b"" if self._steps is None else rest
        return rest
