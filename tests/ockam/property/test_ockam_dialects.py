"""Both TCP dialects of Ockam: told apart, read in any form, and never more than a CodecError."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from rillnode.codecs.errors import CodecError
from rillnode.codecs.limits import GREETING_PAUSE_SECONDS
from rillnode.codecs.links import WireFormat
from rillnode.codecs.routing.dialects import EitherDialect, dialling_codec
from rillnode.codecs.routing.framing import U16Framing
from rillnode.codecs.routing.routes import Address, Route, WireMessage, decode_message
from rillnode.codecs.routing.wire import wire_codec

FORMATS: st.SearchStrategy[WireFormat] = st.sampled_from(["bare", "cbor"])
VALUES = st.binary(max_size=30) | st.integers(120, 260).map(lambda size: b"v" * size)
PAYLOADS = st.binary(max_size=100) | st.integers(200, 60_000).map(lambda size: b"p" * size)


def messages_with(types: st.SearchStrategy[int]) -> st.SearchStrategy[WireMessage]:
    routes = st.lists(st.builds(Address, types, VALUES), max_size=4).map(tuple)
    return st.builds(WireMessage, routes, routes, PAYLOADS)


RELEASED = messages_with(st.integers(0, 16))  # the types that released nodes know
MESSAGES = messages_with(st.integers(0, 3) | st.integers(0, 2**64 - 1))
SIZES = st.lists(st.integers(1, 4) | st.integers(1, 40_000), max_size=20)


def stream_of(wire_format: WireFormat, messages: list[WireMessage]) -> bytes:
    """What a released node sends that speaks first."""
    framing = dialling_codec("u16" if wire_format == "bare" else "2024")
    wire = wire_codec(wire_format)
    return framing.start() + framing.encode([wire.encode(message) for message in messages])


def pieces(stream: bytes, sizes: list[int]) -> list[bytes]:
    cut, at = list[bytes](), 0
    for size in sizes:
        cut.append(stream[at : at + size])
        at += size
    return [*cut, stream[at:]]


@given(FORMATS, st.lists(RELEASED, min_size=1, max_size=4), SIZES, st.sets(st.integers(0, 20)))
def test_a_listener_reads_either_dialect_however_it_is_split_and_delayed(
    wire_format: WireFormat, messages: list[WireMessage], sizes: list[int], pauses: set[int]
) -> None:
    codec, output, frames = EitherDialect(), b"", list[bytes]()
    for nth, piece in enumerate(pieces(stream_of(wire_format, messages), sizes)):
        frames += codec.receive(piece)
        if nth in pauses and codec.silence_seconds == GREETING_PAUSE_SECONDS:
            codec.silent()
        output += codec.take_output()
    assert codec.wire_format == wire_format
    assert list(wire_codec(wire_format, strict=True).decode(frames)) == messages
    codec.end()
    if wire_format == "cbor":
        assert output == b"\x01"
    else:
        said = [decode_message(frame) for frame in U16Framing().receive(output)]
        assert not any(message.onward_route for message in said)


@given(st.lists(st.binary(max_size=40) | st.just(b"\x01"), max_size=12), st.booleans())
def test_any_bytes_are_messages_or_a_codec_error(data: list[bytes], pausing: bool) -> None:
    codec = EitherDialect()
    with suppress(CodecError):
        frames = list[bytes]()
        for piece in data:
            frames += codec.receive(piece)
            if pausing and codec.silence_seconds is not None:
                codec.silent()
        if codec.established:
            list(wire_codec(codec.wire_format).decode(frames))
        codec.end()
    assert len(codec.take_output()) <= 258


Draw = Callable[[st.SearchStrategy[int]], int]


def head(draw: Draw, major: int, number: int) -> bytes:
    """A head, as short as it may be or padded."""
    widths = [width for width in (1, 2, 4, 8) if number < 256**width]
    width = draw(st.sampled_from([0, *widths] if number < 24 else widths))
    if not width:
        return bytes((major << 5 | number,))
    return bytes((major << 5 | 23 + width.bit_length(),)) + number.to_bytes(width)


def array(draw: Draw, items: list[bytes]) -> bytes:
    if draw(st.integers(0, 1)):
        return b"\x9f" + b"".join(items) + b"\xff"
    return head(draw, 4, len(items)) + b"".join(items)


def string(draw: Draw, major: int, value: bytes) -> bytes:
    cut = draw(st.integers(-1, len(value)))
    if cut < 0:
        return head(draw, major, len(value)) + value
    chunks = [head(draw, major, len(part)) + part for part in (value[:cut], value[cut:])]
    return bytes((major << 5 | 31,)) + b"".join(chunks) + b"\xff"


def route(draw: Draw, hops: Route) -> bytes:
    pairs = [[head(draw, 0, kind), string(draw, 2, value)] for kind, value in hops]
    return array(draw, [array(draw, pair) for pair in pairs])


@given(MESSAGES, st.sampled_from([None, b"", b"00-4bf92f3577b34da6-00"]), st.data())
def test_any_form_of_a_cbor_message_is_read(
    message: WireMessage, tracing: bytes | None, data: st.DataObject
) -> None:
    draw: Draw = data.draw
    onward, back = route(draw, message.onward_route), route(draw, message.return_route)
    items = [onward, back, string(draw, 2, message.payload)]
    if tracing is not None:
        items.append(string(draw, 3, tracing))
    elif draw(st.integers(0, 1)):
        items.append(b"\xf6")
    assert list(wire_codec("cbor").decode([array(draw, items)])) == [message]


@given(st.lists(MESSAGES, min_size=1, max_size=5), st.lists(st.integers(0, 4), max_size=30))
def test_a_connection_reads_cbor_as_each_message_alone(
    messages: list[WireMessage], order: list[int]
) -> None:
    sent = [messages[nth % len(messages)] for nth in order]
    wire = wire_codec("cbor")
    assert list(wire.decode([wire.encode(message) for message in sent])) == sent


CBOR_BYTES = st.lists(
    st.sampled_from([b"\x84", b"\x81", b"\x82", b"\x80", b"\x9f", b"\xff", b"\xf6", b"\x00"])
    | st.sampled_from([b"\x40", b"\x41a", b"\x5f", b"\x58\x01a", b"\x9a\xff\xff\xff\xff", b"\x61a"])
    | st.binary(max_size=3),
    max_size=20,
).map(b"".join)


@given(CBOR_BYTES | CBOR_BYTES.map(b"\x84\x81\x82".__add__) | st.binary(max_size=60))
def test_any_frame_is_a_cbor_message_or_a_codec_error(frame: bytes) -> None:
    wire = wire_codec("cbor")
    try:
        (message,) = wire.decode([frame])
    except CodecError as error:
        if not 0 <= error.offset <= len(frame):
            raise
        return
    assert list(wire.decode([wire.encode(message), frame])) == [message] * 2


@given(MESSAGES, st.data())
def test_a_truncated_cbor_message_is_found(message: WireMessage, data: st.DataObject) -> None:
    wire = wire_codec("cbor")
    frame = wire.encode(message)
    end = data.draw(st.integers(0, len(frame) - 1))
    with pytest.raises(CodecError) as caught:
        list(wire.decode([frame[:end]]))
    assert caught.value.code == "codec.truncated"
