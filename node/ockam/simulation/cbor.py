"""Wire messages as Ockam's nodes of 2024 write them, apart from the codec under test.

    message = [onward: route, return: route, payload: bytes, tracing: text / null]
    route   = [* [type: uint, value: bytes]]

Lengths are in their shortest form, as those nodes write them and this project's own do.
"""

from typing import Any, Final

from rillnode.codecs.errors import CodecError
from rillnode.codecs.routing.routes import Address, Route, WireMessage

UINT, BYTES, ARRAY, SIMPLE = 0, 2, 4, 7
NULL: Final = 22
IN_PLACE_MAX: Final = 23
LONGEST: Final = 27


def encode_cbor(message: WireMessage) -> bytes:
    """Encode one message."""
    routes = b"".join(map(_route, (message.onward_route, message.return_route)))
    return b"".join((_head(ARRAY, 4), routes, _bytes(message.payload), _head(SIMPLE, NULL)))


def decode_cbor(frame: bytes) -> WireMessage:
    """Decode one message.

    Raises:
        CodecError: it is none.
    """
    try:
        (onward, back, payload, _), end = _read(frame, 0)
        routes = [tuple(Address(kind, value) for kind, value in one) for one in (onward, back)]
    except (IndexError, TypeError, ValueError) as error:
        raise CodecError("codec.cbor", f"no message: {error}") from None
    if end != len(frame) or not isinstance(payload, bytes):
        raise CodecError("codec.cbor", "no message, or more than one")
    return WireMessage(routes[0], routes[1], payload)


def _head(major: int, value: int) -> bytes:
    if value <= IN_PLACE_MAX:
        return bytes((major << 5 | value,))
    power = max(0, (value.bit_length() - 1).bit_length() - 3)
    return bytes((major << 5 | IN_PLACE_MAX + 1 + power,)) + value.to_bytes(1 << power, "big")


def _bytes(value: bytes) -> bytes:
    return _head(BYTES, len(value)) + value


def _route(route: Route) -> bytes:
    hops = [_head(ARRAY, 2) + _head(UINT, hop.type) + _bytes(hop.value) for hop in route]
    return _head(ARRAY, len(hops)) + b"".join(hops)


def _read(frame: bytes, at: int) -> tuple[Any, int]:
    """Read one item; return it and the offset behind it."""
    major, value = frame[at] >> 5, frame[at] & 31
    at += 1
    if IN_PLACE_MAX < value <= LONGEST:
        size = 1 << value - IN_PLACE_MAX - 1
        value, at = int.from_bytes(frame[at : at + size], "big"), at + size
    if major == ARRAY:
        items: list[Any] = []
        for _ in range(value):
            item, at = _read(frame, at)
            items.append(item)
        return items, at
    if major == BYTES:
        if at + value > len(frame):
            raise ValueError("cut off")
        return frame[at : at + value], at + value
    if major not in (UINT, SIMPLE):
        raise ValueError(f"an item of major type {major}")
    return value, at
