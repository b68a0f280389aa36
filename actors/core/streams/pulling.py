"""Answers to Ockam's pull: as many entries as were asked for and as one message carries.

What fits is computed from the very message that carries it: its routes, its link's wire format, its
numbers. Where an entry alone fits only without the stream's address in the return route it goes
without: consumers know that address since their stream was made, and read nothing there.

An entry that fits no such answer is passed over. It came by another protocol, as a push from a
link whose own answers could not carry it is refused (`can_be_pulled`).
"""

from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from rillnode.actors.core.delivery import Origin
from rillnode.actors.log import Read
from rillnode.codecs.entries import items_of
from rillnode.codecs.errors import CodecError
from rillnode.codecs.limits import (
    PULL_ENTRIES_MAX,
    PULL_LOOK_BYTES_MAX,
    U16_FRAME_BYTES_MAX,
    U16_MESSAGE_BYTES_MAX,
)
from rillnode.codecs.routing.routes import Route, local
from rillnode.codecs.routing.stream import (
    PullRequest,
    PullResponse,
    PushRequest,
    encode_response,
    lone_entry_answer_bytes,
    pull_tag,
    response_tag,
)
from rillnode.codecs.routing.wire import message_bytes, overhead_bytes_max

PAYLOAD_OVERHEAD_BYTES: Final = 60
"""Room for an answer's tag, lengths, request id and count, each at its longest."""

ENTRY_OVERHEAD_BYTES: Final = 15
"""Room for an entry's index and length, each at its longest."""

RELAYED_BYTES: Final = U16_FRAME_BYTES_MAX - U16_MESSAGE_BYTES_MAX
"""What an answer leaves free where it can: a released node on its way, since 2022-05, passes on no
more than U16_MESSAGE_BYTES_MAX, and who asked would ask for the same again for ever."""

DIRECT_HOPS: Final = 2
"""Of a route without another node: the connection, and the worker at its other end."""

SHORT_WAY_HOPS: Final = 3
SHORT_WAY_BYTES: Final = 8_192
"""More than an answer takes beside its entry where the route has no more hops than that."""

NUMBER_MAX: Final = 2**35 - 1
"""What requests' ids and entries' indexes are reckoned with, five bytes each: released clients have
ids up to 1,000 or count from 0, and so many entries of 64 KB take two petabytes."""

RUNS_KEPT: Final = 16


class Pull(Struct, frozen=True):
    """One pull, as the token of the reads that it takes.

    Attributes:
        read_bytes_max: what the read under way may bring.
        first_index: where that read begins; what lies between it and the request's index is too
            large for this asker.
        look_bytes: how much more of that it may find.
    """

    origin: Origin
    return_route: Route
    request: PullRequest
    read_bytes_max: int
    first_index: int
    look_bytes: int = PULL_LOOK_BYTES_MAX

    @property
    def limit(self) -> int:
        """Entries that its answer has at most."""
        return min(self.request.limit, PULL_ENTRIES_MAX)

    def entry_bytes_max(self, next_index: int = 0) -> int:
        """The largest entry that this asker gets of a log that ends before `next_index`."""
        numbers = max(self.request.request_id, NUMBER_MAX), max(next_index, NUMBER_MAX)
        return entry_bytes_max(self.origin, self.return_route, self.request.tag, *numbers)


@dataclass(slots=True)
class Collected:
    """The entries that a read has brought for a pull.

    Attributes:
        messages: the entries of the answer.
        first_index: of the entries looked at.
        next_index: behind those that were too large, before which there are no others.
        unnamed: they fit only without the stream's address in the return route.
        largest: what the asker gets at most, where some had more.
        too_large: how many had.
        too_large_bytes: how large they are together.
    """

    messages: list[tuple[int, bytes]]
    first_index: int
    next_index: int
    unnamed: bool = False
    largest: int = -1
    too_large: int = 0
    too_large_bytes: int = 0


class Oversized:
    """The places of entries too large for some readers, so that nobody looks there twice.

    Each run is of neighbours, all of them larger than some size. The latest runs are remembered.
    """

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: dict[int, tuple[int, int]] = {}

    def behind(self, index: int, entry_bytes_max: int) -> int:
        """The first index from `index` on whose entry may have no more than `entry_bytes_max`."""
        runs = self._runs
        for first in sorted(runs):
            end, size = runs[first]
            if first <= index < end and size >= entry_bytes_max:
                runs[first] = runs.pop(first)  # now the last that would be forgotten
                index = end
        return index

    def note(self, first: int, end: int, size: int) -> None:
        """Remember that all entries from `first` up to `end` have more than `size` bytes."""
        runs = self._runs
        for start, (stop, other) in runs.items():
            if start <= first <= stop and size == other:
                del runs[start]
                first, end = start, max(end, stop)
                break
        runs[first] = end, size
        if len(runs) > RUNS_KEPT:
            del runs[next(iter(runs))]


def entry_bytes_max(
    origin: Origin,
    onward: Route,
    tag: str,
    request_id: int = NUMBER_MAX,
    index: int = NUMBER_MAX,
) -> int:
    """The largest entry that answers to pulls on some way carry; negative: not even an empty one.

    It is the same for all numbers below NUMBER_MAX: what was confirmed to one who pushed over such
    a way can be pulled over it, with whatever id, wherever it came to lie.

    Args:
        origin: who is answered.
        onward: the answer's onward route; the connection takes itself off before it sends.
        tag: how the pull is spelt.
        request_id: the largest of the pull's.
        index: the largest of the entry's.
    """
    answer = AnswerSize(origin, onward, (), response_tag(tag), request_id, index)
    limit = origin.message_bytes_max
    try:
        size = 2 * limit - answer.of(limit)
    except CodecError:
        return -1  # a worker of this node has made the route longer than routes may be
    while answer.of(max(0, size + 1)) <= limit:  # lengths before it may be a byte shorter
        size += 1
    return size


@dataclass(frozen=True, slots=True)
class AnswerSize:
    """The size of an answer of one entry on its link, by the size of the entry."""

    origin: Origin
    onward: Route
    back: Route
    tag: str
    request_id: int
    index: int

    def of(self, size: int) -> int:
        """Bytes of the wire message."""
        payload = lone_entry_answer_bytes(self.tag, self.request_id, self.index, size)
        return message_bytes(self.origin.wire_format, self.onward[1:], self.back, payload)


def can_be_pulled(origin: Origin, return_route: Route, request: PushRequest) -> bool:
    """Whether an answer on the way that the push's own confirm takes could carry its entry."""
    size = len(request.data)
    if len(return_route) <= SHORT_WAY_HOPS and size <= origin.message_bytes_max - SHORT_WAY_BYTES:
        return True
    return size <= entry_bytes_max(origin, return_route, pull_tag(request.tag))


def collect(pull: Pull, operation: Read, own_address: bytes) -> Collected:
    """Take from what was read for a pull what its answer carries.

    An entry behind the first that does not fit ends the answer, whatever its size: the next pull
    begins with it.
    """
    first = max(pull.first_index, operation.extent.first_index)
    found = Collected([], first, first)
    messages, back, request = found.messages, (local(own_address),), pull.request
    overhead = overhead_bytes_max(pull.return_route, back) + PAYLOAD_OVERHEAD_BYTES + RELAYED_BYTES
    room, limit = pull.origin.message_bytes_max - overhead, pull.limit
    for block in operation.blocks:
        for index, data in enumerate(items_of(block.value), block.first_index):
            if index < first:
                continue
            size = len(data)
            if size + ENTRY_OVERHEAD_BYTES <= room:
                room -= size + ENTRY_OVERHEAD_BYTES
                messages.append((index, data))
                if len(messages) == limit:
                    return found
                continue
            if messages:
                return found
            if not found.too_large:
                found.largest = pull.entry_bytes_max(operation.extent.next_index)
            if size <= found.largest:
                tag, request_id = response_tag(request.tag), request.request_id
                named = AnswerSize(pull.origin, pull.return_route, back, tag, request_id, index)
                messages.append((index, data))
                relayed = RELAYED_BYTES if len(pull.return_route) > DIRECT_HOPS else 0
                found.unnamed = named.of(size) > pull.origin.message_bytes_max - relayed
                return found
            found.next_index = index + 1
            found.too_large += 1
            found.too_large_bytes += size
    return found


def encode_pulled(request: PullRequest, messages: list[tuple[int, bytes]]) -> bytes:
    """Encode a PullResponse, spelt as the request was."""
    response = PullResponse(request.request_id, messages, response_tag(request.tag))
    return encode_response(response)
