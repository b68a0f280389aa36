"""Noise cipher states: one direction of an established session."""

import struct
from enum import IntEnum
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from rillnode.codecs.errors import CodecError
from rillnode.codecs.limits import NOISE_REKEY_RECORDS

KEY_BYTES: Final = 32
TAG_BYTES: Final = 16
_REKEY_NONCE: Final = 2**64 - 1


class Suite(IntEnum):
    """Cipher and hash; the value is the byte that names it on rillnode's own links."""

    AESGCM_SHA256 = 0
    CHACHAPOLY_SHA256 = 1


# Noise section 12: 32 zero bits, then the counter; big-endian for AESGCM, little for ChaChaPoly.
_AESGCM_NONCE: Final = struct.Struct(">4xQ")
_CHACHAPOLY_NONCE: Final = struct.Struct("<4xQ")


class CipherState:
    """Seals or opens the records of one direction, in order, under nonces that count from 0.

    After every `rekey_records` records the key is replaced as Noise section 4.2 says, and the
    nonce counts on; both ends do so by themselves.

    Source: The Noise Protocol Framework, revision 34, sections 4.2, 5.1 and 11.3.
    """

    __slots__ = ("_aead", "_next_rekey", "_nonce", "_number", "_rekey_records")

    def __init__(
        self, key: bytes, suite: Suite, *, rekey_records: int = NOISE_REKEY_RECORDS
    ) -> None:
        self._aead: AESGCM | ChaCha20Poly1305
        if suite is Suite.AESGCM_SHA256:
            self._aead, self._nonce = AESGCM(key), _AESGCM_NONCE.pack
        else:
            self._aead, self._nonce = ChaCha20Poly1305(key), _CHACHAPOLY_NONCE.pack
        self._number = 0
        self._rekey_records = self._next_rekey = rekey_records

    def seal(self, plaintext: bytes | memoryview) -> bytes:
        """Encrypt the next record: the plaintext's length and 16 bytes more."""
        number = self._number
        if number == self._next_rekey:
            self._rekey()
        self._number = number + 1
        return self._aead.encrypt(self._nonce(number), plaintext, None)

    def open(self, record: bytes | memoryview) -> bytes:
        """Decrypt the next record.

        Raises:
            CodecError: it is not what the peer sealed next: changed, cut, repeated, out of order.
        """
        number = self._number
        if number == self._next_rekey:
            self._rekey()
        try:
            plaintext = self._aead.decrypt(self._nonce(number), record, None)
        except InvalidTag:
            raise CodecError("noise.record", "a record does not authenticate") from None
        self._number = number + 1
        return plaintext

    def _rekey(self) -> None:
        sealed = self._aead.encrypt(self._nonce(_REKEY_NONCE), bytes(KEY_BYTES), b"")
        self._aead = type(self._aead)(sealed[:KEY_BYTES])
        self._next_rekey += self._rekey_records
