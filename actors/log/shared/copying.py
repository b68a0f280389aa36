"""A shared store as one that is copied, or copied into; see `actors.log.copying`.

Streams of a shared store have ids that say in which shard they lie, so those of a copy are others
than its source's. What a target shows has the source's; which those are stands beside the mark:

    shared/copying                  -> nothing: no node opens the store
    shared/copying/log/LOG          -> entries of the source's log that were compared (u64)
    shared/copying/stream/NAME      -> the stream's id in the source (u32)
"""

import asyncio
import heapq
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import msgspec

from rillnode.actors.log import (
    Append,
    Operation,
    PutRecord,
    PutStream,
    RemoveStream,
    SaveIndex,
    StreamRecord,
    Trim,
    WriteOperation,
)
from rillnode.actors.log.copying import Piece
from rillnode.actors.log.nodes import NODES
from rillnode.actors.log.records import OF_LOGS
from rillnode.actors.log.rocks.copy import RocksCopy
from rillnode.actors.log.rocks.layout import (
    COPY_KEY,
    INDEX,
    LOG_KEY,
    NEXT_STREAM_KEY,
    NUMBER,
    RECORD_PREFIX,
    SAVED_INDEX_PREFIX,
    STREAM_ID_PREFIX,
    STREAM_PREFIX,
    Change,
    LogState,
    decode_record,
    decode_saved_index_key,
    encode_record,
    keys_with_offsets,
    record_key,
    stream_id_key,
    utf8,
)
from rillnode.actors.log.shared.frames import BeginLog
from rillnode.actors.log.shared.placement import CATALOGUE, Placement
from rillnode.actors.log.shared.rocks_view import RocksView
from rillnode.actors.log.shared.saving import CLAIM
from rillnode.actors.log.shared.store import COPYING, SharedLogStore
from rillnode.codecs.entries import HEADER_BYTES, decode_header
from rillnode.codecs.errors import StoreError

Row = tuple[bytes, bytes]

Complete = Callable[[Sequence[Operation]], None]

OpenStore = Callable[[Complete], SharedLogStore]
"""Makes a store that may be one that is copied into, not open yet."""

_LOG_MARK: Final = f"{COPYING}/log/"
_STREAM_MARK: Final = f"{COPYING}/stream/"
_OF_LOG: Final = COPY_KEY
_OF_STREAM: Final = COPY_KEY + b"s"

_OWN: Final = (record_key(COPYING), record_key(CLAIM), record_key(NODES))
_BESIDE: Final = tuple(map(record_key, OF_LOGS))


class _Shards:
    """The rows and logs of all shards as those of one store.

    Args:
        parts: the views of the shards.
        placement: where names lie.
    """

    def __init__(self, parts: Sequence[RocksCopy], placement: Placement) -> None:
        self._parts = parts
        self._placement = placement
        # By each other, where they differ: ids that are shown, and those of the store.
        self._own: dict[int, int] = {}
        self._shown: dict[int, int] = {}

    async def rows(self, prefix: bytes = b"") -> AsyncGenerator[Row, None]:
        """The rows of all shards, each as a store of one node has it."""
        sections: Sequence[tuple[bytes, Callable[[bytes], AsyncGenerator[Row, None]]]] = (
            (STREAM_ID_PREFIX, self._ids),
            (COPY_KEY, self._marks),
            (NEXT_STREAM_KEY, self._next_id),
            (RECORD_PREFIX, self._records),
            (STREAM_PREFIX, self._streams),
            (SAVED_INDEX_PREFIX, self._indexes),
        )
        for begins, section in sections:
            if begins.startswith(prefix) or prefix.startswith(begins):
                async with aclosing(section(max(begins, prefix, key=len))) as rows:
                    async for row in rows:
                        if row[0].startswith(prefix):
                            yield row

    async def state(self, log: int) -> LogState:
        """Where a log begins and ends."""
        own = self._own_log(log)
        return await self._parts[self._placement.of_log(own)].state(own)

    async def pieces(self, log: int, index: int) -> AsyncGenerator[Piece, None]:
        """A log's blocks with their keys."""
        own = self._own_log(log)
        async with aclosing(self._parts[self._placement.of_log(own)].pieces(own, index)) as pieces:
            async for piece in pieces:
                yield piece

    def _own_log(self, log: int) -> int:
        return self._with_id(log, self._own)

    @staticmethod
    def _with_id(log: int, ids: dict[int, int]) -> int:
        stream_id = log >> 32
        return ids.get(stream_id, stream_id) << 32 | log & 0xFFFF_FFFF

    async def _merged(self, prefix: bytes) -> AsyncGenerator[tuple[int, Row], None]:
        """Rows of all shards by their keys, each with the number of its shard."""
        open_rows = [part.rows(prefix) for part in self._parts]
        waiting: list[tuple[bytes, int, bytes]] = []
        try:
            for number, rows in enumerate(open_rows):
                if (first := await anext(rows, None)) is not None:
                    waiting.append((first[0], number, first[1]))
            heapq.heapify(waiting)
            while waiting:
                key, number, value = waiting[0]
                yield number, (key, value)
                following = await anext(open_rows[number], None)
                if following is None:
                    heapq.heappop(waiting)
                else:
                    heapq.heapreplace(waiting, (following[0], number, following[1]))
        finally:
            for rows in open_rows:
                await rows.aclose()

    async def _streams(self, prefix: bytes) -> AsyncGenerator[Row, None]:
        async with aclosing(self._merged(prefix)) as rows:
            async for number, (key, value) in rows:
                record = decode_record(value)
                # The catalogue has all of them once more.
                if self._placement.of_stream(record.name) == number:
                    shown = self._shown.get(record.id, record.id)
                    yield key, encode_record(msgspec.structs.replace(record, id=shown))

    async def _ids(self, prefix: bytes) -> AsyncGenerator[Row, None]:
        found: list[Row] = []
        async with aclosing(self._streams(STREAM_PREFIX)) as rows:
            async for _, value in rows:
                record = decode_record(value)
                found.append((stream_id_key(record.id), utf8(record.name)))
        for row in sorted(found):
            yield row

    async def _next_id(self, prefix: bytes) -> AsyncGenerator[Row, None]:
        async with aclosing(self._merged(prefix)) as rows:
            ids = [NUMBER.unpack(value)[0] async for _, (_, value) in rows]
        if ids:
            yield NEXT_STREAM_KEY, NUMBER.pack(max(ids))

    async def _indexes(self, prefix: bytes) -> AsyncGenerator[Row, None]:
        async with aclosing(self._merged(prefix)) as rows:
            async for _, row in rows:
                yield row

    async def _records(self, prefix: bytes) -> AsyncGenerator[Row, None]:
        beside = await self._beside_logs()
        at = 0
        async with aclosing(self._merged(prefix)) as rows:
            async for _, row in rows:
                if row[0].startswith((*_OWN, *_BESIDE)):
                    continue
                while at < len(beside) and beside[at] < row:
                    yield beside[at]
                    at += 1
                yield row
        for row in beside[at:]:
            yield row

    async def _beside_logs(self) -> list[Row]:
        """Values beside logs, whose names have their ids: they are small, and few."""
        found: list[Row] = []
        for begin in _BESIDE:
            async with aclosing(self._merged(begin)) as rows:
                async for _, (key, value) in rows:
                    found.append((_beside_with(key, self._shown), value))
        return sorted(found)

    async def _marks(self, prefix: bytes) -> AsyncGenerator[Row, None]:
        found: list[Row] = []
        async with aclosing(self._parts[CATALOGUE].rows(record_key(COPYING))) as rows:
            async for key, value in rows:
                found.append((_mark_key(key[len(RECORD_PREFIX) :].decode()), value))
        for row in sorted(found):
            yield row


class SharedSource(_Shards):
    """A shared store that is read, as it was when this was opened."""

    @classmethod
    async def open(cls, make: OpenStore, directory: Path) -> "SharedSource":
        """Read all of the log into views of its own.

        Args:
            make: makes the store.
            directory: of its views.

        Raises:
            StoreError: it cannot be opened, or is a copy that is not finished.
        """
        store = make(lambda operations: None)
        await asyncio.to_thread(store.open)
        try:
            placement = store.shards.place
            for number in range(placement.shards):
                await store.current_view(number)
        finally:
            await asyncio.to_thread(store.close)
        paths = [directory / f"{number:04x}" for number in range(placement.shards)]
        return cls([RocksCopy.source(path) for path in paths], placement)

    async def close(self) -> None:
        """Let the views go."""
        for part in self._parts:
            part.close()


class SharedTarget(_Shards):
    """A shared store that is written, new or left by an earlier copy; no node has it open."""

    def __init__(
        self, store: SharedLogStore, parts: Sequence[RocksCopy], answers: "_Answers"
    ) -> None:
        super().__init__(parts, store.shards.place)
        self._store = store
        self._answers = answers
        self._found: dict[str, StreamRecord] = {}

    @classmethod
    async def open(cls, make: OpenStore) -> "SharedTarget":
        """Open the store, and all its views.

        Raises:
            StoreError: it cannot be opened.
        """
        answers = _Answers()
        store = make(answers.complete)
        await asyncio.to_thread(store.open)
        parts: list[RocksCopy] = []
        try:
            for number in range(store.shards.place.shards):
                view = await store.current_view(number)
                assert isinstance(view, RocksView)
                parts.append(RocksCopy(view.tables))
        except StoreError:
            await asyncio.to_thread(store.close)
            raise
        return cls(store, parts, answers)

    async def close(self) -> None:
        """Close the store."""
        await asyncio.to_thread(self._store.close)

    # Streams ---------------------------------------------------------------------------------

    async def prepare(self, streams: Sequence[StreamRecord]) -> None:
        """Have the source's streams, and no others."""
        known = await self._known()
        wanted = {record.name: record for record in streams}
        for name, (record, source_id) in known.items():
            if name not in wanted or wanted[name].id != source_id:
                await self._write(RemoveStream(name=name))
            else:
                self._note(record, source_id)
        missing = [record for record in streams if record.name not in self._found]
        await self._write(
            *(
                PutRecord(key=f"{_STREAM_MARK}{record.name}", value=NUMBER.pack(record.id))
                for record in missing
            )
        )
        puts = [PutStream(record=msgspec.structs.replace(one, id=0)) for one in missing]
        await self._write(*puts)
        for put, record in zip(puts, missing, strict=True):
            self._note(put.record, record.id)

    async def _known(self) -> dict[str, tuple[StreamRecord, int]]:
        """What an earlier run has made: each stream with its id in the source."""
        async with aclosing(self._marks(_OF_STREAM)) as rows:
            ids = {
                key[len(_OF_STREAM) :].decode(): int(NUMBER.unpack(value)[0])
                async for key, value in rows
                if key.startswith(_OF_STREAM)
            }
        async with aclosing(self._streams(STREAM_PREFIX)) as rows:
            records = [decode_record(value) async for _, value in rows]
        return {record.name: (record, ids.get(record.name, 0)) for record in records}

    def _note(self, record: StreamRecord, source_id: int) -> None:
        self._found[record.name] = record
        self._own[source_id], self._shown[record.id] = record.id, source_id

    # Rows ------------------------------------------------------------------------------------

    async def put_rows(self, changes: Sequence[Change]) -> None:
        """Write rows, durably."""
        await self._write(*filter(None, map(self._operation, changes)))

    def _operation(self, change: Change) -> WriteOperation | None:
        """What makes a row what it shall be; None: it follows from others."""
        key, value = change
        if key.startswith(COPY_KEY):
            return PutRecord(key=_mark_name(key), value=value)
        if key.startswith(RECORD_PREFIX):
            name = _beside_with(key, self._own)[len(RECORD_PREFIX) :].decode()
            return PutRecord(key=name, value=value)
        if key.startswith(STREAM_PREFIX) and value is not None:
            record = decode_record(value)
            own = self._found[record.name].id
            return PutStream(record=msgspec.structs.replace(record, id=own))
        if key.startswith(SAVED_INDEX_PREFIX) and value is not None:
            # None is removed but with its stream, and none goes back.
            return SaveIndex(key=decode_saved_index_key(key), index=INDEX.unpack(value)[0])
        return None

    async def drop(self, record: StreamRecord) -> None:
        """Return at once: logs went with their streams."""

    # Logs ------------------------------------------------------------------------------------

    async def put(self, log: int, pieces: Sequence[Piece]) -> None:
        """Add blocks to the end of a log, durably."""
        own, state = self._own_log(log), await self.state(log)
        first = pieces[0].block
        writes: list[Any] = []
        if first.first_index > state.next_index:
            position = decode_header(first.value).position
            writes += self._begun_at(own, first.first_index, position, state)
        appends = [_append_of(own, piece) for piece in pieces]
        await self._write(*writes, *appends)
        for append, piece in zip(appends, pieces, strict=True):
            if append.first_index != piece.block.first_index:
                raise StoreError(
                    "copy.changed", "something else writes to the target: stop it, and copy again"
                )

    async def begin_at(self, log: int, state: LogState) -> None:
        """Let a log begin and end where the source's does."""
        own, found = self._own_log(log), await self.state(log)
        writes: list[Any] = []
        if found.next_index < state.next_index:
            # All was trimmed.
            writes += self._begun_at(own, state.next_index, state.next_position, found)
        elif found.first_index < state.first_index:
            writes.append(Trim(log=own, before=state.first_index))
        await self._write(*writes)

    def _begun_at(self, own: int, index: int, position: int, state: LogState) -> Iterator[Any]:
        if state.first_index < state.next_index:
            yield Trim(log=own, before=state.next_index)
        yield BeginLog(log=own, index=index, position=position)

    async def _write(self, *operations: Any) -> None:
        """Write, durably; raises the first error."""
        answers = [self._answers.of(operation) for operation in operations]
        for operation in operations:
            self._store.submit(operation)
        if answers:
            await asyncio.wait(answers)
        for operation in operations:
            if operation.error is not None:
                raise operation.error


class _Answers:
    """Who waits for operations; all calls on the loop but `complete`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def of(self, operation: Operation) -> "asyncio.Future[None]":
        """What is done when the operation is complete."""
        answer = operation.reply_to = self._loop.create_future()
        return answer

    def complete(self, operations: Sequence[Operation]) -> None:
        """Take what the store has completed; from any thread."""
        for operation in operations:
            self._loop.call_soon_threadsafe(_settle, operation.reply_to)


def _settle(answer: "asyncio.Future[None]") -> None:
    if not answer.done():
        answer.set_result(None)


def _append_of(log: int, piece: Piece) -> Append:
    """What makes a block, and its keys."""
    block = piece.block
    header = decode_header(block.value)
    keys = keys_with_offsets(piece.keys, block.first_index)
    return Append(
        log=log,
        kind=header.kind,
        flags=header.flags,
        received_at=header.received_at,
        count=header.count,
        body=memoryview(block.value)[HEADER_BYTES:],
        keys=keys,
        timed=None,
    )


def _beside_with(key: bytes, ids: dict[int, int]) -> bytes:
    """The row of a value beside a log, with another id of its stream; others as they are."""
    begin, _, behind = key.partition(b"/")
    log, _, rest = behind.partition(b"/")
    if not key.startswith(_BESIDE) or not log.isdigit():
        return key
    stream_id, partition = divmod(int(log), 1 << 32)
    own = ids.get(stream_id, stream_id) << 32 | partition
    return b"%s/%d/%s" % (begin, own, rest)


def _mark_key(name: str) -> bytes:
    if name.startswith(_LOG_MARK):
        return _OF_LOG + LOG_KEY.pack(int(name.removeprefix(_LOG_MARK), 16))
    if name.startswith(_STREAM_MARK):
        return _OF_STREAM + name.removeprefix(_STREAM_MARK).encode()
    return COPY_KEY


def _mark_name(key: bytes) -> str:
    if key == COPY_KEY:
        return COPYING
    if len(key) == len(_OF_LOG) + LOG_KEY.size and not key.startswith(_OF_STREAM):
        return f"{_LOG_MARK}{LOG_KEY.unpack(key[len(_OF_LOG) :])[0]:016x}"
    return f"{_STREAM_MARK}{key[len(_OF_STREAM) :].decode()}"
