"""Ockam's 2024 dialect: what was captured between real nodes is read and written back unchanged.

The captures are the records of level `head` in vectors/ockam.json.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from each_row import each_row
from rillnode.codecs.framing import LinkCodec
from rillnode.codecs.routing.dialects import EitherDialect
from rillnode.codecs.routing.framing import U32Framing
from rillnode.codecs.routing.routes import format_route, parse_route
from rillnode.codecs.routing.wire import wire_codec

RECORDS: Final[list[dict[str, Any]]] = [
    record
    for record in json.loads((Path(__file__).parent / "vectors" / "ockam.json").read_text())
    if record["level"] == "head"
]
MESSAGES: Final = [record for record in RECORDS if record["name"] != "version byte"]
DIRECTIONS: Final = ("client>service", "service>client")

SPECIFIED: Final = (
    "01 00000049 84 81 82 00 46 73747265616d 81 82 00 55 43414c4c5f65623362316137346361646136316135"
    "58 22 0d73747265616d5f6372656174651301116c61625f73747265616d5f323038383331 f6"
)
"""A greeting and a first request, taken apart by hand."""


def sent(direction: str) -> list[bytes]:
    """All that one side sent, in order."""
    return [bytes.fromhex(r["hex"]) for r in RECORDS if r["direction"] == direction]


def test_every_capture_is_looked_at() -> None:
    assert len(RECORDS) == 45
    assert len(MESSAGES) == 43
    assert b"".join(sent(DIRECTIONS[0])[:2]).hex() == SPECIFIED.replace(" ", "")


@each_row(MESSAGES, lambda record: str(record["seq"]))
def test_messages_are_read_and_written_back(record: dict[str, Any]) -> None:
    frame = bytes.fromhex(record["hex"])
    wire = wire_codec("cbor")
    (message,) = wire.decode([frame[4:]])
    assert format_route(message.onward_route) == ";".join(record["onward"])
    assert format_route(message.return_route) == ";".join(record["return"])
    assert U32Framing().encode([wire.encode(message)]) == frame
    assert parse_route(" => ".join(record["onward"])) == message.onward_route


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("make_codec", [U32Framing, EitherDialect])
def test_a_whole_direction_is_read_however_it_is_split(
    direction: str, make_codec: type[U32Framing | EitherDialect]
) -> None:
    frames = sent(direction)
    stream = b"".join(frames)
    for size in (1, 2, 3, 7, 74, 1_000, len(stream)):
        codec: LinkCodec = make_codec()
        cuts = [*range(0, len(stream), size), len(stream)]
        got = [m for start, end in pairwise(cuts) for m in codec.receive(stream[start:end])]
        assert [codec.encode([message]) for message in got] == frames[1:]
        assert codec.start() + codec.take_output() == b"\x01"
        codec.end()


def test_one_connection_reads_all_messages() -> None:
    frames = [bytes.fromhex(record["hex"])[4:] for record in MESSAGES]
    wire = wire_codec("cbor")
    for _ in range(2):
        assert list(map(wire.encode, wire.decode(frames))) == frames
