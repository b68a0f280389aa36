"""Replays the local log to a node that was offline.

Everything that has come to this log since a time, or the last of it, in the order of the log,
whatever times its messages bear; or a range of one chain, of a publisher, or of all. It sees what
was durable when it began, reads when the link has room, and ends itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, assert_never

from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.rights import RightsChanged
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.waiting import next_turn
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import (
    FindStream,
    ListKeys,
    LogExtent,
    Read,
    StreamRecord,
    key_after,
    log_id,
)
from rillnode.actors.log.waiting import read
from rillnode.actors.overlay.announcing import READ_BYTES, LogReader
from rillnode.actors.overlay.context import OverlayContext
from rillnode.actors.overlay.rendering import CARRIED_KEYS, CHAIN, Renderer, is_own
from rillnode.actors.overlay.stream_keys import overlay_address
from rillnode.codecs.entries import Entry, entries_of
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.streamr.duplicates import Number
from rillnode.codecs.streamr.sort_keys import bounds
from rillnode.codecs.streamr.stream_message import StreamMessage

logger = event_logger("rillnode.actors.overlay.resending")

SLICE_ENTRIES: Final = 64
PAGE_KEYS: Final = 1_000
BACK_ENTRIES: Final = 1_024


@dataclass(frozen=True, slots=True)
class Since:
    """Everything that has come since then, in milliseconds since 1970."""

    received_at: int


@dataclass(frozen=True, slots=True)
class Last:
    """The last entries of the log, so many."""

    count: int


@dataclass(frozen=True, slots=True)
class Range:
    """A chain from one number to another, both included.

    Without a chain, all of a publisher's; without a publisher, everybody's.
    """

    publisher_id: str | None
    chain_id: str | None
    first: Number
    last: tuple[int, int | None]


class Receiver(Protocol):
    """Whoever the messages are for; all calls on the loop's thread."""

    @property
    def origin(self) -> Origin:
        """Whoever that is."""
        ...

    def resent(self, messages: Sequence[StreamMessage], /) -> None:
        """The next messages, in order; at least one."""
        ...

    def finished(self, ok: bool, /) -> None:
        """Nothing follows; whether all there was has been sent."""
        ...


class ResendingActor(Worker):
    """An answer to a node that was away."""

    on_failure = "stop"

    def __init__(
        self,
        context: OverlayContext,
        record: StreamRecord,
        partition: int,
        reader: LogReader,
        asked: Since | Last | Range,
        receiver: Receiver,
    ) -> None:
        self._context = context
        self._record = record
        self._partition = partition
        self._stream = overlay_address(record.name, partition)
        self._log = log_id(record.id, partition)
        identity = context.settings.identity
        self._renderer = Renderer(record, partition, identity)
        self._reader = reader
        self._asked = asked
        self._receiver = receiver
        self._room = receiver.origin.room(context.streams.store)
        self._kept_bytes = 0
        self._finished = False
        self._previous: int | None = None

    def started(self) -> None:
        """Begin, if the right has not ended since it was asked."""
        self._context.streams.access.rights.watch(self._record.name, self.address)
        if self._may_go_on():
            self.begin(self._answer(), self._failed)
        else:
            self._finish(False)

    def handle(self, message: RightsChanged, sender: Cell | None) -> None:
        """Look again who may have it."""
        match message:
            case RightsChanged():
                if not self._may_go_on():
                    self._finish(False)
            case _:
                assert_never(message)

    def stopped(self) -> None:
        """Whoever the messages are for hears of every end, a failure's too."""
        self._context.streams.access.rights.unwatch(self._record.name, self.address)
        self._sent(self._kept_bytes)
        self._tell(False)

    def _may_go_on(self) -> bool:
        return self._context.admits(self._stream, self._receiver.origin)

    def _failed(self, error: RillnodeError) -> None:
        logger.info("not_resent", extra={"stream": self._record.name, "code": error.code})
        self._finish(False)

    def _finish(self, ok: bool) -> None:
        self._tell(ok)
        self.system.exit(self.address)

    def _tell(self, ok: bool) -> None:
        if not self._finished:
            self._finished = True
            self._receiver.finished(ok)

    # Which entries ---------------------------------------------------------------------------

    async def _answer(self) -> None:
        extent = (await self._read_one(0)).extent
        match self._asked:
            case Since(received_at=received_at):
                await self._give_rest(await self._first_since(received_at, extent), extent)
            case Last(count=count):
                await self._give_rest(max(extent.first_index, extent.next_index - count), extent)
            case Range(publisher_id=publisher) as asked:
                if publisher == self._context.settings.identity:
                    await self._give(*self._own_range(asked, extent))
                else:
                    await self._give_listed(asked, extent.next_index)
            case _:
                assert_never(self._asked)
        # A removed stream reads like one that was trimmed: then it was not all there was.
        again = FindStream(id=self._record.id)
        await read(self._context.streams.store, again)
        self._finish(again.record is not None)

    async def _give_rest(self, first: int, extent: LogExtent) -> None:
        """Hand on all from an entry on."""
        self._previous = await self._own_before(first, extent)
        await self._give(first, extent.next_index)

    def _own_range(self, asked: Range, extent: LogExtent) -> tuple[int, int]:
        """Where own entries of bytes lie: their numbers are their indexes."""
        created, first, last = self._record.created_at, asked.first, asked.last
        if max(first[0], created) > last[0]:
            return (0, 0)
        start = 0 if first[0] < created else first[1]
        end = extent.next_index
        stop = end if last[0] > created or last[1] is None else last[1] + 1
        return max(start, extent.first_index), min(stop, end)

    async def _first_since(self, received_at: int, extent: LogExtent) -> int:
        """The first entry that came then or later: halves where it may be."""
        low, high = extent.first_index, extent.next_index
        while low < high:
            middle = (low + high) // 2
            operation = await self._read_one(middle)
            entry = _first(operation, self._partition)
            if entry is not None and entry.received_at < received_at:
                low = entry.index + 1
            else:
                high = middle
        return low

    async def _own_before(self, first: int, extent: LogExtent) -> int | None:
        """The own entry before the first: a message must name what it follows.

        One that named nothing would make what is before it look old to whoever lacks that. The
        reader knows it, where it has come so far; a log without own entries is not read through.
        """
        if first >= extent.next_index:
            return None
        low = first
        while low > 0:
            announced = self._reader.previous
            if self._reader.next >= low and (announced is None or announced < low):
                kept = announced is not None and announced >= extent.first_index
                return announced if kept else None
            start = max(0, low - BACK_ENTRIES)
            found, is_last = await self._last_own(start, low)
            if found is not None or is_last:
                return found
            low = start
        return None

    async def _last_own(self, start: int, until: int) -> tuple[int | None, bool]:
        """The last own entry from `start` to before `until`; whether nothing is kept before it."""
        found: int | None = None
        index = start
        while True:
            operation = Read(log=self._log, index=index, until=until, bytes_max=READ_BYTES)
            await read(self._context.streams.store, operation)
            for block in operation.blocks:
                for entry in entries_of(block, first=index, until=until):
                    if is_own(entry):
                        found = entry.index
                index = block.next_index
            if not operation.blocks or index >= until:
                return found, not operation.blocks or operation.extent.first_index >= start

    async def _give_listed(self, asked: Range, end: int) -> None:
        """Hand on what a range of keys leads to."""
        low, high = bounds(asked.publisher_id, asked.first, asked.last)
        # What a node carries is under keys of its own.
        if len(asked.publisher_id or "") == len(self._context.settings.identity):
            low, high = CARRIED_KEYS + low[1:], CARRIED_KEYS + high[1:]
        while True:
            page = ListKeys(log=self._log, start=low, end=high, limit=PAGE_KEYS)
            await read(self._context.streams.store, page)
            for _, index in page.pairs:
                if index < end:
                    await self._give(index, index + 1)
            if len(page.pairs) < page.limit:
                return
            low = key_after(*page.pairs[-1])

    # Reading and sending ---------------------------------------------------------------------

    async def _read_one(self, index: int) -> Read:
        operation = Read(log=self._log, index=index, entries_max=1, bytes_max=1)
        await read(self._context.streams.store, operation)
        return operation

    async def _give(self, index: int, until: int) -> None:
        """Read entries when the link has room for them, and send them slice by slice."""
        while index < until:
            operation = Read(log=self._log, index=index, until=until, bytes_max=READ_BYTES)
            await read(self._room or self._context.streams.store, operation)
            index = max(index, operation.extent.first_index)
            entries: list[Entry] = []
            for block in operation.blocks:
                entries += entries_of(block, partition=self._partition, first=index, until=until)
                index = max(index, block.next_index)
            self._kept_bytes = sum(len(entry.data) for entry in entries)
            if self._room is not None:
                self._room.keep(operation, self._kept_bytes)
            for start in range(0, len(entries), SLICE_ENTRIES):
                self._send(entries[start : start + SLICE_ENTRIES])
                await next_turn()
            if not operation.blocks:
                return  # what is not there was trimmed

    def _send(self, entries: Sequence[Entry]) -> None:
        messages: list[StreamMessage] = []
        size = 0
        for entry in entries:
            size += len(entry.data)
            message = self._renderer.message(entry, self._previous)
            if is_own(entry):
                self._previous = entry.index
            if message is not None and self._is_asked(message):
                messages.append(message)
        # Its end may have been told, while this was about to go on.
        if messages and not self._finished:
            self._context.counters["resent"] += len(messages)
            if self._room is not None:
                self._room.post(size)
            self._receiver.resent(messages)
        self._sent(size)

    def _sent(self, size: int) -> None:
        """So much of what was read is not kept any more."""
        self._kept_bytes -= size
        if self._room is not None:
            self._room.sent(size)

    def _is_asked(self, message: StreamMessage) -> bool:
        asked = self._asked
        if not isinstance(asked, Range) or asked.publisher_id is None:
            return True
        name = message.id
        return name.publisher_id.lower() == asked.publisher_id.lower() and (
            asked.chain_id in (None, name.chain_id) or name.chain_id == CHAIN
        )


def _first(operation: Read, partition: int) -> Entry | None:
    for block in operation.blocks:
        for entry in entries_of(block, partition=partition, first=operation.index):
            return entry
    return None
