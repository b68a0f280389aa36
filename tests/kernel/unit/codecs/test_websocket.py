"""Messages of a WebSocket are followed through their frames, however these are cut."""

import random
import sys

import pytest

from each_row import each_row
from rillnode.codecs.websocket import MessageScanner

TEXT, BINARY, MORE, CLOSE, PING = 0x1, 0x2, 0x0, 0x8, 0x9


def frame(opcode: int, payload: bytes, *, final: bool = True, masked: bool = True) -> bytes:
    size = len(payload)
    if size < 126:
        length = bytes([size])
    elif size < 65_536:
        length = b"\x7e" + size.to_bytes(2)
    else:
        length = b"\x7f" + size.to_bytes(8)
    mask = bytes([length[0] | 0x80 * masked]) + length[1:] + b"mask" * masked
    return bytes([opcode | 0x80 * final]) + mask + payload


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
def test_a_whole_message_holds_nothing(size: int, masked: bool) -> None:
    scanner = MessageScanner()
    message = frame(BINARY, bytes(size), masked=masked)
    assert scanner.feed(message * 2)
    assert scanner.held_bytes == 0
    assert not scanner.feed(message[:-1] if size else message[:1])
    assert scanner.feed(message[-1:] if size else message[1:])
    assert scanner.held_bytes == 0


def test_fragments_count_until_the_last_one() -> None:
    scanner = MessageScanner()
    begin, middle = frame(TEXT, b"x" * 100, final=False), frame(MORE, b"y" * 200, final=False)
    assert not scanner.feed(begin)
    assert scanner.held_bytes == len(begin)
    assert not scanner.feed(frame(PING, b"are you there?"))
    assert not scanner.feed(middle[:50])
    assert scanner.held_bytes == len(begin) + 50
    assert not scanner.feed(middle[50:])
    assert not scanner.feed(frame(MORE, b"", final=False))
    assert scanner.held_bytes == len(begin + middle) + 6
    assert scanner.feed(frame(MORE, b"") + begin)
    assert scanner.held_bytes == len(begin)


def test_a_control_frame_between_messages_holds_nothing() -> None:
    scanner = MessageScanner()
    ping = frame(PING, b"x" * 100)
    assert not scanner.feed(ping[:50])
    assert not scanner.feed(ping[50:] + ping)
    assert scanner.held_bytes == 0


def test_a_length_of_any_size_costs_nothing() -> None:
    scanner = MessageScanner()
    assert not scanner.feed(b"\x82\xff" + b"\xff" * 8 + b"mask" + bytes(1_000))
    assert scanner.held_bytes == 1_014


def test_the_longest_message_counts_as_long_as_it_has_announced_itself() -> None:
    scanner = MessageScanner()
    scanner.feed(frame(TEXT, b"x" * 100) + frame(BINARY, b"x" * 60, final=False))
    assert scanner.longest_bytes == 100
    scanner.feed(frame(PING, b"x" * 120) + frame(MORE, b"x" * 50, final=False))
    assert scanner.longest_bytes == 110
    scanner.feed(frame(MORE, b"x" * 7_000)[:8])
    assert scanner.longest_bytes == 7_110
    again = MessageScanner()
    again.feed(frame(TEXT, b"x" * 60) * 100)
    assert again.longest_bytes == 60


@pytest.mark.parametrize("payload", [b"", b"\x03\xe8bye"])
def test_a_close_frame_is_seen_once_it_is_whole(payload: bytes) -> None:
    scanner = MessageScanner()
    close = frame(CLOSE, payload)
    scanner.feed(frame(TEXT, b"x") + frame(PING, b"x") + close[:-1])
    assert not scanner.closed
    scanner.feed(close[-1:])
    assert scanner.closed
    scanner.feed(frame(TEXT, b"x"))
    assert scanner.closed


@each_row(range(20))
def test_where_reads_end_makes_no_difference(seed: int) -> None:
    chance = random.Random(seed)
    sizes = [chance.choice([0, 1, 125, 126, 300, 70_000]) for _ in range(20)]
    data = b"".join(
        frame(
            chance.choice([TEXT, BINARY, MORE, PING]),
            bytes(size),
            final=chance.random() < 0.5,
            masked=chance.random() < 0.5,
        )
        for size in sizes
    )
    at_once, in_pieces = MessageScanner(), MessageScanner()
    ended, at = False, 0
    while at < len(data):
        size = chance.choice([1, 2, 3, 100, 50_000])
        ended |= in_pieces.feed(data[at : at + size])
        at += size
        assert in_pieces.held_bytes <= at
    assert at_once.feed(data) == ended
    assert at_once.held_bytes == in_pieces.held_bytes
    assert at_once.longest_bytes == in_pieces.longest_bytes


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("final", [True, False])
@pytest.mark.parametrize("opcode", [MORE, TEXT, PING])
def test_the_smallest_frames_cost_no_calls_of_their_own(
    opcode: int, final: bool, masked: bool
) -> None:
    """A peer may send nothing else, half a million of them in a megabyte."""
    scanner = MessageScanner()
    data = frame(opcode, b"", final=final, masked=masked) * 10_000
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        ended = scanner.feed(data)
    finally:
        sys.setprofile(before)
    assert ended == (final and opcode != PING)
    assert scanner.held_bytes == (0 if final or opcode == PING else len(data))
    assert calls < 10
