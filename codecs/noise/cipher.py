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

_SPARSE_RECORDS: Final = 4
"""For so many records after a rest the key is expanded each time: that takes 2 us. Own choice: what
is said on a link that is opened, or only kept open."""


class Suite(IntEnum):
    """Cipher and hash; the value is the byte that names it on rillnode's own links."""

    AESGCM_SHA256 = 0
    CHACHAPOLY_SHA256 = 1


# Noise section 12: 32 zero bits, then the counter; big-endian for AESGCM, little for ChaChaPoly.
_AESGCM_NONCE: Final = struct.Struct(">4xQ").pack
_CHACHAPOLY_NONCE: Final = struct.Struct("<4xQ").pack


class CipherState:
    """Seals or opens the records of one direction, in order, under nonces that count from 0.

    After every `rekey_records` records the key is replaced as Noise section 4.2 says, and the
    nonce counts on; both ends do so by themselves.

    What the key is expanded into takes 2.3 kB. It is kept while there are many records: from some
    after the last `rest` on.

    Source: The Noise Protocol Framework, revision 34, sections 4.2, 5.1 and 11.3.
    """

    __slots__ = (
        "_aead",
        "_keep_from",
        "_key",
        "_make_aead",
        "_next_rekey",
        "_nonce",
        "_number",
        "_rekey_records",
    )

    def __init__(
        self, key: bytes, suite: Suite, *, rekey_records: int = NOISE_REKEY_RECORDS
    ) -> None:
        self._aead: AESGCM | ChaCha20Poly1305 | None = None
        self._make_aead: type[AESGCM | ChaCha20Poly1305]
        if suite is Suite.AESGCM_SHA256:
            self._make_aead, self._nonce = AESGCM, _AESGCM_NONCE
        else:
            self._make_aead, self._nonce = ChaCha20Poly1305, _CHACHAPOLY_NONCE
        self._key: bytes = key
        self._number = 0
        self._keep_from: int = _SPARSE_RECORDS
        self._rekey_records = rekey_records
        self._next_rekey: int = rekey_records

    def seal(self, plaintext: bytes | memoryview) -> bytes:
        """Encrypt the next record: the plaintext's length and 16 bytes more."""
        number = self._number
        aead = self._aead
        if aead is None or number == self._next_rekey:
            aead = self._expanded()
        self._number = number + 1
        return aead.encrypt(self._nonce(number), plaintext, None)

    def open(self, record: bytes | memoryview) -> bytes:
        """Decrypt the next record.

        Raises:
            CodecError: it is not what the peer sealed next: changed, cut, repeated, out of order.
        """
        number = self._number
        aead = self._aead
        if aead is None or number == self._next_rekey:
            aead = self._expanded()
        try:
            plaintext = aead.decrypt(self._nonce(number), record, None)
        except InvalidTag:
            raise CodecError("noise.record", "a record does not authenticate") from None
        self._number = number + 1
        return plaintext

    def rest(self) -> None:
        """Keep no expanded key: records are few."""
        self._aead = None
        self._keep_from = self._number + _SPARSE_RECORDS

    def _expanded(self) -> AESGCM | ChaCha20Poly1305:
        """The key, or the one that follows it now, made ready for the next record."""
        aead = self._make_aead(self._key)
        if self._number == self._next_rekey:
            sealed = aead.encrypt(self._nonce(_REKEY_NONCE), bytes(KEY_BYTES), b"")
            self._key = sealed[:KEY_BYTES]
            aead = self._make_aead(self._key)
            self._next_rekey += self._rekey_records
        if self._number >= self._keep_from:
            self._aead = aead
        return aead
