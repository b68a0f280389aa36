"""The wire messages of one link, read and written as its frames hold them: in BARE or in CBOR."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from rillnode.codecs.links import WireFormat
from rillnode.codecs.ockam import cbor_message, routing
from rillnode.codecs.ockam.routing import Route, WireMessage

_MESSAGE_BYTES: Final = 11
"""What CBOR writes around both routes and the payload, each length in its longest form. BARE, which
writes less everywhere, has 8."""

_HOP_BYTES: Final = 13
"""What CBOR writes beside an address's value, with a type of 64 bits; BARE has 12."""


class WireCodec(NamedTuple):
    """What a connection does with messages; see `routing` and `cbor_message` for what is raised.

    Attributes:
        decode: frames to messages; those before a malformed frame come first.
        encode_header: onward and return route to what stands before the payload.
        encode_with_header: that and a payload to a whole message.
    """

    decode: Callable[[Iterable[bytes]], Iterator[WireMessage]]
    encode_header: Callable[[Route, Route], bytes]
    encode_with_header: Callable[[bytes, bytes | memoryview], bytes]

    def encode(self, message: WireMessage) -> bytes:
        """Encode one message that comes alone."""
        header = self.encode_header(message.onward_route, message.return_route)
        return self.encode_with_header(header, message.payload)


def wire_codec(wire_format: WireFormat, *, strict: bool = False) -> WireCodec:
    """A codec for one connection; `strict` is of the BARE form (see `WireDecoder`)."""
    if wire_format == "bare":
        decode = routing.WireDecoder(strict=strict).decode
        return WireCodec(decode, routing.encode_header, routing.encode_with_header)
    decode = cbor_message.CborDecoder().decode
    return WireCodec(decode, cbor_message.encode_header, cbor_message.encode_with_header)


def overhead_bytes_max(onward_route: Route, return_route: Route) -> int:
    """What a message takes at most beside its payload, in whatever form its link writes it."""
    hops = chain(onward_route, return_route)
    return _MESSAGE_BYTES + sum(_HOP_BYTES + len(address.value) for address in hops)
