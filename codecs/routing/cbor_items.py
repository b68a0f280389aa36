"""CBOR's items, as far as Ockam's messages and the requests to a node's interfaces have them.

Source: RFC 8949, section 3.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from rillnode.codecs.errors import CodecError

CborValue = int | bytes | str | bool | None
Value = int | bytes | str | Mapping[str, "Value"]

UINT: Final = 0
BYTES: Final = 2
TEXT: Final = 3
ARRAY: Final = 4
MAP: Final = 5
SIMPLE: Final = 7

UNTIL_BREAK: Final = -1
"""Stands for the number of an item that goes on until a break."""

_INDEFINITE: Final = 31
_ITEMS: Final = {
    UINT: "a number",
    BYTES: "bytes",
    TEXT: "a text",
    ARRAY: "an array",
    MAP: "a map",
    SIMPLE: "a simple value",
}
_SIMPLE: Final[dict[int, bool | None]] = {20: False, 21: True, 22: None}
_MAP_ITEMS_MAX: Final = 64
"""Own choice: headers have four or five."""


def encode_head(major: int, argument: int) -> bytes:
    """Encode an item's head: its major type and argument, the latter below 2**64, minimally."""
    if argument < 24:
        return bytes((major << 5 | argument,))
    power = 0 if argument < 1 << 8 else 1 if argument < 1 << 16 else 2 if argument < 1 << 32 else 3
    return bytes((major << 5 | 24 + power,)) + argument.to_bytes(1 << power, "big")


def encode_text(text: str) -> bytes:
    """Encode a text."""
    data = text.encode()
    return encode_head(TEXT, len(data)) + data


def encode_array(items: Iterable[bytes]) -> bytes:
    """Encode an array of encoded items."""
    parts = list(items)
    return b"".join((encode_head(ARRAY, len(parts)), *parts))


def encode_value(value: "Value") -> bytes:
    """Encode a number from 0 on, bytes, a text, or a map of texts to such."""
    match value:
        case int():
            return encode_head(UINT, value)
        case str():
            return encode_text(value)
        case bytes():
            return encode_head(BYTES, len(value)) + value
        case _:
            parts = (encode_text(name) + encode_value(one) for name, one in value.items())
            return encode_head(MAP, len(value)) + b"".join(parts)


def read_head(data: bytes, at: int, major: int) -> tuple[int, int]:
    """Read the head of an item of type `major`: its number, and the offset after the head.

    The number is UNTIL_BREAK where the item is of indefinite length, which no number is.

    Raises:
        CodecError: `codec.truncated`; `codec.cbor`, the item is of another type.
    """
    try:
        first = data[at]
    except IndexError:
        raise CodecError("codec.truncated", "input ends between items", offset=at) from None
    short = first & 31
    reserved = 27 < short < _INDEFINITE or (short == _INDEFINITE and major == UINT)
    if first >> 5 != major or reserved:
        raise CodecError("codec.cbor", f"{_ITEMS[major]} is expected", offset=at)
    if short < 24:
        return short, at + 1
    if short == _INDEFINITE:
        return UNTIL_BREAK, at + 1
    end = at + 1 + (1 << short - 24)
    if end > len(data):
        raise CodecError("codec.truncated", "input ends inside a head", offset=len(data))
    return int.from_bytes(data[at + 1 : end]), end


def take(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    """The next `size` bytes, and the offset after them.

    Raises:
        CodecError: `codec.truncated`.
    """
    end = at + size
    if end > len(data):
        raise CodecError("codec.truncated", "input ends inside a string", offset=len(data))
    return data[at:end], end


def read_map(data: bytes, offset: int) -> tuple[dict[int, CborValue], int]:
    """Read a map; return it and the offset after it.

    Its keys are numbers; its values are numbers, byte strings, texts, booleans and null, all of
    definite length: nothing nests, so nothing recurses.

    Raises:
        CodecError: `codec.truncated`, `codec.limit` (over 64 pairs), `codec.map` (a key stands
            twice), `codec.utf8`, and `codec.cbor` for any item that is not of the kinds above.
    """
    count, at = _read_definite(data, offset, MAP)
    if count > _MAP_ITEMS_MAX:
        raise CodecError("codec.limit", f"a map has at most {_MAP_ITEMS_MAX} pairs", offset=offset)
    found: dict[int, CborValue] = {}
    for _ in range(count):
        key, end = read_head(data, at, UINT)
        if key in found:
            raise CodecError("codec.map", "a key stands twice", offset=at)
        found[key], at = _read_value(data, end)
    return found, at


def _read_value(data: bytes, offset: int) -> tuple[CborValue, int]:
    major = data[offset] >> 5 if offset < len(data) else UINT  # whose head is missing, then
    if major not in (UINT, BYTES, TEXT, SIMPLE):
        raise CodecError("codec.cbor", "an item of another kind", offset=offset)
    argument, at = _read_definite(data, offset, major)
    if major == UINT:
        return argument, at
    if major == SIMPLE:
        if argument not in _SIMPLE or at != offset + 1:
            raise CodecError("codec.cbor", "an item of another kind", offset=offset)
        return _SIMPLE[argument], at
    value, end = take(data, at, argument)
    if major == BYTES:
        return value, end
    try:
        return value.decode(), end
    except UnicodeDecodeError as error:
        raise CodecError("codec.utf8", "no text", offset=at + error.start) from None


def _read_definite(data: bytes, offset: int, major: int) -> tuple[int, int]:
    number, at = read_head(data, offset, major)
    if number == UNTIL_BREAK:
        raise CodecError("codec.cbor", "an item without a definite length", offset=offset)
    return number, at
