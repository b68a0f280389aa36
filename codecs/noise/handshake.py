"""Noise handshakes: `noiseprotocol` kept to what it does well.

It runs the patterns; this module checks what it does not (message sizes), turns its several
exceptions into one, and takes the keys out, since transport messages are sealed elsewhere. No
key is kept expanded from one message of a handshake to the next.
"""

from copy import copy
from functools import cache
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from noise.backends.default.backend import DefaultNoiseBackend
from noise.backends.default.ciphers import AESGCMCipher, ChaCha20Cipher
from noise.backends.default.hashes import SHA256Hash
from noise.backends.default.keypairs import KeyPair25519
from noise.exceptions import NoiseValueError
from noise.noise_protocol import NoiseProtocol
from rillnode.codecs.errors import HandshakeError

DH_BYTES: Final = 32


class _Sha256(SHA256Hash):
    """As `hashlib` makes it, in a fifth of the time: a handshake has sixteen."""

    def hash(self, data: bytes) -> bytes:
        return sha256(data).digest()


class _AesGcm(AESGCMCipher):
    """Expands its key for each use.

    A key of a handshake has one use or two, those that it ends with have none here, and a key that
    is expanded takes 2.3 kB while the peer's next message is waited for.
    """

    def initialize(self, key: bytes) -> None:
        """Nothing: each use names the key."""

    def encrypt(self, k: bytes, n: int, ad: bytes, plaintext: bytes) -> bytes:
        return AESGCM(k).encrypt(self.format_nonce(n), plaintext, ad)

    def decrypt(self, k: bytes, n: int, ad: bytes, ciphertext: bytes) -> bytes:
        return AESGCM(k).decrypt(self.format_nonce(n), ciphertext, ad)


class _ChaChaPoly(ChaCha20Cipher):
    """As `_AesGcm`."""

    def initialize(self, key: bytes) -> None:
        """Nothing: each use names the key."""

    def encrypt(self, k: bytes, n: int, ad: bytes, plaintext: bytes) -> bytes:
        return ChaCha20Poly1305(k).encrypt(self.format_nonce(n), plaintext, ad)

    def decrypt(self, k: bytes, n: int, ad: bytes, ciphertext: bytes) -> bytes:
        return ChaCha20Poly1305(k).decrypt(self.format_nonce(n), ciphertext, ad)


_BACKEND: Final = DefaultNoiseBackend()
_BACKEND.hashes["SHA256"] = _Sha256
_BACKEND.ciphers |= {"AESGCM": _AesGcm, "ChaChaPoly": _ChaChaPoly}


@cache
def _protocol(name: str) -> NoiseProtocol:
    """What all handshakes of one name have in common; to read the name takes as long as to hash."""
    return NoiseProtocol(name.encode(), _BACKEND)


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
        protocol = copy(_protocol(name))
        protocol.initiator = initiator
        protocol.prologue = prologue
        pair = key_pair(static) if isinstance(static, bytes) else static
        remote = None
        if remote_static is not None:
            remote = KeyPair25519.from_public_bytes(remote_static)
        protocol.keypairs = {"s": pair, "e": None, "rs": remote, "re": None}
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
