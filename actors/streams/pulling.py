"""Answers to Ockam's pull: as many entries as were asked for and as one message carries."""

from typing import Final

from rillnode.actors.delivery import Origin
from rillnode.actors.storage import Read
from rillnode.actors.streams.answers import invalid_request
from rillnode.codecs.entries import items_of
from rillnode.codecs.limits import PULL_ENTRIES_MAX
from rillnode.codecs.ockam.routing import Route, local
from rillnode.codecs.ockam.stream import PullRequest, PullResponse, encode_response, response_tag
from rillnode.codecs.ockam.wire import overhead_bytes_max

PAYLOAD_OVERHEAD_BYTES: Final = 60
"""Room for an answer's tag, lengths, request id and count, each at its longest."""

ENTRY_OVERHEAD_BYTES: Final = 15
"""Room for an entry's index and length, each at its longest."""


def answer_room(origin: Origin, return_route: Route, own_address: bytes) -> int:
    """Bytes that the entries of one answer may take, behind both routes."""
    overhead = overhead_bytes_max(return_route, (local(own_address),))
    return origin.message_bytes_max - overhead - PAYLOAD_OVERHEAD_BYTES


def pull_answer(request: PullRequest, operation: Read, room: int) -> bytes:
    """Encode the answer to a pull from what was read for it; never an empty success for a failure.

    Args:
        request: the pull.
        operation: the completed read of its range.
        room: bytes that the entries may take.
    """
    if operation.error is not None:
        return invalid_request(request, operation.error.text)
    limit = min(request.limit, PULL_ENTRIES_MAX)
    first = max(request.index, operation.extent.first_index)
    messages: list[tuple[int, bytes]] = []
    for block in operation.blocks:
        for index, data in enumerate(items_of(block.value), block.first_index):
            if index < first:
                continue
            room -= len(data) + ENTRY_OVERHEAD_BYTES
            if room < 0 and not messages:
                text = f"Entry {index} holds {len(data)} bytes, more than a message carries"
                return invalid_request(request, text)
            if room < 0 or len(messages) == limit:
                return encode_pulled(request, messages)
            messages.append((index, data))
    return encode_pulled(request, messages)


def encode_pulled(request: PullRequest, messages: list[tuple[int, bytes]]) -> bytes:
    """Encode a PullResponse, spelt as the request was."""
    response = PullResponse(request.request_id, messages, response_tag(request.tag))
    return encode_response(response)
