"""`stream_admin`: messages come back; any bytes give a message or a CodecError."""

from collections.abc import Callable
from typing import Any

from hypothesis import given, strategies as st

from rillnode.codecs.errors import CodecError
from rillnode.codecs.routing.stream import Status
from rillnode.codecs.routing.stream_admin import (
    AdminRequest,
    AdminResponse,
    Delete,
    Describe,
    Description,
    Limits,
    PartitionExtent,
    Retain,
    Trim,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

UINTS = st.integers(0, 2**64 - 1)
IDS = st.integers(0, 2**224 - 1)
NAMES = st.text(max_size=20)
LIMITS = st.builds(Limits, *([st.none() | UINTS] * 3))
COMMANDS = st.one_of(
    st.builds(Describe, NAMES),
    st.builds(Delete, NAMES),
    st.builds(Trim, NAMES, UINTS, UINTS),
    st.builds(Retain, NAMES, LIMITS),
)
REQUESTS = st.builds(AdminRequest, IDS, COMMANDS)
EXTENTS = st.builds(PartitionExtent, UINTS, UINTS, UINTS, UINTS)
DESCRIPTIONS = st.builds(Description, NAMES, UINTS, NAMES, LIMITS, st.lists(EXTENTS, max_size=4))
RESPONSES = st.builds(AdminResponse, IDS, st.sampled_from(Status), NAMES, st.none() | DESCRIPTIONS)
BODIES = st.binary(max_size=60).map(lambda body: b"\x0cstream_admin" + bytes([len(body)]) + body)


@given(REQUESTS)
def test_requests_come_back(request: AdminRequest) -> None:
    assert decode_request(encode_request(request)) == request


@given(RESPONSES)
def test_responses_come_back(response: AdminResponse) -> None:
    assert decode_response(encode_response(response)) == response


def attempt(decode: Callable[[bytes], Any], payload: bytes) -> Any:
    """Decode; a CodecError that says where is returned, all else that is raised is a failure."""
    try:
        return decode(payload)
    except CodecError as error:
        if not 0 <= error.offset <= len(payload):
            raise
        return error


@given(st.one_of(st.binary(max_size=80), BODIES))
def test_any_payload_gives_a_message_or_a_codec_error(payload: bytes) -> None:
    request = attempt(decode_request, payload)
    if not isinstance(request, CodecError):
        assert decode_request(encode_request(request)) == request
    response = attempt(decode_response, payload)
    if not isinstance(response, CodecError):
        assert decode_response(encode_response(response)) == response


@given(REQUESTS.map(encode_request), st.data())
def test_a_truncated_request_is_refused(payload: bytes, data: st.DataObject) -> None:
    cut = payload[: data.draw(st.integers(0, len(payload) - 1))]
    error = attempt(decode_request, cut)
    assert getattr(error, "code", "") in ("codec.protocol", "codec.envelope")
