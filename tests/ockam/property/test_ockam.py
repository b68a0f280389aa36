"""Ockam: messages come back; any bytes give a message or a CodecError."""

from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import given, strategies as st

from rillnode.codecs.errors import CodecError
from rillnode.codecs.routing.routes import (
    Address,
    WireDecoder,
    WireMessage,
    decode_message,
    encode_header,
    encode_message,
    encode_with_header,
    format_route,
    parse_route,
)
from rillnode.codecs.routing.stream import (
    BidirectionalPublisherRequest,
    BidirectionalRequest,
    BinaryRequest,
    CreatePartitionedRequest,
    CreatePartitionedResponse,
    CreateRequest,
    CreateResponse,
    ErrorResponse,
    GetIndexRequest,
    GetPartitionIndexRequest,
    IndexResponse,
    PartitionIndexResponse,
    PullRequest,
    PullResponse,
    PushConfirm,
    PushRequest,
    Request,
    Response,
    SaveIndexRequest,
    SavePartitionIndexRequest,
    Status,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

UINTS = st.integers(0, 2**64 - 1)
BIG_UINTS = st.integers(0, 2**224 - 1)
NAMES = st.text(max_size=20)
SOME_NAMES = st.none() | NAMES
INDEXES = st.none() | UINTS
DATA = st.binary(max_size=300)

REQUESTS: st.SearchStrategy[Request] = st.one_of(
    st.builds(CreateRequest, SOME_NAMES),
    st.builds(
        CreatePartitionedRequest,
        SOME_NAMES,
        UINTS,
        st.sampled_from(["stream_create_partitioned", "stream_create_partitions"]),
    ),
    st.builds(
        PushRequest, BIG_UINTS, DATA, st.sampled_from(["stream_push", "stream_push:request"])
    ),
    st.builds(PullRequest, BIG_UINTS, UINTS, UINTS),
    st.builds(GetIndexRequest, NAMES, NAMES),
    st.builds(SaveIndexRequest, NAMES, NAMES, UINTS),
    st.builds(
        GetPartitionIndexRequest,
        NAMES,
        NAMES,
        UINTS,
        st.sampled_from(["stream_index", "stream_index_partitioned:request"]),
    ),
    st.builds(
        SavePartitionIndexRequest,
        NAMES,
        NAMES,
        UINTS,
        UINTS,
        st.sampled_from(["stream_index:request", "stream_index_partitioned"]),
    ),
    st.builds(BinaryRequest, DATA),
    st.builds(BidirectionalRequest, NAMES, NAMES),
    st.builds(BidirectionalPublisherRequest, NAMES, NAMES, NAMES),
)
RESPONSES: st.SearchStrategy[Response] = st.one_of(
    st.builds(CreateResponse, NAMES),
    st.builds(CreatePartitionedResponse, NAMES, UINTS),
    st.builds(PushConfirm, BIG_UINTS, st.sampled_from(Status), UINTS),
    st.builds(PullResponse, BIG_UINTS, st.lists(st.tuples(UINTS, DATA), max_size=5)),
    st.builds(IndexResponse, NAMES, NAMES, INDEXES),
    st.builds(PartitionIndexResponse, NAMES, NAMES, UINTS, INDEXES),
    st.builds(ErrorResponse, NAMES, st.sampled_from(["error", "error:response"])),
)

ROUTES = st.lists(st.builds(Address, UINTS, st.binary(max_size=30)), max_size=4).map(tuple)
MESSAGES = st.builds(WireMessage, ROUTES, ROUTES, DATA)

TEXT_VALUES = st.text(
    st.characters(exclude_characters="#;=", codec="utf-8"), min_size=1, max_size=20
).filter(lambda text: text == text.strip())
TEXT_ROUTES = st.lists(
    st.builds(Address, UINTS, TEXT_VALUES.map(str.encode)), min_size=1, max_size=4
).map(tuple)


def envelope(name: bytes, body: bytes, rest: bytes) -> bytes:
    return bytes([len(name)]) + name + bytes([len(body)]) + body + rest


ENVELOPES = st.builds(
    envelope,
    st.sampled_from(
        [b"stream_push", b"stream_pull", b"stream_index", b"stream_create:request", b"error", b"no"]
    ),
    st.binary(max_size=40),
    st.sampled_from([b"", b"", b"\x00"]),
)


@given(REQUESTS)
def test_requests_come_back(request: Request) -> None:
    assert decode_request(encode_request(request)) == request


@given(RESPONSES)
def test_responses_come_back(response: Response) -> None:
    assert decode_response(encode_response(response)) == response


def attempt(decode: Callable[[bytes], Any], data: bytes) -> Any:
    """Decode; a CodecError that says where is returned, all else that is raised is a failure."""
    try:
        return decode(data)
    except CodecError as error:
        if not 0 <= error.offset <= len(data):
            raise
        return error


@given(st.one_of(st.binary(max_size=100), ENVELOPES))
def test_any_payload_gives_a_message_or_a_codec_error(payload: bytes) -> None:
    for decode, encode in ((decode_request, encode_request), (decode_response, encode_response)):
        message = attempt(decode, payload)
        if not isinstance(message, CodecError):
            # What was read may have held padded numbers; what is written says the same.
            assert decode(encode(message)) == message


@given(st.one_of(REQUESTS.map(encode_request), RESPONSES.map(encode_response)), st.data())
def test_a_truncated_payload_is_no_envelope(payload: bytes, data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(payload) - 1))
    for decode in (decode_request, decode_response):
        assert getattr(attempt(decode, payload[:end]), "code", "") == "codec.envelope"


@given(MESSAGES)
def test_wire_messages_come_back(message: WireMessage) -> None:
    frame = encode_message(*message)
    header = encode_header(message.onward_route, message.return_route)
    assert frame == encode_with_header(header, message.payload)
    assert decode_message(frame, strict=True) == message
    assert decode_message(frame + b"rest") == message


@given(st.lists(MESSAGES, min_size=1, max_size=6), st.lists(st.integers(0, 5), max_size=30))
def test_a_connection_reads_as_each_message_alone(
    messages: list[WireMessage], order: list[int]
) -> None:
    sent = [messages[nth % len(messages)] for nth in order]
    decoder = WireDecoder(strict=True)
    assert list(decoder.decode([encode_message(*message) for message in sent])) == sent


@given(st.binary(max_size=60), st.booleans())
def test_any_frame_gives_a_message_or_a_codec_error(frame: bytes, strict: bool) -> None:
    message = attempt(partial(decode_message, strict=strict), frame)
    if strict and not isinstance(message, CodecError):
        assert encode_message(*message) == frame


@given(TEXT_ROUTES)
def test_routes_come_back_from_their_text(route: tuple[Address, ...]) -> None:
    assert parse_route(format_route(route)) == route


@given(st.text(max_size=40))
def test_any_text_gives_a_route_or_a_codec_error(text: str) -> None:
    try:
        route = parse_route(text)
    except CodecError:
        return
    assert parse_route(format_route(route)) == route
