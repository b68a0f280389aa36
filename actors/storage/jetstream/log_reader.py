"""Finding and reading the frames of one log."""

from bisect import bisect_right, insort
from collections.abc import AsyncGenerator
from typing import Final, NamedTuple

from rillnode.actors.storage.jetstream.frames import LogFrame, decode
from rillnode.actors.storage.jetstream.server import Server
from rillnode.codecs.entries import (
    HEADER_BYTES,
    Block,
    data_bytes,
    decode_header,
)

_PLACES_MAX: Final = 1_024


class Place(NamedTuple):
    """A frame's sequence, and the index of its first entry."""

    first_index: int
    sequence: int


class PurgedError(Exception):
    """The frame that was looked for is no more."""


class LogReader:
    """Reads the JetStream stream of one log; remembers where some of its frames are."""

    def __init__(self, server: Server, name: str) -> None:
        self._server = server
        self._name = name
        self._places: list[Place] = []

    def forget(self) -> None:
        """Forget the places."""
        self._places = []

    async def find(self, index: int, first: Place, end: Place) -> tuple[int, LogFrame]:
        """The frame that holds an entry, and its sequence.

        Frames are of any length, so it is searched for: from the nearest places known, where it
        would be if all frames between them were equal, and by halving in every other step.

        Args:
            index: the entry; not below `first` and below `end`.
            first: the first frame kept.
            end: where the frame after the last one will be.

        Raises:
            PurgedError: it was trimmed meanwhile.
            StoreError: a message is damaged.
            UnansweredError: no answer came.
        """
        at = bisect_right(self._places, index, key=_index_of)
        low = max(first, self._places[at - 1]) if at else first
        high = min(end, self._places[at]) if at < len(self._places) else end
        halve = False
        while low.sequence < high.sequence:
            sequence = (low.sequence + high.sequence) // 2
            if not halve:
                share = (index - low.first_index) * (high.sequence - low.sequence)
                sequence = low.sequence + share // (high.first_index - low.first_index)
            frame = await self._frame(sequence)
            if index < frame.first_index:
                high = Place(frame.first_index, sequence)
            elif index >= next_index_of(frame):
                low = Place(next_index_of(frame), sequence + 1)
            else:
                self._remember(Place(frame.first_index, sequence))
                return sequence, frame
            halve = not halve
        raise PurgedError

    async def frames(self, first: int, last: int) -> AsyncGenerator[tuple[int, LogFrame], None]:
        """The frames from one sequence to another, in order.

        Raises:
            PurgedError: they were trimmed meanwhile.
            StoreError: a message is damaged.
            UnansweredError: they stopped coming.
        """
        expected = first
        async for sequence, data in self._server.scan(self._name, first, last):
            if sequence != expected:
                raise PurgedError
            expected += 1
            frame = self.decode(data)
            yield sequence, frame
            if sequence == last:
                self._remember(Place(frame.first_index, sequence))
        if expected <= last:
            raise PurgedError

    def decode(self, data: bytes) -> LogFrame:
        """Read a message.

        Raises:
            StoreError: it is none of ours.
        """
        return decode(LogFrame, data, f"the stream {self._name}")

    async def _frame(self, sequence: int) -> LogFrame:
        found = await self._server.get(self._name, sequence)
        if found is None:
            raise PurgedError
        return self.decode(found.data)

    def _remember(self, place: Place) -> None:
        places = self._places
        at = bisect_right(places, place.first_index, key=_index_of)
        if at and places[at - 1] == place:
            return
        insort(places, place)
        if len(places) > _PLACES_MAX:
            del places[::2]


def blocks_of(frame: LogFrame) -> list[Block]:
    """The blocks of a frame."""
    blocks: list[Block] = []
    index = frame.first_index
    for value in frame.blocks:
        blocks.append(Block(index, value))
        index = blocks[-1].next_index
    return blocks


def next_index_of(frame: LogFrame) -> int:
    """The index after a frame's last entry."""
    return blocks_of(frame)[-1].next_index


def next_position_of(frame: LogFrame) -> int:
    """Data bytes of the log up to the end of a frame.

    Raises:
        CodecError: its last block is damaged.
    """
    value = frame.blocks[-1]
    header = decode_header(value)
    body = memoryview(value)[HEADER_BYTES:]
    return header.position + data_bytes(header.count, body, header.flags)


def _index_of(place: Place) -> int:
    return place.first_index
