"""The wire messages of one link, read and written as its frames hold them: in BARE or in CBOR."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, Protocol

from rillnode.codecs.links import WireFormat
from rillnode.codecs.routing import cbor_message, routes as routing
from rillnode.codecs.routing.cbor_items import BYTES, encode_head
from rillnode.codecs.routing.routes import Route, WireMessage
from rillnode.codecs.varint import uint_bytes

_MESSAGE_BYTES: Final = 11
"""What CBOR writes around both routes and the payload, each length in its longest form. BARE, which
writes less everywhere, has 8."""

_HOP_BYTES: Final = 13
"""What CBOR writes beside an address's value, with a type of 64 bits; BARE has 12."""


class WireCodec(Protocol):
    """A connection's codec of messages; `routing` and `cbor_message` say what is raised."""

    def decode(self, frames: Iterable[bytes], /) -> Iterator[WireMessage]:
        """Frames to messages; those before a malformed frame come first."""
        ...

    def encode_header(self, onward_route: Route, return_route: Route, /) -> bytes:
        """Onward and return route to what stands before the payload."""
        ...

    def encode_with_header(self, header: bytes, payload: bytes | memoryview, /) -> bytes:
        """That and a payload to a whole message."""
        ...

    def encode(self, message: WireMessage, /) -> bytes:
        """Encode one message that comes alone."""
        ...


# One object does both ways: each connection has one.


class _BareCodec(routing.WireDecoder):
    __slots__ = ()

    encode_header = staticmethod(routing.encode_header)
    encode_with_header = staticmethod(routing.encode_with_header)

    def encode(self, message: WireMessage, /) -> bytes:
        return routing.encode_message(*message)


class _CborCodec(cbor_message.CborDecoder):
    __slots__ = ()

    encode_header = staticmethod(cbor_message.encode_header)
    encode_with_header = staticmethod(cbor_message.encode_with_header)

    def encode(self, message: WireMessage, /) -> bytes:
        header = self.encode_header(message.onward_route, message.return_route)
        return self.encode_with_header(header, message.payload)


def wire_codec(wire_format: WireFormat, *, strict: bool = False) -> WireCodec:
    """A codec for one connection; `strict` is of the BARE form (see `WireDecoder`)."""
    return _BareCodec(strict=strict) if wire_format == "bare" else _CborCodec()


def message_bytes(
    wire_format: WireFormat, onward_route: Route, return_route: Route, payload_bytes: int
) -> int:
    """Size of a message with so large a payload, exactly; raises as `encode_header` does."""
    if wire_format == "bare":
        header = routing.encode_header(onward_route, return_route)
        return len(header) + uint_bytes(payload_bytes) + payload_bytes
    header = cbor_message.encode_header(onward_route, return_route)
    return len(header) + len(encode_head(BYTES, payload_bytes)) + payload_bytes + 1


def overhead_bytes_max(onward_route: Route, return_route: Route) -> int:
    """What a message takes at most beside its payload, in whatever form its link writes it."""
    hops = chain(onward_route, return_route)
    return _MESSAGE_BYTES + sum(_HOP_BYTES + len(address.value) for address in hops)
