"""Payload protocol `stream_admin`: what a stream's owner may ask beside using it.

Released nodes have nothing of the kind (they forget streams when they stop), so this is rillnode's
own, in the form of Ockam's other stream protocols: it is sent to the stream service, over any
link, and needs the right to administer the stream. Layout, in BARE:

    payload = { protocol: string "stream_admin", data: data }

    request = { request_id: uint, command: union {
        0 describe { stream_name: string }
        1 delete   { stream_name: string }
        2 trim     { stream_name: string, partition: uint, before: uint }
        3 retain   { stream_name: string, limits: Limits }
    } }

    response = { request_id: uint, status: enum { 0 OK, 1 ERROR }, reason: string,
                 stream: optional<Description> }

    Limits { milliseconds: optional<uint>, entries_max: optional<uint>, bytes_max: optional<uint> }
    Description { stream_name: string, created_at: uint, owner: string, limits: Limits,
                  partitions: []{ partition: uint, first_index: uint, next_index: uint,
                                  data_bytes: uint } }

Each request has one response, sent once what was asked for is durable. With OK, `reason` is empty
and `stream` tells how the stream is then; it is none after a delete. With ERROR, `reason` is one
of rillnode's error codes and `stream` is none: `stream.unknown` answers for a stream that does not
exist and for one that the asker may not administer alike. A payload that is no request is answered
with the protocol `error`, as anywhere.
"""

from typing import Final, TypeVar

from msgspec import Struct

from rillnode.codecs.bare import BigUInt, Codec, UInt
from rillnode.codecs.errors import CodecError
from rillnode.codecs.routing.stream import Status
from rillnode.codecs.varint import encode_uint, read_data

PROTOCOL: Final = "stream_admin"

T = TypeVar("T")


class Limits(Struct):
    """A stream's limits of age, and of entries and bytes of each partition; None: no limit."""

    milliseconds: UInt | None = None
    entries_max: UInt | None = None
    bytes_max: UInt | None = None


class Describe(Struct):
    """Tell about a stream."""

    stream_name: str


class Delete(Struct):
    """Remove a stream with everything in it, for ever."""

    stream_name: str


class Trim(Struct):
    """Drop a partition's entries below `before`."""

    stream_name: str
    partition: UInt
    before: UInt


class Retain(Struct):
    """Keep entries within these limits from now on."""

    stream_name: str
    limits: Limits


Command = Describe | Delete | Trim | Retain


class AdminRequest(Struct):
    """One command; `request_id` is repeated in the response and used for nothing else."""

    request_id: BigUInt
    command: Command

    @property
    def tag(self) -> str:
        """The protocol's name, which has one spelling only."""
        return PROTOCOL


class PartitionExtent(Struct):
    """The committed extent of one partition."""

    partition: UInt
    first_index: UInt
    next_index: UInt
    data_bytes: UInt


class Description(Struct):
    """A stream; `created_at` in milliseconds since 1970."""

    stream_name: str
    created_at: UInt
    owner: str
    limits: Limits
    partitions: list[PartitionExtent]


class AdminResponse(Struct):
    """The outcome of a command."""

    request_id: BigUInt
    status: Status
    reason: str = ""
    stream: Description | None = None


_REQUEST: Final = Codec(AdminRequest)
_RESPONSE: Final = Codec(AdminResponse)
_ENVELOPE: Final = encode_uint(len(PROTOCOL)) + PROTOCOL.encode()


def is_admin(payload: bytes) -> bool:
    """Whether a payload's envelope names this protocol."""
    return payload.startswith(_ENVELOPE)


def encode_request(request: AdminRequest) -> bytes:
    """Encode a request with its envelope.

    Raises:
        CodecError: a field is out of its range.
    """
    return _encode(_REQUEST.encode(request))


def encode_response(response: AdminResponse) -> bytes:
    """Encode a response with its envelope; raises as `encode_request` does."""
    return _encode(_RESPONSE.encode(response))


def decode_request(payload: bytes) -> AdminRequest:
    """Decode what came to the stream service.

    Numbers need not be minimal; bytes after the request are refused.

    Raises:
        CodecError: `codec.protocol`, another protocol; `codec.envelope`, no envelope; any other
            code, the body is malformed. `context["tag"]` is the protocol's name.
    """
    return _decode(_REQUEST, payload)


def decode_response(payload: bytes) -> AdminResponse:
    """Decode what came to a client; raises as `decode_request` does."""
    return _decode(_RESPONSE, payload)


def _encode(body: bytes) -> bytes:
    return b"".join((_ENVELOPE, encode_uint(len(body)), body))


def _decode(codec: Codec[T], payload: bytes) -> T:
    if not is_admin(payload):
        raise CodecError("codec.protocol", f"not the protocol {PROTOCOL}")
    try:
        body, stop = read_data(payload, len(_ENVELOPE), True)
    except CodecError as error:
        raise CodecError("codec.envelope", error.text, offset=error.offset, tag=PROTOCOL) from None
    if stop != len(payload):
        raise CodecError("codec.envelope", "bytes after the body", offset=stop, tag=PROTOCOL)
    try:
        message, end = codec.decode_prefix(payload, body, lenient=True)
    except CodecError as error:
        error.context["tag"] = PROTOCOL
        raise
    if end != stop:
        raise CodecError("codec.trailing", "bytes after the message", offset=end, tag=PROTOCOL)
    return message
