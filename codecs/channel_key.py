"""Static keys of secure channels: an X25519 key that names one end.

A key file holds the secret as 64 hex digits; the public half is shown as 64 hex digits too, and
`ockam:` and these are its principal.
"""

from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from rillnode.codecs.errors import ConfigError

KEY_BYTES: Final = 32


class ChannelKey:
    """A secret X25519 key. Its text form shows the public half only.

    Attributes:
        private: the secret, 32 bytes.
        public: 32 bytes.
    """

    __slots__ = ("private", "public")

    def __init__(self, private: bytes) -> None:
        """Take a secret of 32 bytes; any are one.

        Raises:
            ConfigError: another number of bytes.
        """
        if len(private) != KEY_BYTES:
            raise ConfigError("key.length", f"a channel's key has {KEY_BYTES} bytes")
        self.private = private
        key = X25519PrivateKey.from_private_bytes(private)
        self.public = key.public_key().public_bytes_raw()

    @classmethod
    def from_hex(cls, text: str) -> "ChannelKey":
        """Read a secret as a key file holds it; blanks around it are ignored.

        Raises:
            ConfigError: not 64 hex digits. The text is never repeated: it may be a secret.
        """
        return cls(parse_channel_key(text))

    @property
    def private_hex(self) -> str:
        """The secret, as a key file holds it."""
        return self.private.hex()

    @property
    def public_hex(self) -> str:
        """The public half, as people and configurations name it."""
        return self.public.hex()

    def __repr__(self) -> str:
        return f"ChannelKey({self.public_hex})"


def parse_channel_key(text: str) -> bytes:
    """Read 64 hex digits; blanks around are ignored.

    Raises:
        ConfigError: anything else.
    """
    digits = text.strip()
    try:
        raw = bytes.fromhex(digits)
    except ValueError:
        raw = b""
    if len(raw) != KEY_BYTES or len(digits) != 2 * KEY_BYTES:
        raise ConfigError(
            "key.hex", f"a channel's key is written as {2 * KEY_BYTES} hex digits, this is not"
        )
    return raw
