"""Keys and headers of entries: what may be one, and how headers are written down.

A key says what an entry is about; entries with one key are in one partition, in their order.
Headers are a few named values beside the data, as HTTP and Kafka have them:

    headers = MessagePack: a map of at most HEADERS_MAX names (str) to values (bin)

It is MessagePack because the node has to look at each name that comes from outside, thousands in a
turn: its decoder needs a fifteenth of the time of one in Python.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any, Final
from zlib import crc32

import msgspec

from rillnode.codecs.errors import CodecError, RequestError
from rillnode.codecs.limits import (
    HEADER_NAME_CHARS_MAX,
    HEADERS_BYTES_MAX,
    HEADERS_MAX,
    KEY_BYTES_MAX,
)

Key = bytes | str
"""What a key may be given as; a text stands for its UTF-8 bytes."""

Headers = Mapping[str, bytes | str]
"""What headers may be given as; a text stands for its UTF-8 bytes."""

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(dict[str, bytes])


def partition_of(key: bytes, partitions: int) -> int:
    """The partition that entries with a key belong to: the key's CRC-32, modulo their number."""
    return crc32(key) % partitions


def encode_key(key: Key) -> bytes:
    """A key as it is stored.

    Raises:
        ArgumentError: it is neither bytes nor text.
        CodecError: `entries.key`, it is too large, or a text without a UTF-8 form.
    """
    encoded = _encode(key, "a key", "entries.key")
    check_key_size(len(encoded))
    return encoded


def check_key_size(size: int) -> None:
    """Check that a key is within its limit.

    Raises:
        CodecError: `entries.key`, it is not.
    """
    if size > KEY_BYTES_MAX:
        raise CodecError("entries.key", f"a key has at most {KEY_BYTES_MAX} bytes, not {size}")


def encode_headers(headers: Headers) -> bytes:
    """Headers as they are stored; none are no bytes.

    Raises:
        ArgumentError: a value is neither bytes nor text, or they are no mapping.
        CodecError: `entries.header_name`, a name is no text of 1 to `HEADER_NAME_CHARS_MAX`
            characters; `entries.headers`, there are too many, or more than `HEADERS_BYTES_MAX`
            bytes of them, or a value is a text without a UTF-8 form.
    """
    _check_mapping(headers)
    if not headers:
        return b""
    _check_count(len(headers))
    for name in headers:
        _check_name(name)
    values = {
        name: _encode(value, "a header's value", "entries.headers")
        for name, value in headers.items()
    }
    encoded = _ENCODER.encode(values)
    check_headers_size(len(encoded))
    return encoded


def decode_headers(encoded: bytes) -> dict[str, bytes]:
    """The headers of a checked entry.

    Raises:
        CodecError: `entries.header_name` or `entries.headers`, they are damaged.
    """
    return _decode(encoded) if encoded else {}


def check_headers(encoded: Iterable[bytes]) -> None:
    """Check headers of entries from outside, of each at most `HEADERS_BYTES_MAX` bytes.

    Raises:
        CodecError: as `encode_headers`; `entries.headers`, they are no headers at all.
    """
    found = [_decode(one) for one in encoded if one]
    _check_count(max(map(len, found), default=0))
    for name in set[str]().union(*found):
        _check_name(name)


def check_headers_size(size: int) -> None:
    """Check that an entry's headers are within their limit.

    Raises:
        CodecError: `entries.headers`, they are not.
    """
    if size > HEADERS_BYTES_MAX:
        raise CodecError(
            "entries.headers",
            f"an entry's headers have at most {HEADERS_BYTES_MAX} bytes together, not {size}",
        )


def told(key: bytes | None, headers: Mapping[str, bytes]) -> dict[str, Any]:
    """A key and headers as JSON documents tell them, only what there is.

    What is UTF-8 is `key` and in `headers`; other bytes are `key_base64` and in `headers_base64`.
    """
    document: dict[str, Any] = {}
    if key is not None:
        form, text = _told(key)
        document[f"key{form}"] = text
    for name, value in headers.items():
        form, text = _told(value)
        document.setdefault(f"headers{form}", {})[name] = text
    return document


def _told(value: bytes) -> tuple[str, str]:
    try:
        return "", value.decode()
    except UnicodeDecodeError:
        return "_base64", b64encode(value).decode()


def _encode(value: object, what: str, code: str) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        text = f"{what} is bytes or text, not {type(value).__name__}"
        raise RequestError("client.argument", text)
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise CodecError(code, f"{what} is a text that has no UTF-8 form") from None


def _check_mapping(headers: object) -> None:
    if not isinstance(headers, Mapping):
        text = f"headers are a mapping of names to values, not {type(headers).__name__}"
        raise RequestError("client.argument", text)


def _check_count(count: int) -> None:
    if count > HEADERS_MAX:
        raise CodecError("entries.headers", f"an entry has at most {HEADERS_MAX} headers")


def _decode(encoded: bytes) -> dict[str, bytes]:
    try:
        return _DECODER.decode(encoded)
    except UnicodeDecodeError:
        raise _no_name() from None
    except msgspec.DecodeError as error:
        if "`key`" in str(error):  # which is not the type of a name
            raise _no_name() from None
        raise CodecError("entries.headers", f"no headers of an entry: {error}") from None


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= HEADER_NAME_CHARS_MAX:
        raise _no_name()
    try:
        name.encode()
    except UnicodeEncodeError:
        raise _no_name() from None


def _no_name() -> CodecError:
    return CodecError(
        "entries.header_name",
        f"a header's name is a text of 1 to {HEADER_NAME_CHARS_MAX} characters",
    )
