"""Encryption of message contents: group keys, AES for contents, RSA for keys on their way.

    AES     hex(IV 16 || AES-256-CTR(content)); the IV is the first value of the 128-bit counter
    RSA     hex(RSA-OAEP(group key)), with SHA-1 and MGF1 with SHA-1

All hex is without `0x`. Counter mode hides a content but protects it from no change: the
signature over the encrypted text does. An IV must never be used twice under one key, so it is
drawn from the randomness given for each message.

Source: streamr-client 5.2.1, EncryptionUtil (both), and streamr-client 2.2.7 (type 3).
"""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from msgspec.structs import replace

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.json_text import check_value
from rillnode.codecs.streamr.key_exchange import (
    EncryptedKey,
    decode_encrypted_key,
    encode_encrypted_key,
)
from rillnode.codecs.streamr.limits import (
    STREAMR_RSA_BITS_MAX,
    STREAMR_RSA_BITS_MIN,
    STREAMR_RSA_PEM_BYTES_MAX,
)
from rillnode.codecs.streamr.stream_message import EncryptionType, StreamMessage

KEY_BYTES: Final = 32
IV_BYTES: Final = 16
RSA_BITS: Final = 4_096
"""What clients make."""

_NEW_GROUP_KEY_VERSION: Final = 32
"""The first version whose messages name their group key."""

_HEX: Final = re.compile("[0-9a-fA-F]*")
_PEM_LABEL: Final = "-----BEGIN PUBLIC KEY-----"
_OAEP: Final = padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None)

Entropy = Callable[[int], bytes]
"""Gives so many random bytes."""


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A key that a publisher shares with a stream's subscribers. Its text form hides the secret.

    Attributes:
        id: names the key among its publisher's.
        secret: 32 bytes.

    Raises:
        CodecError: `encryption.key`, the secret has another length.
    """

    id: str
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != KEY_BYTES:
            text = f"a group key has {KEY_BYTES} bytes, this one has {len(self.secret)}"
            raise CodecError("encryption.key", text)


def generate_group_key(key_id: str, entropy: Entropy) -> GroupKey:
    """Make a new key from 32 random bytes."""
    return GroupKey(key_id, entropy(KEY_BYTES))


def encrypt(plain: bytes, key: GroupKey, entropy: Entropy) -> str:
    """Encrypt under a group key and a random IV of 16 bytes."""
    iv = entropy(IV_BYTES)
    encryptor = Cipher(algorithms.AES(key.secret), modes.CTR(iv)).encryptor()
    return (iv + encryptor.update(plain) + encryptor.finalize()).hex()


def decrypt(text: str, key: GroupKey) -> bytes:
    """Decrypt what `encrypt` made. Under a wrong key the result is noise, not an error.

    Raises:
        CodecError: `encryption.hex`, no hex; `encryption.truncated`, shorter than an IV.
    """
    raw = from_hex(text)
    if len(raw) < IV_BYTES:
        raise CodecError("encryption.truncated", f"an encrypted text begins with {IV_BYTES} bytes")
    decryptor = Cipher(algorithms.AES(key.secret), modes.CTR(raw[:IV_BYTES])).decryptor()
    return decryptor.update(raw[IV_BYTES:]) + decryptor.finalize()


def encrypt_with_new_key(plain: bytes, key: GroupKey, new: GroupKey, entropy: Entropy) -> str:
    """Encrypt the next key and a content under the present key: encryption type 3."""
    return encrypt(new.secret + plain, key, entropy)


def decrypt_with_new_key(text: str, key: GroupKey) -> tuple[bytes, bytes]:
    """Decrypt encryption type 3: the next key's 32 bytes, and the content.

    Raises:
        CodecError: as `decrypt`; `encryption.truncated`, no room for a key.
    """
    plain = decrypt(text, key)
    if len(plain) < KEY_BYTES:
        raise CodecError("encryption.truncated", f"a new key has {KEY_BYTES} bytes")
    return plain[:KEY_BYTES], plain[KEY_BYTES:]


class Decrypted(NamedTuple):
    """The content of an encrypted message.

    Attributes:
        content: the JSON text.
        next_key: the key that its publisher goes on with, where it tells; before version 32 keys
            have no id, and go by their stream's.
    """

    content: str
    next_key: GroupKey | None


def encrypt_message(
    message: StreamMessage, key: GroupKey, entropy: Entropy, *, next_key: GroupKey | None = None
) -> StreamMessage:
    """Return the message with its content encrypted, ready to be signed.

    The next key goes along under the present one: before version 32 with the content (encryption
    type 3), from then on in a field of its own.
    """
    plain = message.content.encode()
    if next_key is not None and message.version < _NEW_GROUP_KEY_VERSION:
        return replace(
            message,
            encryption_type=int(EncryptionType.NEW_KEY_AND_AES),
            content=encrypt_with_new_key(plain, key, next_key, entropy),
        )
    new_group_key = None
    if next_key is not None:
        text = encrypt(next_key.secret, key, entropy)
        new_group_key = encode_encrypted_key(EncryptedKey(next_key.id, text))
    return replace(
        message,
        encryption_type=int(EncryptionType.AES),
        group_key_id=key.id if message.version >= _NEW_GROUP_KEY_VERSION else None,
        content=encrypt(plain, key, entropy),
        new_group_key=new_group_key,
    )


def decrypt_message(message: StreamMessage, key: GroupKey) -> Decrypted:
    """Decrypt a message's content, and the next key that it may carry.

    Raises:
        CodecError: `encryption.type`, no group key encrypts this message; `encryption.noise`, the
            outcome is no JSON: it is another key's, or was changed; `encryption.hex`,
            `encryption.truncated`, `encryption.key` and those of `read_json`.
    """
    next_key = None
    match message.encryption_type:
        case EncryptionType.AES:
            plain = decrypt(message.content, key)
            if message.new_group_key is not None:
                following = decode_encrypted_key(message.new_group_key)
                next_key = GroupKey(following.id, decrypt(following.text, key))
        case EncryptionType.NEW_KEY_AND_AES:
            secret, plain = decrypt_with_new_key(message.content, key)
            next_key = GroupKey(message.id.stream_id, secret)
        case _:
            raise CodecError("encryption.type", "no group key encrypts this message")
    try:
        content = plain.decode()
        check_value(content)
    except (UnicodeDecodeError, CodecError):
        text = "the content does not decrypt to JSON: another key's, or changed"
        raise CodecError("encryption.noise", text) from None
    return Decrypted(content, next_key)


class RsaKey:
    """A subscriber's RSA key, to which publishers encrypt group keys.

    Attributes:
        public_pem: the public key as PEM (SubjectPublicKeyInfo), with a line feed at its end.
    """

    __slots__ = ("_key", "public_pem")

    def __init__(self, key: rsa.RSAPrivateKey) -> None:
        self._key = key
        self.public_pem = (
            key.public_key()
            .public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
            .decode()
        )

    @classmethod
    def generate(cls, bits: int = RSA_BITS) -> "RsaKey":
        """Make a new key; the library draws the randomness. Takes about a second of one core."""
        return cls(rsa.generate_private_key(public_exponent=65_537, key_size=bits))

    @classmethod
    def from_pem(cls, text: str) -> "RsaKey":
        """Read a private key that is not encrypted (PKCS #8).

        Raises:
            CodecError: `encryption.rsa`. The text is never repeated.
        """
        try:
            key = serialization.load_pem_private_key(text.encode(), password=None)
        except (TypeError, ValueError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, rsa.RSAPrivateKey):
            raise CodecError("encryption.rsa", "the text is no RSA private key in PEM form")
        return cls(key)

    def unwrap(self, text: str) -> bytes:
        """Decrypt what was encrypted to this key: some milliseconds of one core.

        Raises:
            CodecError: `encryption.hex`; `encryption.rsa`, it was not made for this key.
        """
        raw = from_hex(text)
        try:
            return self._key.decrypt(raw, _OAEP)
        except ValueError:
            raise CodecError("encryption.rsa", "the text was not encrypted to this key") from None


def load_public_key(pem: str) -> rsa.RSAPublicKey:
    """Read a subscriber's public key.

    Raises:
        CodecError: `encryption.rsa`, not PEM of SubjectPublicKeyInfo, not RSA, or not of 2048 to
            8192 bits; `codec.limit`, longer than such a key's text.
    """
    if len(pem) > STREAMR_RSA_PEM_BYTES_MAX:
        raise CodecError("codec.limit", "a public key is longer than its text can be")
    key = None
    if pem.startswith(_PEM_LABEL):
        with suppress(ValueError, UnsupportedAlgorithm):
            key = serialization.load_pem_public_key(pem.encode())
    if not isinstance(key, rsa.RSAPublicKey):
        raise CodecError("encryption.rsa", "the text is no RSA public key in PEM form")
    if not STREAMR_RSA_BITS_MIN <= key.key_size <= STREAMR_RSA_BITS_MAX:
        raise CodecError("encryption.rsa", f"an RSA key of {key.key_size} bits is not used")
    return key


def wrap(secret: bytes, public_key: rsa.RSAPublicKey) -> str:
    """Encrypt a group key to a subscriber; the library draws the randomness.

    Raises:
        CodecError: `encryption.rsa`, the public key cannot be calculated with.
    """
    try:
        return public_key.encrypt(secret, _OAEP).hex()
    except ValueError:
        raise CodecError("encryption.rsa", "the RSA public key is of no use") from None


def from_hex(text: str) -> bytes:
    """Read hex digits of either case, two for each byte, without blanks or prefix.

    Raises:
        CodecError: `encryption.hex`.
    """
    if len(text) % 2 or _HEX.fullmatch(text) is None:
        raise CodecError("encryption.hex", "an encrypted text is written in hex digits")
    return bytes.fromhex(text)
