"""Bodies of requests to Streamr's REST interface.

A reader takes what real clients send: whole objects with more in them than is asked for, absent
values as null, integers as JavaScript has them, with or without a content type.
"""

from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from rillnode.codecs.streamr.json_text import Number, check_value, read_json, text_of, whole

_Text = Annotated[str, Meta(max_length=65_536)]


class OpenedChallenge(Struct):
    """The challenge as it was given out; only its id says anything."""

    id: _Text


class ChallengeResponse(Struct):
    """POST /login/response."""

    challenge: OpenedChallenge
    signature: _Text
    address: _Text


class ApiKeyLogin(Struct, rename="camel"):
    """POST /login/apikey."""

    api_key: _Text


class PermissionBody(Struct):
    """POST /streams/{id}/permissions: for a user, or for everybody."""

    operation: _Text
    user: _Text | None = None
    anonymous: bool | None = None


class StorageNodeBody(Struct):
    """POST /streams/{id}/storageNodes."""

    address: _Text


class StreamBody(Struct, rename="camel"):
    """POST /streams and PUT /streams/{id}: what is null or absent is left as it is.

    Attributes:
        config: an object; its text is kept as it stands.
    """

    id: _Text | None = None
    name: _Text | None = None
    description: _Text | None = None
    partitions: Number | None = None
    config: Raw | UnsetType = UNSET
    require_signed_data: bool | None = None
    require_encrypted_data: bool | None = None
    auto_configure: bool | None = None
    storage_days: Number | None = None
    inactivity_threshold_hours: Number | None = None


_CHALLENGE_RESPONSE: Final = msgspec.json.Decoder(ChallengeResponse)
_API_KEY_LOGIN: Final = msgspec.json.Decoder(ApiKeyLogin)
_PERMISSION: Final = msgspec.json.Decoder(PermissionBody)
_STORAGE_NODE: Final = msgspec.json.Decoder(StorageNodeBody)
_STREAM: Final = msgspec.json.Decoder(StreamBody)
_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw])


def read_challenge_response(body: bytes) -> ChallengeResponse:
    """Read a signed challenge; raises as `read_json`."""
    return read_json(_CHALLENGE_RESPONSE, text_of(body))


def read_api_key(body: bytes) -> str:
    """Read a login by API key; raises as `read_json`."""
    return read_json(_API_KEY_LOGIN, text_of(body)).api_key


def read_permission(body: bytes) -> PermissionBody:
    """Read a permission to be given; raises as `read_json`."""
    return read_json(_PERMISSION, text_of(body))


def read_storage_node(body: bytes) -> str:
    """Read the address of a node that is to store a stream; raises as `read_json`."""
    return read_json(_STORAGE_NODE, text_of(body)).address


def read_stream(body: bytes) -> StreamBody:
    """Read what a stream shall be like; raises as `read_json`."""
    stream = read_json(_STREAM, text_of(body))
    for name in ("partitions", "storage_days", "inactivity_threshold_hours"):
        number = getattr(stream, name)
        if number is not None:
            setattr(stream, name, whole(number, name))
    if stream.config is not UNSET:
        if bytes(stream.config) == b"null":
            stream.config = UNSET
        else:
            read_json(_OBJECT, bytes(stream.config))
    return stream


def read_content(body: bytes) -> str:
    """The text of a message's content, any JSON, as it stands; raises as `read_json`."""
    text = str(text_of(body))
    check_value(text)
    return text
