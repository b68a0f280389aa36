"""The payload protocol `stream_admin`: its bytes, and what it refuses."""

import pytest

from each_row import each_row
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
    is_admin,
)

NAME = b"\x0cstream_admin"

# Worked out by hand from the layout.
REQUESTS = [
    (AdminRequest(1, Describe("s")), "01 00 0173"),
    (AdminRequest(300, Delete("s")), "ac02 01 0173"),
    (AdminRequest(2, Trim("s", 3, 128)), "02 02 0173 03 8001"),
    (AdminRequest(3, Retain("s", Limits(milliseconds=500))), "03 03 0173 01f403 00 00"),
    (AdminRequest(3, Retain("s", Limits(None, 7, 9))), "03 03 0173 00 0107 0109"),
]
DESCRIPTION = Description("s", 5, "me", Limits(), [PartitionExtent(0, 1, 2, 128)])
RESPONSES = [
    (AdminResponse(1, Status.OK), "01 00 00 00"),
    (AdminResponse(1, Status.ERROR, "no"), "01 01 026e6f 00"),
    (
        AdminResponse(1, Status.OK, "", DESCRIPTION),
        "01 00 00 01 0173 05 026d65 000000 01 0001028001",
    ),
]


def payload_of(body: str) -> bytes:
    data = bytes.fromhex(body)
    return NAME + bytes([len(data)]) + data


@pytest.mark.parametrize(("request_", "body"), REQUESTS)
def test_requests_have_their_bytes(request_: AdminRequest, body: str) -> None:
    assert encode_request(request_) == payload_of(body)
    assert decode_request(payload_of(body)) == request_
    assert request_.tag == "stream_admin"


@pytest.mark.parametrize(("response", "body"), RESPONSES)
def test_responses_have_their_bytes(response: AdminResponse, body: str) -> None:
    assert encode_response(response) == payload_of(body)
    assert decode_response(payload_of(body)) == response


@each_row(
    [
        (b"", "codec.protocol"),
        (b"\x0bstream_push\x01\x00", "codec.protocol"),
        (b"\x14stream_admin:request\x00", "codec.protocol"),
        (NAME, "codec.envelope"),
        (NAME + b"\x05\x01", "codec.envelope"),
        (NAME + b"\x04\x01\x01\x01s!", "codec.envelope"),
        (payload_of(""), "codec.truncated"),
        (payload_of("01 04 0173"), "codec.union"),
        (payload_of("01 01 01ff"), "codec.utf8"),
        (payload_of("01 01 0173 00"), "codec.trailing"),
        (payload_of("01 02 0173 03"), "codec.truncated"),
        (payload_of("01 03 0173 02"), "codec.optional"),
    ]
)
def test_what_is_no_request_is_refused_with_its_reason(payload: bytes, code: str) -> None:
    with pytest.raises(CodecError) as caught:
        decode_request(payload)
    assert caught.value.code == code
    assert 0 <= caught.value.offset <= len(payload)
    assert is_admin(payload) == (caught.value.context.get("tag") == "stream_admin")


def test_padded_numbers_are_read() -> None:
    assert decode_request(payload_of("8100 01 0173")) == AdminRequest(1, Delete("s"))
