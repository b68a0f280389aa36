"""Items of bi-directional streams, in the forms of both languages."""

import pytest
from hypothesis import given, strategies as st

from rillnode.codecs.errors import CodecError
from rillnode.codecs.ockam.stream_item import StreamMessage, decode_entry, encode_entry
from rillnode.codecs.routing.routes import Route, WireMessage, encode_message, local

PING_PONG = bytes.fromhex("046261636b 11 01010004706f6e6701000470696e670130".replace(" ", ""))
"""Written by an Elixir node of 2021-08: return stream "back", onward [pong], return [ping], "0"."""

MESSAGE = WireMessage((local("pong"),), (local("ping"),), b"0")

routes = st.lists(st.builds(local, st.binary(max_size=20)), max_size=5).map(tuple)


def test_an_item_of_a_released_node_is_read_and_written() -> None:
    assert decode_entry(PING_PONG) == StreamMessage("back", MESSAGE)
    assert encode_entry("back", MESSAGE) == PING_PONG


def test_a_bare_wire_message_names_no_stream() -> None:
    assert decode_entry(encode_message(*MESSAGE)) == StreamMessage(None, MESSAGE)


def test_lengths_need_not_be_minimal() -> None:
    padded = b"\x84\x00" + PING_PONG[1:5] + b"\x91\x00" + PING_PONG[6:]
    assert decode_entry(padded) == StreamMessage("back", MESSAGE)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x04back",
        PING_PONG[:-1],
        PING_PONG + b"\x00",
        b"\x04back\x03abc",
        b"\xff" * 20,
        b"\x04\xff\xff\xff\xff" + PING_PONG[5:],
    ],
)
def test_what_is_neither_is_refused(data: bytes) -> None:
    with pytest.raises(CodecError):
        decode_entry(data)


def test_a_route_too_long_cannot_be_written() -> None:
    with pytest.raises(CodecError, match="hops"):
        encode_entry("back", WireMessage((local("x"),) * 65, (), b""))


@given(st.text(max_size=30), routes, routes, st.binary(max_size=100))
def test_items_are_read_as_written(stream: str, onward: Route, back: Route, payload: bytes) -> None:
    message = WireMessage(onward, back, payload)
    assert decode_entry(encode_entry(stream, message)) == (stream, message)


@given(routes, routes, st.binary(max_size=100))
def test_bare_messages_are_not_mistaken_for_items(
    onward: Route, back: Route, payload: bytes
) -> None:
    message = WireMessage(onward, back, payload)
    assert decode_entry(encode_message(*message)) == (None, message)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_an_error(data: bytes) -> None:
    try:
        decode_entry(data)
    except CodecError as error:
        if not 0 <= error.offset <= len(data):
            raise
