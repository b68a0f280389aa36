"""An end of a secure channel as a released node is one.

It takes nothing from rillnode: Noise XX is written out, and the three levels are as they look on
the wire.
"""

import hashlib
import hmac
import os
from typing import Literal

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

Name = Literal["elixir-2021", "rust-2021", "2022"]
LEVELS: tuple[Name, ...] = ("elixir-2021", "rust-2021", "2022")


def data(content: bytes) -> bytes:
    """BARE data of less than 2,097,152 bytes."""
    length = bytearray()
    size = len(content)
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes((*length, size)) + content


class ChannelPeer:
    """One channel: three messages, then `seal` and `open`.

    The initiator writes messages 1 and 3, the responder 2, and `read_message_3` is its end.
    """

    def __init__(self, level: Name, private: bytes | None = None) -> None:
        self.level = level
        self.nonce = 0
        self.payload_2 = b""
        self.remote_key = ""
        self._nonce_bytes = 8 if level == "2022" else 2
        self._s = X25519PrivateKey.from_private_bytes(private or os.urandom(32))
        self._e = X25519PrivateKey.generate()
        self._h = self._ck = b"Noise_XX_25519_AESGCM_SHA256".ljust(32, b"\0")
        self._mix_hash(b"")  # the prologue

    @property
    def key(self) -> str:
        """The public half of its static key, hex."""
        return _public(self._s).hex()

    def message_1(self, extra: bytes = b"\0") -> bytes:
        """Write message 1; `extra` is its optional in the wrapped levels."""
        message = _public(self._e)
        self._mix_hash(message)
        self._mix_hash(b"")
        return message if self.level == "elixir-2021" else data(message) + extra

    def message_3(self, message_2: bytes, payload: bytes = b"") -> bytes:
        """Read message 2, write message 3."""
        message = self._unwrap(message_2)
        ephemeral, static, sealed = message[:32], message[32:80], message[80:]
        self._mix_hash(ephemeral)
        self._mix_key(self._e, ephemeral)
        remote = self._decrypt(static, 0)
        self._mix_key(self._e, remote)
        self.payload_2 = self._decrypt(sealed, 0)
        self.remote_key = remote.hex()

        own = self._encrypt(_public(self._s), 1)
        self._mix_key(self._s, ephemeral)
        message = self._wrap(own + self._encrypt(payload, 0))
        first, second = _hkdf(self._ck, b"")
        # In reverse of Noise: the initiator seals with the second.
        self._sealer, self._opener = AESGCM(second), AESGCM(first)
        self._beside = self._h if self.level == "elixir-2021" else b""
        return message

    def message_2(self, message_1: bytes, payload: bytes = b"") -> bytes:
        """Read message 1, write message 2."""
        if self.level != "elixir-2021":
            message_1 = message_1[1 : 1 + message_1[0]]  # its optional follows
        ephemeral = message_1[:32]
        self._mix_hash(ephemeral)
        self._mix_hash(message_1[32:])
        own = _public(self._e)
        self._mix_hash(own)
        self._mix_key(self._e, ephemeral)
        static = self._encrypt(_public(self._s), 0)
        self._mix_key(self._s, ephemeral)
        return self._wrap(own + static + self._encrypt(payload, 0))

    def read_message_3(self, message_3: bytes) -> None:
        """Read message 3: the channel is open."""
        message = self._unwrap(message_3)
        remote = self._decrypt(message[:48], 1)
        self.remote_key = remote.hex()
        self._mix_key(self._e, remote)
        self._decrypt(message[48:], 0)
        first, second = _hkdf(self._ck, b"")
        self._sealer, self._opener = AESGCM(first), AESGCM(second)
        self._beside = self._h if self.level == "elixir-2021" else b""

    def seal(self, plaintext: bytes, nonce: int | None = None) -> bytes:
        """Seal a message under the next nonce, or a given one."""
        if nonce is None:
            nonce = self.nonce
            self.nonce += 1
        sealed = self._sealer.encrypt(nonce.to_bytes(12, "big"), plaintext, self._beside)
        return self._wrap(nonce.to_bytes(self._nonce_bytes, "big") + sealed)

    def open(self, payload: bytes) -> bytes:
        """Open a message of the responder's."""
        sealed = self._unwrap(payload)
        nonce, text = sealed[: self._nonce_bytes], sealed[self._nonce_bytes :]
        return self._opener.decrypt(nonce.rjust(12, b"\0"), text, self._beside)

    def _mix_hash(self, content: bytes) -> None:
        self._h = hashlib.sha256(self._h + content).digest()

    def _mix_key(self, private: X25519PrivateKey, public: bytes) -> None:
        shared = private.exchange(X25519PublicKey.from_public_bytes(public))
        self._ck, self._k = _hkdf(self._ck, shared)

    def _encrypt(self, content: bytes, nonce: int) -> bytes:
        sealed = AESGCM(self._k).encrypt(nonce.to_bytes(12, "big"), content, self._h)
        self._mix_hash(sealed)
        return sealed

    def _decrypt(self, sealed: bytes, nonce: int) -> bytes:
        content = AESGCM(self._k).decrypt(nonce.to_bytes(12, "big"), sealed, self._h)
        self._mix_hash(sealed)
        return content

    def _wrap(self, content: bytes) -> bytes:
        return content if self.level == "elixir-2021" else data(content)

    def _unwrap(self, payload: bytes) -> bytes:
        if self.level == "elixir-2021":
            return payload
        start = next(at for at, byte in enumerate(payload) if byte < 128) + 1
        assert data(payload[start:]) == payload
        return payload[start:]


def _public(private: X25519PrivateKey) -> bytes:
    return private.public_key().public_bytes_raw()


def _hkdf(chaining_key: bytes, material: bytes) -> tuple[bytes, bytes]:
    key = hmac.digest(chaining_key, material, "sha256")
    first = hmac.digest(key, b"\1", "sha256")
    return first, hmac.digest(key, first + b"\2", "sha256")
