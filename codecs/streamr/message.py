"""Stream messages from and to JSON text, in every version's layouts.

A message is signed without its version and layout, so it may be written in another than it came
in, and mostly its signature stays valid. What changes on the way, beside the lost elements:

| written as | lost | refused |
|---|---|---|
| 32 | | Reset and Rotate, encryption by new key and AES |
| 31 | group key id, new group key (signed) | Reset and Rotate |
| 30 | as 31 | as 31, anything encrypted |
| 28, 29 | as 30, and sequence and chain (signed by type 2) | as 30, other types than 27 |
| the specification's 30 | as 30, and the chain (signed by type 2) | as 28 |
| the specification's 32 | new group key (signed) | Announce, encryption by new key and AES |

Reset, Rotate and Announce are the specification's and the released names of types 30 and 32, with
contents that differ; the other's reader would take one for what it is not. Versions 28 and 29 tell
times in place of offsets for messages that no older node has numbered, as released software does.
"""

from collections.abc import Callable
from typing import Final

from msgspec import Struct
from msgspec.json import Decoder

from rillnode.codecs.entries import check_entry_size
from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.json_text import Scalar, Text, read_json, text_of, write_json
from rillnode.codecs.streamr.message_layouts import VERSIONS, content_is_string, read_layout
from rillnode.codecs.streamr.stream_message import (
    ContentType,
    EncryptionType,
    Layout,
    MessageId,
    MessageRef,
    MessageType,
    SignatureType,
    StreamMessage,
)

__all__ = [
    "STORED_VERSION",
    "TWO_LAYOUTS",
    "VERSIONS",
    "ContentType",
    "EncryptionType",
    "Layout",
    "MessageId",
    "MessageRef",
    "MessageType",
    "SignatureType",
    "StreamMessage",
    "decode_message",
    "decode_utf8",
    "encode_either",
    "encode_message",
    "stored_text",
]

STORED_VERSION: Final = 32
"""The version that messages are kept in; it loses nothing that another can tell and is signed."""


class _Head(Struct, array_like=True):
    version: Scalar = None


_HEAD: Final = Decoder(_Head)
_PLAIN_HEADS: Final = {b"[%d," % version: version for version in VERSIONS}
"""What nearly all messages begin with."""


def decode_message(value: list[object] | Text) -> StreamMessage:
    """Decode a message of any version and layout.

    Args:
        value: its JSON text, or the array that a JSON reader has made of it.

    Raises:
        CodecError: `codec.json`, `codec.utf8`, `codec.limit`: no JSON that could be read;
            `codec.field`: not as its version asks; `streamr.version`: none of VERSIONS. The offset
            is that of an element of the array.
    """
    text = text_of(value)
    try:
        return decode_utf8(text.encode() if isinstance(text, str) else bytes(text))
    except UnicodeEncodeError:
        raise CodecError("codec.utf8", "JSON is not UTF-8") from None


def decode_utf8(text: bytes) -> StreamMessage:
    """Decode a message out of JSON text whose UTF-8 was checked, as `decode_message` does."""
    # To have a reader find the first number it must pass over the whole message.
    version = _PLAIN_HEADS.get(text[:4]) or _version(text)
    return read_layout(version, text)


def _version(text: bytes) -> int:
    version = read_json(_HEAD, text).version
    if isinstance(version, float) and version.is_integer():
        version = int(version)
    if type(version) is not int or version not in VERSIONS:
        raise CodecError("streamr.version", f"message version is none of {VERSIONS}", offset=1)
    return version


def encode_message(message: StreamMessage, version: int, layout: Layout = Layout.RELEASED) -> str:
    """Encode a message in a version and, where that has two, a layout.

    Raises:
        CodecError: `streamr.version`, none of VERSIONS; `streamr.inexpressible`, the version or
            layout has no way to tell what the message is; `codec.utf8`.
    """
    write = _SPECIFIED.get(version) if layout is Layout.SPECIFICATION else None
    write = write or _RELEASED.get(version)
    if write is None:
        raise CodecError("streamr.version", f"message version is none of {VERSIONS}")
    return write_json(write(message))


def encode_either(message: StreamMessage, version: int) -> str:
    """Encode a message in the released layout, or in the other one where only that can tell it.

    Raises:
        CodecError: as `encode_message`.
    """
    try:
        return encode_message(message, version)
    except CodecError as error:
        if error.code != "streamr.inexpressible":
            raise
    return encode_message(message, version, Layout.SPECIFICATION)


def stored_text(message: StreamMessage, text: bytes | None = None) -> bytes:
    """The text to keep of a message that was published.

    That is its own text, where it has come as one of STORED_VERSION and with a string as content;
    else the message in that version; and where it has no form in it, in its own. A content that
    came as a value would have to be rewritten whenever it is read.

    Args:
        message: the message, as it was decoded.
        text: what it was decoded from, if that was a text.

    Raises:
        CodecError: `codec.utf8`; `entries.size`, it is larger than an entry may be.
    """
    if text is not None and message.version == STORED_VERSION and content_is_string(text):
        stored = text
    else:
        stored = _encode_stored(message)
    check_entry_size(len(stored))
    return stored


def _encode_stored(message: StreamMessage) -> bytes:
    if message.version != STORED_VERSION:
        try:
            return encode_message(message, STORED_VERSION).encode()
        except CodecError as error:
            if error.code != "streamr.inexpressible":
                raise
    return encode_message(message, message.version, message.layout).encode()


def _write_28(message: StreamMessage) -> list[object]:
    _refuse_encrypted(message, 28)
    if message.message_type != MessageType.MESSAGE:
        raise _inexpressible(message, 28)
    message_id, previous = message.id, message.previous
    offset, previous_offset = message.offset, message.previous_offset
    if message.version > 29:
        offset, previous_offset = message_id.timestamp, previous and previous.timestamp
    return [
        28,
        message_id.stream_id,
        message_id.partition,
        message_id.timestamp,
        message.ttl or 0,
        offset,
        previous_offset,
        message.message_type,
        message.content,
    ]


def _write_29(message: StreamMessage) -> list[object]:
    address = message.id.publisher_id or None
    return [29, *_write_28(message)[1:], message.signature_type, address, message.signature]


def _write_30(message: StreamMessage) -> list[object]:
    _refuse_encrypted(message, 30)
    _refuse_specified(message, 30)
    return [
        30,
        message.id,
        message.previous,
        message.message_type,
        message.content,
        message.signature_type,
        message.signature,
    ]


def _write_31(message: StreamMessage) -> list[object]:
    _refuse_specified(message, 31)
    return [
        31,
        message.id,
        message.previous,
        message.message_type,
        message.encryption_type,
        message.content,
        message.signature_type,
        message.signature,
    ]


def _write_32(message: StreamMessage) -> list[object]:
    _refuse_specified(message, 32)
    _refuse_new_key(message)
    return [
        32,
        message.id,
        message.previous,
        message.message_type,
        message.content_type,
        message.encryption_type,
        message.group_key_id,
        message.content,
        message.new_group_key,
        message.signature_type,
        message.signature,
    ]


def _write_specified_30(message: StreamMessage) -> list[object]:
    _refuse_encrypted(message, 30)
    if message.message_type != MessageType.MESSAGE:
        raise _inexpressible(message, 30)
    message_id, previous = message.id, message.previous
    return [
        30,
        message_id.stream_id,
        message_id.partition,
        message_id.timestamp,
        message_id.sequence,
        message_id.publisher_id,
        previous and previous.timestamp,
        previous and previous.sequence,
        message.ttl,
        message.message_type,
        message.content,
        message.signature_type,
        message.signature,
    ]


def _write_specified_32(message: StreamMessage) -> list[object]:
    _refuse_new_key(message)
    announce = message.message_type == MessageType.GROUP_KEY_ANNOUNCE
    if announce and message.layout is Layout.RELEASED:
        raise _inexpressible(message, 32)
    return [
        32,
        message.id,
        message.previous,
        message.message_type,
        message.content_type,
        message.encryption_type,
        message.group_key_id,
        message.content,
        message.signature_type,
        message.signature,
    ]


_Writer = Callable[[StreamMessage], list[object]]
_RELEASED: Final[dict[int, _Writer]] = {
    28: _write_28,
    29: _write_29,
    30: _write_30,
    31: _write_31,
    32: _write_32,
}
_SPECIFIED: Final[dict[int, _Writer]] = {30: _write_specified_30, 32: _write_specified_32}

TWO_LAYOUTS: Final = tuple(_SPECIFIED)
"""Versions that the specifications have in another layout than released software."""


def _refuse_encrypted(message: StreamMessage, version: int) -> None:
    if message.encryption_type != EncryptionType.NONE:
        raise _inexpressible(message, version)


def _refuse_new_key(message: StreamMessage) -> None:
    if message.encryption_type == EncryptionType.NEW_KEY_AND_AES:
        raise _inexpressible(message, 32)


def _refuse_specified(message: StreamMessage, version: int) -> None:
    """Refuse what only the specification's layout of version 32 has."""
    rotate = message.message_type == MessageType.GROUP_KEY_ROTATE
    reset = message.message_type == MessageType.GROUP_KEY_RESET
    if rotate or (reset and message.layout is Layout.SPECIFICATION):
        raise _inexpressible(message, version)


def _inexpressible(message: StreamMessage, version: int) -> CodecError:
    text = (
        f"message of type {message.message_type} and encryption {message.encryption_type}"
        f" has no form in version {version}"
    )
    return CodecError("streamr.inexpressible", text)
