import pytest
from hypothesis import given, strategies as st

from rillnode.codecs.errors import CodecError
from rillnode.codecs.links import WireFormat
from rillnode.codecs.routing.routes import Address, Route, WireMessage, local
from rillnode.codecs.routing.wire import overhead_bytes_max, wire_codec

MESSAGE = WireMessage((local("stream"),), (local("me"),), b"hi")
FORMS: dict[WireFormat, str] = {
    "bare": "01 01 00 06 73747265616d 01 00 02 6d65 02 6869",
    "cbor": "84 81 82 00 46 73747265616d 81 82 00 42 6d65 42 6869 f6",
}


@pytest.mark.parametrize("wire_format", FORMS)
def test_a_message_is_written_and_read_in_the_format_of_its_link(wire_format: WireFormat) -> None:
    wire = wire_codec(wire_format)
    frame = bytes.fromhex(FORMS[wire_format])
    assert wire.encode(MESSAGE) == frame
    assert list(wire.decode([frame, frame])) == [MESSAGE, MESSAGE]
    header = wire.encode_header(MESSAGE.onward_route, MESSAGE.return_route)
    assert wire.encode_with_header(header, memoryview(b"hi")) == frame


@pytest.mark.parametrize("wire_format", FORMS)
def test_equal_headers_of_several_links_are_one_object(wire_format: WireFormat) -> None:
    frame = bytes.fromhex(FORMS[wire_format])
    (first,) = wire_codec(wire_format).decode([frame])
    (second,) = wire_codec(wire_format).decode([frame])
    assert first == second
    assert first.return_route is second.return_route


def test_strict_is_of_the_bare_form() -> None:
    trailing = bytes.fromhex(FORMS["bare"]) + b"\0"
    assert list(wire_codec("bare").decode([trailing])) == [MESSAGE]
    with pytest.raises(CodecError) as caught:
        list(wire_codec("bare", strict=True).decode([trailing]))
    assert caught.value.code == "codec.trailing"
    padded = bytes.fromhex("98 04 81 82 18 00 46 73747265616d 81 82 00 42 6d65 58 02 6869 f6")
    assert list(wire_codec("cbor", strict=True).decode([padded])) == [MESSAGE]


ADDRESSES = st.builds(Address, st.integers(0, 2**64 - 1), st.binary(max_size=300))
ROUTES: st.SearchStrategy[Route] = st.lists(ADDRESSES, max_size=64).map(tuple)


@pytest.mark.parametrize("wire_format", FORMS)
@given(onward=ROUTES, back=ROUTES, size=st.sampled_from([0, 23, 24, 255, 256, 65_000, 65_536]))
def test_no_message_has_more_beside_its_payload_than_is_reckoned_with(
    wire_format: WireFormat, onward: Route, back: Route, size: int
) -> None:
    frame = wire_codec(wire_format).encode(WireMessage(onward, back, bytes(size)))
    assert len(frame) - size <= overhead_bytes_max(onward, back)
