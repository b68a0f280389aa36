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

from rillnode.actors.storage import Append, Trim
from rillnode.actors.storage.jetstream.failures import too_large_error, unreachable_error
from rillnode.actors.storage.jetstream.frames import (
    Change,
    LogFrame,
    applied_key,
    encode,
    log_start_key,
)
from rillnode.actors.storage.jetstream.gate import Gate
from rillnode.actors.storage.jetstream.journal import Journal, fenced_error
from rillnode.actors.storage.jetstream.log_reader import blocks_of
from rillnode.actors.storage.jetstream.log_view import LogView
from rillnode.actors.storage.jetstream.options import JetStreamOptions
from rillnode.actors.storage.jetstream.plan import check_not_removed
from rillnode.actors.storage.jetstream.server import Server, UnansweredError, WrongLastSequenceError
from rillnode.actors.storage.layout import INDEX, LogState, indexed_keys, record_key
from rillnode.actors.storage.retention import cut_index
from rillnode.actors.storage.tail import TailCache
from rillnode.codecs.entries import Block, data_bytes, encode_block
from rillnode.codecs.errors import StoreError

logger = logging.getLogger("rillnode.actors.storage")

_BLOCK_BYTES: Final = 64
_KEY_BYTES: Final = 32
"""What a block, and a key or record, counts for beside its bytes."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What all logs of a store share.

    Attributes:
        token: makes each message unlike all others.
        done: takes operations that are complete.
    """

    options: JetStreamOptions
    server: Server
    gate: Gate
    journal: Journal
    tail: TailCache
    token: Callable[[], bytes]
    done: Callable[[Append | Trim], None]


class Partition:
    """Carries out the writes of a log in order; everything runs on the store's loop.

    Attributes:
        view: the log as it is committed.
    """

    def __init__(self, log: int, parts: Parts) -> None:
        self._log = log
        self._parts = parts
        self.view = LogView(log, parts.server, parts.journal)
        # Messages before this sequence are known to be purged.
        self._purged = 1
        self._waiting: deque[Append | Trim] = deque()
        self._worker: asyncio.Task[None] | None = None

    @property
    def worker(self) -> asyncio.Task[None] | None:
        """The task that writes; None while nothing waits."""
        return self._worker

    def submit(self, operation: Append | Trim) -> None:
        """Queue a write."""
        self._waiting.append(operation)
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

    async def _work(self) -> None:
        try:
            while self._waiting:
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
        group, size = [first], _size_of(first)
        options = self._parts.options
        room = min(options.group_bytes_max, self._parts.server.room_bytes)
        while self._waiting:
            operation = self._waiting[0]
            if isinstance(operation, Trim):
                break
            size += _size_of(operation)
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
        if _size_of(operation) > room:
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
        while True:
            frame, state = self._frame(group, await view.state())
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
        view.appended(frame, sequence, state)
        blocks = [(self._log, block) for block in blocks_of(frame)]
        self._parts.tail.commit(blocks, {self._log: state})

    def _frame(self, group: Sequence[Append], old: LogState) -> tuple[LogFrame, LogState]:
        """The frame of a group, whose results are set, and the log's state after it."""
        state = LogState(old.first_index, old.next_index, old.first_position, old.next_position)
        blocks: list[bytes] = []
        keys: list[bytes] = []
        records: list[Change] = []
        for operation in group:
            block = encode_block(
                count=operation.count,
                kind=operation.kind,
                received_at=operation.received_at,
                position=state.next_position,
                body=operation.body,
                flags=operation.flags,
            )
            blocks.append(block)
            keys += indexed_keys(operation.keys, state.next_index)
            records += [(record_key(key), value) for key, value in operation.records]
            operation.first_index = state.next_index
            state.next_index += operation.count
            state.next_position += data_bytes(operation.count, operation.body, operation.flags)
            operation.kept_bytes = state.next_position - state.first_position
        frame = LogFrame(self._parts.token(), old.next_index, blocks, keys, records)
        return frame, state

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

    # Trims -----------------------------------------------------------------------------------

    async def _trim(self, trim: Trim) -> None:
        check_not_removed(self._parts.journal.catalog, self._log)
        view, loop = self.view, asyncio.get_running_loop()
        state = await view.state()

        def block_at(index: int) -> Block:
            return asyncio.run_coroutine_threadsafe(view.block_at(index), loop).result()

        # It looks for blocks as it goes, so it must wait somewhere else than on the loop.
        cut = await asyncio.to_thread(cut_index, trim, state, block_at)
        trimmed = cut - state.first_index
        if trimmed:
            start = await view.start_at(cut)
            await self._parts.journal.write([(log_start_key(self._log), encode(start))])
            state = view.trimmed(start)
            self._parts.tail.commit([], {self._log: state})
        trim.trimmed, trim.extent = trimmed, state.extent()
        if view.start.sequence > self._purged:
            await self._parts.server.purge(view.name, before=view.start.sequence)
            self._purged = view.start.sequence


def _size_of(append: Append) -> int:
    """What an append counts for in its frame."""
    keys = sum(len(key) + _KEY_BYTES for key, _ in append.keys)
    records = sum(len(key) + len(value or b"") + _KEY_BYTES for key, value in append.records)
    return len(append.body) + keys + records + _BLOCK_BYTES


def _fail(group: Sequence[Append | Trim], error: StoreError) -> None:
    for operation in group:
        operation.error = operation.error or error
