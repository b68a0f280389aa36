"""Noise handshakes: `noiseprotocol` kept to what it does well.

It runs the patterns; this module checks what it does not (message sizes), turns its several
exceptions into one, and takes the keys out, since transport messages are sealed elsewhere.
"""

from typing import Final

from cryptography.exceptions import InvalidTag
from noise.backends.default import noise_backend
from noise.backends.default.keypairs import KeyPair25519
from noise.exceptions import NoiseValueError
from noise.noise_protocol import NoiseProtocol

from rillnode.codecs.errors import HandshakeError

DH_BYTES: Final = 32

KeyPair = KeyPair25519
"""A Curve25519 key with its public half."""


def key_pair(private: bytes) -> KeyPair:
    """Make the pair of a private key of 32 bytes; it takes as long as a key exchange."""
    pair: KeyPair = KeyPair25519.from_private_bytes(private)
    return pair


class NoiseHandshake:
    """One side of one handshake over Curve25519; of no use after an error.

    Attributes:
        initiator: whether this side speaks first.
        keys: once the last message is done, the keys of (initiator to responder, responder to
            initiator).
        static_public: this side's static key.
    """

    __slots__ = ("_state", "initiator", "keys", "static_public")

    def __init__(
        self,
        name: str,
        *,
        initiator: bool,
        prologue: bytes,
        static: bytes | KeyPair,
        remote_static: bytes | None = None,
        ephemeral: bytes | None = None,
    ) -> None:
        """Prepare the handshake called `name`, such as `Noise_XX_25519_AESGCM_SHA256`.

        `static` and `ephemeral` are private keys; only tests with fixed bytes give the latter. Who
        has many handshakes gives the static key's pair.
        `remote_static` is the responder's public key, for an initiator that must know it (XK).
        """
        protocol = NoiseProtocol(name.encode(), noise_backend)
        protocol.initiator = initiator
        protocol.prologue = prologue
        pair = key_pair(static) if isinstance(static, bytes) else static
        protocol.keypairs["s"] = pair
        if remote_static is not None:
            protocol.keypairs["rs"] = KeyPair25519.from_public_bytes(remote_static)
        protocol.validate()
        protocol.initialise_handshake_state()
        self._state = protocol.handshake_state
        if ephemeral is not None:
            self._state.e = KeyPair25519.from_private_bytes(ephemeral)
        self.initiator = initiator
        self.keys: tuple[bytes, bytes] | None = None
        self.static_public = pair.public_bytes

    @property
    def hash(self) -> bytes:
        """Noise's `h`: stands for everything that both sides have sent and received so far."""
        return self._state.symmetric_state.h

    @property
    def remote_static(self) -> bytes:
        """The peer's static key, once its message has been read."""
        return self._state.rs.public_bytes

    def write(self, payload: bytes) -> bytes:
        """Write the next message.

        Raises:
            HandshakeError: the peer's keys give no shared secret.
        """
        message = bytearray()
        try:
            split = self._state.write_message(payload, message)
        except ValueError:  # all-zero shared secret
            raise _refused() from None
        if split is not None:
            self.keys = split[0].k, split[1].k
        return bytes(message)

    def read(self, message: bytes) -> bytes:
        """Read the peer's next message, whose size the caller has checked; return its payload.

        Raises:
            HandshakeError: it does not authenticate, or a key in it is unusable.
        """
        payload = bytearray()
        try:
            split = self._state.read_message(message, payload)
        except (InvalidTag, NoiseValueError, ValueError):
            raise _refused() from None
        if split is not None:
            self.keys = split[0].k, split[1].k
        return bytes(payload)


def _refused() -> HandshakeError:
    return HandshakeError("noise.handshake", "the peer's handshake message is not authentic")
