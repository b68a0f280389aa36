"""Reads and writes the record of a work queue, and holds its state in memory.

The state in memory is ahead of the record until that is written. Where another node has written the
record meanwhile, ours is refused. A write that has failed is looked up: what the store has all the
same counts as written.
"""

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Final

from rillnode.actors.core.groups.state import GroupState, record_name
from rillnode.actors.core.queues.ahead import AheadOfRecord
from rillnode.actors.core.queues.context import QueueContext
from rillnode.actors.core.queues.letters import DeadLetters
from rillnode.actors.core.queues.names import listed_record, state_record
from rillnode.actors.core.queues.partitions import Partitions
from rillnode.actors.core.queues.state import QueueState
from rillnode.actors.core.streams.answers import unknown_stream
from rillnode.actors.log import (
    FindStream,
    GetRecord,
    LoadIndex,
    PutRecord,
    PutRecords,
    SavedIndexKey,
    log_id,
    version_of,
)
from rillnode.actors.log.waiting import read, write
from rillnode.codecs.errors import RequestError, RillnodeError, StoreError

_NONE: Final = RequestError(
    "queue.unknown", "Nobody has worked on a queue of this name: see `rillnode queue ls`"
)


class QueueRecord:
    """The state of a queue, in memory and in the store.

    Attributes:
        state: as it is in memory; None: the record is to be read again.
        lasts: whether no other node writes the record.
        seen_at: when it was last read or written, on the monotonic clock.
    """

    def __init__(
        self,
        queue: QueueContext,
        partitions: Partitions,
        letters: DeadLetters,
        ahead: AheadOfRecord,
    ) -> None:
        self._queue = queue
        self._partitions = partitions
        self._letters = letters
        self._ahead = ahead
        self.state: QueueState | None = None
        self.lasts = True
        self.seen_at = 0.0
        self._version = 0  # of the record, where others write it too
        self._stamps = count(1 + int.from_bytes(queue.shared.entropy(7), "big"))

    # Reading ---------------------------------------------------------------------------------

    async def read(self, may_begin: Callable[[], bool]) -> QueueState:
        """Read the record, and see how the stream is now.

        Args:
            may_begin: whether a queue is made, where there is none.

        Raises:
            RequestError: `queue.unknown` or `queue.name`, or there is no such stream.
            StoreError: it cannot be read.
        """
        store = self._queue.shared.store
        find = FindStream(name=self._queue.stream)
        await read(store, find)
        stream = find.record
        if stream is None:
            raise unknown_stream(self._queue.stream)
        self._partitions.open(stream)
        stored = GetRecord(key=self._key())
        await read(store, stored)
        self._version, self.lasts = stored.version, stored.lasts
        value = stored.value
        if value is None:
            if not may_begin():
                raise _NONE
            value = await self._begin(stream.id)
            self._version = version_of(value)
        state = QueueState.decode(value)
        if not state.stamp:
            await self._check_name(stream.id)
        state.look_at_clock(self._queue.now_ms())
        state.grow(stream.partitions)
        state.changed = False
        return state

    def hold(self, state: QueueState) -> None:
        """Go on with a state that was read."""
        self.state, self.seen_at = state, self._queue.monotonic()

    async def _begin(self, stream_id: int) -> bytes:
        """Have a queue of this name, for who works on it first; return its record.

        Raises:
            StoreError: it is not written.
        """
        store = self._queue.shared.store
        listed = listed_record(self._queue.stream, self._queue.name)
        await write(store, PutRecord(key=listed, value=b"%d" % stream_id))
        value = QueueState.new().encode(0)
        put = PutRecords(records=[(self._key(), value)], seen=[(self._key(), 0)])
        await write(store, put)
        return value

    async def _check_name(self, stream_id: int) -> None:
        """See that the name is no consumer's; from the queue's record on it cannot become one.

        One that has saved no position yet is among the members of its group's record.

        Raises:
            RequestError: `queue.name`.
        """
        store, stream, name = self._queue.shared.store, self._queue.stream, self._queue.name
        keys = (SavedIndexKey(stream, at, name) for at in range(len(self._partitions.logs)))
        loads = [LoadIndex(key=key) for key in keys]
        of_group = GetRecord(key=record_name(stream_id, name))
        await read(store, *loads)
        await read(store, of_group)
        members = GroupState.decode(of_group.value).members
        if members or any(load.index is not None for load in loads):
            await write(store, PutRecord(key=self._key()))
            await write(store, PutRecord(key=listed_record(stream, name)))
            text = f"{name} is a consumer of {stream} already: choose another name"
            raise RequestError("queue.name", text)

    # Writing ---------------------------------------------------------------------------------

    async def write(self, state: QueueState) -> RillnodeError | None:
        """Write the record, with dead letters where there are any; return why it is not written.

        Nothing else of it is on its way to the disk.
        """
        letters = await self._letters.choose(state)
        if not (state.changed or letters):
            return None
        stamp = next(self._stamps)
        for place, _, _ in letters:
            state.bury(place)
        value = state.encode(stamp)
        records = [(self._key(), value)]
        follows = [] if self.lasts else [(self._key(), self._version)]
        error: RillnodeError | None = None
        if letters:
            error = await self._letters.append(letters, records, follows)
        else:
            put = PutRecords(records=records, seen=follows)
            try:
                await write(self._queue.shared.store, put)
            except StoreError as failure:
                error = failure
        if error is not None and error.code != "store.fenced" and await self._is_written(stamp):
            error = None
        if error is None:
            if not self.lasts:
                self._version = version_of(value)
            self.seen_at = self._queue.monotonic()
            self._ahead.all_written(state)
        return error

    async def write_ahead(self, state: QueueState) -> RillnodeError | None:
        """Write the record while rounds go on, where no other node does; return why it is not."""
        writing = self._ahead.writing(state)
        stamp = next(self._stamps)
        value = state.encode(stamp)
        error: RillnodeError | None = None
        put = PutRecords(records=[(self._key(), value)])
        try:
            await write(self._queue.shared.store, put)
        except StoreError as failure:
            error = failure
            with suppress(StoreError):
                if await self._is_written(stamp):
                    error = None
        if error is not None:
            self._ahead.not_written(writing)
        elif self.state is state:
            self.seen_at = self._queue.monotonic()
            self._ahead.written(writing)
        return error

    async def _is_written(self, stamp: int) -> bool:
        """Whether a write that has failed is there all the same; so it is known to be, or not."""
        found = GetRecord(key=self._key())
        await read(self._queue.shared.store, found)
        return found.value is not None and QueueState.decode(found.value).stamp == stamp

    def remove(self) -> None:
        """Have no record, nor one that lists the queue: also none that is on its way."""
        stream = self._partitions.record
        if stream is not None:
            submit = self._queue.shared.store.submit
            submit(PutRecord(key=state_record(log_id(stream.id, 0), self._queue.name)))
            submit(PutRecord(key=listed_record(self._queue.stream, self._queue.name)))

    def _key(self) -> str:
        return state_record(self._partitions.logs[0], self._queue.name)
