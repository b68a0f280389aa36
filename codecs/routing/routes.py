"""Ockam routing: addresses, routes and wire messages.

    Address { type: uint, value: data }         Route []Address
    Message { version: uint, onward_route: Route, return_route: Route, payload: data }

The notation is BARE's. Version 1 is written; version 2 adds `tracing_context: optional<string>` at
the end. What stands before the payload is the message's *header*. It ends itself, so messages
that begin with the same header's bytes have the same routes, and most messages of a connection
do: `WireDecoder` and `encode_header` handle a header once for all of them.

Source: ockam-network/proposals, design 0009; nodes released from 2021-02 to 2024-06 (u16 frames).
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, cast

from rillnode.codecs.errors import CodecError
from rillnode.codecs.limits import ADDRESS_BYTES_MAX, ROUTE_HOPS_MAX
from rillnode.codecs.varint import SMALL, SMALL_UINTS, encode_uint, read_data, read_uint

WIRE_VERSION: Final = 1

LOCAL: Final = 0
TCP: Final = 1
UDP: Final = 2
"""Types of addresses. A local one's value is a worker's name, the others' is `host:port`."""

_HEADERS_KEPT: Final = 4
_HEADERS_SHARED: Final = 64
_HEADER_KEPT_BYTES_MAX: Final = 4_096
"""What a connection may cost in remembered headers: four times this, and the routes read."""

_SEPARATOR: Final = re.compile(";|=>")
_TYPE: Final = re.compile("[0-9]{1,20}")


class Address(NamedTuple):
    """One hop of a route: hashable, and as cheap as a tuple.

    Attributes:
        type: 0 of what is on the node itself; others are those of transports.
        value: the address's bytes.
    """

    type: int
    value: bytes

    def __str__(self) -> str:
        return f"{self.type}#{self.value.decode('utf-8', 'backslashreplace')}"


Route = tuple[Address, ...]


class WireMessage(NamedTuple):
    """One routed message."""

    onward_route: Route
    return_route: Route
    payload: bytes


_Parts = tuple[Route, Route, bytes]

make_message: Final = cast(
    Callable[[_Parts], WireMessage], partial(cast(Any, tuple).__new__, WireMessage)
)
"""Makes a WireMessage of a tuple of its parts, in half the time of calling the class."""


def local(name: str | bytes) -> Address:
    """The address of a worker on the node that the route has led to; see `utf8`."""
    return Address(LOCAL, utf8(name) if isinstance(name, str) else name)


def utf8(text: str) -> bytes:
    """A text that becomes part of an address.

    Raises:
        CodecError: `codec.utf8`.
    """
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise CodecError("codec.utf8", f"{text[:64]!a} has no UTF-8 form") from None


def parse_route(text: str) -> Route:
    """Read a route from text: `1#host:4000;0#echo` or `a => b`; without `#` the type is 0.

    Raises:
        CodecError: `route.text`, a hop without a value or with a type that is no number;
            `codec.limit`, `codec.range`, `codec.utf8`. The offset counts hops.
    """
    hops: list[Address] = []
    for nth, hop in enumerate(_SEPARATOR.split(text) if text.strip() else ()):
        kind, sharp, value = hop.strip().partition("#")
        if not sharp:
            kind, value = str(LOCAL), kind
        if not value or not _TYPE.fullmatch(kind):
            raise CodecError("route.text", f"{hop!r} is not an address", offset=nth)
        try:
            hops.append(Address(int(kind), value.encode()))
        except UnicodeEncodeError:
            raise CodecError("codec.utf8", f"{hop!r} has no UTF-8 form", offset=nth) from None
    route = tuple(hops)
    _encode_route(route)
    return route


def format_route(route: Route) -> str:
    """Write a route as text: `1#host:4000;0#echo`."""
    return ";".join(map(str, route))


Header = tuple[bytes, Route, Route]
"""A header as it is written, and the onward and the return route that it says."""


@lru_cache(_HEADERS_SHARED)
def _shared(header: Header) -> Header:
    """Headers that are equal are one object: over a link between nodes come the same few."""
    return header


class HeaderMemory:
    """The last few headers of one connection, so that an equal one is not read again.

    Args:
        read: reads the header that a message begins with: both routes, and the offset after it.
        first: what to begin with: a header and its routes.
    """

    __slots__ = ("_headers", "_read")

    def __init__(self, read: Callable[[bytes], tuple[Route, Route, int]], first: Header) -> None:
        self._read = read
        self._headers: tuple[Header, ...] = (first,)  # latest first

    def find(self, frame: bytes) -> Header:
        """The header that `frame` begins with; raises as `read` does."""
        headers = self._headers
        for nth, entry in enumerate(headers):
            if frame.startswith(entry[0]):
                self._headers = (entry, *headers[:nth], *headers[nth + 1 :])
                return entry
        onward_route, return_route, end = self._read(frame)
        entry = (frame[:end], onward_route, return_route)
        if end <= _HEADER_KEPT_BYTES_MAX:
            entry = _shared(entry)
            self._headers = (entry, *headers[: _HEADERS_KEPT - 1])
        return entry


class WireDecoder(HeaderMemory):
    """Decodes the wire messages of one connection, remembering the last few headers.

    Messages with equal headers share their route objects, so that `is` tells them together.

    Args:
        strict: refuse other versions than 1, bytes after the payload and numbers that are not
            minimal; else take them, as nodes of 2021 do.
    """

    __slots__ = ("_strict",)

    def __init__(self, *, strict: bool = False) -> None:
        super().__init__(_READERS[strict], _HEARTBEAT)
        self._strict = strict

    def decode(self, frames: Iterable[bytes]) -> Iterator[WireMessage]:
        """Decode frames in order; messages before a malformed frame are yielded first.

        Raises:
            CodecError: `codec.truncated`, `codec.varint`, `codec.limit` (hops, address size), and
                if strict `codec.version` and `codec.trailing`.
        """
        strict, make = self._strict, make_message
        header, onward_route, return_route = self._headers[0]
        for frame in frames:
            if not frame.startswith(header):
                header, onward_route, return_route = self.find(frame)
            start, end = read_data(frame, len(header), not strict)
            if strict and end != len(frame):
                raise CodecError("codec.trailing", "bytes after the payload", offset=end)
            yield make((onward_route, return_route, frame[start:end]))


def decode_message(frame: bytes, *, strict: bool = False) -> WireMessage:
    """Decode one message that comes alone; raises as `WireDecoder.decode` does."""
    (message,) = WireDecoder(strict=strict).decode((frame,))
    return message


def encode_header(onward_route: Route, return_route: Route) -> bytes:
    """Encode what stands before the payload, once for all messages on that way.

    Raises:
        CodecError: `codec.limit`, a route or an address over its limit; `codec.range`.
    """
    version = SMALL_UINTS[WIRE_VERSION]
    return b"".join((version, *_encode_route(onward_route), *_encode_route(return_route)))


def encode_with_header(header: bytes, payload: bytes | memoryview) -> bytes:
    """Encode a message whose header is encoded already."""
    size = len(payload)
    length = SMALL_UINTS[size] if size < SMALL else encode_uint(size)
    return b"".join((header, length, payload))


def encode_message(onward_route: Route, return_route: Route, payload: bytes | memoryview) -> bytes:
    """Encode a message, version 1; raises as `encode_header` does."""
    return encode_with_header(encode_header(onward_route, return_route), payload)


def _encode_route(route: Route) -> list[bytes]:
    if len(route) > ROUTE_HOPS_MAX:
        raise CodecError("codec.limit", f"route has more than {ROUTE_HOPS_MAX} hops")
    parts = [SMALL_UINTS[len(route)]]
    for kind, value in route:
        if len(value) > ADDRESS_BYTES_MAX:
            raise CodecError("codec.limit", f"address has more than {ADDRESS_BYTES_MAX} bytes")
        parts += (encode_uint(kind), SMALL_UINTS[len(value)], value)
    return parts


def _read_header(frame: bytes, strict: bool) -> tuple[Route, Route, int]:
    """Read version and routes; return the routes and the offset after them."""
    version, offset = read_uint(frame, 0, not strict)
    if strict and version != WIRE_VERSION:
        raise CodecError("codec.version", f"version is not {WIRE_VERSION}")
    onward_route, offset = _read_route(frame, offset, strict)
    return_route, offset = _read_route(frame, offset, strict)
    return onward_route, return_route, offset


def _read_route(frame: bytes, offset: int, strict: bool) -> tuple[Route, int]:
    count, at = read_uint(frame, offset, not strict)
    if count > ROUTE_HOPS_MAX:
        raise CodecError("codec.limit", f"route has more than {ROUTE_HOPS_MAX} hops", offset=offset)
    hops: list[Address] = []
    for _ in range(count):
        kind, at = read_uint(frame, at, not strict)
        start, end = read_data(frame, at, not strict)
        if end - start > ADDRESS_BYTES_MAX:
            text = f"address has more than {ADDRESS_BYTES_MAX} bytes"
            raise CodecError("codec.limit", text, offset=at)
        hops.append(Address(kind, frame[start:end]))
        at = end
    return tuple(hops), at


# Shared by all connections.
_READERS: Final = {strict: partial(_read_header, strict=strict) for strict in (False, True)}
_HEARTBEAT: Final[Header] = (encode_header((), ()), (), ())
