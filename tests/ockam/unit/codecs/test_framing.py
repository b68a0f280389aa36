import pytest

from rillnode.codecs.errors import CodecError, HandshakeError, TransportError
from rillnode.codecs.limits import GREETING_SECONDS_MAX, U16_FRAME_BYTES_MAX, U32_MESSAGE_BYTES_MAX
from rillnode.codecs.routing.framing import U16Framing, U32Framing


def test_messages_travel_as_big_endian_u16_frames() -> None:
    assert U16Framing().encode([b"ab", b"c"]) == bytes.fromhex("00026162 000163")


def test_frames_come_out_in_order_however_they_are_split() -> None:
    messages = [b"a", b"b" * 300, b"c" * 65_000, b"d"]
    stream = U16Framing().encode(messages)
    for size in (1, 2, 3, 7, 301, 65_001, len(stream)):
        codec = U16Framing()
        got = [
            m for at in range(0, len(stream), size) for m in codec.receive(stream[at : at + size])
        ]
        assert got == messages
        codec.end()


def test_an_empty_frame_is_a_heartbeat() -> None:
    assert U16Framing().receive(bytes.fromhex("0000 000161 0000 0000 000162")) == [b"a", b"b"]


def test_the_u16_dialect_says_nothing_of_its_own_accord() -> None:
    codec = U16Framing()
    assert (codec.start(), codec.take_output(), codec.ping(), codec.encode([])) == (b"",) * 4
    assert codec.established
    assert codec.remote_identity is None


@pytest.mark.parametrize("message", [b"", bytes(65_001), bytes(65_536)])
def test_a_message_that_peers_would_choke_on_is_refused_whole(message: bytes) -> None:
    with pytest.raises(CodecError) as caught:
        U16Framing().encode([b"fine", message])
    assert caught.value.code == "link.message_size"


def test_the_largest_frame_of_a_peer_is_taken() -> None:
    frame = b"\xff\xff" + bytes(U16_FRAME_BYTES_MAX)
    assert U16Framing().receive(frame) == [bytes(U16_FRAME_BYTES_MAX)]


@pytest.mark.parametrize("rest", [b"\x00", b"\x00\x05", b"\x00\x05abcd"])
def test_an_end_inside_a_frame_is_an_error(rest: bytes) -> None:
    codec = U16Framing()
    assert codec.receive(b"\x00\x01a" + rest) == [b"a"]
    with pytest.raises(CodecError) as caught:
        codec.end()
    assert caught.value.code == "codec.truncated"


def test_the_2024_dialect_greets_and_then_sends_u32_frames() -> None:
    codec = U32Framing()
    assert (codec.start(), codec.take_output(), codec.ping()) == (b"\x01", b"", b"")
    assert codec.encode([b"ab", b"c"]) == bytes.fromhex("000000026162 0000000163")
    assert codec.remote_identity is None


def test_messages_of_2024_come_out_in_order_however_they_are_split() -> None:
    messages = [b"a", b"b" * 300, b"c" * 70_000, b"d"]
    stream = b"\x01" + U32Framing().encode(messages) + bytes(4)
    for size in (1, 2, 5, 301, 65_001, len(stream)):
        codec = U32Framing()
        assert not codec.established
        got = [
            m for at in range(0, len(stream), size) for m in codec.receive(stream[at : at + size])
        ]
        assert got == messages
        assert codec.established
        codec.end()


def test_a_peer_that_does_not_greet_in_time_is_given_up() -> None:
    codec = U32Framing()
    codec.receive(b"")
    assert codec.silence_seconds == GREETING_SECONDS_MAX
    with pytest.raises(TransportError) as caught:
        codec.silent()
    assert caught.value.code == "ockam.no_greeting"
    codec.receive(b"\x01")
    assert codec.silence_seconds is None


def test_a_peer_that_greets_otherwise_is_refused() -> None:
    codec = U32Framing()
    with pytest.raises(HandshakeError) as caught:
        codec.receive(b"\x00\x04\x01\x00\x00\x00")
    assert caught.value.code == "ockam.greeting"
    assert not codec.established


def test_a_link_of_2024_ends_after_the_greeting_and_between_frames() -> None:
    codec = U32Framing()
    with pytest.raises(TransportError) as early:
        codec.end()
    assert early.value.code == "link.closed_early"
    codec.receive(b"\x01")
    codec.end()
    codec.receive(b"\x00")
    with pytest.raises(CodecError) as caught:
        codec.end()
    assert caught.value.code == "codec.truncated"


def test_messages_of_2024_have_their_limit_both_ways() -> None:
    codec = U32Framing()
    stream = b"\x01" + codec.encode([bytes(U32_MESSAGE_BYTES_MAX)])
    assert [len(message) for message in codec.receive(stream)] == [U32_MESSAGE_BYTES_MAX]
    with pytest.raises(CodecError) as caught:
        codec.receive((U32_MESSAGE_BYTES_MAX + 1).to_bytes(4))
    assert caught.value.code == "link.message_size"
    for message in (b"", bytes(U32_MESSAGE_BYTES_MAX + 1)):
        with pytest.raises(CodecError) as caught:
            codec.encode([b"fine", message])
        assert caught.value.code == "link.message_size"


def test_an_empty_read_changes_nothing() -> None:
    codec = U16Framing()
    pieces = [b"\0", b"", b"\x02", b"", b"a", b"", b"b", b""]
    assert [message for piece in pieces for message in codec.receive(piece)] == [b"ab"]
