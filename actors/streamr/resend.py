"""One resend: what is asked for, found by its keys, read from the log, handed to a sink in order.

It sees everything that was durable when it began and nothing that came later, so that it ends
however fast the log grows. Entries that were trimmed or whose time is over are left out. It reads
when its client has room, and all resends of one client take turns.
"""

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final, assert_never

from rillnode.actors.core.rights import Key, RightsChanged
from rillnode.actors.core.room import Room
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.waiting import next_turn
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import FindStream, ListKeys, LogExtent, Read, key_after, log_id
from rillnode.actors.log.waiting import read
from rillnode.actors.streamr.admission import may_resend
from rillnode.actors.streamr.answering import refusal
from rillnode.actors.streamr.context import StreamrContext
from rillnode.actors.streamr.requests import (
    NOT_FOUND,
    PERMISSION_DENIED,
    RESEND_FAILED,
    ResendQuery,
    ResendSink,
)
from rillnode.actors.streamr.stored import is_expired, read_entry
from rillnode.codecs.entries import Entry, entries_of
from rillnode.codecs.errors import ActorError, RequestError, RillnodeError
from rillnode.codecs.streamr.key_exchange import is_key_stream
from rillnode.codecs.streamr.limits import STREAMR_RESEND_MESSAGES_MAX
from rillnode.codecs.streamr.sort_keys import bounds
from rillnode.codecs.streamr.stream_message import StreamMessage

SLICE_ENTRIES: Final = 32
"""Messages of one turn: live traffic gets its turn in between."""

PAGE_KEYS: Final = 1_000
READ_BYTES: Final = 1_048_576
"""What is fetched at one time."""


class ResendActor(Worker):
    """A resend under way; it ends itself, and its sink hears of its end whatever that is."""

    on_failure = "stop"

    def __init__(
        self, context: StreamrContext, query: ResendQuery, sink: ResendSink, room: Room | None
    ) -> None:
        self._context = context
        self._query = query
        self._sink = sink
        self._log = 0
        self._kept_bytes = 0
        streams = context.streams
        self._is_alone = room is None
        self._room = room or Room(streams.store, sink, streams.clock.call_later)
        self._finished = False
        self._watched: Sequence[Key] = ()

    def started(self) -> None:
        """Begin, unless there is nothing to find or the right has ended since it was asked."""
        query = self._query
        if is_key_stream(query.stream_id) or query.last == 0:
            self._finish(None)
        elif not self._may_read():
            self._deny()
        else:
            self._watch()
            self.begin(self._resend(), self._failed)

    def handle(self, message: RightsChanged, sender: Cell | None) -> None:
        """Look again who may read."""
        match message:
            case RightsChanged():
                if not self._may_read():
                    self._deny()
            case _:
                assert_never(message)

    def stopped(self) -> None:
        """Give everything back; whoever waits for the end hears of this one, too."""
        self._sent()
        if self._is_alone:
            self._room.close()
        for key in self._watched:
            self._context.streams.access.rights.unwatch(key, self.address)
        self._tell(refusal(ActorError("actor.stopped", "ended"), RESEND_FAILED))

    def _watch(self) -> None:
        """Hear when the right to read may have ended."""
        self._watched = (self._query.stream_id, *self._context.sessions.keys_of(self._query.token))
        for key in self._watched:
            self._context.streams.access.rights.watch(key, self.address)

    def _may_read(self) -> bool:
        query, context = self._query, self._context
        return may_resend(
            context.streams.access, query.principal, query.stream_id
        ) and context.sessions.stands(query.token)

    # Its end ---------------------------------------------------------------------------------

    def _deny(self) -> None:
        text = f"You are not allowed to read {self._query.stream_id}"
        self._finish(RequestError(PERMISSION_DENIED, text))

    def _failed(self, error: RillnodeError) -> None:
        self._finish(error if isinstance(error, RequestError) else refusal(error, RESEND_FAILED))

    def _finish(self, error: RequestError | None) -> None:
        self._tell(error)
        self.system.exit(self.address)

    def _tell(self, error: RequestError | None) -> None:
        if not self._finished:
            self._finished = True
            self._sink.finished(error)

    # Which entries ---------------------------------------------------------------------------

    async def _resend(self) -> None:
        query = self._query
        extent = await self._find()
        first, end = extent.first_index, extent.next_index
        if query.first_index is not None:
            first = max(first, query.first_index)
            if query.last_index is not None:
                end = min(end, query.last_index + 1)
            for index in range(first, end, PAGE_KEYS):
                await self._give(range(index, min(index + PAGE_KEYS, end)))
        elif query.last is None:
            await self._give_listed(end)
        else:
            count = min(query.last, STREAMR_RESEND_MESSAGES_MAX)
            await self._give(await self._newest(end, count))
        await self._find_again()
        self._finish(None)

    async def _find(self) -> LogExtent:
        """Look for the stream, and how far its log goes now.

        Raises:
            RequestError: NOT_FOUND, RESEND_FAILED.
            StoreError: it cannot be looked for.
        """
        query = self._query
        found = FindStream(name=query.stream_id)
        streams = self._context.streams
        await read(streams.store, found)
        record = found.record
        if record is None or streams.access.is_reserved(query.stream_id):
            raise RequestError(NOT_FOUND, f"Stream {query.stream_id} was not found")
        if query.partition >= record.partitions:
            text = f"{query.stream_id} has {record.partitions} partitions, from 0 on"
            raise RequestError(RESEND_FAILED, text)
        self._log = log_id(record.id, query.partition)
        return found.extents[query.partition]

    async def _find_again(self) -> None:
        """See that what was read is whole: a removed stream reads like one that was trimmed.

        Raises:
            RequestError: RESEND_FAILED.
            StoreError: it cannot be looked for.
        """
        query = self._query
        found = FindStream(name=query.stream_id)
        await read(self._context.streams.store, found)
        record = found.record
        if record is None or log_id(record.id, query.partition) != self._log:
            text = f"Stream {query.stream_id} was removed before all of it was read"
            raise RequestError(RESEND_FAILED, text)

    async def _list(self, start: bytes, end: bytes, *, reverse: bool = False) -> ListKeys:
        page = ListKeys(log=self._log, start=start, end=end, limit=PAGE_KEYS, reverse=reverse)
        await read(self._context.streams.store, page)
        return page

    async def _give_listed(self, end: int) -> None:
        """Hand on all that was asked for, from the lowest key on."""
        query = self._query
        low, high = bounds(query.publisher_id, query.from_ref, query.to_ref)
        while True:
            pairs = (await self._list(low, high)).pairs
            await self._give([index for _, index in pairs if index < end])
            if len(pairs) < PAGE_KEYS:
                return
            low = key_after(*pairs[-1])

    async def _newest(self, end: int, count: int) -> Sequence[int]:
        """The indexes of the newest, in the order of their keys: listed from the highest down."""
        query = self._query
        low, high = bounds(query.publisher_id, query.from_ref, query.to_ref)
        found = deque[int]()
        while True:
            pairs = (await self._list(low, high, reverse=True)).pairs
            indexes = [index for _, index in pairs if index < end]
            found.extendleft(indexes[: count - len(found)])
            if len(pairs) < PAGE_KEYS or len(found) == count:
                return found
            high = key_after(*pairs[-1])[:-1]

    # Reading and sending ---------------------------------------------------------------------

    async def _give(self, indexes: Sequence[int]) -> None:
        """Read entries, and hand them to the sink slice by slice as it takes them."""
        left = deque(indexes)
        while left:
            entries = await self._read(left)
            for start in range(0, len(entries), SLICE_ENTRIES):
                self._send(entries[start : start + SLICE_ENTRIES])
                await next_turn()
            self._sent()

    async def _read(self, left: deque[int]) -> Sequence[Entry]:
        """The entries of the next indexes, which are taken from `left`; kept until `_sent`."""
        first, partition = left[0], self._query.partition
        operation = Read(log=self._log, index=first, until=_run_end(left), bytes_max=READ_BYTES)
        await read(self._room, operation)
        until, found = operation.until, dict[int, Entry]()
        for block in operation.blocks:
            entries = entries_of(block, partition=partition, first=first, until=until)
            found.update((entry.index, entry) for entry in entries)
        if operation.blocks:
            until = min(until, operation.blocks[-1].next_index)
        # What was asked for and is not there was trimmed.
        taken: list[Entry] = []
        while left and first <= left[0] < until:
            entry = found.get(left.popleft())
            if entry is not None:
                taken.append(entry)
        self._kept_bytes = sum(len(entry.data) for entry in taken)
        self._room.keep(operation, self._kept_bytes)
        return taken

    def _send(self, entries: Sequence[Entry]) -> None:
        now_ms = self._context.streams.clock.now_ms()
        query, key = self._query, self._context.node_key
        messages: list[StreamMessage] = []
        for entry in entries:
            if not is_expired(entry, now_ms):
                message = read_entry(entry, query.stream_id, query.partition, key)
                if message is not None and query.chain_id in (None, message.id.chain_id):
                    messages.append(message)
        # Its end may have been told, while this was about to go on.
        if messages and not self._finished:
            self._sink.resent(messages)

    def _sent(self) -> None:
        """Nothing is kept that was read."""
        kept, self._kept_bytes = self._kept_bytes, 0
        self._room.sent(kept)


def _run_end(indexes: Sequence[int]) -> int:
    """Past the last of the first indexes that ascend without large gaps: read as one."""
    end = indexes[0] + 1
    for index in indexes:
        if not end - 1 <= index < end + SLICE_ENTRIES:
            break
        end = index + 1
    return end


def spawn_resend(
    context: StreamrContext,
    query: ResendQuery,
    sink: ResendSink,
    *,
    parent: Cell | None = None,
    room: Room | None = None,
) -> Cell:
    """Begin a resend; it ends with its parent, and `system.exit` of its address cancels it.

    Args:
        context: the node's parts.
        query: what is asked for.
        sink: who takes it.
        parent: with whom it ends.
        room: of the sink's link, which it shares with others; None: the sink is its own.
    """
    factory = partial(ResendActor, context, query, sink, room)
    return context.streams.system.spawn(factory, parent=parent)
