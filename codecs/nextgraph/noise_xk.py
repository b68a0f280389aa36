"""The Noise channel of a connection: `Noise_XK_25519_ChaChaPoly_BLAKE2b`, without a prologue.

    initiator -> responder    e, es       32 + 16 bytes
    responder -> initiator    e, ee       32 + 16 bytes
    initiator -> responder    s, se       32 + 16 + 16 bytes

No payloads. Static keys are the X25519 forms of Ed25519 keys: the broker's is its peer key, which
the initiator must know; the client's is a key of this connection.

From then on every frame is a Noise message, `06 00`, length and ciphertext, sealed under nonces
that count from 0, without rekeying. It may exceed the 65,535 bytes of the Noise specification: a
client sends files in blocks of 1 MiB.

Source: The Noise Protocol Framework, revision 34; what real clients sent.
"""

from typing import Final

from rillnode.codecs.errors import CodecError, HandshakeError
from rillnode.codecs.keys import Identity, x25519_form
from rillnode.codecs.nextgraph.messages import ProtocolMessage, decode_message, encode_message
from rillnode.codecs.nextgraph.results import NetCode, NextGraphError, ProtocolCode
from rillnode.codecs.nextgraph.start import Noise
from rillnode.codecs.noise.cipher import TAG_BYTES, CipherState, Suite
from rillnode.codecs.noise.handshake import DH_BYTES, NoiseHandshake
from rillnode.codecs.varint import encode_uint, read_data

NOISE_NAME: Final = "Noise_XK_25519_ChaChaPoly_BLAKE2b"

MESSAGE_1_BYTES: Final = DH_BYTES + TAG_BYTES
MESSAGE_2_BYTES: Final = DH_BYTES + TAG_BYTES
MESSAGE_3_BYTES: Final = DH_BYTES + TAG_BYTES + TAG_BYTES

_FRAME_HEAD: Final = b"\x06\x00"
_NEVER: Final = 2**64


class Handshake:
    """One side of the handshake; of no use after an error."""

    __slots__ = ("_state",)

    def __init__(self, state: NoiseHandshake) -> None:
        self._state = state

    @classmethod
    def initiator(
        cls, peer: Identity, broker: bytes, ephemeral: bytes | None = None
    ) -> "Handshake":
        """The client's side, towards the broker of an Ed25519 key.

        Raises:
            CodecError: `key.point`, the broker's key is none.
        """
        state = NoiseHandshake(
            NOISE_NAME,
            initiator=True,
            prologue=b"",
            static=peer.x25519_private,
            remote_static=x25519_form(broker),
            ephemeral=ephemeral,
        )
        return cls(state)

    @classmethod
    def responder(cls, peer: Identity, ephemeral: bytes | None = None) -> "Handshake":
        """The broker's side; only tests with fixed bytes give the ephemeral key."""
        state = NoiseHandshake(
            NOISE_NAME,
            initiator=False,
            prologue=b"",
            static=peer.x25519_private,
            ephemeral=ephemeral,
        )
        return cls(state)

    @property
    def remote_static(self) -> bytes:
        """The peer's X25519 key."""
        return self._state.remote_static

    def write(self) -> bytes:
        """Write this side's next message; the keys that it takes have been tried before."""
        return self._state.write(b"")

    def read(self, message: bytes, size: int) -> None:
        """Read the peer's next message, which must have this size.

        Raises:
            NextGraphError: it has not, or is not authentic.
        """
        if len(message) != size:
            raise _failed(f"the handshake message has {len(message)} bytes, not {size}")
        try:
            self._state.read(message)
        except HandshakeError as error:
            raise _failed(error.text) from None

    def channel(self) -> "Channel":
        """What the finished handshake leaves."""
        assert self._state.keys is not None
        near, far = (
            CipherState(key, Suite.CHACHAPOLY_SHA256, rekey_records=_NEVER)
            for key in self._state.keys
        )
        return Channel(near, far) if self._state.initiator else Channel(far, near)


class Channel:
    """Seals and opens the frames of an established connection, each direction in order."""

    __slots__ = ("_opener", "_sealer")

    def __init__(self, sealer: CipherState, opener: CipherState) -> None:
        self._sealer = sealer
        self._opener = opener

    def seal(self, plaintext: bytes) -> bytes:
        """Make the next frame of an encoded message."""
        sealed = self._sealer.seal(plaintext)
        return b"".join((_FRAME_HEAD, encode_uint(len(sealed)), sealed))

    def open(self, frame: bytes) -> bytes:
        """Open the peer's next frame.

        Raises:
            NextGraphError: it is in clear, malformed, or not what the peer sealed next.
        """
        if frame.startswith(_FRAME_HEAD):
            try:
                start, end = read_data(frame, len(_FRAME_HEAD), lenient=True)
            except CodecError as error:
                raise malformed(error) from None
            sealed = memoryview(frame)[start:end]
        else:
            message = read_clear(frame)
            if not isinstance(message, Noise):
                text = "the message is not encrypted"
                raise NextGraphError(ProtocolCode.MUST_BE_ENCRYPTED, text)
            sealed = memoryview(message.data)
        try:
            return self._opener.open(sealed)
        except CodecError as error:
            raise NextGraphError(ProtocolCode.DECRYPTION_ERROR, error.text) from None


def read_clear(data: bytes) -> ProtocolMessage:
    """Decode a message, as a connection does.

    Raises:
        NextGraphError: it is malformed.
    """
    try:
        return decode_message(data)
    except CodecError as error:
        raise malformed(error) from None


def write_noise(message: bytes) -> bytes:
    """Make the frame of a handshake message."""
    return encode_message(Noise(message))


def malformed(error: CodecError) -> NextGraphError:
    """What a malformed message is to its connection."""
    return NextGraphError(NetCode.SERIALIZATION_ERROR, error.text, offset=error.offset)


def _failed(text: str) -> NextGraphError:
    return NextGraphError(ProtocolCode.NOISE_HANDSHAKE_FAILED, text)
