"""Text forms of keys and ids: peers, users, and repos in `did:ng:o:...`.

The bytes as they are on the wire, tag first, are reversed and written as base64url without
padding: 44 characters, of which the last is always `A`, since the tag is 0.

Source: nextgraph-rs 9ea23f60, engine/repo/src/types.rs; the ids of real brokers.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

from rillnode.codecs.errors import CodecError
from rillnode.codecs.nextgraph.types import KEY_BYTES, TAG

ID_CHARACTERS: Final = 44


def format_id(key: bytes) -> str:
    """Write a key, or another id of 32 bytes."""
    return to_base64url((TAG + key)[::-1])


def parse_id(text: str) -> bytes:
    """Read a key or another id.

    Raises:
        CodecError: `text.id`, the text is none; or `text.base64`.
    """
    if len(text) != ID_CHARACTERS:
        raise CodecError("text.id", f"an id has {ID_CHARACTERS} characters")
    tagged = from_base64url(text)[::-1]
    if len(tagged) != KEY_BYTES + 1 or not tagged.startswith(TAG):
        raise CodecError("text.id", "the id is of an unknown kind")
    return tagged[len(TAG) :]


def to_base64url(data: bytes) -> str:
    """Write base64url without padding."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def from_base64url(text: str) -> bytes:
    """Read base64url without padding, in the one form that bytes have.

    Raises:
        CodecError: `text.base64`.
    """
    try:
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        data = b""
    # Decoders skip what is not of the alphabet, and ignore bits that no byte needs.
    if to_base64url(data) != text:
        raise CodecError("text.base64", "the text is not base64url without padding")
    return data
