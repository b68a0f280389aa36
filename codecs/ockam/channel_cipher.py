"""Secure channels, once established: messages sealed under nonces that they carry themselves.

    sealed = nonce (u16 or u64, big-endian), AES-256-GCM ciphertext, tag (16 bytes)

The three levels that nodes released from 2021-06 to 2023-05 speak differ in the nonce's size, in
what is authenticated beside the ciphertext, and in whether BARE `data` is wrapped around:

| level | carried as | nonce | associated data |
|---|---|---|---|
| Elixir 2021 | the bytes themselves | u16 | Noise's final hash |
| Rust 2021 | BARE data | u16 | none |
| 2022, both languages | BARE data | u64 | none |

Messages may arrive in any order within a window; each opens once. The keys are never replaced, so
a channel ends with its last nonce.

Source: github.com/build-trust/ockam, the secure channels of both languages, 2021-06 to 2023-05;
docs/protocols/ockam.md.
"""

from enum import Enum
from struct import Struct
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from rillnode.codecs.errors import CodecError
from rillnode.codecs.noise.cipher import TAG_BYTES
from rillnode.codecs.ockam.limits import CHANNEL_WINDOW_MESSAGES
from rillnode.codecs.varint import encode_uint, read_data, uint_bytes

_AESGCM_NONCE: Final = Struct(">4xQ")


class Level(Enum):
    """A way to carry a channel's messages; the value is the name that users give."""

    ELIXIR_2021 = "elixir-2021"
    RUST_2021 = "rust-2021"
    BOTH_2022 = "2022"

    @property
    def wrapped(self) -> bool:
        """Whether BARE data is wrapped around each message."""
        return self is not Level.ELIXIR_2021

    @property
    def nonce_bytes(self) -> int:
        """Size of the nonce that a message carries."""
        return 8 if self is Level.BOTH_2022 else 2

    @property
    def nonce_end(self) -> int:
        """The first number that is no nonce: a channel that would need it is at its end."""
        return (1 << 8 * self.nonce_bytes) - 1


class ReplayWindow:
    """Remembers which numbers have been seen, among the last ones below the highest.

    A number below the window counts as seen, so none is ever taken twice. Time and memory are
    constant.

    Source: RFC 6479, with one integer as its bitmap.
    """

    __slots__ = ("_end", "_seen", "_size")

    def __init__(self, size: int = CHANNEL_WINDOW_MESSAGES) -> None:
        self._size = size
        self._end = 0  # one above the highest number seen
        self._seen = 0  # bit n: whether `_end - 1 - n` was seen

    def is_new(self, number: int) -> bool:
        """Whether `number` may still be taken."""
        age = self._end - 1 - number
        return age < 0 or (age < self._size and not self._seen >> age & 1)

    def add(self, number: int) -> None:
        """Note a number that `is_new`, once its message has proved authentic."""
        ahead = number + 1 - self._end
        if ahead <= 0:
            self._seen |= 1 << -ahead
            return
        kept = self._seen << ahead if ahead < self._size else 0
        self._seen = (kept | 1) & ((1 << self._size) - 1)
        self._end = number + 1


class ChannelSession:
    """One end of an established channel.

    Args:
        levels: which of them the peer may speak, the likeliest first. The first message that
            opens decides; until then messages are sealed as for the first.
        sealing_key: AES key for what this end sends.
        opening_key: AES key for what the peer sends.
        handshake_hash: Noise's `h` after the last handshake message.
        first_nonce: of the first message sealed; only tests give another than 0.

    Attributes:
        level: what the peer speaks, or is believed to speak.
    """

    __slots__ = ("_hash", "_levels", "_nonce", "_opener", "_sealer", "_window", "level")

    def __init__(
        self,
        levels: tuple[Level, ...],
        *,
        sealing_key: bytes,
        opening_key: bytes,
        handshake_hash: bytes,
        first_nonce: int = 0,
    ) -> None:
        self.level = levels[0]
        self._levels = levels
        self._hash = handshake_hash
        self._sealer = AESGCM(sealing_key)
        self._opener = AESGCM(opening_key)
        self._nonce = first_nonce
        self._window = ReplayWindow()

    @property
    def settled(self) -> bool:
        """Whether it is known which level the peer speaks."""
        return len(self._levels) == 1

    def plaintext_bytes_max(self, payload_bytes: int) -> int:
        """Largest message that seals into so large a payload, at each level the peer may speak."""
        wrapper = max(uint_bytes(payload_bytes) if one.wrapped else 0 for one in self._levels)
        nonce = max(level.nonce_bytes for level in self._levels)
        return payload_bytes - wrapper - nonce - TAG_BYTES

    def seal(self, plaintext: bytes) -> bytes:
        """Seal the next message, as payload of a wire message.

        Raises:
            CodecError: `channel.exhausted`, every nonce was used: the channel is at its end.
        """
        level, number = self.level, self._nonce
        if number >= level.nonce_end:
            raise CodecError("channel.exhausted", "the channel has used its last nonce")
        self._nonce = number + 1
        sealed = self._sealer.encrypt(_AESGCM_NONCE.pack(number), plaintext, self._beside(level))
        return wrap(level, number.to_bytes(level.nonce_bytes, "big") + sealed)

    def open(self, payload: bytes) -> bytes:
        """Open a message that the peer sealed, in whatever order it arrives.

        Nothing changes where it does not open, so that the next one may.

        Raises:
            CodecError: `codec.truncated`, `codec.varint`, `codec.trailing`: no sealed message;
                `channel.nonce`: its nonce is the one that is never used; `channel.replay`: it was
                opened before, or is too old to tell; `channel.forged`: it is not authentic.
        """
        sealed = memoryview(unwrap(self.level, payload))
        whole = False
        for level in self._levels:
            size = level.nonce_bytes
            if len(sealed) < size + TAG_BYTES:
                continue
            whole = True
            number = int.from_bytes(sealed[:size], "big")
            if number == level.nonce_end:
                raise CodecError("channel.nonce", "a message carries the last nonce")
            if not self._window.is_new(number):
                raise CodecError("channel.replay", "a message was opened before, or is too old")
            try:
                plaintext = self._opener.decrypt(
                    _AESGCM_NONCE.pack(number), sealed[size:], self._beside(level)
                )
            except InvalidTag:
                continue
            self._window.add(number)
            self.level, self._levels = level, (level,)
            return plaintext
        if not whole:
            raise CodecError("codec.truncated", "a sealed message is cut", offset=len(payload))
        raise CodecError("channel.forged", "a message does not authenticate")

    def _beside(self, level: Level) -> bytes | None:
        return self._hash if level is Level.ELIXIR_2021 else None


def wrap(level: Level, content: bytes) -> bytes:
    """Put a level's wrapper around a handshake message or a sealed one."""
    return encode_uint(len(content)) + content if level.wrapped else content


def unwrap(level: Level, payload: bytes) -> bytes:
    """Take a level's wrapper off.

    Raises:
        CodecError: `codec.truncated`, `codec.varint`, `codec.trailing`.
    """
    if not level.wrapped:
        return payload
    start, end = read_data(payload, 0)
    if end != len(payload):
        raise CodecError("codec.trailing", "bytes after a wrapped message", offset=end)
    return payload[start:end]
