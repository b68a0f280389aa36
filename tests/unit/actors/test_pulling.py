"""Answers to pulls fit one message, however much of it is not entries."""

from typing import Final

import pytest

from rillnode.actors.delivery import Origin
from rillnode.actors.storage import LogExtent, Read
from rillnode.actors.streams.pulling import (
    ENTRY_OVERHEAD_BYTES,
    answer_room,
    pull_answer,
)
from rillnode.codecs.entries import Block, EntryKind, encode_block, pack_body
from rillnode.codecs.limits import U16_MESSAGE_BYTES_MAX, U32_MESSAGE_BYTES_MAX
from rillnode.codecs.links import WireFormat
from rillnode.codecs.ockam.routing import Address, Route, WireMessage, local
from rillnode.codecs.ockam.stream import PullRequest, PullResponse, decode_response
from rillnode.codecs.ockam.wire import wire_codec
from rillnode.codecs.varint import BIG_UINT_MAX

LINKS: Final[dict[WireFormat, int]] = {"bare": U16_MESSAGE_BYTES_MAX, "cbor": U32_MESSAGE_BYTES_MAX}
OWN_ADDRESS: Final = b"ST_S_0_" + b"s" * 505
CONNECTION: Final = local("TCP_H_0123456789abcdef")
LONGEST_WAY: Final[Route] = (CONNECTION, *[Address(2**64 - 1, b"a" * 300)] * 62)
LAST_INDEX: Final = 2**64 - 1


def answer(request: PullRequest, room: int, items: list[bytes], first_index: int) -> bytes:
    value = encode_block(
        count=len(items), kind=EntryKind.BYTES, received_at=0, position=0, body=pack_body(items)
    )
    operation = Read(
        blocks=[Block(first_index=first_index, value=value)],
        extent=LogExtent(first_index, first_index + len(items), 0),
    )
    return pull_answer(request, operation, room)


@pytest.mark.parametrize("wire_format", LINKS)
@pytest.mark.parametrize(
    "request_id", [0, 2**64 - 1, BIG_UINT_MAX], ids=["short", "64 bits", "32 bytes"]
)
@pytest.mark.parametrize("route", [LONGEST_WAY[:1], LONGEST_WAY], ids=["one hop", "63 hops"])
@pytest.mark.parametrize("tag", ["stream_pull", "stream_pull:request"])
def test_an_exactly_full_answer_fits_its_link(
    wire_format: WireFormat, request_id: int, route: Route, tag: str
) -> None:
    limit = LINKS[wire_format]
    request = PullRequest(request_id, LAST_INDEX, 10_000, tag)
    room = answer_room(Origin("anonymous", limit, native=False), route, OWN_ADDRESS)
    full = bytes(room - ENTRY_OVERHEAD_BYTES)

    payload = answer(request, room, [full], LAST_INDEX)

    response = decode_response(payload)
    assert isinstance(response, PullResponse)
    assert response.messages == [(LAST_INDEX, full)]
    message = WireMessage(route, (local(OWN_ADDRESS),), payload)
    # The connection takes itself off the onward route before it sends.
    sent = WireMessage(route[1:], message.return_route, payload)
    assert len(wire_codec(wire_format).encode(sent)) <= limit


def test_one_byte_more_than_full_is_refused_with_its_index_and_size() -> None:
    request = PullRequest(BIG_UINT_MAX, LAST_INDEX, 1, "stream_pull")
    room = answer_room(Origin("anonymous", 65_000, native=False), LONGEST_WAY, OWN_ADDRESS)
    over = bytes(room - ENTRY_OVERHEAD_BYTES + 1)
    text = f"Entry {LAST_INDEX} holds {len(over)} bytes"
    assert text.encode() in answer(request, room, [over], LAST_INDEX)
