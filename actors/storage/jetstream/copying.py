"""A store on JetStream as one that is copied, or copied into; see `actors.storage.copying`."""

import asyncio
import os
from bisect import bisect_right
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Final

from rillnode.actors.storage import StreamRecord, logs_of
from rillnode.actors.storage.copying import Piece
from rillnode.actors.storage.jetstream.failures import (
    UnansweredError,
    WrongLastSequenceError,
    too_large_error,
    unreachable_error,
)
from rillnode.actors.storage.jetstream.format import settle_format
from rillnode.actors.storage.jetstream.frames import (
    APPLIED_PREFIX,
    DROPPED_PREFIX,
    LOG_START_PREFIX,
    TOKEN_BYTES,
    LogFrame,
    encode,
    log_start_key,
    token_maker,
)
from rillnode.actors.storage.jetstream.gate import Gate
from rillnode.actors.storage.jetstream.journal import Journal
from rillnode.actors.storage.jetstream.log_reader import PurgedError, blocks_of
from rillnode.actors.storage.jetstream.log_view import LogView
from rillnode.actors.storage.jetstream.options import JetStreamOptions
from rillnode.actors.storage.jetstream.patience import Patience
from rillnode.actors.storage.jetstream.server import Server
from rillnode.actors.storage.jetstream.store import JetStreamLogStore
from rillnode.actors.storage.layout import Change, LogState, split_key
from rillnode.codecs.entries import Block, EntryKind, encode_block, pack_body
from rillnode.codecs.errors import StoreError

_OWN_PREFIXES: Final = (LOG_START_PREFIX, APPLIED_PREFIX, DROPPED_PREFIX)
"""Of the journal's rows that say where JetStream keeps what: no part of what is copied."""

_PAST_ALL: Final = b"\xff"
"""No key begins so."""


class JetStreamCopy:
    """The rows and logs of a store on JetStream. It waits where the servers do not answer."""

    def __init__(self, options: JetStreamOptions) -> None:
        self._server = Server(options, self._lost)
        self._gate = Gate(options, check=self._server.check, on_health=_ignore, on_shut=_ignore)
        self._token = token_maker(os.urandom(TOKEN_BYTES))
        self._journal = Journal(self._server, self._gate, options, self._token)
        self._views: dict[int, LogView] = {}

    @classmethod
    async def source(cls, options: JetStreamOptions) -> "JetStreamCopy":
        """A store that is read.

        Raises:
            StoreError: it cannot be opened, or is a copy that is not finished.
        """
        # What a crash has kept from the journal is written by who opens the store. A copy promises
        # nothing of a power cut, so that who wants to leave servers that do not sync can do it.
        options = replace(options, sync="interval")
        store = JetStreamLogStore(options, complete=_ignore, on_health=_ignore)
        await asyncio.to_thread(store.open)
        await asyncio.to_thread(store.close)
        return await cls.target(options)

    @classmethod
    async def target(cls, options: JetStreamOptions) -> "JetStreamCopy":
        """A store that is written, new or left by an earlier copy.

        Raises:
            StoreError: the cluster does not answer, refuses, or holds something else.
        """
        copy = cls(options)
        try:
            await copy._open()
        except UnansweredError as error:
            await copy.close()
            raise unreachable_error(str(error)) from error
        except StoreError:
            await copy.close()
            raise
        return copy

    async def close(self) -> None:
        """Let the connection go."""
        self._gate.stop_waiting()
        self._gate.close()
        await self._server.close()

    async def _open(self) -> None:
        await self._server.open()
        await self._journal.open()
        self._gate.open()
        await settle_format(self._journal)

    def _lost(self) -> None:
        error = unreachable_error("the connection was lost")
        self._gate.shut(error, self._server.connect, patient=True)

    def _view(self, log: int) -> LogView:
        view = self._views.get(log)
        if view is None:
            view = self._views[log] = LogView(log, self._server, self._journal)
        return view

    def _patience(self, log: int) -> Patience:
        return Patience(self._server.name_of_log(log), self._gate)

    # What is there ---------------------------------------------------------------------------

    async def rows(self, prefix: bytes = b"") -> AsyncGenerator[tuple[bytes, bytes], None]:
        """The journal's rows, without JetStream's own."""
        for key in self._journal.catalog.keys(prefix, _PAST_ALL):
            if not key.startswith(prefix):
                return
            if not key.startswith(_OWN_PREFIXES):
                value = await self._journal.patience.surely(partial(self._journal.value, key))
                if value is not None:
                    yield key, value

    async def state(self, log: int) -> LogState:
        """Where a log begins and ends."""
        return await self._patience(log).surely(self._view(log).state)

    async def pieces(self, log: int, index: int) -> AsyncGenerator[Piece, None]:
        """A log's blocks with their keys; goes on where an answer was missing."""
        while True:
            try:
                async with aclosing(self._pieces(log, index)) as pieces:
                    async for piece in pieces:
                        yield piece
                        index = piece.block.next_index
                return
            except PurgedError:
                raise StoreError(
                    "copy.changed", "the source was trimmed while it was read: copy again"
                ) from None
            except UnansweredError:
                self._gate.doubt()
                await self._gate.pause(self._gate.options.repair_seconds_max)
                await self._gate.passed()

    async def _pieces(self, log: int, index: int) -> AsyncGenerator[Piece, None]:
        view = self._view(log)
        state = await view.state()
        index = max(index, state.first_index)
        if index >= state.next_index:
            return
        async with aclosing(view.frames_from(index)) as frames:
            async for frame in frames:
                for piece in _pieces_of(frame):
                    if piece.block.next_index > index:
                        yield piece

    # Writing ---------------------------------------------------------------------------------

    async def put_rows(self, changes: Sequence[Change]) -> None:
        """Write rows, durably."""
        await self._journal.write(changes)

    async def drop(self, record: StreamRecord) -> None:
        """Remove the logs of a stream."""
        for log in logs_of(record.id, record.partitions):
            self._views.pop(log, None)
            name = self._server.name_of_log(log)
            await self._patience(log).surely(partial(self._server.drop, name))
            await self._journal.write([(log_start_key(log), None)])

    async def put(self, log: int, pieces: Sequence[Piece]) -> None:
        """Add blocks to the end of a log, durably; they make one message."""
        view, room, patience = self._view(log), self._server.room_bytes, self._patience(log)
        await self.state(log)
        if not view.last.sequence:
            await patience.surely(partial(self._server.make_stream, view.name))
        blocks = [block.value for block, _ in pieces]
        keys = [key for _, listed in pieces for key in listed]
        frame = LogFrame(self._token(), pieces[0].block.first_index, blocks, keys)
        data = encode(frame)
        if len(data) > room:
            raise too_large_error(room)
        after = view.last.sequence
        try:
            sequence = await patience.commit(self._server, data, after=after)
        except WrongLastSequenceError:
            raise StoreError(
                "copy.changed", "somebody else writes to the target: let nobody, and copy again"
            ) from None
        view.appended(frame, sequence)

    async def begin_at(self, log: int, state: LogState) -> None:
        """Let a log begin and end where the source's does."""
        view, patience = self._view(log), self._patience(log)
        if (await self.state(log)).next_index < state.next_index:
            # All was trimmed, and the last message says where a log ends.
            await self.put(log, [_end_of(state)])
        if (await self.state(log)).first_index == state.first_index:
            return
        start = await patience.surely(lambda: view.start_at(state.first_index))
        await self._journal.write([(log_start_key(log), encode(start))])
        view.trimmed(start)
        await patience.surely(lambda: self._server.purge(view.name, before=start.sequence))


def _pieces_of(frame: LogFrame) -> list[Piece]:
    pieces = [Piece(block, []) for block in blocks_of(frame)]
    firsts = [piece.block.first_index for piece in pieces]
    for key in frame.keys:
        at = bisect_right(firsts, split_key(key)[1]) - 1
        pieces[at].keys.append(key)
    return pieces


def _end_of(state: LogState) -> Piece:
    """The block of an entry that is trimmed as soon as it is there."""
    value = encode_block(
        count=1,
        kind=EntryKind.BYTES,
        received_at=0,
        position=state.next_position,
        body=pack_body([b""]),
    )
    return Piece(Block(state.next_index - 1, value), [])


def _ignore(_: object) -> None:
    """Nobody is told."""
