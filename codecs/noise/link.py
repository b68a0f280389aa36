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
from rillnode.codecs.limits import FRAME_BYTES_MAX, NOISE_PLAINTEXT_BYTES_MAX, NOISE_REKEY_RECORDS
from rillnode.codecs.links import WireFormat
from rillnode.codecs.noise.cipher import CipherState, Suite
from rillnode.codecs.noise.xx import Local, Session, Steps, initiate, respond

_PING: Final = bytes(4)


class _Opening:
    """What there is of a handshake: its steps, how much they wait for, what they want sent.

    Attributes:
        buffer: the message that is not whole yet.
    """

    __slots__ = ("buffer", "output", "steps", "wanted")

    def __init__(self, steps: Steps, output: bytearray) -> None:
        self.steps = steps
        self.output = output
        self.wanted = next(steps)
        self.buffer = b""


class NoiseLink:
    """The codec of one side of a link; made by `initiator` or `responder`."""

    __slots__ = (
        "_cutter",
        "_dead",
        "_joiner",
        "_opener",
        "_opening",
        "_sealer",
        "remote_identity",
    )

    message_bytes_max = FRAME_BYTES_MAX
    wire_format: WireFormat = "bare"
    silence_seconds: float | None = None

    def __init__(self, steps: Steps, output: bytearray) -> None:
        # Until what it wants sent last is taken: it goes then, for a link is mostly open.
        self._opening: _Opening | None = _Opening(steps, output)
        self._sealer: CipherState | None = None
        self._opener: CipherState | None = None
        self.remote_identity: str | None = None
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

        `node_identity` (hex; several separated by commas) is the node to expect; without it, any
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
        return self._opener is not None

    @property
    def held_bytes(self) -> int:
        """Bytes of the handshake, or of the record and the message, that are not whole yet."""
        opening = 0 if self._opening is None else len(self._opening.buffer)
        return opening + self._cutter.held_bytes + self._joiner.held_bytes

    def start(self) -> bytes:
        """The initiator's preamble and first message; nothing for the responder."""
        return self.take_output()

    def take_output(self) -> bytes:
        """What the handshake wants sent."""
        opening = self._opening
        if opening is None:
            return b""
        taken = bytes(opening.output)
        opening.output.clear()
        if self.established:
            self._opening = None
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
            if self._opener is None:
                data = self._shake_hands(data)
            return [] if self._opener is None else self._open(self._opener, data)
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
        for state in (self._sealer, self._opener):
            if state is not None:
                state.rest()

    def end(self) -> None:
        """Check that the bytes did not end early."""
        if not self.established:
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
        if self._sealer is None or self._dead:
            raise CodecError("noise.closed", "the session is not open")
        seal, size = self._sealer.seal, NOISE_PLAINTEXT_BYTES_MAX
        if len(plaintext) <= size:
            return u16_frame(seal(plaintext))
        view = memoryview(plaintext)
        pieces = (view[at : at + size] for at in range(0, len(view), size))
        return b"".join([u16_frame(seal(piece)) for piece in pieces])

    def _shake_hands(self, data: bytes) -> bytes:
        """Go on with the handshake; return the bytes that follow it, if it is done."""
        opening = self._opening
        assert opening is not None
        buffer, at = opening.buffer + data, 0
        opening.buffer = b""
        try:
            while len(buffer) - at >= opening.wanted:
                chunk = buffer[at : at + opening.wanted]
                at += len(chunk)
                opening.wanted = opening.steps.send(chunk)
        except StopIteration as done:
            session: Session = done.value
            self._sealer, self._opener = session.sealer, session.opener
            self.remote_identity = session.remote_identity
            return buffer[at:]
        opening.buffer = buffer[at:]
        return b""
