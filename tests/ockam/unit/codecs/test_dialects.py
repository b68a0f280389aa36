"""A listener tells the dialects apart, however first bytes are split and whenever they come."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from each_row import each_row
from rillnode.codecs.errors import CodecError
from rillnode.codecs.limits import (
    GREETING_PAUSE_SECONDS,
    GREETING_SECONDS_MAX,
    U16_FRAME_BYTES_MAX,
    U32_MESSAGE_BYTES_MAX,
)
from rillnode.codecs.routing.cbor_message import CborDecoder, encode_header, encode_with_header
from rillnode.codecs.routing.dialects import EitherDialect, dialect_of, dialling_codec
from rillnode.codecs.routing.framing import U16Framing, U32Framing
from rillnode.codecs.routing.routes import Route, WireMessage, decode_message, encode_message, local

STREAM, ME = (local("stream"),), (local("me"),)


def u16_frame(message: bytes) -> bytes:
    return len(message).to_bytes(2) + message


def u32_frame(message: bytes) -> bytes:
    return len(message).to_bytes(4) + message


def of_size(encode: Callable[[Route, bytes], bytes], size: int) -> bytes:
    """A message of that size, or where none is so small, the first bytes of one."""
    for name in ("", "m"):  # where the payload's length grows by a byte, the name makes up for it
        back = (local(name),)
        room = size - len(encode(back, b""))
        for head in range(min(room + 1, 5)):
            message = encode(back, bytes(room - head))
            if len(message) == size:
                return message
    return encode((local(""),), b"")[:size]


def bare_of_size(size: int) -> bytes:
    return of_size(lambda back, payload: encode_message(STREAM, back, payload), size)


def cbor_of_size(size: int) -> bytes:
    def encode(back: Route, payload: bytes) -> bytes:
        return encode_with_header(encode_header(STREAM, back), payload)

    return of_size(encode, size)


def pieces(stream: bytes, *cuts: int) -> list[bytes]:
    return [stream[start:end] for start, end in pairwise([0, *cuts, len(stream)])]


def received(codec: EitherDialect, parts: list[bytes]) -> list[bytes]:
    return [message for part in parts for message in codec.receive(part)]


SIZES = [*range(1, 601), 1_000, 4_096, 33_000, 65_000, 65_535]


def test_u16_first_frames_of_every_size_are_told_at_every_early_split() -> None:
    for size in SIZES:
        message = bare_of_size(size)
        assert len(message) == size
        stream = u16_frame(message)
        for cut in range(min(len(stream), 12)):
            codec = EitherDialect()
            assert received(codec, pieces(stream, cut)) == [message]
            assert (codec.wire_format, codec.take_output()) == ("bare", b"")
            codec.end()


@each_row([1, 2, 3, 4, 36, 255, 256, 257, 258, 300, 511, 512, 513, 600])
def test_u16_first_frames_are_told_at_every_split(size: int) -> None:
    message = bare_of_size(size)
    stream = u16_frame(message) + u16_frame(b"next")
    for cut in range(len(stream) + 1):
        assert received(EitherDialect(), pieces(stream, cut)) == [message, b"next"]
    singly = received(EitherDialect(), [bytes((byte,)) for byte in stream])
    assert singly == [message, b"next"]


def test_a_u16_frame_that_looks_like_a_message_of_2024_is_not_one() -> None:
    message = encode_message((local("w" * 132),), (local("r" * 100),), b"p" * 15)
    stream = u16_frame(message)
    assert stream[:6] == bytes.fromhex("01 00 01 01 00 84")
    for cut in range(len(stream)):
        codec = EitherDialect()
        assert received(codec, pieces(stream, cut)) == [message]
        assert codec.wire_format == "bare"


@pytest.mark.parametrize("version", [1, 2])
def test_u16_frames_of_256_bytes_are_told_whatever_is_in_them(version: int) -> None:
    routes: list[Route] = [(), *((local("w" * count),) for count in range(240))]
    for onward in routes:

        def encode(back: Route, payload: bytes, onward: Route = onward) -> bytes:
            return bytes((version,)) + encode_message(onward, back, payload)[1:]

        message = of_size(encode, 256)
        assert len(message) == 256
        assert dialect_of(u16_frame(message)) == "u16"


@each_row([21, 23, 73, 255, 256, 600, 65_535, 65_536, 70_000, 131_072, 196_608, 4_194_304])
def test_first_messages_of_2024_are_told_at_every_early_split(size: int) -> None:
    message = cbor_of_size(size)
    stream = b"\x01" + u32_frame(message) + u32_frame(b"next")
    cuts = range(len(stream) + 1) if size < 1_000 else [*range(12), len(stream) - 3]
    for cut in cuts:
        codec = EitherDialect()
        assert received(codec, pieces(stream, cut)) == [message, b"next"]
        assert (codec.wire_format, codec.take_output()) == ("cbor", b"\x01")
        codec.end()


def test_the_smallest_messages_and_empty_frames_of_2024_are_told() -> None:
    heartbeat = bytes.fromhex("84 80 80 40 f6")
    assert received(EitherDialect(), [b"\x01" + u32_frame(heartbeat)]) == [heartbeat]
    codec = EitherDialect()
    assert received(codec, [b"\x01", u32_frame(b""), u32_frame(heartbeat)]) == [heartbeat]
    assert codec.wire_format == "cbor"


def test_a_heartbeat_is_a_u16_peers_first_word() -> None:
    for parts in ([b"\0\0"], [b"\0", b"\0"]):
        codec = EitherDialect()
        assert received(codec, parts) == []
        assert codec.established
        assert codec.receive(u16_frame(b"first")) == [b"first"]


def test_no_byte_is_sent_and_no_message_taken_before_the_dialect_is_known() -> None:
    codec = EitherDialect()
    for data in (b"", b"\x01", b"\x00", b"\x01"):
        codec.receive(data)
        assert not codec.established
        assert (codec.start(), codec.take_output(), codec.ping()) == (b"",) * 3
        with pytest.raises(CodecError) as caught:
            codec.encode([b"early"])
        assert caught.value.code == "ockam.dialect"


def test_answers_are_in_the_dialect_that_was_spoken() -> None:
    codec = EitherDialect()
    codec.receive(u16_frame(b"a"))
    assert codec.encode([b"b"]) == u16_frame(b"b")
    assert codec.message_bytes_max == U16_FRAME_BYTES_MAX
    codec = EitherDialect()
    codec.receive(b"\x01" + u32_frame(cbor_of_size(20)))
    assert codec.encode([b"b"]) == u32_frame(b"b")
    assert codec.message_bytes_max == U32_MESSAGE_BYTES_MAX


def greeted() -> EitherDialect:
    """A codec whose peer has sent 01 and waits for the answer, which it got."""
    codec = EitherDialect()
    codec.receive(b"\x01")
    assert codec.silence_seconds == GREETING_PAUSE_SECONDS
    codec.silent()
    assert codec.take_output() == b"\x01"
    assert not codec.established
    return codec


def test_a_lone_greeting_is_answered_once() -> None:
    codec = greeted()
    message = cbor_of_size(40)
    assert received(codec, pieces(u32_frame(message), 1, 4, 5, 6)) == [message]
    assert codec.wire_format == "cbor"
    assert codec.take_output() == b""


def test_a_peer_that_greets_and_has_nothing_to_say_speaks_2024() -> None:
    codec = greeted()
    assert codec.silence_seconds == GREETING_SECONDS_MAX
    codec.silent()
    assert codec.established
    assert codec.silence_seconds is None
    assert (codec.wire_format, codec.take_output()) == ("cbor", b"")
    message = cbor_of_size(40)
    assert codec.receive(u32_frame(message)) == [message]


def test_a_peer_that_does_not_greet_speaks_u16() -> None:
    codec = EitherDialect()
    assert codec.silence_seconds == GREETING_SECONDS_MAX
    codec.silent()
    assert codec.established
    assert (codec.wire_format, codec.take_output()) == ("bare", b"")
    message = bare_of_size(300)
    assert received(codec, pieces(u16_frame(message), 1)) == [message]


@pytest.mark.parametrize("size", [256, 257, 300, 511])
def test_a_slow_u16_frame_makes_a_heartbeat_of_the_answered_greeting(size: int) -> None:
    codec = greeted()
    message = bare_of_size(size)
    assert codec.receive(u16_frame(message)[1:]) == [message]
    assert codec.wire_format == "bare"
    sent = b"\x01" + codec.take_output() + codec.encode([b"answer"])
    filler, answer = U16Framing().receive(sent)
    assert answer == b"answer"
    said = decode_message(filler, strict=True)
    assert (said.onward_route, said.return_route) == ((), ())
    assert said.payload.strip() == b""


def test_a_beginning_that_stalls_waits_for_no_silence() -> None:
    codec = EitherDialect()
    codec.receive(b"\x01\x00")
    assert codec.silence_seconds is None


@pytest.mark.parametrize("head", [b"", b"\x01"])
def test_a_peer_that_leaves_before_it_says_anything_does_no_wrong(head: bytes) -> None:
    codec = EitherDialect()
    codec.receive(head)
    codec.end()


@pytest.mark.parametrize(
    "head", [b"\x01\x00", b"\x01\x00\x01\x01\x00\x84", b"\x00", b"\x01\x00\x00\x00\x09\x84"]
)
def test_an_end_inside_the_first_frame_is_an_error(head: bytes) -> None:
    codec = EitherDialect()
    codec.receive(head)
    with pytest.raises(CodecError) as caught:
        codec.end()
    assert caught.value.code == "codec.truncated"


def test_a_length_over_the_limit_is_refused_as_soon_as_it_is_read() -> None:
    codec = EitherDialect()
    with pytest.raises(CodecError) as caught:
        codec.receive(b"\x01" + (U32_MESSAGE_BYTES_MAX + 1).to_bytes(4))
    assert caught.value.code == "link.message_size"


def test_what_came_first_is_not_kept() -> None:
    codec = EitherDialect()
    codec.receive(u16_frame(bytes(60_000)))
    assert codec._head == b""  # pyright: ignore[reportPrivateUsage]


def test_dialling_needs_the_dialect_told() -> None:
    assert isinstance(dialling_codec("u16"), U16Framing)
    assert isinstance(dialling_codec("2024"), U32Framing)


def test_the_wire_messages_of_a_first_frame_are_read_in_its_dialect() -> None:
    message = WireMessage(STREAM, ME, b"same")
    bare = encode_message(*message)
    cbor = encode_with_header(encode_header(STREAM, ME), b"same")
    assert decode_message(*EitherDialect().receive(u16_frame(bare))) == message
    (frame,) = EitherDialect().receive(b"\x01" + u32_frame(cbor))
    assert list(CborDecoder().decode([frame])) == [message]
