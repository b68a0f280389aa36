"""The relay: one stream partition as Streamr's clients see it.

What they publish it checks and hands to the stream's actor, and answers when that has made it
durable. What they are sent it reads from the log, where everybody else's entries are as well: it is
merely woken when the log has grown. So a broadcast follows the commit, and no message is lost or
sent twice between what is stored and what is live. It goes as fast as its fastest client.
"""

import logging
from collections import deque
from dataclasses import dataclass
from typing import Final, assert_never

from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.storage import FindStream, Read, StreamRecord, log_id
from rillnode.actors.streamr.context import StreamrContext
from rillnode.actors.streamr.fanout import Fanout
from rillnode.actors.streamr.outlet import Outlet
from rillnode.actors.streamr.publishing import Publishing
from rillnode.actors.streamr.requests import (
    NOT_FOUND,
    REQUEST_FAILED,
    Publish,
    Published,
    Revoked,
    Subscribe,
    SubscribeFailed,
    Unsubscribe,
)
from rillnode.actors.streamr.stored import FOREIGN_PREFIX, read_entry
from rillnode.actors.streamr.subscribing import subscribed, unsubscribed
from rillnode.actors.streams.context import StreamRemoved
from rillnode.actors.streams.followers import Grown, Removed
from rillnode.actors.streams.inside import EntriesAppended
from rillnode.codecs.entries import Entry, EntryKind, entries_of
from rillnode.codecs.errors import RequestError
from rillnode.codecs.streamr.stream_message import StreamMessage

logger = logging.getLogger("rillnode.actors.streamr.relay")

READ_BYTES: Final = 262_144
"""Bytes of blocks that are read at one time."""

SLICE_ENTRIES: Final = 64
SLICE_BYTES: Final = 65_536
"""What is sent together, as one write for each client: what costs is the write, not what is in
it. The sockets get their turn in between to take what was written."""

SLICE_SIGNED: Final = 16
"""Messages of other protocols' clients that are signed in one turn: about 2 ms."""

PAUSE_SECONDS: Final = 0.02
"""How often it is looked whether any client takes more."""

RETRY_SECONDS: Final = 1.0
"""Pause after the store could not be read."""

MISSING_SECONDS: Final = 1.0
"""How long a relay stays for whose partition there is no stream."""

Waiting = tuple[Publish | Subscribe | Unsubscribe, Cell | None]


@dataclass(frozen=True, slots=True)
class _GoOn:
    """Time to send more, or to read again after a failure."""


@dataclass(frozen=True, slots=True)
class _Expire:
    """Time to end, if nothing has come since."""

    missed: int


@dataclass(frozen=True, slots=True)
class _Leave:
    """Nothing follows: end."""


class RelayActor(Worker):
    """One partition of one stream, while Streamr's clients have something to do with it."""

    mailbox_messages_max = 4_096
    on_failure = "resume"
    idle_seconds = 600.0

    def __init__(self, context: StreamrContext, stream_id: str, partition: int) -> None:
        self._context = context
        self._stream_id = stream_id
        self._partition = partition
        self._record: StreamRecord | None = None
        self._log = 0
        self._publishing = Publishing(context, stream_id, partition)
        self._clients = Fanout(context.counters)
        self._waiting: deque[Waiting] = deque()
        self._finding = False
        self._leaving = False
        self._missed = 0
        # Where the clients are in the log, and what was read and not sent yet.
        self._next = 0
        self._grown_to = 0
        self._entries: deque[Entry] = deque()
        self._busy = False
        # What is to be sent together, as far as it has been made ready.
        self._messages: list[StreamMessage] = []
        self._messages_bytes = 0

    def may_passivate(self) -> bool:
        """Stay while there are clients, or something is under way."""
        return not (self._clients or self._finding or self._waiting or self._publishing.in_flight)

    def handle(
        self,
        message: Publish
        | Subscribe
        | Unsubscribe
        | Revoked
        | EntriesAppended
        | Grown
        | Removed
        | StreamRecord
        | StreamRemoved
        | FindStream
        | Read
        | _GoOn
        | _Expire
        | _Leave,
        sender: Cell | None,
    ) -> None:
        """Take requests, news of the log and of the stream, and completed operations."""
        match message:
            case Publish() | Subscribe() | Unsubscribe():
                self._waiting.append((message, sender))
                self._serve()
            case Revoked():
                self._revoke(message)
            case EntriesAppended():
                if self._publishing.appended(message):
                    self._removed()
            case Grown(next_index=index):
                self._grown_to = max(self._grown_to, index)
                self._advance()
            case Read():
                self._read(message)
            case _GoOn():
                self._busy = False
                self._advance()
            case FindStream():
                self._found(message)
            case StreamRecord():
                self._changed(message)
            case StreamRemoved():
                self._removed()
            case Removed(log=log):
                if log == self._log:
                    self._removed()
            case _Expire(missed=missed):
                self._expire(missed)
            case _Leave():
                self.system.exit(self.address)
            case _:
                assert_never(message)

    # The stream ------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Do what waits, in order, as far as the stream is known."""
        while self._waiting and not self._finding:
            request, sender = self._waiting[0]
            if not isinstance(request, Unsubscribe) and not self._leaving:
                # The first client hears everything from the log's end as it is now.
                joins = isinstance(request, Subscribe) and not self._clients
                if self._record is None or joins:
                    self._find()
                    return
            self._waiting.popleft()
            self._do(request, sender)

    def _do(self, request: Publish | Subscribe | Unsubscribe, sender: Cell | None) -> None:
        match request:
            case Publish():
                if self._record is None:
                    self._fail(request, sender, self._unknown())
                else:
                    self._publishing.publish(
                        request, sender, self._record, self.address, self._clients
                    )
            case Subscribe():
                self._subscribe(request, sender)
            case Unsubscribe():
                self._unsubscribe(request)

    def _find(self) -> None:
        self._finding = True
        operation = FindStream(reply_to=self.address, name=self._stream_id)
        if self._context.streams.store.read(operation):
            self._found(operation)

    def _found(self, operation: FindStream) -> None:
        self._finding = False
        record, error = operation.record, operation.error
        if error is not None:
            self._lose(RequestError(REQUEST_FAILED, error.text, retryable=True))
        elif record is None or self._stream_id.startswith(FOREIGN_PREFIX):
            self._lose(self._unknown())
        elif self._partition >= record.partitions:
            text = f"{self._stream_id} has {record.partitions} partitions, from 0 on"
            self._lose(RequestError(REQUEST_FAILED, text))
        else:
            self._record = record
            self._log = log_id(record.id, self._partition)
            # The first of those who waited is served by what was found now.
            request, sender = self._waiting.popleft() if self._waiting else (None, None)
            if self._clients or isinstance(request, Subscribe):
                self._follow(operation.extents[self._partition].next_index)
            if request is not None:
                self._do(request, sender)
            if self._clients:
                self._read_on()  # what came between the look and the following
            self._serve()

    def _follow(self, next_index: int) -> None:
        """Be told of what comes to the log; who is there already misses nothing of it."""
        if not self._clients or next_index < self._next:
            self._forget_entries()
            self._next = next_index
        self._grown_to = next_index
        self._context.streams.followers.add(self._log, self.address)

    def _changed(self, record: StreamRecord) -> None:
        if self._record is not None and self._record.id == record.id:
            self._record = record
        elif self._clients and not self._finding:
            # A stream of this name is there again.
            self._find()

    def _lose(self, error: RequestError) -> None:
        """There is no stream: refuse what waits, and end soon."""
        self._record = None
        waiting, self._waiting = self._waiting, deque()
        for request, sender in waiting:
            self._fail(request, sender, error)
        self._leave_later()

    def _removed(self) -> None:
        """Forget the stream; should it be made again, it is heard from its beginning."""
        self._record = None
        self._forget_entries()
        self._next = self._grown_to = 0
        self._leave_later()

    def _leave_later(self) -> None:
        self._missed += 1
        self.wake_after(MISSING_SECONDS, _Expire(self._missed))

    def _fail(
        self, request: Publish | Subscribe | Unsubscribe, sender: Cell | None, error: RequestError
    ) -> None:
        match request:
            case Publish(publications=publications):
                refused = [(publication, error) for publication in publications]
                if sender is not None:
                    self.send(sender, Published(request, refused))
            case Subscribe(outlet=outlet):
                outlet.refuse(error, request.request_id)
                if sender is not None:
                    self.send(sender, SubscribeFailed(request))
            case Unsubscribe():
                self._unsubscribe(request)
            case _:
                assert_never(request)

    def _unknown(self) -> RequestError:
        return RequestError(NOT_FOUND, f"Stream {self._stream_id} was not found")

    def _expire(self, missed: int) -> None:
        if self._record or self._clients or self._finding or missed != self._missed:
            return
        self._leaving = True
        self._context.relays.forget(self._stream_id, self._partition)
        # What is on its way already comes before this message, and is still answered.
        self.system.post(self.address, _Leave())

    # Clients ---------------------------------------------------------------------------------

    def _subscribe(self, request: Subscribe, sender: Cell | None) -> None:
        if self._record is None:
            self._fail(request, sender, self._unknown())
            return
        self._clients.add(request.outlet)
        self._context.streams.subscribers.set(self._log, "streamr", len(self._clients))
        subscribed(request)

    def _unsubscribe(self, request: Unsubscribe) -> None:
        self._remove(request.outlet)
        unsubscribed(request)

    def _revoke(self, revoked: Revoked) -> None:
        """Let a client go at once, whatever waits for the store."""
        self._waiting = deque(
            (request, sender)
            for request, sender in self._waiting
            if not (isinstance(request, Subscribe) and request.outlet is revoked.outlet)
        )
        self._remove(revoked.outlet)
        revoked.outlet.refuse(revoked.error, revoked.request_id)

    def _remove(self, outlet: Outlet) -> None:
        had_clients = bool(self._clients)
        self._clients.remove(outlet)
        self._context.streams.subscribers.set(self._log, "streamr", len(self._clients))
        if had_clients and not self._clients:
            self._context.streams.followers.remove(self._log, self.address)
            if self._record is None:
                self._leave_later()

    # Broadcasts ------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Make ready, send or read the next part; goes on in another turn."""
        if self._busy:
            return
        if not self._clients:
            self._forget_entries()
            return
        if self._clients.is_behind:
            self._clients.go_on()
        elif not self._clients.has_room:
            self._busy = True
            self.wake_after(PAUSE_SECONDS, _GoOn())
            return
        elif self._entries and not self._whole:
            self._make_ready()
        elif self._messages:
            self._send()
        elif self._next < self._grown_to:
            self._read_on()
            return
        waits = self._clients.is_behind or self._entries or self._messages
        if waits or self._next < self._grown_to:
            self._busy = True
            self.system.post(self.address, _GoOn())

    def _read_on(self) -> None:
        if self._record is None or self._busy or self._entries:
            return
        operation = Read(
            reply_to=self.address,
            log=self._log,
            index=self._next,
            bytes_max=READ_BYTES,
            token=self._grown_to,
        )
        self._busy = True
        if self._context.streams.store.read(operation):
            self._read(operation)

    def _read(self, operation: Read) -> None:
        if operation.error is not None:
            logger.warning("not_read", extra={"code": operation.error.code})
            self.wake_after(RETRY_SECONDS, _GoOn())
            return
        if operation.log != self._log:
            # Of a stream that is no more.
            self.system.post(self.address, _GoOn())
            return
        extent = operation.extent
        # What was trimmed meanwhile is not there any more.
        self._next = max(self._next, extent.first_index)
        for block in operation.blocks:
            self._entries += entries_of(block, first=self._next)
            self._next = block.next_index
        if operation.token != self._grown_to and not self._entries:
            # The log has grown since it was read.
            self.system.post(self.address, _GoOn())
            return
        self._busy = False
        if self._entries:
            self._grown_to = max(self._grown_to, extent.next_index)
            self._advance()
        else:
            self._grown_to = extent.next_index

    @property
    def _whole(self) -> bool:
        """Whether what is to be sent together is ready."""
        return len(self._messages) >= SLICE_ENTRIES or self._messages_bytes >= SLICE_BYTES

    def _make_ready(self) -> None:
        """Turn the next entries into messages."""
        key, room = self._context.node_key, SLICE_SIGNED
        while self._entries and room and not self._whole:
            entry = self._entries.popleft()
            room -= entry.kind is EntryKind.BYTES
            message = read_entry(entry, self._stream_id, self._partition, key)
            if message is not None:
                self._messages.append(message)
                self._messages_bytes += len(entry.data)

    def _send(self) -> None:
        messages, self._messages, self._messages_bytes = self._messages, [], 0
        self._context.counters["broadcast"] += len(messages)
        self._clients.broadcast(messages)

    def _forget_entries(self) -> None:
        """What was read is not to be sent any more."""
        self._entries.clear()
        self._messages, self._messages_bytes = [], 0
