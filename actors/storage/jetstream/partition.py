"""The writer of one log.

Appends that wait make one frame, published with the last sequence known: where another node has
appended since, nothing is stored, the log's end is read anew, and the group is published behind
it. Only appends with records are refused then: what they put may follow from what had been there.
At most one frame is under way, so one that was not answered is settled by a look at its place.

Records that come with an append stand in its frame, which makes them durable together, and are
copied to the journal before the append is confirmed. The journal knows which logs have such frames
and how far it has their records, so that what a crash has kept from it is written after it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rillnode.actors.storage import Append, Trim, removed_error
from rillnode.actors.storage.jetstream.failures import (
    fenced_error,
    too_large_error,
    unreachable_error,
)
from rillnode.actors.storage.jetstream.frames import (
    LogFrame,
    LogStart,
    applied_key,
    decode,
    encode,
    log_start_key,
)
from rillnode.actors.storage.jetstream.gate import Gate
from rillnode.actors.storage.jetstream.journal import Journal
from rillnode.actors.storage.jetstream.log_reader import PurgedError, blocks_of
from rillnode.actors.storage.jetstream.log_view import LogView
from rillnode.actors.storage.jetstream.options import JetStreamOptions
from rillnode.actors.storage.jetstream.packing import pack, size_of_append
from rillnode.actors.storage.jetstream.plan import check_not_removed, is_removed
from rillnode.actors.storage.jetstream.server import Server, UnansweredError, WrongLastSequenceError
from rillnode.actors.storage.jetstream.watches import Watches
from rillnode.actors.storage.layout import INDEX, Change, record_key
from rillnode.actors.storage.retention import cut_index
from rillnode.actors.storage.tail import TailCache
from rillnode.actors.storage.watch import Watch
from rillnode.codecs.entries import Block
from rillnode.codecs.errors import CodecError, StoreError

logger = logging.getLogger("rillnode.actors.storage")

_FOLLOWED_MAX: Final = 16
"""Messages that are asked for one by one; where there are more, readers ask for what they need."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What all logs of a store share.

    Attributes:
        token: makes each message unlike all others.
        tell: lets other stores know of a log's message.
        done: takes operations that are complete.
    """

    options: JetStreamOptions
    server: Server
    gate: Gate
    journal: Journal
    tail: TailCache
    token: Callable[[], bytes]
    tell: Callable[[int, int], None]
    done: Callable[[Append | Trim | Watch], None]


class Partition:
    """Carries out the writes of a log in order; everything runs on the store's loop.

    Attributes:
        view: the log as it is committed.
    """

    def __init__(self, log: int, parts: Parts) -> None:
        self._log = log
        self._parts = parts
        self.view = LogView(log, parts.server, parts.journal, self._begin_if_behind)
        # Messages before this sequence are known to be purged.
        self._purged = 1
        # The last message that another store has told of.
        self._told = 0
        # Any number of others may have come that nobody has told of.
        self._stale = False
        # Others' frames may have records that are not in the journal.
        self._unapplied = True
        self._watches = Watches(parts.done)
        self._waiting: deque[Append | Trim] = deque()
        self._worker: asyncio.Task[None] | None = None

    @property
    def worker(self) -> asyncio.Task[None] | None:
        """The task that writes; None while nothing waits."""
        return self._worker

    def submit(self, operation: Append | Trim) -> None:
        """Queue a write."""
        self._waiting.append(operation)
        self._begin()

    def _begin(self) -> None:
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())

    def refuse_waiting(self, error: StoreError) -> None:
        """Answer what is not under way."""
        waiting, self._waiting = self._waiting, deque()
        for operation in waiting:
            operation.error = error
            self._parts.done(operation)

    async def redo(self) -> None:
        """Write the records of frames that a crash kept from the journal.

        Raises:
            StoreError: the journal takes nothing.
            UnansweredError: no answer came.
        """
        await self.view.state()
        stored = self._parts.journal.catalog.value(applied_key(self._log))
        applied = 0 if stored is None else INDEX.unpack(stored)[0]
        async for sequence, frame in self.view.frames_after(applied):
            if frame.records:
                await self._put_records(frame.records, sequence)
        self._unapplied = False

    async def _work(self) -> None:
        try:
            while self._waiting or self._behind:
                if self._behind:
                    await self._follow()
                    continue
                group = self._next_group()
                try:
                    await self._carry_out(group)
                except StoreError as error:
                    _fail(group, error)
                except UnansweredError as error:
                    refusal = unreachable_error(str(error))
                    self._parts.gate.shut(refusal, patient=True)
                    _fail(group, refusal)
                except Exception as error:
                    logger.exception("store_failed")
                    _fail(group, StoreError("store.failed", f"the write failed ({error!r})"))
                for operation in group:
                    self._parts.done(operation)
        finally:
            self._worker = None

    def _next_group(self) -> list[Append] | list[Trim]:
        first = self._waiting.popleft()
        if isinstance(first, Trim):
            return [first]
        group, size = [first], size_of_append(first)
        options = self._parts.options
        room = min(options.group_bytes_max, self._parts.server.room_bytes)
        while self._waiting:
            operation = self._waiting[0]
            if isinstance(operation, Trim):
                break
            size += size_of_append(operation)
            if size > room:
                break
            group.append(operation)
            self._waiting.popleft()
        return group

    async def _carry_out(self, group: list[Append] | list[Trim]) -> None:
        await self._parts.gate.patiently(self.view.state)
        if isinstance(group[0], Trim):
            await self._trim(group[0])
            return
        appends: list[Append] = []
        for operation in group:
            if isinstance(operation, Append):
                try:
                    self._check(operation)
                except StoreError as error:
                    operation.error = error
                else:
                    appends.append(operation)
        if appends:
            await self._append(appends)

    def _check(self, operation: Append) -> None:
        check_not_removed(self._parts.journal.catalog, self._log)
        room = self._parts.server.room_bytes
        if size_of_append(operation) > room:
            raise too_large_error(room)
        for key, _ in operation.records:
            record_key(key)

    # Appends ---------------------------------------------------------------------------------

    async def _append(self, group: Sequence[Append]) -> None:
        gate, server, view = self._parts.gate, self._parts.server, self.view
        if not view.last.sequence:
            await gate.patiently(lambda: server.make_stream(view.name))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._parts.options.settle_seconds_max
        if self._unapplied and any(operation.records for operation in group):
            # The journal takes records in the order of their frames.
            await gate.surely(self.redo)
        while True:
            frame = pack(group, await view.state(), self._parts.token())
            if frame.records:
                await self._announce_records()
            try:
                sequence = await gate.commit(
                    server, view.name, encode(frame), after=view.last.sequence
                )
                break
            except WrongLastSequenceError:
                await self._read_again()
                if frame.records or loop.time() > deadline:
                    raise fenced_error("appended to this log") from None
            except StoreError:
                self._forget()
                raise
        if frame.records:
            await gate.surely(lambda: self._put_records(frame.records, sequence))
        self._appended(frame, sequence)
        self._parts.tell(self._log, sequence)

    def _appended(self, frame: LogFrame, sequence: int) -> None:
        state = self.view.appended(frame, sequence)
        blocks = [(self._log, block) for block in blocks_of(frame)]
        self._parts.tail.commit(blocks, {self._log: state})
        self._watches.tell(state.next_index)

    async def _announce_records(self) -> None:
        """Let the journal say that this log may hold records that are not in it."""
        key = applied_key(self._log)
        if self._parts.journal.catalog.row(key) is None:
            change = (key, INDEX.pack(self.view.last.sequence))
            await self._parts.journal.write([change])

    async def _put_records(self, records: Sequence[Change], sequence: int) -> None:
        changes = [*records, (applied_key(self._log), INDEX.pack(sequence))]
        try:
            await self._parts.journal.write(changes)
        except StoreError as error:
            # The frame stands: its records must follow, if not now then when it is opened next.
            raise UnansweredError(error.text) from error

    def _forget(self) -> None:
        """More may be there than is known: it must be read before anything is added."""
        self._parts.tail.forget(self._log)
        self.view.forget()

    async def _read_again(self) -> None:
        self._forget()
        await self._parts.gate.surely(self.view.state)
        if self._parts.journal.catalog.row(applied_key(self._log)) is not None:
            # What has come may be our own, late, without its records.
            await self._parts.gate.surely(self.redo)

    # What other stores do --------------------------------------------------------------------

    @property
    def watched(self) -> bool:
        """Whether somebody waits for it to grow."""
        return bool(self._watches)

    def watch(self, operation: Watch) -> None:
        """Complete the operation once the log has grown so far."""
        self._watches.add(operation)
        if self.view.known:
            self._watches.tell(self.view.next_index)
        else:
            self.learn()

    def end_watches(self, error: StoreError) -> None:
        """Nobody waits any more."""
        self._watches.end(error)

    def told(self, sequence: int) -> None:
        """Another store has written a message."""
        self._told = max(self._told, sequence)
        self._begin_if_behind()

    def learn(self) -> None:
        """Other stores may have written anything: nothing was heard for a while."""
        self._stale = True
        self._begin_if_behind()

    def learn_start(self) -> None:
        """Another store may have trimmed the log, or removed its stream."""
        journal, view = self._parts.journal, self.view
        if is_removed(journal.catalog, self._log):
            self._parts.tail.forget(self._log)
            view.remove()
            self.end_watches(removed_error(self._log >> 32))
            return
        stored = journal.catalog.value(log_start_key(self._log))
        if stored is None or not view.known:
            return
        start = decode(LogStart, stored, "the journal")
        if view.start.first_index < start.first_index <= view.next_index:
            self._parts.tail.commit([], {self._log: view.trimmed(start)})
        elif start.first_index > view.next_index:
            self.learn()

    @property
    def _behind(self) -> bool:
        news = self._stale or self._told > self.view.last.sequence
        return news and (self.view.known or self.watched)

    def _begin_if_behind(self) -> None:
        if self._behind:
            self._begin()

    async def _follow(self) -> None:
        """Learn what others have appended: now where somebody waits for it, else when it is read.

        What fails is tried again when the next message is told of, or looked for.
        """
        stale, self._stale = self._stale, False
        told, self._unapplied = self._told, True
        try:
            if not self.watched:
                self._forget()
            elif stale or not await self._read_on():
                self._forget()
                await self.view.state()
        except (StoreError, CodecError, UnansweredError) as error:
            logger.debug("store_log_not_followed", extra={"reason": str(error)})
            self._forget()
        else:
            if self.view.known:
                self._watches.tell(self.view.next_index)
        if self._told == told:
            # Also where less is there than was told of.
            self._told = self.view.last.sequence

    async def _read_on(self) -> bool:
        """Take the next messages; False where the log is better read anew."""
        view = self.view
        if not view.known or self._told - view.last.sequence > _FOLLOWED_MAX:
            return False
        for sequence in range(view.last.sequence + 1, self._told + 1):
            frame = await view.frame_at(sequence)
            if frame is None or frame.first_index != view.next_index:
                return False
            self._appended(frame, sequence)
        return True

    # Trims -----------------------------------------------------------------------------------

    async def _trim(self, trim: Trim) -> None:
        check_not_removed(self._parts.journal.catalog, self._log)
        view, loop = self.view, asyncio.get_running_loop()
        state = await view.state()

        def block_at(index: int) -> Block:
            return asyncio.run_coroutine_threadsafe(view.block_at(index), loop).result()

        # It looks for blocks as it goes, so it must wait somewhere else than on the loop.
        try:
            cut = await asyncio.to_thread(cut_index, trim, state, block_at)
            start = await view.start_at(cut) if cut > state.first_index else None
        except PurgedError:
            await self._parts.journal.catch_up()
            raise fenced_error("trimmed this log") from None
        trimmed = cut - state.first_index
        if start is not None:
            await self._parts.journal.write([(log_start_key(self._log), encode(start))])
            # Another store may have trimmed more meanwhile.
            self.learn_start()
            state = await view.state()
        trim.trimmed, trim.extent = trimmed, state.extent()
        if view.start.sequence > self._purged:
            await self._parts.server.purge(view.name, before=view.start.sequence)
            self._purged = view.start.sequence


def _fail(group: Sequence[Append | Trim], error: StoreError) -> None:
    for operation in group:
        operation.error = operation.error or error
