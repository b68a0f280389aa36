import tracemalloc

import pytest

from rillnode.codecs.errors import CodecError
from rillnode.codecs.framing import FrameCutter, MessageJoiner, joined_messages
from rillnode.codecs.limits import FRAME_BYTES_MAX


def test_cutter_keeps_views_of_whole_frames_without_copying() -> None:
    data = b"\x00\x02ab\x00\x01c"
    frames = FrameCutter().cut(memoryview(data))
    assert [bytes(frame) for frame in frames] == [b"ab", b"c"]
    assert all(frame.obj is data for frame in frames)


def test_joiner_gives_messages_across_pieces_and_many_of_one_piece() -> None:
    messages = [b"a" * 5, b"b" * 200_000, b"c", b"d" * 70_000]
    stream = joined_messages(messages)
    for size in (1, 3, 4, 5, 65_519, len(stream)):
        joiner, got = MessageJoiner(), list[bytes]()
        for at in range(0, len(stream), size):
            joiner.feed(stream[at : at + size], got)
        assert got == messages
        assert not joiner.inside_message


def test_joiner_skips_pings_wherever_they_are_split() -> None:
    stream = bytes(4) + joined_messages([b"a"]) + bytes(8) + joined_messages([b"b"]) + bytes(4)
    for size in (1, 2, 3, 5, len(stream)):
        joiner, got = MessageJoiner(), list[bytes]()
        for at in range(0, len(stream), size):
            joiner.feed(stream[at : at + size], got)
        assert got == [b"a", b"b"]
        assert not joiner.inside_message


@pytest.mark.parametrize("split", [1, 2, 3, 4, 5])
def test_joiner_refuses_a_length_over_the_limit_as_soon_as_it_is_read(split: int) -> None:
    stream = (FRAME_BYTES_MAX + 1).to_bytes(4) + b"x"
    joiner = MessageJoiner()
    if split < 4:
        joiner.feed(stream[:split], [])
        stream = stream[split:4]
    with pytest.raises(CodecError) as caught:
        joiner.feed(stream, [])
    assert caught.value.code == "link.message_size"


def test_joiner_takes_a_message_of_exactly_the_limit() -> None:
    joiner, got = MessageJoiner(), list[bytes]()
    joiner.feed(joined_messages([bytes(FRAME_BYTES_MAX)]), got)
    assert [len(message) for message in got] == [FRAME_BYTES_MAX]


def test_a_drip_of_single_bytes_holds_no_more_than_was_sent() -> None:
    sent = 30_000
    joiner, cutter = MessageJoiner(), FrameCutter()
    tracemalloc.start()
    try:
        joiner.feed(FRAME_BYTES_MAX.to_bytes(4), [])
        for _ in range(sent):
            joiner.feed(b"x", [])
        cutter.cut(memoryview(b"\xff\xff"))
        for _ in range(sent):
            cutter.cut(memoryview(b"x"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * (sent + sent)
