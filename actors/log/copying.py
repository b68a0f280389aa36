"""A whole store copied into another of any engine, byte by byte, in as many runs as it takes.

Stores of all engines hold the same blocks, and the same keys and values beside them (`layout`), so
nothing is decoded, and indexes and positions stay what they are. Each run makes
the target what the source is: what the target has already is left, what was trimmed or removed in
the source since is trimmed or removed there. So a run that was cut off is gone on with, and the
last run, for which the nodes stand still, has only to do what came since the one before it.

A target that is not finished carries a mark, and no node starts on it. Each partition is read back
from both stores and compared by its SHA-256; how far that was done is kept beside the mark.
"""

import hashlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from rillnode.actors.log import StreamRecord, logs_of
from rillnode.actors.log.rocks.layout import (
    COPY_KEY,
    FORMAT_KEY,
    INDEX,
    LOG_KEY,
    STREAM_PREFIX,
    Change,
    LogState,
    decode_record,
)
from rillnode.codecs.entries import Block
from rillnode.codecs.errors import StoreError

GROUP_BYTES: Final = 524_288
"""Blocks, or rows, that are written at once."""

_ROW_BYTES: Final = 64
"""What a row counts for beside its key and value."""

OnBytes = Callable[[int], None]
"""Told how many bytes more of blocks were copied or compared."""


class Piece(NamedTuple):
    """A block and its secondary keys, each with the index that it leads to behind it."""

    block: Block
    keys: list[bytes]

    @property
    def size(self) -> int:
        """Bytes, roughly."""
        return len(self.block.value) + sum(map(len, self.keys))


class Source(Protocol):
    """A store that stands still while it is read."""

    def rows(self, prefix: bytes = b"") -> AsyncGenerator[tuple[bytes, bytes], None]:
        """The rows of `layout`'s default family whose keys begin with a prefix, by key."""
        ...

    async def state(self, log: int) -> LogState:
        """Where a log begins and ends."""
        ...

    def pieces(self, log: int, index: int) -> AsyncGenerator[Piece, None]:
        """A log's blocks, from the one that holds `index` or the first one kept, in order."""
        ...


class Target(Source, Protocol):
    """A store that no node has open."""

    async def put_rows(self, changes: Sequence[Change]) -> None:
        """Write rows, durably."""
        ...

    async def prepare(self, streams: Sequence[StreamRecord]) -> None:
        """Told of the source's streams before any rows: who gives them ids of its own has them."""
        ...

    async def drop(self, record: StreamRecord) -> None:
        """Remove the logs of a stream whose rows are no more."""
        ...

    async def put(self, log: int, pieces: Sequence[Piece]) -> None:
        """Add blocks to the end of a log, durably."""
        ...

    async def begin_at(self, log: int, state: LogState) -> None:
        """Let a log begin and end where the source's does; nothing of it is past that end."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedLog:
    """One partition after a run.

    Attributes:
        first_index: first entry kept.
        next_index: index after the last one.
        compared_from: first entry whose block was read back in this run.
        sha256: of those blocks and their keys, the same in both stores.
    """

    stream: str
    partition: int
    first_index: int
    next_index: int
    compared_from: int
    sha256: str


async def bytes_to_copy(source: Source) -> int:
    """The data bytes of all logs, which a first run copies and compares."""
    total = 0
    for record in await _streams(source):
        for log in logs_of(record.id, record.partitions):
            state = await source.state(log)
            total += state.next_position - state.first_position
    return total


async def copy_store(
    source: Source,
    target: Target,
    *,
    final: bool,
    on_bytes: OnBytes = lambda size: None,
) -> list[CopiedLog]:
    """Make the target what the source is.

    Args:
        source: stands still meanwhile.
        target: new, or left by an earlier run from the same source.
        final: nothing will be added to the source any more: a node may start on the target.
        on_bytes: told of progress.

    Raises:
        StoreError: `copy.occupied`, `copy.diverged` or `copy.differs`, where the target is not of
            this source or not what was written; or what a store says that fails.
    """
    await _begin(target)
    await target.prepare(await _streams(source))
    known = await _streams(target)
    for record in await _copy_rows(source, target, known):
        await target.drop(record)
    copied: list[CopiedLog] = []
    for record in await _streams(source):
        for partition, log in enumerate(logs_of(record.id, record.partitions)):
            await _copy_log(source, target, log, on_bytes)
            copied.append(await _compare(source, target, record.name, partition, log, on_bytes))
    if final:
        await _put(target, _unmarking(target))
    return copied


async def _begin(target: Target) -> None:
    """Mark the target."""
    async with aclosing(target.rows(COPY_KEY)) as marks, aclosing(_real(target)) as rows:
        marked = await anext(marks, None) is not None
        if not marked and await anext(rows, None) is not None:
            raise StoreError(
                "copy.occupied",
                "the target holds something already: copy into a new data_dir or prefix",
                retryable=False,
            )
        await target.put_rows([(COPY_KEY, b"")])


async def _unmarking(target: Target) -> AsyncGenerator[Change, None]:
    """Remove what stands beside the mark, and the mark itself last."""
    async with aclosing(target.rows(COPY_KEY)) as rows:
        marks = [key async for key, _ in rows]
    for key in reversed(marks):
        yield key, None


async def _streams(store: Source) -> list[StreamRecord]:
    async with aclosing(store.rows(STREAM_PREFIX)) as rows:
        return [decode_record(value) async for _, value in rows]


# Rows ----------------------------------------------------------------------------------------


async def _copy_rows(
    source: Source, target: Target, known: Sequence[StreamRecord]
) -> list[StreamRecord]:
    """Write the rows that differ; returns the streams of `known` that are no more."""
    await _put(target, _differences(source, target))
    kept = {record.id for record in await _streams(source)}
    return [record for record in known if record.id not in kept]


async def _put(target: Target, changes: AsyncGenerator[Change, None]) -> None:
    """Write rows in their order, in groups."""
    group: list[Change] = []
    size = 0
    async with aclosing(changes):
        async for key, value in changes:
            group.append((key, value))
            size += len(key) + len(value or b"") + _ROW_BYTES
            if size >= GROUP_BYTES:
                await target.put_rows(group)
                group, size = [], 0
    if group:
        await target.put_rows(group)


async def _differences(source: Source, target: Target) -> AsyncGenerator[Change, None]:
    """What makes the target's rows the source's: both are read once, side by side."""
    async with aclosing(_real(source)) as wanted, aclosing(_real(target)) as found:
        left, right = await anext(wanted, None), await anext(found, None)
        while left is not None or right is not None:
            if right is not None and (left is None or right[0] < left[0]):
                yield right[0], None
                right = await anext(found, None)
                continue
            if left is not None and left != right:
                yield left
            if right is not None and left is not None and right[0] == left[0]:
                right = await anext(found, None)
            left = await anext(wanted, None)


async def _real(store: Source) -> AsyncGenerator[tuple[bytes, bytes], None]:
    """A store's rows without the mark, and what stands beside it."""
    async with aclosing(store.rows()) as rows:
        async for key, value in rows:
            if key != FORMAT_KEY and not key.startswith(COPY_KEY):
                yield key, value


# Logs ----------------------------------------------------------------------------------------


async def _copy_log(source: Source, target: Target, log: int, on_bytes: OnBytes) -> None:
    """Add what the target's log does not have yet, and let it begin where the source's does."""
    wanted, end = await source.state(log), (await target.state(log)).next_index
    if end > wanted.next_index:
        raise _diverged_error(log, end)
    if end > wanted.first_index:
        await _check_end(source, target, log, end)
    group: list[Piece] = []
    size = 0
    async with aclosing(source.pieces(log, end)) as pieces:
        async for piece in pieces:
            if piece.block.next_index <= end:
                continue
            if group and size + piece.size > GROUP_BYTES:
                await target.put(log, group)
                on_bytes(size)
                group, size = [], 0
            group.append(piece)
            size += piece.size
    if group:
        await target.put(log, group)
        on_bytes(size)
    await target.begin_at(log, wanted)


async def _check_end(source: Source, target: Target, log: int, end: int) -> None:
    """Check that the last block of the target is the source's, too."""
    ours = [await _piece_at(store, log, end - 1) for store in (source, target)]
    if ours[0] is None or ours[1] is None or _digest(ours[0]) != _digest(ours[1]):
        raise _diverged_error(log, end)


async def _piece_at(store: Source, log: int, index: int) -> Piece | None:
    async with aclosing(store.pieces(log, index)) as pieces:
        return await anext(pieces, None)


async def _compare(
    source: Source, target: Target, stream: str, partition: int, log: int, on_bytes: OnBytes
) -> CopiedLog:
    """Read both stores' blocks that were not compared yet."""
    key = COPY_KEY + LOG_KEY.pack(log)
    state = await source.state(log)
    compared = max(state.first_index, await _compared_to(target, key))
    digests = [
        await _digest_from(source, log, compared, on_bytes),
        await _digest_from(target, log, compared, lambda size: None),
    ]
    if digests[0] != digests[1] or (await target.state(log)).extent() != state.extent():
        raise StoreError(
            "copy.differs",
            f"partition {partition} of {stream!r} is not what was written: check the target's "
            "storage, then copy into a new one",
            retryable=False,
        )
    await target.put_rows([(key, INDEX.pack(state.next_index))])
    return CopiedLog(
        stream=stream,
        partition=partition,
        first_index=state.first_index,
        next_index=state.next_index,
        compared_from=compared,
        sha256=digests[0],
    )


async def _compared_to(target: Target, key: bytes) -> int:
    async with aclosing(target.rows(key)) as rows:
        found = await anext(rows, None)
    return 0 if found is None else int(INDEX.unpack(found[1])[0])


async def _digest_from(store: Source, log: int, index: int, on_bytes: OnBytes) -> str:
    digest = hashlib.sha256()
    async with aclosing(store.pieces(log, index)) as pieces:
        async for piece in pieces:
            if piece.block.next_index > index:
                digest.update(_digest(piece))
                on_bytes(piece.size)
    return digest.hexdigest()


def _digest(piece: Piece) -> bytes:
    digest = hashlib.sha256(INDEX.pack(piece.block.first_index))
    for part in (piece.block.value, *sorted(piece.keys)):
        digest.update(INDEX.pack(len(part)))
        digest.update(part)
    return digest.digest()


def _diverged_error(log: int, end: int) -> StoreError:
    return StoreError(
        "copy.diverged",
        f"stream id {log >> 32} partition {log & 0xFFFF_FFFF} of the target is not that of the "
        f"source before entry {end}: copy into a new data_dir or prefix",
        retryable=False,
    )
