"""One resend: what is asked for, found by its keys, read from the log, handed to a sink in order.

It sees everything that was durable when it began and nothing that came later, so that it ends
however fast the log grows. Entries that were trimmed or whose time is over are left out. It reads
when its client has room, and all resends of one client take turns.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, assert_never

from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.rights import Key, RightsChanged
from rillnode.actors.room import Room
from rillnode.actors.storage import FindStream, ListKeys, Read, key_after, log_id
from rillnode.actors.streamr.admission import may_resend
from rillnode.actors.streamr.context import StreamrContext
from rillnode.actors.streamr.requests import (
    NOT_FOUND,
    PERMISSION_DENIED,
    RESEND_FAILED,
    ResendQuery,
    ResendSink,
)
from rillnode.actors.streamr.stored import FOREIGN_PREFIX, is_expired, read_entry
from rillnode.codecs.entries import Entry, entries_of
from rillnode.codecs.errors import RequestError, StoreError
from rillnode.codecs.limits import STREAMR_RESEND_MESSAGES_MAX
from rillnode.codecs.streamr.key_exchange import is_key_stream
from rillnode.codecs.streamr.sort_keys import Bounds, bounds
from rillnode.codecs.streamr.stream_message import StreamMessage

SLICE_ENTRIES: Final = 32
"""Messages of one turn: live traffic gets its turn in between."""

PAGE_KEYS: Final = 1_000
READ_BYTES: Final = 1_048_576
"""What is fetched at one time."""


@dataclass(frozen=True, slots=True)
class _GoOn:
    """Time to send more."""


_Taken = RightsChanged | FindStream | ListKeys | Read | _GoOn


class ResendActor(Worker):
    """One resend; it ends itself."""

    on_failure = "stop"

    def __init__(
        self, context: StreamrContext, query: ResendQuery, sink: ResendSink, room: Room | None
    ) -> None:
        self._context = context
        self._query = query
        self._sink = sink
        self._log = 0
        self._end = 0
        self._left = None if query.last is None else min(query.last, STREAMR_RESEND_MESSAGES_MAX)
        self._next_page: Callable[[], None] | None = None
        # Indexes of the entries to come, as far as they are known; entries read and not sent.
        self._indexes: deque[int] = deque()
        self._entries: deque[Entry] = deque()
        self._kept_bytes = 0
        streams = context.streams
        self._is_alone = room is None
        self._room = room or Room(streams.store, sink, streams.clock.call_later)
        self._finished = False
        self._watched: Sequence[Key] = ()

    def started(self) -> None:
        """Look for the stream."""
        query = self._query
        if is_key_stream(query.stream_id) or query.last == 0:
            self._finish(None)
        elif not self._may_read():
            self._deny()
        else:
            self._watch()
            operation = FindStream(reply_to=self.address, name=query.stream_id)
            if self._context.streams.store.read(operation):
                # Taken in a turn of its own: a failure here would be one of starting.
                self.system.post(self.address, operation)

    def handle(self, message: _Taken, sender: Cell | None) -> None:
        """Take completed operations and the time to go on, and look again who may read."""
        if self._finished:
            return
        try:
            self._take(message)
        except Exception:
            # Whoever waits for the end hears of this one, too.
            self._finish(RequestError(RESEND_FAILED, "The node failed", retryable=True))
            raise

    def _take(self, message: _Taken) -> None:
        match message:
            case RightsChanged():
                if not self._may_read():
                    self._deny()
            case FindStream():
                self._found(message)
            case ListKeys():
                self._listed(message)
            case Read():
                self._read(message)
            case _GoOn():
                self._advance()
            case _:
                assert_never(message)

    def stopped(self) -> None:
        """Look after no rights any more, and take no room."""
        self._sent()
        if self._is_alone:
            self._room.close()
        for key in self._watched:
            self._context.streams.access.rights.unwatch(key, self.address)

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

    def _deny(self) -> None:
        text = f"You are not allowed to read {self._query.stream_id}"
        self._finish(RequestError(PERMISSION_DENIED, text))

    def _finish(self, error: RequestError | None) -> None:
        self._finished = True
        self._sink.finished(error)
        self.system.exit(self.address)

    def _failed(self, error: StoreError) -> None:
        self._finish(RequestError(RESEND_FAILED, error.text, retryable=True))

    def _found(self, operation: FindStream) -> None:
        query, record = self._query, operation.record
        if operation.error is not None:
            self._failed(operation.error)
        elif record is None or query.stream_id.startswith(FOREIGN_PREFIX):
            self._finish(RequestError(NOT_FOUND, f"Stream {query.stream_id} was not found"))
        elif query.partition >= record.partitions:
            text = f"{query.stream_id} has {record.partitions} partitions, from 0 on"
            self._finish(RequestError(RESEND_FAILED, text))
        else:
            self._log = log_id(record.id, query.partition)
            extent = operation.extents[query.partition]
            self._end = extent.next_index
            if query.first_index is not None:
                if query.last_index is not None:
                    self._end = min(self._end, query.last_index + 1)
                first = max(query.first_index, extent.first_index)
                self._next_page = partial(self._count_on, first)
            else:
                low, high = bounds(query.publisher_id, query.from_ref, query.to_ref)
                self._next_page = partial(self._list, (low, high))
            self._advance()

    # Which entries ---------------------------------------------------------------------------

    def _count_on(self, first: int) -> None:
        """The next page of positions."""
        page = range(first, min(first + PAGE_KEYS, self._end))
        self._indexes.extend(page)
        self._next_page = partial(self._count_on, page.stop) if page else None
        self._advance()

    def _list(self, span: Bounds) -> None:
        """The next page of keys: from the lowest on, or of the newest from the highest down."""
        operation = ListKeys(
            reply_to=self.address,
            log=self._log,
            start=span[0],
            end=span[1],
            limit=PAGE_KEYS,
            reverse=self._left is not None,
        )
        if self._context.streams.store.read(operation):
            self._listed(operation)

    def _listed(self, operation: ListKeys) -> None:
        if operation.error is not None:
            self._failed(operation.error)
            return
        pairs, low, high = operation.pairs, operation.start, operation.end or b""
        found = [index for _, index in pairs if index < self._end]
        is_last = len(pairs) < operation.limit
        if self._left is None:
            self._indexes.extend(found)
            low = b"" if is_last else key_after(*pairs[-1])
        else:
            # Downwards: what is found is put in front, and nothing is sent before all is there.
            found = found[: self._left]
            self._left -= len(found)
            self._indexes.extendleft(found)
            is_last |= self._left == 0
            if not is_last:
                high = key_after(*pairs[-1])[:-1]
                self._list((low, high))
                return
        self._next_page = None if is_last else partial(self._list, (low, high))
        self._advance()

    # Reading and sending ---------------------------------------------------------------------

    def _advance(self) -> None:
        """Send one slice, or fetch what comes next; goes on in another turn."""
        if self._entries:
            self._send()
            self.system.post(self.address, _GoOn())
        elif self._indexes:
            operation = Read(
                reply_to=self.address,
                log=self._log,
                index=self._indexes[0],
                until=self._run_end(),
                bytes_max=READ_BYTES,
            )
            if self._room.read(operation):
                self._read(operation)
        elif self._next_page is not None:
            self._next_page()
        else:
            self._finish(None)

    def _run_end(self) -> int:
        """Past the last of the next indexes that ascend without large gaps: read as one."""
        end = self._indexes[0] + 1
        for index in self._indexes:
            if not end - 1 <= index < end + SLICE_ENTRIES:
                break
            end = index + 1
        return end

    def _read(self, operation: Read) -> None:
        if operation.error is not None:
            self._failed(operation.error)
            return
        first, read = operation.index, dict[int, Entry]()
        for block in operation.blocks:
            partition = self._query.partition
            entries = entries_of(block, partition=partition, first=first, until=operation.until)
            read.update((entry.index, entry) for entry in entries)
        read_to = operation.blocks[-1].next_index if operation.blocks else operation.until
        # What was asked for and is not there was trimmed.
        while self._indexes and first <= self._indexes[0] < min(read_to, operation.until):
            entry = read.get(self._indexes.popleft())
            if entry is not None:
                self._entries.append(entry)
        self._kept_bytes = sum(len(entry.data) for entry in self._entries)
        self._room.keep(operation, self._kept_bytes)
        self.system.post(self.address, _GoOn())

    def _send(self) -> None:
        now_ms = self._context.streams.clock.now_ms()
        query, key = self._query, self._context.node_key
        messages: list[StreamMessage] = []
        for _ in range(min(SLICE_ENTRIES, len(self._entries))):
            entry = self._entries.popleft()
            if not is_expired(entry, now_ms):
                message = read_entry(entry, query.stream_id, query.partition, key)
                if message is not None and query.chain_id in (None, message.id.chain_id):
                    messages.append(message)
        if messages:
            self._sink.resent(messages)
        if not self._entries:
            self._sent()

    def _sent(self) -> None:
        """Nothing is kept that was read."""
        kept, self._kept_bytes = self._kept_bytes, 0
        self._room.sent(kept)


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
