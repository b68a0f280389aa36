"""One answer out of the local log for another node: what it has missed.

Either everything that has come to this log since a time, in the order of the log, whatever times
its messages bear; or a range of one chain. It sees what was durable when it began, reads when the
link has room, and ends itself.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, assert_never

from rillnode.actors.delivery import Origin
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.overlay.announcing import READ_BYTES, LogReader
from rillnode.actors.overlay.context import OverlayContext
from rillnode.actors.overlay.rendering import CARRIED_KEYS, CHAIN, Renderer, is_own
from rillnode.actors.overlay.stream_keys import overlay_address
from rillnode.actors.rights import RightsChanged
from rillnode.actors.storage import ListKeys, Read, StreamRecord, key_after, log_id
from rillnode.codecs.entries import Entry, entries_of
from rillnode.codecs.streamr.duplicates import Number
from rillnode.codecs.streamr.sort_keys import bounds
from rillnode.codecs.streamr.stream_message import StreamMessage

SLICE_ENTRIES: Final = 64
PAGE_KEYS: Final = 1_000
BACK_ENTRIES: Final = 1_024


@dataclass(frozen=True, slots=True)
class Since:
    """Everything that has come since then, in milliseconds since 1970."""

    received_at: int


@dataclass(frozen=True, slots=True)
class Range:
    """A chain from one number to another, both included; without a chain, all of a publisher's."""

    publisher_id: str
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


@dataclass(frozen=True, slots=True)
class _GoOn:
    """Time to send more."""


class ResendingActor(Worker):
    """One answer."""

    on_failure = "stop"

    def __init__(
        self,
        context: OverlayContext,
        record: StreamRecord,
        partition: int,
        reader: LogReader,
        asked: Since | Range,
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
        self._created = record.created_at
        self._entries: deque[Entry] = deque()
        self._kept_bytes = 0
        self._room = receiver.origin.room(context.streams.store)
        self._runs: deque[tuple[int, int]] = deque()
        self._finished = False
        self._previous: int | None = None
        self._more: Callable[[], None] | None = None
        self._first = self._end = 0
        # A search for the first entry of a time: it is not before `low`, and before `high`.
        self._low = self._high = 0

    def started(self) -> None:
        """Find out where the log begins and ends, if the right has not ended since it was asked."""
        self._context.streams.access.rights.watch(self._record.name, self.address)
        if not self._may_go_on():
            self._finish(False)
            return
        self._submit(Read(log=self._log, index=0, entries_max=1, bytes_max=1, token=self._found))

    def handle(self, message: RightsChanged | Read | ListKeys | _GoOn, sender: Cell | None) -> None:
        """Take completed operations and the time to go on, and look again who may have it."""
        if self._finished:
            return
        match message:
            case RightsChanged():
                if not self._may_go_on():
                    self._finish(False)
            case Read() | ListKeys():
                if message.error is not None:
                    self._finish(False)
                else:
                    message.token(message)
            case _GoOn():
                self._advance()
            case _:
                assert_never(message)

    def stopped(self) -> None:
        """Whoever the messages are for hears of every end, a failure's too."""
        self._context.streams.access.rights.unwatch(self._record.name, self.address)
        self._sent(self._kept_bytes)
        if not self._finished:
            self._receiver.finished(False)

    def _may_go_on(self) -> bool:
        return self._context.admits(self._stream, self._receiver.origin)

    def _submit(self, operation: Read | ListKeys) -> None:
        operation.reply_to = self.address
        if self._context.streams.store.read(operation):
            self.system.post(self.address, operation)

    def _submit_for_link(self, operation: Read) -> None:
        """Read what is to be sent, once the link has room for it."""
        operation.reply_to = self.address
        if (self._room or self._context.streams.store).read(operation):
            self.system.post(self.address, operation)

    def _finish(self, ok: bool) -> None:
        self._finished = True
        self._receiver.finished(ok)
        self.system.exit(self.address)

    # Which entries ---------------------------------------------------------------------------

    def _found(self, operation: Read) -> None:
        extent = operation.extent
        self._first, self._end = extent.first_index, extent.next_index
        match self._asked:
            case Since():
                self._low, self._high = extent.first_index, extent.next_index
                self._search()
            case Range(publisher_id=publisher, first=first, last=last):
                if publisher == self._context.settings.identity:
                    # Own entries of bytes: their numbers are their indexes.
                    start = 0 if first[0] < self._created else first[1]
                    stop = self._end if last[0] > self._created or last[1] is None else last[1] + 1
                    if max(first[0], self._created) <= last[0]:
                        self._runs.append((max(start, extent.first_index), min(stop, self._end)))
                    self._advance()
                else:
                    low, high = bounds(publisher, first, last)
                    carried = len(publisher) == len(self._context.settings.identity)
                    if carried:
                        low, high = CARRIED_KEYS + low[1:], CARRIED_KEYS + high[1:]
                    self._list(low, high)

    def _search(self) -> None:
        """Halve where the first entry of the time may be."""
        if self._low >= self._high:
            self._runs.append((self._low, self._end))
            self._high = self._low
            self._look_back()
            return
        middle = (self._low + self._high) // 2
        self._submit(
            Read(log=self._log, index=middle, entries_max=1, bytes_max=1, token=self._halve)
        )

    def _halve(self, operation: Read) -> None:
        assert isinstance(self._asked, Since)
        middle = (self._low + self._high) // 2
        entry = _first(operation, self._partition)
        if entry is not None and entry.received_at < self._asked.received_at:
            self._low = entry.index + 1
        else:
            self._high = middle
        self._search()

    def _look_back(self) -> None:
        """Look for the own entry before the first: a message must name what it follows.

        One that named nothing would make what is before it look old to whoever lacks that. The
        reader knows it, where it has come so far; a log without own entries is not read through.
        """
        if self._low == 0 or self._high >= self._end or self._previous is not None:
            self._advance()
            return
        announced = self._reader.previous
        if self._reader.next >= self._low and (announced is None or announced < self._low):
            kept = announced is not None and announced >= self._first
            self._previous = announced if kept else None
            self._advance()
        else:
            self._read_back(max(0, self._low - BACK_ENTRIES))

    def _read_back(self, index: int) -> None:
        read = Read(log=self._log, index=index, until=self._low, bytes_max=READ_BYTES)
        read.token = self._back
        self._submit(read)

    def _back(self, operation: Read) -> None:
        index = operation.index
        for block in operation.blocks:
            for entry in entries_of(block, first=index, until=self._low):
                if is_own(entry):
                    self._previous = entry.index
            index = block.next_index
        if operation.blocks and index < self._low:
            self._read_back(index)
            return
        start = max(0, self._low - BACK_ENTRIES)
        self._low = start if operation.blocks and operation.extent.first_index < start else 0
        self._look_back()

    def _list(self, low: bytes, high: bytes) -> None:
        self._submit(
            ListKeys(log=self._log, start=low, end=high, limit=PAGE_KEYS, token=self._listed)
        )

    def _listed(self, operation: ListKeys) -> None:
        self._runs.extend((index, index + 1) for _, index in operation.pairs if index < self._end)
        if len(operation.pairs) == operation.limit:
            low, high = key_after(*operation.pairs[-1]), operation.end or b""
            self._more = partial(self._list, low, high)
        self._advance()

    # Reading and sending ---------------------------------------------------------------------

    def _advance(self) -> None:
        """Send one slice, or read what comes next; goes on in another turn."""
        if self._entries:
            self._send()
            self.system.post(self.address, _GoOn())
        elif self._runs:
            index, until = self._runs[0]
            if index >= until:
                self._runs.popleft()
                self.system.post(self.address, _GoOn())
                return
            self._submit_for_link(
                Read(
                    log=self._log,
                    index=index,
                    until=until,
                    bytes_max=READ_BYTES,
                    token=self._read,
                )
            )
        elif self._more is not None:
            more, self._more = self._more, None
            more()
        else:
            self._finish(True)

    def _read(self, operation: Read) -> None:
        _, until = self._runs[0]
        index = max(operation.index, operation.extent.first_index)
        for block in operation.blocks:
            self._entries += entries_of(block, partition=self._partition, first=index, until=until)
            index = max(index, block.next_index)
        # What is not there was trimmed.
        self._runs[0] = (index if operation.blocks else until, until)
        self._kept_bytes = sum(len(entry.data) for entry in self._entries)
        if self._room is not None:
            self._room.keep(operation, self._kept_bytes)
        self.system.post(self.address, _GoOn())

    def _send(self) -> None:
        messages: list[StreamMessage] = []
        size = 0
        for _ in range(min(SLICE_ENTRIES, len(self._entries))):
            entry = self._entries.popleft()
            size += len(entry.data)
            message = self._renderer.message(entry, self._previous)
            if is_own(entry):
                self._previous = entry.index
            if message is not None and self._is_asked(message):
                messages.append(message)
        if messages:
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
        if isinstance(asked, Since):
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
