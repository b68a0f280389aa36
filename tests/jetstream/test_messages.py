"""Tests the parser of what a NATS server sends."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import given, strategies as st

from each_row import each_row
from rillnode.actors.jetstream.messages import (
    LINE_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    Event,
    Failure,
    Info,
    Message,
    Parser,
    WireError,
)

HEAD: Final = b"NATS/1.0\r\nNats-Sequence: 7\r\nNats-Subject:a.b\r\n\r\n"
STREAM: Final = b"".join(
    (
        b'INFO {"server_name":"n","version":"2.12.1","max_payload":5,"headers":true,"x":[1]}\r\n',
        b"+OK\r\nPING\r\n",
        b"MSG a.b 1 11\r\nMSG x 1 2\r\n\r\n",
        b"MSG a.b 12 reply.to 0\r\n\r\n",
        b"HMSG a 1 %d %d\r\n%sdata\r\n" % (len(HEAD), len(HEAD) + 4, HEAD),
        b"HMSG a 2 r 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
        b"-ERR 'Authorization Violation'\r\nPONG\r\n",
    )
)
EVENTS: Final[Sequence[Event]] = (
    Info("n", "2.12.1", 5, headers=True),
    "ping",
    Message(b"a.b", b"1", b"", b"MSG x 1 2\r\n"),
    Message(b"a.b", b"12", b"", b""),
    Message(b"a", b"1", HEAD, b"data"),
    Message(b"a", b"2", b"NATS/1.0 503\r\n\r\n", b""),
    Failure("Authorization Violation"),
    "pong",
)


def test_events_are_the_same_however_their_bytes_come() -> None:
    assert Parser().feed(STREAM) == list(EVENTS)
    for cut in range(len(STREAM) + 1):
        parser = Parser()
        assert parser.feed(STREAM[:cut]) + parser.feed(STREAM[cut:]) == list(EVENTS)
        assert parser.is_empty
    parser = Parser()
    assert [event for byte in STREAM for event in parser.feed(bytes((byte,)))] == list(EVENTS)


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_events_are_the_same_in_any_pieces(cuts: list[int]) -> None:
    parser, bounds = Parser(), [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[a:b] for a, b in pairwise(bounds)]
    assert [event for piece in pieces for event in parser.feed(piece)] == list(EVENTS)


def test_headers_are_found_by_name() -> None:
    message = Message(b"a", b"1", HEAD, b"")
    assert message.status == 0
    assert message.header(b"Nats-Sequence") == b"7"
    assert message.header(b"Nats-Subject") == b"a.b"
    assert message.header(b"Subject") is None
    assert Message(b"a", b"1", b"", b"").header(b"Nats-Sequence") is None
    assert Message(b"a", b"1", b"NATS/1.0 404 Not\r\n\r\n", b"").status == 404
    assert Message(b"a", b"1", b"NATS/1.0 ab\r\n\r\n", b"").status == 0


@each_row(
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"\x16\x03\x01\x02\r\n",
        b"\r\n",
        b"INFO {\r\n",
        b"INFO []\r\n",
        b'INFO {"max_payload": "x"}\r\n',
        b"INFO \xff\r\n",
        b'INFO {"x":' + b"[" * 60_000 + b"\r\n",
        b"MSG a 1 -1\r\n",
        b"MSG a 1 +1\r\nx\r\n",
        b"MSG a 1 1_0\r\n",
        b"MSG a 1 x\r\n",
        b"MSG a 1\r\nx\r\n",
        b"MSG \r\n",
        b"MSG a 1 r r 1\r\nx\r\n",
        b"MSG a 1 2\r\nxyz\r\n",
        b"MSG a 1 %d\r\n" % (MESSAGE_BYTES_MAX + 1),
        b"MSG a 1 %s\r\n" % (b"9" * 5_000),
        b"HMSG a 1 16\r\nNATS/1.0 503\r\n\r\n\r\n",
        b"HMSG a 1 20 16\r\nNATS/1.0 503\r\n\r\n\r\n",
        b"HMSG a 1 16 16\r\nNOTS/1.0 503\r\n\r\n\r\n",
        b"HMSG a 1 14 16\r\nNATS/1.0 503\r\n\r\n\r\n",
        b"HMSG a 1 x 16\r\nNATS/1.0 503\r\n\r\n\r\n",
        b"P" * LINE_BYTES_MAX,
        b"MSG " + b"a" * LINE_BYTES_MAX + b" 1 0\r\n\r\n",
    ]
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        Parser().feed(data)
    parser = Parser()
    pieces = [data[at : at + 97] for at in range(0, len(data), 97)]
    with pytest.raises(WireError):
        list(map(parser.feed, pieces))


@given(st.binary(max_size=200), st.integers(0, len(STREAM)), st.integers(0, 20))
def test_damage_ends_in_events_or_an_error(noise: bytes, at: int, left_out: int) -> None:
    data = STREAM[:at] + noise + STREAM[at + left_out :]
    parser = Parser()
    try:
        for piece in (data[:at], data[at:], b"\r\n"):
            for event in parser.feed(piece):
                if isinstance(event, Message):
                    assert event.status >= 0
                    event.header(b"Nats-Sequence")
    except WireError:
        return


def test_a_message_that_comes_in_many_pieces_is_joined_once() -> None:
    parser, size = Parser(), 2_000_000
    data = b"MSG a 1 %d\r\n%s\r\n" % (size, b"x" * size)
    found: list[Event] = []
    for at in range(0, len(data), 1_000):
        found += parser.feed(data[at : at + 1_000])
    assert found == [Message(b"a", b"1", b"", b"x" * size)]
