"""CBOR messages of simulated Ockam nodes: the same bytes as the codec's, made apart from it."""

import pytest
from hypothesis import given, strategies as st

from rillnode.codecs.errors import CodecError
from rillnode.codecs.routing.routes import Address, WireMessage
from rillnode.codecs.routing.wire import wire_codec
from rillnode.node.ockam.simulation.cbor import decode_cbor, encode_cbor

CODEC = wire_codec("cbor")
ROUTES = st.lists(
    st.builds(Address, st.integers(0, 2**32), st.binary(max_size=40)), max_size=5
).map(tuple)
MESSAGES = st.builds(WireMessage, ROUTES, ROUTES, st.binary(max_size=300))


@given(MESSAGES)
def test_messages_are_written_and_read_as_the_codec_does(message: WireMessage) -> None:
    frame = CODEC.encode(message)
    assert encode_cbor(message) == frame
    assert decode_cbor(frame) == message


@pytest.mark.parametrize("size", [23, 24, 255, 256, 65_535, 65_536])
def test_lengths_are_in_their_shortest_form(size: int) -> None:
    message = WireMessage((), (), bytes(size))
    assert encode_cbor(message) == CODEC.encode(message)
    assert decode_cbor(encode_cbor(message)) == message


@given(MESSAGES, st.data())
def test_what_is_cut_or_goes_on_is_no_message(message: WireMessage, data: st.DataObject) -> None:
    frame = encode_cbor(message)
    for wrong in (frame[: data.draw(st.integers(0, len(frame) - 1))], frame + b"\0"):
        with pytest.raises(CodecError):
            decode_cbor(wrong)
