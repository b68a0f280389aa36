"""Identities: an Ed25519 key that names a node or a client, and its X25519 form for Noise.

A key file holds the seed as 64 hex digits; an identity is shown as the 64 hex digits of its
public key. Reading and writing files is not done here.
"""

from functools import lru_cache
from typing import Final

from nacl.bindings import crypto_sign_ed25519_sk_to_curve25519
from nacl.exceptions import BadSignatureError, CryptoError
from nacl.signing import SigningKey, VerifyKey

from rillnode.codecs.errors import CodecError, ConfigError
from rillnode.codecs.noise.handshake import KeyPair, key_pair
from rillnode.codecs.texts import one_text

SEED_BYTES = 32
PUBLIC_KEY_BYTES = 32
SIGNATURE_BYTES = 64

_FORMS_KEPT: Final = 4_096
"""X25519 forms of public keys that are remembered: peers come again, and a mapping takes as long
as a signature does."""


class Identity:
    """A secret Ed25519 key. Its text form shows the public key only.

    Attributes:
        public_key: 32 bytes.
        x25519_private: the secret in X25519 form, 32 bytes: Noise's static key.
    """

    __slots__ = ("_noise_static", "_signing_key", "public_key", "x25519_private")

    def __init__(self, signing_key: SigningKey) -> None:
        self._signing_key = signing_key
        self.public_key = bytes(signing_key.verify_key)
        # Not `to_curve25519_private_key`: it makes the public half too, as `noise_static` does.
        self.x25519_private = crypto_sign_ed25519_sk_to_curve25519(
            bytes(signing_key) + self.public_key
        )
        self._noise_static: KeyPair | None = None

    @classmethod
    def from_seed(cls, seed: bytes) -> "Identity":
        """Make the identity of a 32-byte seed.

        Raises:
            ConfigError: the seed has another length.
        """
        if len(seed) != SEED_BYTES:
            raise ConfigError(
                "key.length", f"a key's seed has {SEED_BYTES} bytes, this one has {len(seed)}"
            )
        return cls(SigningKey(seed))

    @classmethod
    def generate(cls) -> "Identity":
        """Make a new identity, of the system's random bytes."""
        return cls(SigningKey.generate())

    @classmethod
    def from_hex(cls, text: str) -> "Identity":
        """Read a seed as a key file holds it; blanks around it are ignored.

        Raises:
            ConfigError: not 64 hex digits. The text is never repeated: it may be a secret.
        """
        return cls.from_seed(_from_hex(text, "a key's seed"))

    @property
    def seed_hex(self) -> str:
        """The secret, as a key file holds it."""
        return bytes(self._signing_key).hex()

    @property
    def public_hex(self) -> str:
        """The identity, as people and configurations name it."""
        return identity_text(self.public_key)

    @property
    def noise_static(self) -> KeyPair:
        """`x25519_private` and its public half as handshakes take them; made once."""
        if self._noise_static is None:
            self._noise_static = key_pair(self.x25519_private)
        return self._noise_static

    def sign(self, message: bytes) -> bytes:
        """Sign `message`: 64 bytes."""
        return self._signing_key.sign(message).signature

    def __repr__(self) -> str:
        return f"Identity({self.public_hex})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and other.public_key == self.public_key

    def __hash__(self) -> int:
        return hash(self.public_key)


def identity_text(public_key: bytes) -> str:
    """An identity as people and configurations name it: one text for all that hold it.

    Its tables, links and their counters do so, for each peer of a node.
    """
    return one_text(public_key.hex())


def parse_identity(text: str) -> bytes:
    """Read the public key of an identity from its 64 hex digits; blanks around are ignored.

    Raises:
        ConfigError: not 64 hex digits.
    """
    return _from_hex(text, "an identity")


def parse_identities(text: str) -> tuple[bytes, ...]:
    """Read the public keys of identities with commas between them: any of these is meant.

    A node that changes its identity has two for a time: the old one and the new one.

    Raises:
        ConfigError: none, or one that is not 64 hex digits.
    """
    return tuple(parse_identity(one) for one in text.split(","))


def verify(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether `signature` was made over `message` with the secret of `public_key`.

    Anything malformed is simply no signature.
    """
    if len(public_key) != PUBLIC_KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        VerifyKey(public_key).verify(message, signature)
    except BadSignatureError:
        return False
    return True


@lru_cache(_FORMS_KEPT)
def x25519_form(public_key: bytes) -> bytes:
    """Map an Ed25519 public key to its X25519 form.

    Raises:
        CodecError: the bytes are no point of the curve, or one of small order.
    """
    try:
        return bytes(VerifyKey(public_key).to_curve25519_public_key())
    except (CryptoError, ValueError):
        raise CodecError("key.point", "the bytes are no usable Ed25519 public key") from None


def _from_hex(text: str, what: str) -> bytes:
    digits = text.strip()
    try:
        raw = bytes.fromhex(digits)
    except ValueError:
        raw = b""
    if len(raw) != PUBLIC_KEY_BYTES or len(digits) != 2 * PUBLIC_KEY_BYTES:
        raise ConfigError(
            "key.hex",
            f"{what} is {2 * PUBLIC_KEY_BYTES} hex digits, not these {len(digits)} "
            f"character{'' if len(digits) == 1 else 's'}",
        )
    return raw
