"""Payload protocols of Ockam's stream, index and subscription services.

    payload = { protocol: string, data: data }      data = that protocol's request or response

| protocol | request | response |
|---|---|---|
| `stream_create` | CreateRequest | CreateResponse |
| `stream_create_partitioned` | CreatePartitionedRequest | CreatePartitionedResponse, one each |
| `stream_push` | PushRequest | PushConfirm |
| `stream_pull` | PullRequest | PullResponse |
| `stream_index` | GetIndexRequest | IndexResponse |
| | SaveIndexRequest | none |
| `stream_index_partitioned` | GetPartitionIndexRequest | PartitionIndexResponse |
| | SavePartitionIndexRequest | none |
| `binary` | BinaryRequest | none |
| `stream_bidirectional` | BidirectionalRequest | none |
| `stream_bidirectional_publisher` | BidirectionalPublisherRequest | any payload |
| `error` | | ErrorResponse, to any request |

Released nodes use these names, and a message's direction follows from its receiver's role. The
specification also writes `stream_push:request` and `stream_push:response`, calls the second
protocol `stream_create_partitions`, and gives partitioned indexes the name `stream_index`. All of
these are read: `tag` holds the spelling received, `response_tag` says how to spell the answer,
and `stream_index` is read as partitioned only when its plain reading does not fit, so that
partition 1 without an index is read as index 0 of the plain form.

Messages are plain dataclasses for speed; nothing changes one after it was made.

Source: ockam-network/proposals, design 0009; the Elixir nodes of 2021-05 to 2024-10.
"""

from enum import IntEnum
from typing import Annotated, Any, Final

from msgspec import Struct

from rillnode.codecs.bare import LOCAL, BigUInt, Codec, DecodePrefix, UInt
from rillnode.codecs.errors import CodecError
from rillnode.codecs.varint import encode_uint, read_data, uint_bytes

Tag = Annotated[str, LOCAL]
"""The protocol's name in the spelling received or to be sent."""


class Status(IntEnum):
    """The outcome of a push: durable or not."""

    OK = 0
    ERROR = 1


class CreateRequest(Struct):
    """Create a stream or find it by name; without a name the service makes one up."""

    stream_name: str | None
    tag: Tag = "stream_create"


class CreatePartitionedRequest(Struct):
    """Create a stream of so many partitions, or find it; each partition answers."""

    stream_name: str | None
    partitions: UInt
    tag: Tag = "stream_create_partitioned"


class PushRequest(Struct):
    """Append `data`; `request_id` is repeated in the confirm and used for nothing else."""

    request_id: BigUInt
    data: bytes
    tag: Tag = "stream_push"


class PullRequest(Struct):
    """Read at most `limit` entries from `index` on."""

    request_id: BigUInt
    index: UInt
    limit: UInt
    tag: Tag = "stream_pull"


class GetIndexRequest(Struct):
    """Ask for a consumer's saved index."""

    client_id: str
    stream_name: str
    tag: Tag = "stream_index"


class SaveIndexRequest(Struct):
    """Save a consumer's index: by custom the next to read. There is no answer."""

    client_id: str
    stream_name: str
    index: UInt
    tag: Tag = "stream_index"


class GetPartitionIndexRequest(Struct):
    """Ask for a consumer's saved index in one partition."""

    client_id: str
    stream_name: str
    partition: UInt
    tag: Tag = "stream_index_partitioned"


class SavePartitionIndexRequest(Struct):
    """Save a consumer's index in one partition. There is no answer."""

    client_id: str
    stream_name: str
    partition: UInt
    index: UInt
    tag: Tag = "stream_index_partitioned"


class BinaryRequest(Struct):
    """Bytes for whoever listens at the address."""

    data: bytes
    tag: Tag = "binary"


class BidirectionalRequest(Struct):
    """Ask the subscription service to consume a stream of bi-directional items."""

    stream_name: str
    subscription_id: str
    tag: Tag = "stream_bidirectional"


class BidirectionalPublisherRequest(Struct):
    """Ask for a publisher of bi-directional items; its address is the answer's return route."""

    publisher_stream: str
    consumer_stream: str
    subscription_id: str
    tag: Tag = "stream_bidirectional_publisher"


class CreateResponse(Struct):
    """A stream is there (the specification's INIT): the return route is its address."""

    stream_name: str
    tag: Tag = "stream_create"


class CreatePartitionedResponse(Struct):
    """One partition is there; the return route is its address."""

    stream_name: str
    partition: UInt
    tag: Tag = "stream_create_partitioned"


class PushConfirm(Struct):
    """The answer to a push; the index counts only with `Status.OK`."""

    request_id: BigUInt
    status: Status
    index: UInt
    tag: Tag = "stream_push"


class PullResponse(Struct):
    """Entries as (index, data), ascending."""

    request_id: BigUInt
    messages: list[tuple[UInt, bytes]]
    tag: Tag = "stream_pull"


class IndexResponse(Struct):
    """A consumer's saved index; None when it never saved one."""

    client_id: str
    stream_name: str
    index: UInt | None
    tag: Tag = "stream_index"


class PartitionIndexResponse(Struct):
    """A consumer's saved index in one partition; None when it never saved one."""

    client_id: str
    stream_name: str
    partition: UInt
    index: UInt | None
    tag: Tag = "stream_index_partitioned"


class ErrorResponse(Struct):
    """A refusal; `reason` is for people."""

    reason: str
    tag: Tag = "error"


Request = (
    CreateRequest
    | CreatePartitionedRequest
    | PushRequest
    | PullRequest
    | GetIndexRequest
    | SaveIndexRequest
    | GetPartitionIndexRequest
    | SavePartitionIndexRequest
    | BinaryRequest
    | BidirectionalRequest
    | BidirectionalPublisherRequest
)
Response = (
    CreateResponse
    | CreatePartitionedResponse
    | PushConfirm
    | PullResponse
    | IndexResponse
    | PartitionIndexResponse
    | ErrorResponse
)


def is_specified(request: GetIndexRequest | GetPartitionIndexRequest) -> bool:
    """Whether a question is spelt as the specification does, and as no released node does."""
    tag = request.tag
    shared = isinstance(request, GetPartitionIndexRequest) and tag == "stream_index"
    return shared or tag.endswith(":request")


def response_tag(request_tag: str) -> str:
    """Spell the answer as the request was spelt."""
    if request_tag.endswith(":request"):
        return request_tag.removesuffix(":request") + ":response"
    return request_tag


def error_tag(request_tag: str) -> str:
    """Spell an error as the request that it answers was spelt."""
    return "error:response" if request_tag.endswith(":request") else "error"


def pull_tag(request_tag: str) -> str:
    """The name of a pull, in the spelling of another request."""
    return "stream_pull:request" if request_tag.endswith(":request") else "stream_pull"


def lone_entry_answer_bytes(tag: str, request_id: int, index: int, size: int) -> int:
    """Size of a PullResponse with one entry of `size` bytes, as `encode_response` writes it."""
    body = uint_bytes(request_id) + 1 + uint_bytes(index) + uint_bytes(size) + size
    return len(_ENVELOPES[tag]) + uint_bytes(body) + body


def decode_request(payload: bytes | memoryview) -> Request:
    """Decode what came to a service.

    Numbers in the body need not be minimal; bytes after it are refused, as in released nodes.

    Raises:
        CodecError: `codec.envelope`, the payload is no envelope; `codec.protocol`, its protocol is
            unknown; any other code, the body is malformed. With the last two, `context["tag"]`
            is the name received.
    """
    request: Request = _decode(payload, _REQUESTS)
    return request


def decode_response(payload: bytes | memoryview) -> Response:
    """Decode what came to a client; raises as `decode_request` does."""
    response: Response = _decode(payload, _RESPONSES)
    return response


def encode_request(request: Request) -> bytes:
    """Encode a request under its tag.

    Raises:
        CodecError: `codec.protocol`, no such tag; `codec.range`, `codec.utf8`, `codec.limit`.
    """
    return _encode(request)


def encode_response(response: Response) -> bytes:
    """Encode a response under its tag; raises as `encode_request` does."""
    return _encode(response)


_REQUEST_NAMES: Final[dict[str, type]] = {
    "stream_create": CreateRequest,
    "stream_create_partitioned": CreatePartitionedRequest,
    "stream_create_partitions": CreatePartitionedRequest,
    "stream_push": PushRequest,
    "stream_pull": PullRequest,
    "stream_index": GetIndexRequest,
    "stream_index_partitioned": GetPartitionIndexRequest,
    "binary": BinaryRequest,
    "stream_bidirectional": BidirectionalRequest,
    "stream_bidirectional_publisher": BidirectionalPublisherRequest,
}
_RESPONSE_NAMES: Final[dict[str, type]] = {
    "stream_create": CreateResponse,
    "stream_create_partitioned": CreatePartitionedResponse,
    "stream_create_partitions": CreatePartitionedResponse,
    "stream_push": PushConfirm,
    "stream_pull": PullResponse,
    "stream_index": IndexResponse,
    "stream_index_partitioned": PartitionIndexResponse,
    "error": ErrorResponse,
}
TAGS: Final = frozenset((*_REQUEST_NAMES, *_RESPONSE_NAMES))
"""The names of all these protocols."""
_CODECS: Final[dict[type, Codec[Any]]] = {
    **dict.fromkeys(
        (GetIndexRequest, SaveIndexRequest), Codec[Any](GetIndexRequest | SaveIndexRequest)
    ),
    **dict.fromkeys(
        (GetPartitionIndexRequest, SavePartitionIndexRequest),
        Codec[Any](GetPartitionIndexRequest | SavePartitionIndexRequest),
    ),
}
_CODECS.update(
    (message, Codec(message))
    for message in {*_REQUEST_NAMES.values(), *_RESPONSE_NAMES.values()} - _CODECS.keys()
)


_Reading = tuple[str, tuple[DecodePrefix[Any], ...]]
"""A tag, and the decoders of its messages: each is tried where those before it have failed."""


def _readings(suffix: str, names: dict[str, type]) -> dict[bytes, _Reading]:
    decoders: dict[str, tuple[DecodePrefix[Any], ...]] = {
        name: (_CODECS[message].decode_prefix,) for name, message in names.items()
    }
    decoders["stream_index"] += decoders["stream_index_partitioned"]
    return {tag.encode(): (tag, decoders[name]) for name in names for tag in (name, name + suffix)}


_REQUESTS: Final = _readings(":request", _REQUEST_NAMES)
_RESPONSES: Final = _readings(":response", _RESPONSE_NAMES)
_ENVELOPES: Final = {
    name.decode(): encode_uint(len(name)) + name for name in _REQUESTS | _RESPONSES
}


def _encode(message: Request | Response) -> bytes:
    envelope = _ENVELOPES.get(message.tag)
    if envelope is None:
        raise CodecError("codec.protocol", f"no protocol is called {message.tag!r}")
    body = _CODECS[type(message)].encode(message)
    return b"".join((envelope, encode_uint(len(body)), body))


def _decode(payload: bytes | memoryview, readings: dict[bytes, _Reading]) -> Any:
    if not isinstance(payload, bytes):
        payload = bytes(payload)
    # The length of a known name is one byte, unless it is padded.
    start = payload[0] + 1 if payload else 0
    reading = readings.get(payload[1:start])
    if reading is None:
        reading, start = _looked_up(payload, readings)
    try:
        body, stop = read_data(payload, start, True)
    except CodecError as error:
        raise _no_envelope(error.text, error.offset) from None
    if stop != len(payload):
        raise _no_envelope("bytes after it", stop)
    tag, decoders = reading
    failures: list[CodecError] = []
    for decode in decoders:
        try:
            message, end = decode(payload, body, lenient=True)
        except CodecError as error:
            failures.append(error)
            continue
        if end == stop:
            message.tag = tag
            return message
        failures.append(CodecError("codec.trailing", "bytes after the message", offset=end))
    failures[0].context["tag"] = tag
    raise failures[0]


def _looked_up(payload: bytes, readings: dict[bytes, _Reading]) -> tuple[_Reading, int]:
    """Find the protocol by a name whose length is written in any form, and where the name ends.

    Raises:
        CodecError: `codec.protocol`, the envelope is well-formed and names none that is known here;
            `codec.envelope`, it is none.
    """
    try:
        start, end = read_data(payload, 0, True)
        _, stop = read_data(payload, end, True)
    except CodecError as error:
        raise _no_envelope(error.text, error.offset) from None
    if stop != len(payload):
        raise _no_envelope("bytes after it", stop)
    reading = readings.get(payload[start:end])
    if reading is None:
        name = payload[start:end].decode("utf-8", "replace")[:64]  # it goes into logs
        raise CodecError("codec.protocol", "unknown protocol", offset=start, tag=name)
    return reading, end


def _no_envelope(text: str, offset: int) -> CodecError:
    return CodecError("codec.envelope", f"payload is no envelope: {text}", offset=offset)
