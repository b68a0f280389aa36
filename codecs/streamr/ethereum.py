"""Ethereum keys, addresses and personal signatures, as Streamr uses them.

An address is the last 20 bytes of keccak256 over the uncompressed public key, written as `0x` and
40 hex digits whose case may carry a checksum (EIP-55). A personal signature (EIP-191, version E)
is r, s and v, 32 + 32 + 1 bytes, over keccak256 of a fixed prefix, the message's length in
decimal and the message; it names its signer, whose public key is recovered from it.

What is signed is not known here: see `signing`.
"""

import re
from functools import lru_cache
from typing import Final

from coincurve import PrivateKey, PublicKey
from Crypto.Hash import keccak

from rillnode.codecs.errors import CodecError, ConfigError

SECRET_BYTES: Final = 32
SIGNATURE_BYTES: Final = 65
HASH_BYTES: Final = 32

_ORDER: Final = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
"""Order of secp256k1: a secret is a number from 1 to one below it."""

_V_FIRST: Final = 27
"""v is this and the recovery id. Released clients write 27 or 28, and refuse 0 and 1."""

_SIGNATURE_CHARS: Final = (2 * SIGNATURE_BYTES, 2 * SIGNATURE_BYTES + 2)
_PREFIX: Final = b"\x19Ethereum Signed Message:\n"
_ADDRESSES_MAX: Final = 16_384
"""Public keys whose addresses are remembered: to hash one takes a fifth of a verification."""

_ADDRESS: Final = re.compile("0[xX][0-9a-fA-F]{40}")
_SECRET: Final = re.compile("(?:0x)?([0-9a-fA-F]{64})")


class EthereumKey:
    """A secret secp256k1 key. Its text form shows the address only.

    Attributes:
        address: of its public key, with the EIP-55 checksum in its case.
    """

    __slots__ = ("_key", "address")

    def __init__(self, secret: bytes) -> None:
        """Make the key of a 32-byte secret.

        Raises:
            ConfigError: `key.length`; `key.range`, zero or not below the curve's order.
        """
        if len(secret) != SECRET_BYTES:
            text = f"an Ethereum key has {SECRET_BYTES} bytes, this one has {len(secret)}"
            raise ConfigError("key.length", text)
        if not 0 < int.from_bytes(secret, "big") < _ORDER:
            raise ConfigError("key.range", "the number is no secret of the curve secp256k1")
        self._key = PrivateKey(secret)
        self.address = checksum_address(_address_of(self._key.public_key))

    @classmethod
    def from_hex(cls, text: str) -> "EthereumKey":
        """Read a secret of 64 hex digits, with or without `0x`; blanks around it are ignored.

        Raises:
            ConfigError: as the constructor, and `key.hex`. The text is never repeated.
        """
        found = _SECRET.fullmatch(text.strip())
        if found is None:
            digits = 2 * SECRET_BYTES
            raise ConfigError("key.hex", f"an Ethereum key is written as {digits} hex digits")
        return cls(bytes.fromhex(found[1]))

    @property
    def secret_hex(self) -> str:
        """The secret, as a key file holds it."""
        return self._key.secret.hex()

    def sign(self, message: bytes) -> str:
        """Sign `message` as wallets do (`personal_sign`): `0x` and 130 hex digits.

        The same message always gets the same signature (RFC 6979), with the lower s.
        """
        raw = self._key.sign_recoverable(personal_hash(message), hasher=None)
        return f"0x{raw[:-1].hex()}{_V_FIRST + raw[-1]:02x}"

    def __repr__(self) -> str:
        return f"EthereumKey({self.address})"


def keccak256(data: bytes) -> bytes:
    """Hash with Keccak-256: the padding before SHA-3's; 32 bytes."""
    return keccak.new(digest_bits=8 * HASH_BYTES, data=data).digest()


def personal_hash(message: bytes, length: int | None = None) -> bytes:
    """What is signed for `message`: 32 bytes. Source: EIP-191, version 0x45.

    Args:
        message: the message.
        length: what is told as its length, where that is not the number of its bytes.
    """
    told = len(message) if length is None else length
    return keccak256(b"%b%d%b" % (_PREFIX, told, message))


def is_address(text: str) -> bool:
    """Whether a text is written as an address, in any case."""
    return _ADDRESS.fullmatch(text) is not None


def parse_address(text: str) -> str:
    """Read an address, in any case: checksums are not checked, as released clients do not.

    Returns:
        It in lower case, in which addresses are compared.

    Raises:
        CodecError: `ethereum.address`, not `0x` and 40 hex digits.
    """
    if not is_address(text):
        raise CodecError("ethereum.address", "an address is written as 0x and 40 hex digits")
    return text.lower()


def checksum_address(text: str) -> str:
    """Write an address with its checksum: a digit is upper case where the hash's is 8 or more.

    Raises:
        CodecError: `ethereum.address`.

    Source: EIP-55.
    """
    digits = parse_address(text)[2:]
    hashed = keccak256(digits.encode()).hex()
    cased = (d.upper() if h >= "8" else d for d, h in zip(digits, hashed, strict=False))
    return "0x" + "".join(cased)


def recover_address(message: bytes, signature: str, length: int | None = None) -> str:
    """Find who signed `message` by `personal_sign`; the address is in lower case.

    The signature is 130 hex digits of either case, with or without `0x`; v is 27 or 28. An s in
    the upper half is taken, as the clients' libraries do: a signature does not identify a message.

    Args:
        message: what was signed.
        signature: by whom is to be found out.
        length: as `personal_hash` has it.

    Raises:
        CodecError: `ethereum.signature`, malformed; `ethereum.recover`, nobody can have made it.
    """
    try:
        raw = bytes.fromhex(signature.removeprefix("0x"))
    except ValueError:
        raw = b""
    # Blanks are passed over, so the length of the text counts as well.
    if len(raw) != SIGNATURE_BYTES or len(signature) not in _SIGNATURE_CHARS:
        raise CodecError("ethereum.signature", "a signature is written as 0x and 130 hex digits")
    recovery_id = raw[-1] - _V_FIRST
    if recovery_id not in (0, 1):
        text = f"a signature ends with v, 27 or 28, this one with {raw[-1]}"
        raise CodecError("ethereum.signature", text, offset=SIGNATURE_BYTES - 1)
    try:
        public_key = PublicKey.from_signature_and_message(
            raw[:-1] + bytes((recovery_id,)), personal_hash(message, length), hasher=None
        )
    except ValueError:
        raise CodecError("ethereum.recover", "no key can have made this signature") from None
    return _address_of(public_key)


def _address_of(public_key: PublicKey) -> str:
    return _hashed(public_key.format(compressed=False))


@lru_cache(_ADDRESSES_MAX)
def _hashed(public_key: bytes) -> str:
    return "0x" + keccak256(public_key[1:])[-20:].hex()
