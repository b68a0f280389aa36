"""What makes sure that a group handed from node to node is appended once at most; pure.

A batch that a node hands to another carries a stamp, and a sequence that its log had reached before
the stamp was made: up to there it cannot be. The stamp is kept in the frame that holds the batch.
Whoever publishes the batch, however late and however often it is tried, first looks through all
frames from there up to the very one that it publishes behind; the expected last sequence makes sure
that no other comes in between. So a batch that is there already is always found.

The numbers of one origin grow, and it hands on the next batch of a log only once it has its answer
to the one before, or has given it up. So a batch behind which a later one of its origin is found
comes too late, and is refused.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from rillnode.actors.storage import Append, Trim
from rillnode.actors.storage.jetstream.failures import fenced_error
from rillnode.actors.storage.jetstream.frames import LogFrame
from rillnode.actors.storage.jetstream.log_reader import blocks_of, next_position_of
from rillnode.actors.storage.layout import LogState
from rillnode.codecs.entries import decode_header
from rillnode.codecs.errors import StoreError

_FRAMES_MAX: Final = 256
"""Frames whose stamps are remembered; others are read again when somebody asks."""


def may_go(operation: Append | Trim) -> bool:
    """Whether the log's owner may append it: not what follows from what this node knows."""
    if isinstance(operation, Trim):
        return False
    return not operation.records and operation.seen is None


@dataclass(slots=True, eq=False)
class Batch:
    """Appends that are in their log together, in their order, or not at all.

    Attributes:
        done: is called with it once its results are set, or its appends' errors.
        origin: tells the store whose clients wait for it; empty for one that was never handed on.
        number: grows from one of its batches to the next.
        since: it is not in the log up to this sequence.
        sequence: result: the frame that holds it.
    """

    appends: Sequence[Append]
    done: "Callable[[Batch], None]"
    origin: bytes = b""
    number: int = 0
    since: int = 0
    sequence: int = 0

    @property
    def is_settled(self) -> bool:
        """Whether it is known what became of it."""
        return bool(self.sequence) or any(append.error is not None for append in self.appends)

    def fail(self, error: StoreError) -> None:
        """Give its appends an error, unless it was found in the log or they have one."""
        for append in self.appends if not self.sequence else ():
            append.error = append.error or error

    def refuse(self, error: StoreError) -> None:
        """End it with an error."""
        self.fail(error)
        self.done(self)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a batch stands: for each append its first index, and the log's data up to its end."""

    sequence: int
    ends: Sequence[tuple[int, int]]


@dataclass(slots=True, eq=False)
class Stamps:
    """The stamps of the frames past `since`, up to `until`."""

    since: int = 0
    until: int = 0
    _places: dict[tuple[bytes, int], Place] = field(default_factory=dict[tuple[bytes, int], Place])
    _latest: dict[bytes, int] = field(default_factory=dict[bytes, int])
    _frames: deque[tuple[int, list[tuple[bytes, int]]]] = field(
        default_factory=deque[tuple[int, list[tuple[bytes, int]]]]
    )

    def add(self, sequence: int, frame: LogFrame) -> None:
        """Take the stamps of a frame; where it does not follow the last one, only its own.

        Raises:
            CodecError: its blocks are damaged.
        """
        if sequence != self.until + 1:
            self.begin(sequence - 1)
        self.until = sequence
        if not frame.stamps:
            return
        ends = _ends_of(frame)
        keys: list[tuple[bytes, int]] = []
        for stamp in frame.stamps:
            key = (stamp.origin, stamp.number)
            self._places[key] = Place(sequence, ends[stamp.block : stamp.block + stamp.blocks])
            self._latest[stamp.origin] = max(stamp.number, self._latest.get(stamp.origin, 0))
            keys.append(key)
        self._frames.append((sequence, keys))

    def begin(self, sequence: int) -> None:
        """Know nothing but that the next frame is the one after this."""
        self.since = self.until = sequence
        self._places, self._latest = {}, {}
        self._frames.clear()

    def cover(self, since: int, until: int) -> bool:
        """Whether all stamps between are known."""
        return self.since <= since and self.until >= until

    def settle(self, batch: Batch, state: LogState) -> bool:
        """Whether a batch is in the log; then its results are set.

        Raises:
            StoreError: a later one of its origin is there and it is not: it never will be.
        """
        place = self._places.get((batch.origin, batch.number))
        if place is None:
            if self._latest.get(batch.origin, -1) > batch.number:
                raise fenced_error("appended later entries of the same clients")
            return False
        batch.sequence = place.sequence
        for append, (first_index, position) in zip(batch.appends, place.ends, strict=True):
            append.first_index, append.kept_bytes = first_index, position - state.first_position
        return True

    def trim(self) -> None:
        """Forget what hardly anybody will ask for."""
        while len(self._frames) > _FRAMES_MAX:
            self.since, keys = self._frames.popleft()
            for key in keys:
                del self._places[key]
                if self._latest.get(key[0]) == key[1]:
                    del self._latest[key[0]]


def _ends_of(frame: LogFrame) -> list[tuple[int, int]]:
    """The first index of each block, and the log's data bytes up to its end."""
    blocks = blocks_of(frame)
    positions = [decode_header(block.value).position for block in blocks[1:]]
    positions.append(next_position_of(frame))
    return [(block.first_index, end) for block, end in zip(blocks, positions, strict=True)]
