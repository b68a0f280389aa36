"""Wire messages as Ockam's nodes write them since 2024-06: in CBOR.

    message = [onward: route, return: route, payload: bytes, tracing: text / null]
    route   = [* [type: uint, value: bytes]]

What stands before the payload is the message's *header*, as in BARE (see `routing`). Exactly this
shape is read, in every form that CBOR has for it: padded and indefinite lengths, and without the
tracing text. The text is skipped, and null is written.

Source: RFC 8949; Ockam, Elixir `transport/tcp/transport_message` and Rust `ockam_transport_tcp`.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from rillnode.codecs.errors import CodecError
from rillnode.codecs.limits import ADDRESS_BYTES_MAX, ROUTE_HOPS_MAX, STRING_CHUNKS_MAX
from rillnode.codecs.routing.cbor_items import (
    ARRAY,
    BYTES,
    TEXT,
    UINT,
    UNTIL_BREAK,
    encode_head,
    read_head,
    take,
)
from rillnode.codecs.routing.routes import Address, Header, HeaderMemory, Route, WireMessage

_BREAK: Final = 0xFF
_NULL: Final = b"\xf6"
_MESSAGE_HEAD: Final = b"\x84"


class CborDecoder(HeaderMemory):
    """Decodes the CBOR messages of one connection, remembering the last few headers.

    Messages with equal headers share their route objects, so that `is` tells them together.
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(_read_header, _HEARTBEAT)

    def decode(self, frames: Iterable[bytes]) -> Iterator[WireMessage]:
        """Decode frames in order; messages before a malformed frame are yielded first.

        Raises:
            CodecError: `codec.truncated`; `codec.cbor`, an item is not what stands there in a
                message; `codec.limit` (hops, address size); `codec.trailing`.
        """
        make = WireMessage._make  # faster than calling the class
        header, onward_route, return_route = self._headers[0]
        for frame in frames:
            if not frame.startswith(header):
                header, onward_route, return_route = self.find(frame)
            payload, at = _read_string(frame, len(header), BYTES)
            if frame[at:] != _NULL or not frame.startswith(_MESSAGE_HEAD):
                _check_rest(frame, at)
            yield make((onward_route, return_route, payload))


def encode_header(onward_route: Route, return_route: Route) -> bytes:
    """Encode what stands before the payload, once for all messages on that way.

    Raises:
        CodecError: `codec.limit`, a route or an address over its limit; `codec.range`.
    """
    return b"".join((_MESSAGE_HEAD, *_encode_route(onward_route), *_encode_route(return_route)))


def encode_with_header(header: bytes, payload: bytes | memoryview) -> bytes:
    """Encode a message whose header is encoded already."""
    return b"".join((header, encode_head(BYTES, len(payload)), payload, _NULL))


def _encode_route(route: Route) -> list[bytes]:
    if len(route) > ROUTE_HOPS_MAX:
        raise CodecError("codec.limit", f"route has more than {ROUTE_HOPS_MAX} hops")
    parts = [encode_head(ARRAY, len(route))]
    for kind, value in route:
        if len(value) > ADDRESS_BYTES_MAX:
            raise CodecError("codec.limit", f"address has more than {ADDRESS_BYTES_MAX} bytes")
        if not 0 <= kind < 1 << 64:
            raise CodecError("codec.range", f"{kind} is no type of an address")
        parts += (
            encode_head(ARRAY, 2),
            encode_head(UINT, kind),
            encode_head(BYTES, len(value)),
            value,
        )
    return parts


def _read_string(frame: bytes, offset: int, major: int) -> tuple[bytes, int]:
    """Read bytes or a text, whole or in chunks; return them and the offset after them."""
    size, at = read_head(frame, offset, major)
    if size != UNTIL_BREAK:
        return take(frame, at, size)
    chunks: list[bytes] = []
    while not _ends(frame, at):
        if len(chunks) == STRING_CHUNKS_MAX:
            text = f"string has more than {STRING_CHUNKS_MAX:,} chunks"
            raise CodecError("codec.limit", text, offset=offset)
        size, start = read_head(frame, at, major)
        if size == UNTIL_BREAK:
            raise CodecError("codec.cbor", "a chunk has no chunks", offset=at)
        chunk, at = take(frame, start, size)
        chunks.append(chunk)
    return b"".join(chunks), at + 1


def _ends(frame: bytes, at: int) -> bool:
    """Whether a break stands here, which ends an item of indefinite length."""
    return at < len(frame) and frame[at] == _BREAK


def _read_header(frame: bytes) -> tuple[Route, Route, int]:
    """Read the message's head and routes; return the routes and the offset after them."""
    count, at = read_head(frame, 0, ARRAY)
    if count not in (3, 4, UNTIL_BREAK):
        raise CodecError("codec.cbor", f"a message has 4 items, not {count}")
    onward_route, at = _read_route(frame, at)
    return_route, at = _read_route(frame, at)
    return onward_route, return_route, at


def _read_route(frame: bytes, offset: int) -> tuple[Route, int]:
    count, at = read_head(frame, offset, ARRAY)
    hops: list[Address] = []
    while not _ends(frame, at) if count == UNTIL_BREAK else len(hops) < count:
        if len(hops) == ROUTE_HOPS_MAX:
            text = f"route has more than {ROUTE_HOPS_MAX} hops"
            raise CodecError("codec.limit", text, offset=offset)
        address, at = _read_address(frame, at)
        hops.append(address)
    return tuple(hops), at + (count == UNTIL_BREAK)


def _read_address(frame: bytes, offset: int) -> tuple[Address, int]:
    count, at = read_head(frame, offset, ARRAY)
    if count not in (2, UNTIL_BREAK):
        raise CodecError("codec.cbor", f"an address has 2 items, not {count}", offset=offset)
    kind, at = read_head(frame, at, UINT)
    value, end = _read_string(frame, at, BYTES)
    if len(value) > ADDRESS_BYTES_MAX:
        text = f"address has more than {ADDRESS_BYTES_MAX} bytes"
        raise CodecError("codec.limit", text, offset=at)
    return Address(kind, value), _read_end(frame, end) if count == UNTIL_BREAK else end


def _check_rest(frame: bytes, at: int) -> None:
    """Check what follows the payload: the tracing text or null, unless the array leaves it out."""
    count, _ = read_head(frame, 0, ARRAY)
    if count == 4 or (count == UNTIL_BREAK and not _ends(frame, at)):
        at = at + 1 if frame.startswith(_NULL, at) else _read_string(frame, at, TEXT)[1]
    if count == UNTIL_BREAK:
        at = _read_end(frame, at)
    if at != len(frame):
        raise CodecError("codec.trailing", "bytes after the message", offset=at)


def _read_end(frame: bytes, at: int) -> int:
    """Read the break of an array of indefinite length."""
    if at >= len(frame):
        raise CodecError("codec.truncated", "input ends inside an array", offset=at)
    if not _ends(frame, at):
        raise CodecError("codec.cbor", "the array has more items than it may", offset=at)
    return at + 1


_HEARTBEAT: Final[Header] = (encode_header((), ()), (), ())
"""What all connections begin with."""
