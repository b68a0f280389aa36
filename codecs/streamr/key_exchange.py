"""Key exchange: how a publisher's group keys reach a stream's subscribers.

Every Ethereum address has a key stream, `SYSTEM/keyexchange/<address in lower case>`, partition 0,
on which others address it by signed stream messages of types 28 to 32. Their contents are JSON:

    28 request     [requestId, streamId, rsaPublicKey, [groupKeyId, ..]]     to the publisher
    29 response    [requestId, streamId, [[groupKeyId, RSA hex], ..]]        to the subscriber
    30 announce    [streamId, [[groupKeyId, RSA hex], ..]]                   likewise, unasked
    31 error       [requestId, streamId, code, text, [groupKeyId, ..]]       likewise, in clear

The specification's examples write a response with one pair in place of the list of pairs, and a
reset without its stream: `[requestId, streamId, [groupKeyId, RSA hex]]`, `[groupKeyId, RSA hex]`.
Both are read.

The specification has two more. A rotation is sent on the stream that it is about, encrypted under
the key before:

    30 reset       [streamId, groupKeyId, RSA hex]
    32 rotate      [groupKeyId, key hex]

Before message version 32 the contents were objects, and keys had a time instead of an id; the key
stream is the address's inbox then, whose id is the address itself:

    28 request     {"publicKey", "streamId", "range": {"start", "end"}}
    29 response    {"streamId", "keys": [{"groupKey", "start"}, ..]}
    30 reset       {"streamId", "groupKey", "start"}
    31 error       {"code", "message"}                              from either to the other

Source: streamr-client-protocol 5.3.1 and 4.1.1, streamr-client 5.2.1 and 3.2.1; streamr-specs
a65e0f9.
"""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.ethereum import is_address, parse_address
from rillnode.codecs.streamr.json_text import Name, read_json, write_json
from rillnode.codecs.streamr.limits import STREAMR_INTEGER_MAX, STREAMR_KEY_IDS_MAX
from rillnode.codecs.streamr.stream_message import EncryptionType, MessageType

KEY_STREAM_PREFIX: Final = "SYSTEM/keyexchange/"

INVALID_REQUEST: Final = "INVALID_GROUP_KEY_REQUEST"
UNKNOWN_KEY: Final = "UNKNOWN_GROUP_KEY"
UNEXPECTED: Final = "UNEXPECTED_ERROR"
"""What an error may say; the second is rillnode's own."""


KeyIds = Annotated[tuple[str, ...], Meta(max_length=STREAMR_KEY_IDS_MAX)]
Time = Annotated[int, Meta(ge=0, le=STREAMR_INTEGER_MAX)]


class EncryptedKey(Struct, frozen=True, array_like=True):
    """A group key on its way.

    Attributes:
        text: hex of the key's 32 bytes, encrypted: by RSA in key messages, by AES in the field
            newGroupKey of stream messages.
    """

    id: str
    text: str


EncryptedKeys = Annotated[tuple[EncryptedKey, ...], Meta(max_length=STREAMR_KEY_IDS_MAX)]


class GroupKeyRequest(Struct, frozen=True, array_like=True):
    """Type 28: a subscriber asks a publisher for the keys that it lacks."""

    request_id: str
    stream_id: Name
    rsa_public_key: str
    group_key_ids: KeyIds


class GroupKeyResponse(Struct, frozen=True, array_like=True):
    """Type 29: those of the keys that the publisher has."""

    request_id: str
    stream_id: Name
    keys: EncryptedKeys


class GroupKeyAnnounce(Struct, frozen=True, array_like=True):
    """Type 30 as released: keys that nobody asked for."""

    stream_id: Name
    keys: EncryptedKeys


class GroupKeyErrorResponse(Struct, frozen=True, array_like=True):
    """Type 31: for which keys there is no response, and why."""

    request_id: str
    stream_id: Name
    code: str
    text: str
    group_key_ids: KeyIds


class GroupKeyReset(Struct, frozen=True, array_like=True):
    """Type 30 of the specification: the key that replaces all before it.

    Attributes:
        stream_id: empty where it has come without one.
        group_key: hex, encrypted by RSA.
    """

    stream_id: str
    group_key_id: str
    group_key: str


class GroupKeyRotate(Struct, frozen=True, array_like=True):
    """Type 32 of the specification: the key that follows the one that encrypts this content.

    Attributes:
        group_key: hex.
    """

    group_key_id: str
    group_key: str


class KeyRange(Struct, frozen=True):
    """From when to when, in milliseconds since 1970."""

    start: Time
    end: Time


class DatedKey(Struct, frozen=True, rename="camel"):
    """A key without an id.

    Attributes:
        group_key: hex, encrypted by RSA.
        start: since when it is used, in milliseconds since 1970.
    """

    group_key: str
    start: Time


class DatedKeyRequest(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Type 28 before version 32: the keys of a range of time, or the latest."""

    public_key: str
    stream_id: Name
    range: KeyRange | None = None


class DatedKeyResponse(Struct, frozen=True, rename="camel"):
    """Type 29 before version 32."""

    stream_id: Name
    keys: Annotated[tuple[DatedKey, ...], Meta(max_length=STREAMR_KEY_IDS_MAX)]


class DatedKeyReset(Struct, frozen=True, rename="camel"):
    """Type 30 before version 32."""

    stream_id: Name
    group_key: str
    start: Time


class DatedKeyError(Struct, frozen=True):
    """Type 31 before version 32: what was wrong with a request or a response, whichever it was."""

    code: str
    message: str


KeyContent = (
    GroupKeyRequest
    | GroupKeyResponse
    | GroupKeyAnnounce
    | GroupKeyErrorResponse
    | GroupKeyReset
    | GroupKeyRotate
    | DatedKeyRequest
    | DatedKeyResponse
    | DatedKeyReset
    | DatedKeyError
)

_ARRAYS: Final[dict[int, type[KeyContent]]] = {
    MessageType.GROUP_KEY_REQUEST: GroupKeyRequest,
    MessageType.GROUP_KEY_RESPONSE: GroupKeyResponse,
    MessageType.GROUP_KEY_ANNOUNCE: GroupKeyAnnounce,
    MessageType.GROUP_KEY_ERROR_RESPONSE: GroupKeyErrorResponse,
    MessageType.GROUP_KEY_ROTATE: GroupKeyRotate,
}
_OBJECTS: Final[dict[int, type[KeyContent]]] = {
    MessageType.GROUP_KEY_REQUEST: DatedKeyRequest,
    MessageType.GROUP_KEY_RESPONSE: DatedKeyResponse,
    MessageType.GROUP_KEY_ANNOUNCE: DatedKeyReset,
    MessageType.GROUP_KEY_ERROR_RESPONSE: DatedKeyError,
}
_TYPES: Final[dict[type[KeyContent], int]] = {
    **{kind: number for table in (_OBJECTS, _ARRAYS) for number, kind in table.items()},
    GroupKeyReset: MessageType.GROUP_KEY_RESET,
}
_ENCRYPTED_TYPES: Final = (MessageType.GROUP_KEY_RESPONSE, MessageType.GROUP_KEY_ANNOUNCE)

_CONTENT: Final[msgspec.json.Decoder[list[Any] | dict[str, Any]]] = msgspec.json.Decoder(
    list[Any] | dict[str, Any]
)
_ENCRYPTED_KEY: Final = msgspec.json.Decoder(EncryptedKey)


def decode_key_content(message_type: int, content: str) -> KeyContent:
    """Decode the content of a key message, in clear; elements beyond the known are ignored.

    Raises:
        CodecError: as `read_json`; `key.type`, no such message; `codec.field`.
    """
    value = read_json(_CONTENT, content)
    kind = (_OBJECTS if isinstance(value, dict) else _ARRAYS).get(message_type)
    if kind is None:
        raise CodecError("key.type", f"no such content in messages of type {message_type}")
    match value:
        case [_, _, [str(), str()] as pair, *_] if kind is GroupKeyResponse:
            value[2] = [pair]
        case [str(), str()] if kind is GroupKeyAnnounce:
            kind, value = GroupKeyReset, ["", *value]
        case ["", str(), *_] if kind is GroupKeyAnnounce:
            raise CodecError("codec.field", "GroupKeyReset: the stream's id is empty")
        case [_, str(), *_] if kind is GroupKeyAnnounce:
            kind = GroupKeyReset
        case _:
            pass
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise CodecError("codec.field", f"{kind.__name__}: {error}") from None


def encode_key_content(content: KeyContent) -> str:
    """Encode the content of a key message.

    Raises:
        CodecError: `codec.utf8`.
    """
    return write_json(content)


def types_of(content: KeyContent) -> tuple[int, int]:
    """The type of the message that a content is for, and the type of its encryption.

    RSA stands for a content in clear with keys that are encrypted by it. A rotation is in clear
    here; it is sent encrypted.
    """
    message_type = _TYPES[type(content)]
    is_encrypted = message_type in _ENCRYPTED_TYPES
    return message_type, int(EncryptionType.RSA if is_encrypted else EncryptionType.NONE)


def decode_encrypted_key(text: str) -> EncryptedKey:
    """Decode the field newGroupKey of a stream message: `[groupKeyId, AES hex]`.

    Raises:
        CodecError: as `read_json`.
    """
    return read_json(_ENCRYPTED_KEY, text)


def encode_encrypted_key(key: EncryptedKey) -> str:
    """Encode the field newGroupKey of a stream message.

    Raises:
        CodecError: `codec.utf8`.
    """
    return write_json(key)


def key_stream_of(address: str) -> str:
    """The stream on which an address is sent keys, and asked for them.

    Raises:
        CodecError: `ethereum.address`.
    """
    return KEY_STREAM_PREFIX + parse_address(address)


def is_key_stream(stream_id: str) -> bool:
    """Whether the stream is for key exchange: open to all, and never stored."""
    return stream_id.startswith(KEY_STREAM_PREFIX) or is_address(stream_id)


def owner_of(key_stream: str) -> str:
    """The address that a key stream is of, as it is written there."""
    return key_stream.removeprefix(KEY_STREAM_PREFIX)
