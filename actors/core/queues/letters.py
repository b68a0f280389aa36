"""Puts what a work queue gives up into `<stream>.dead`, and finds it there to be given again.

An entry is out of the state in the same commit that makes it a dead letter: it is never in both,
nor in none. Where letters cannot be kept, they wait, and are tried again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from rillnode.actors.core.queues.context import STOPPED, QueueContext
from rillnode.actors.core.queues.partitions import Partitions
from rillnode.actors.core.queues.state import OPEN_MAX, Place, QueueState, key_number
from rillnode.actors.core.streams.appending import Appends, Insertion
from rillnode.actors.core.streams.context import stream_address
from rillnode.actors.core.streams.revising import Revised, ReviseStream
from rillnode.actors.engine.waiting import Signal
from rillnode.actors.log import DEAD_SUFFIX, FindStream, Read, StreamRecord, log_id
from rillnode.actors.log.waiting import read
from rillnode.codecs import native
from rillnode.codecs.cutting import Cut
from rillnode.codecs.dead_letters import DeadLetter
from rillnode.codecs.entries import Entry, EntryKind, entries_of
from rillnode.codecs.errors import CodecError, RequestError, RillnodeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import BLOCK_BYTES_MAX

logger = event_logger("rillnode.actors.core.queues.queue")

LETTERS_MAX: Final = 256
LETTERS_BYTES_MAX: Final = BLOCK_BYTES_MAX
"""Dead letters of one commit."""

DEAD_AGAIN_SECONDS: Final = 5.0
"""Before what cannot become dead letters is tried again."""

TAKEN_BACK_BYTES: Final = 1_048_576
"""Of the stream of dead letters, looked at for one request."""

Letter = tuple[Place, Entry, bytes]
"""Where an entry is, the entry, and the note that goes with it."""


@dataclass(slots=True)
class Found:
    """Dead letters that are found for who asks to have them given again.

    Attributes:
        places: of their entries, with what stands for their keys.
        gone: letters whose entries the stream does not keep any more.
        next_index: in the stream of dead letters, behind those that were looked at.
        made_at: when that stream was created; 0: there is none.
        left: letters behind that.
    """

    places: list[tuple[Place, int]] = field(default_factory=list[tuple[Place, int]])
    gone: int = 0
    next_index: int = 0
    made_at: int = 0
    left: int = 0


class DeadLetters:
    """The dead letters of a queue: those that are due, and those that were appended.

    Attributes:
        error: the code of why letters could not be kept; empty: they were.
    """

    def __init__(self, queue: QueueContext, partitions: Partitions) -> None:
        self._queue = queue
        self._partitions = partitions
        self._name = f"{queue.stream}{DEAD_SUFFIX}"
        self._bury_at = 0.0
        self.error = ""

    def are_due(self, state: QueueState) -> bool:
        """Whether something is to become dead letters now."""
        return bool(state.dying) and self._queue.monotonic() >= self._bury_at

    async def choose(self, state: QueueState) -> list[Letter]:
        """What becomes a dead letter now, with its note."""
        if not self.are_due(state):
            return []
        places = list(state.dying)[:LETTERS_MAX]
        data: dict[Place, Cut] = {}
        await self._partitions.fetch(state, places, data)
        assert self._partitions.record is not None
        letters: list[Letter] = []
        size = 0
        for place, cut in data.items():
            (entry,) = cut.entries()
            known = state.of(place)
            assert known is not None
            size += len(entry.data) + len(entry.key or b"") + len(entry.encoded_headers)
            if letters and size > LETTERS_BYTES_MAX:
                break
            note = DeadLetter(
                queue=self._queue.name,
                reason=known.reason,
                partition=place[0],
                index=place[1],
                attempts=known.attempts,
                made_at=self._partitions.record.created_at,
            )
            letters.append((place, entry, note.encode()))
        self._queue.more |= len(letters) < len(state.dying)
        return letters

    async def append(
        self,
        letters: Sequence[Letter],
        records: Sequence[tuple[str, bytes | None]],
        follows: Sequence[tuple[str, int]],
    ) -> RillnodeError | None:
        """Append letters, and write records in the same commit; return why that is not done.

        Nor is it where there is another version of a record than one of `follows`.
        """
        error = await self._append(letters, records, follows)
        if error is not None and error.code != "store.fenced":
            self._bury_at = self._queue.monotonic() + DEAD_AGAIN_SECONDS
            self.error = error.code
            self._queue.wake_in(DEAD_AGAIN_SECONDS)
            logger.warning(
                "dead_letters_not_kept",
                extra={
                    "stream": self._queue.stream,
                    "queue": self._queue.name,
                    "code": error.code,
                },
            )
        elif error is None:
            self.error = ""
            self._queue.more = True  # others were behind them
        return error

    async def _append(
        self,
        letters: Sequence[Letter],
        records: Sequence[tuple[str, bytes | None]],
        follows: Sequence[tuple[str, int]],
    ) -> RillnodeError | None:
        queue = self._queue
        try:
            record = await self._stream()
        except RillnodeError as error:
            return error
        done, outcomes = Signal(), list[RillnodeError | None]()

        def appended(_: int, error: RillnodeError | None) -> None:
            outcomes.append(error)
            done.set()

        keys = [entry.key for _, entry, _ in letters]
        headers = [entry.encoded_headers for _, entry, _ in letters]
        entries = Insertion(
            record.owner,
            EntryKind.BYTES,
            [entry.data for _, entry, _ in letters],
            [note for _, _, note in letters],
            keys if any(key is not None for key in keys) else (),
            headers if any(headers) else (),
            records=records,
            follows=follows,
        )
        log, address = log_id(record.id, 0), stream_address(record.name, 0)
        appends = Appends(queue.shared, address, log, record.owner)
        appends.insert(queue.actor, entries, appended, appended)
        await done
        return outcomes[0]

    async def _stream(self) -> StreamRecord:
        """The stream of dead letters, made where there is none, as its origin's owner's.

        Raises:
            RillnodeError: it cannot be made.
        """
        origin = self._partitions.record
        assert origin is not None

        def revise(found: StreamRecord) -> StreamRecord:
            if found.id:
                return found
            return msgspec.structs.replace(found, owner=origin.owner, grants=origin.grants)

        service = self._queue.shared.router.lookup(b"stream")
        if service is None:
            raise STOPPED
        revised: Revised = await self._queue.actor.ask(
            service, ReviseStream(self._name, origin.owner, revise)
        )
        if revised.error is not None:
            raise revised.error
        assert revised.record is not None
        return revised.record

    async def count(self) -> int:
        """How many letters are kept, of all queues of the stream."""
        find = FindStream(name=self._name)
        await read(self._queue.shared.store, find)
        return sum(one.next_index - one.first_index for one in find.extents)

    async def find(
        self, state: QueueState, request: native.TakeBackRequest
    ) -> Found | RequestError:
        """The next letters of this queue that were not given again, or why they are not."""
        try:
            return await self._find(state, request)
        except RequestError as error:
            return error

    async def _find(self, state: QueueState, request: native.TakeBackRequest) -> Found:
        """The next letters of this queue that were not given again."""
        find = FindStream(name=self._name)
        await read(self._queue.shared.store, find)
        if find.record is None:
            return Found()
        made_at = find.record.created_at
        is_same = state.letters_at in (0, made_at)
        found = Found(next_index=state.taken_back if is_same else 0, made_at=made_at)
        end = find.extents[0].next_index
        log = log_id(find.record.id, 0)
        entries_max = min(request.entries_max, OPEN_MAX - state.open_count)
        if entries_max <= 0:
            text = f"A queue has at most {OPEN_MAX:,} open entries: settle some first"
            raise RequestError("queue.full", text)
        operation = Read(
            log=log, index=found.next_index, entries_max=entries_max, bytes_max=TAKEN_BACK_BYTES
        )
        await read(self._queue.shared.store, operation)
        found.next_index = min(max(found.next_index, operation.extent.first_index), end)
        letters: list[tuple[Place, Entry]] = []
        for block in operation.blocks:
            for entry in entries_of(block, first=found.next_index):
                if len(letters) >= entries_max:
                    break
                found.next_index = entry.index + 1
                place = self._place_of(entry)
                if place is not None:
                    letters.append((place, entry))
        there = await self._partitions.entries_at([place for place, _ in letters])
        for (place, entry), one in zip(letters, there, strict=True):
            if one is None:
                found.gone += 1
            else:
                found.places.append((place, key_number(entry.key)))
        found.left = max(0, end - found.next_index)
        return found

    def _place_of(self, entry: Entry) -> Place | None:
        """Where the entry of a dead letter is, where that is this queue's."""
        assert self._partitions.record is not None
        try:
            letter = DeadLetter.of(entry)
        except CodecError:
            return None  # somebody else has pushed it
        if letter.queue != self._queue.name or letter.made_at != self._partitions.record.created_at:
            return None
        return (
            (letter.partition, letter.index)
            if letter.partition < len(self._partitions.logs)
            else None
        )


def take_back(
    state: QueueState, request: native.TakeBackRequest, letters: Found | RequestError
) -> native.Response | RequestError:
    """Have those that were found given again; what is told of that."""
    if isinstance(letters, RequestError):
        return letters
    taken = sum(state.take_back(place, key) for place, key in letters.places)
    if letters.made_at != state.letters_at or letters.next_index > state.taken_back:
        state.letters_at, state.taken_back = letters.made_at, letters.next_index
        state.changed = True
    return native.TakenBackResponse(request.request_id, taken, letters.gone, letters.left)
