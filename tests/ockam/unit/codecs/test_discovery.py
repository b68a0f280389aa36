"""The discovery service's payloads, of both generations."""

import pytest
from hypothesis import given, strategies as st

from each_row import each_row
from rillnode.codecs.errors import CodecError
from rillnode.codecs.ockam.api import ApiRequest
from rillnode.codecs.ockam.discovery import (
    DiscoveryRequest,
    Service,
    decode_request,
    encode_answer,
)
from rillnode.codecs.routing.routes import Address, local

ECHO = Service("echo", (local("echo"),))
FAR = Service("far", (Address(1, b"host:4000"), local("far")))
SERVICES = (ECHO, FAR)

# In diagnostic notation: {1: 7, 2: "", 3: 0, 4: false}, then with path "far", then method put.
LIST = bytes.fromhex("09 a4 0107 0260 0300 04f4".replace(" ", ""))
GET = bytes.fromhex("0c a4 0107 0263666172 0300 04f4".replace(" ", ""))
PUT = bytes.fromhex("0c a4 0107 0263666172 0302 04f5".replace(" ", ""))
# As LIST, of nodes since 2023-06, with an empty body; and since 2024-01, with a tracing text.
LIST_2023 = bytes.fromhex("09 a4 0107 0260 0300 04f5".replace(" ", ""))
LIST_2024 = bytes.fromhex("0c a5 0107 0260 0300 04f4 056174".replace(" ", ""))


def test_the_bare_form_lists_and_gets() -> None:
    assert decode_request(b"\x00\x00") == DiscoveryRequest(None)
    assert decode_request(b"\x00\x01\x03far") == DiscoveryRequest("far")
    one = b"\x04echo\x01\x00\x04echo\x00"
    far = b"\x03far\x02\x01\x09host:4000\x00\x03far\x00"
    assert encode_answer(DiscoveryRequest(None), SERVICES, 1) == b"\x00\x02" + one + far
    assert encode_answer(DiscoveryRequest("echo"), SERVICES, 1) == b"\x00" + one
    assert encode_answer(DiscoveryRequest("no"), SERVICES, 1) == b"\x00"
    assert encode_answer(DiscoveryRequest(None), (), 1) == b"\x00\x00"


def test_a_registration_in_the_bare_form_has_no_answer() -> None:
    request = decode_request(b"\x00\x02\x02me\x01\x01k\x02vv")
    assert request == DiscoveryRequest("me", get=False)
    assert encode_answer(request, SERVICES, 1) is None


# The id as bytes and as text: {1: h'6563686f', 2: [{"type": 0, "value": "echo"}], 3: {}}.
ECHO_INFO = "a301{0}4 6563686f 0281 a2 6474797065 00 6576616c7565 64 6563686f 03a0"
FAR_INFO = (
    "a301{0}3 666172 0282 a2 6474797065 01 6576616c7565 69 686f73743a34303030"
    " a2 6474797065 00 6576616c7565 63 666172 03a0"
)


@each_row(
    [
        (LIST, False, 4),
        (LIST, True, 6),
        (LIST_2023, False, 6),
        (LIST_2024, False, 6),
        (LIST_2024, True, 6),
        (GET, False, 4),
        (GET, True, 6),
        (GET.replace(b"\xf4", b"\xf5"), False, 6),
    ]
)
def test_ids_are_texts_for_who_has_asked_since_2022_12(
    request_: bytes, cbor: bool, major: int
) -> None:
    asked = decode_request(request_, cbor=cbor)
    assert asked.service_id == ("far" if b"far" in request_ else None)
    echo, far = ECHO_INFO.format(major), FAR_INFO.format(major)
    body = far if asked.service_id else f"82 {echo} {far}"
    # {1: 300, 2: 7, 3: 200, 4: true}
    expected = bytes.fromhex(f"a4 0119012c 0207 0318c8 04f5 {body}".replace(" ", ""))
    assert encode_answer(asked, SERVICES, 300) == bytes((len(expected),)) + expected


@pytest.mark.parametrize(
    ("request_", "status", "text"),
    [
        (GET.replace(b"far", b"out"), "190194", b":not_found"),
        (PUT, "190195", b":method_not_allowed"),
    ],
)
def test_the_cbor_form_has_errors(request_: bytes, status: str, text: bytes) -> None:
    answer = encode_answer(decode_request(request_), SERVICES, 1)
    assert answer is not None
    assert answer[1:].startswith(bytes.fromhex("a401010207" + "03" + status + "04f5"))
    assert answer.endswith(bytes((0x60 + len(text),)) + text)


def test_what_a_newer_request_may_hold_more_is_passed_over() -> None:
    # {0: 7586022, 1: 7, 2: "far", 3: 0, 4: true, 9: null, 10: h'00'} and a body
    more = "a7 001a0073c0e6 0107 0263666172 0300 04f5 09f6 0a4100 deadbeef"
    header = bytes.fromhex(more.replace(" ", ""))
    request = decode_request(bytes((len(header),)) + header)
    asked = ApiRequest(7, "far", 0, b"\xde\xad\xbe\xef")
    assert request == DiscoveryRequest("far", asked, text_ids=True)


@each_row(
    [
        "",
        "80",  # an array
        "bf0107ff",  # of indefinite length
        "a0",
        "a1",  # no key
        "a118",  # half a number
        "a101",  # no value
        "a1026261",  # half a text
        "a10107",
        "a3010702600300",  # complete, but the length says more
        "a4 0107 0107 0260 0300",  # a key twice
        "a3 0107 0207 0300",  # a number as path
        "a3 0107 0261ff 0300",  # no text
        "a3 f507 0260 0300",  # a boolean as key
        "a3 01f5 0260 0300",  # a boolean as id
        "a3 0107 0260 0380",  # an array inside
        "a3 0107 0260 03c101",  # a tag
        "a3 0107 0260 03f90000",  # a float
        "a3 0107 0260 03f814",  # false, padded
        "b9ffff",
        "bbffffffffffffffff",
        "a1027bffffffffffffffff",
    ]
)
def test_a_malformed_header_is_refused(header: str) -> None:
    data = bytes.fromhex(header.replace(" ", ""))
    length = len(data) + (header == "a3010702600300")
    with pytest.raises(CodecError):
        decode_request(bytes((length,)) + data)


@pytest.mark.parametrize("payload", [b"", b"\x00", b"\x00\x03", b"\x00\x00\x00", b"\x00\x01\x01"])
def test_a_malformed_bare_request_is_refused(payload: bytes) -> None:
    with pytest.raises(CodecError):
        decode_request(payload)


@given(st.one_of(st.binary(max_size=100), st.binary(max_size=99).map(lambda b: b"\x00" + b)))
def test_any_bytes_are_a_request_or_an_error(payload: bytes) -> None:
    try:
        request = decode_request(payload)
    except CodecError as error:
        if not 0 <= error.offset <= len(payload):
            raise
    else:
        answer = encode_answer(request, SERVICES, 65_535)
        assert answer is None or answer
