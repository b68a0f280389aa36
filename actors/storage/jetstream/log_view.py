"""What is known of one log, and what readers ask of it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from rillnode.actors.storage import Read
from rillnode.actors.storage.jetstream.failures import fenced_error
from rillnode.actors.storage.jetstream.frames import (
    LogFrame,
    LogStart,
    corrupt_error,
    decode,
    log_start_key,
)
from rillnode.actors.storage.jetstream.journal import Journal
from rillnode.actors.storage.jetstream.log_reader import (
    LogReader,
    Place,
    PurgedError,
    blocks_of,
    next_index_of,
    next_position_of,
)
from rillnode.actors.storage.jetstream.plan import is_removed
from rillnode.actors.storage.jetstream.server import Server
from rillnode.actors.storage.layout import LogState
from rillnode.codecs.entries import Block, decode_header, lengths_of
from rillnode.codecs.errors import CodecError, StoreError


class LogView:
    """A log as this store last knew it: read from JetStream once, then told what is committed.

    `on_read` is told each time that it was read.

    Attributes:
        name: its JetStream stream.
        start: where it begins in it.
        last: its last frame; sequence 0 where there is none.
        others_end: other stores may have appended up to this index.
    """

    def __init__(
        self,
        log: int,
        server: Server,
        journal: Journal,
        on_read: Callable[[], None] = lambda: None,
    ) -> None:
        self._log = log
        self._server = server
        self._journal = journal
        self._on_read = on_read
        self.name = server.name_of_log(log)
        self.start: LogStart = LogStart()
        self.last: Place = Place(0, 0)
        self.others_end = 0
        self._reader = LogReader(server, self.name)
        self._loading: asyncio.Task[None] | None = None
        self._loaded = False
        # Replaced at each change, never changed.
        self._state = LogState()

    @property
    def known(self) -> bool:
        """Whether it was read, and nothing has come since that is not known."""
        return self._loaded

    @property
    def being_read(self) -> bool:
        """Whether it is on its way, so that what is heard of now may not be in it."""
        return self._loading is not None

    @property
    def next_index(self) -> int:
        """The index after the last entry, as this store last knew it."""
        return self._state.next_index

    async def state(self) -> LogState:
        """Where the log begins and ends.

        Raises:
            StoreError: what stands in JetStream is damaged, or less than was confirmed.
            UnansweredError: no answer came.
        """
        if not self._loaded:
            if self._loading is None:
                self._loading = asyncio.get_running_loop().create_task(self._load())
            # All who wait get the same answer, or all none.
            await asyncio.shield(self._loading)
        return self._state

    async def _load(self) -> None:
        own = asyncio.current_task()
        try:
            await self._read_end()
            # Else it was forgotten meanwhile: enough for who has asked before, and for nobody else.
            self._loaded = self._loaded or self._loading is own
        finally:
            if self._loading is own:
                self._loading = None
        if self._loaded:
            self._on_read()

    async def _read_end(self) -> None:
        if is_removed(self._journal.catalog, self._log):
            self.remove()
            return
        # Before the question: what was asked for later may be answered first.
        known = self._state.next_index
        found = await self._server.last(self.name)
        if is_removed(self._journal.catalog, self._log):
            return
        stored = self._journal.catalog.value(log_start_key(self._log))
        start = LogStart() if stored is None else decode(LogStart, stored, "the journal")
        state, last = LogState(), Place(0, 0)
        if found is not None:
            frame = self._reader.decode(found.data)
            last = Place(frame.first_index, found.sequence)
            try:
                position = next_position_of(frame)
            except CodecError as error:
                raise corrupt_error(f"the stream {self.name}") from error
            index = next_index_of(frame)
            state = LogState(start.first_index, index, start.first_position, position)
        if state.next_index < max(known, start.first_index):
            raise self._server.less(self.name)
        if state.next_index >= self._state.next_index:
            self._state, self.start, self.last = state, start, last
            self.others_end = state.next_index

    # What was committed ----------------------------------------------------------------------

    def appended(self, frame: LogFrame, sequence: int) -> LogState:
        """A frame was added to the log's end; returns the log's state."""
        old = self._state
        state = LogState(
            old.first_index, next_index_of(frame), old.first_position, next_position_of(frame)
        )
        self._state, self.last = state, Place(frame.first_index, sequence)
        return state

    def trimmed(self, start: LogStart) -> LogState:
        """The log begins later; returns its state."""
        state = LogState(
            start.first_index,
            self._state.next_index,
            start.first_position,
            self._state.next_position,
        )
        self._state, self.start = state, start
        return state

    def forget(self) -> None:
        """Another node has written: what is known must be read again."""
        self._reader.forget()
        self._loaded = False
        self._loading = None

    def remove(self) -> None:
        """The log's stream is no more."""
        self._state, self.start, self.last = LogState(), LogStart(), Place(0, 0)
        self._loaded = True

    # Reads -----------------------------------------------------------------------------------

    async def read(self, operation: Read) -> None:
        """Answer a read.

        Raises:
            StoreError: the log is damaged.
            UnansweredError: no answer came.
        """
        while True:
            state, start = await self.state(), self.start
            operation.extent = state.extent()
            operation.blocks = []
            try:
                await self._read(operation, state)
                return
            except PurgedError:
                await self.check_trimmed(start, operation.index)

    async def _read(self, operation: Read, state: LogState) -> None:
        index = max(operation.index, state.first_index)
        end = min(operation.until, state.next_index)
        if index >= end:
            return
        end = min(end, index + operation.entries_max)
        last = self.last.sequence
        sequence, frame = await self._find(index)
        wanted = [block for block in blocks_of(frame) if block.next_index > index]
        size = _take(operation, wanted, end, 0)
        if size is None:
            return
        async with aclosing(self._reader.frames(sequence + 1, last)) as frames:
            async for _, frame in frames:
                size = _take(operation, blocks_of(frame), end, size)
                if size is None:
                    return

    async def check_trimmed(self, start: LogStart, index: int) -> None:
        """Make sure that what is missing was trimmed by another store since the log began there.

        Raises:
            StoreError: a message is missing.
            UnansweredError: no answer came.
        """
        await self._journal.catch_up()
        if self.start is not start:
            return
        stored = self._journal.catalog.value(log_start_key(self._log))
        if stored is None or decode(LogStart, stored, "the journal") == start:
            raise _hole_error(self.name, index)

    # Places ----------------------------------------------------------------------------------

    async def start_at(self, cut: int) -> LogStart:
        """Where the log would begin if an entry were its first.

        Raises:
            PurgedError: the entry was trimmed before.
            StoreError: the log is damaged.
            UnansweredError: no answer came.
        """
        if cut == self._state.next_index:
            # The last frame stays: it says where the log ends.
            position = self._state.next_position
            return LogStart(cut, position, cut, *self.last)
        sequence, frame = await self._find(cut)
        block = _block_of(frame, cut)
        before = lengths_of(block.value)[: cut - block.first_index]
        position = decode_header(block.value).position + sum(before)
        return LogStart(cut, position, block.first_index, frame.first_index, sequence)

    async def block_at(self, index: int) -> Block:
        """The block that holds an entry; raises as `start_at`."""
        _, frame = await self._find(index)
        return _block_of(frame, index)

    async def frames_after(self, sequence: int) -> AsyncGenerator[tuple[int, LogFrame], None]:
        """The frames past a sequence, as far as they are kept and known; raises as `state`."""
        while True:
            start = self.start
            first = max(start.sequence, sequence + 1)
            try:
                async for found in self._reader.frames(first, self.last.sequence):
                    yield found
                    sequence = found[0]
                return
            except PurgedError:
                await self.check_trimmed(start, start.first_index)
                if self.start is start:
                    # Beyond all that is known of it.
                    raise fenced_error("trimmed this log") from None

    def frames_between(self, first: int, last: int) -> AsyncGenerator[tuple[int, LogFrame], None]:
        """The frames from one sequence to another; raises as `start_at`."""
        return self._reader.frames(first, last)

    async def frame_at(self, sequence: int) -> LogFrame | None:
        """The frame of a sequence past the last one known; None where there is none.

        Raises:
            StoreError: it is damaged.
            UnansweredError: no answer came.
        """
        found = await self._server.get(self.name, sequence)
        return None if found is None else self._reader.decode(found.data)

    async def frames_from(self, index: int) -> AsyncGenerator[LogFrame, None]:
        """The frames from the one that holds an entry on, as far as they are known.

        Raises as `start_at`.
        """
        last = self.last.sequence
        sequence, frame = await self._find(index)
        yield frame
        async with aclosing(self._reader.frames(sequence + 1, last)) as frames:
            async for _, following in frames:
                yield following

    async def _find(self, index: int) -> tuple[int, LogFrame]:
        first = Place(self.start.frame_index, self.start.sequence)
        end = Place(self._state.next_index, self.last.sequence + 1)
        return await self._reader.find(index, first, end)


def _take(read: Read, blocks: Sequence[Block], end: int, size: int) -> int | None:
    """Give a read what it wants of these blocks; returns its size, or None once it has enough."""
    for block in blocks:
        size += len(block.value)
        if read.blocks and (block.first_index >= end or size > read.bytes_max):
            return None
        read.blocks.append(block)
    return None if read.blocks[-1].next_index >= end else size


def _block_of(frame: LogFrame, index: int) -> Block:
    return next(block for block in blocks_of(frame) if index < block.next_index)


def _hole_error(name: str, index: int) -> StoreError:
    return StoreError(
        "store.corrupt",
        f"a message of {name} near entry {index} is missing: restore the stream from a backup, "
        "or trim it beyond this entry",
        retryable=False,
        index=index,
    )
