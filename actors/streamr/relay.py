"""The relay: one stream partition as Streamr's clients see it.

What they publish it checks and appends to the log, and answers when it is durable. What they are
sent are the log's entries, where everybody else's are as well, in their order: it is woken when the
log has grown, and reads those that it has not just appended. So a broadcast follows the commit, and
no message is lost or sent twice between what is stored and what is live. It goes as fast as its
fastest client.

One that fails is replaced: what it had under way is answered by that, and its clients go on where
they were. One that fails too often cuts them off, so that they come again.
"""

from collections import deque
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, assert_never

from thespian.actors import ActorAddress

from rillnode.actors.core.streams.appending import Appends
from rillnode.actors.core.streams.context import (
    STREAM_CHANGES_MAX,
    StreamRemoved,
    stream_address,
)
from rillnode.actors.core.streams.followers import Grown, Removed
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import FindStream, LogExtent, Read, StreamRecord, log_id
from rillnode.actors.log.waiting import read
from rillnode.actors.ports import TimerHandle
from rillnode.actors.streamr.answering import (
    not_subscribed,
    refusal,
    refuse_all,
    revoked,
    subscribed,
    unsubscribed,
)
from rillnode.actors.streamr.context import StreamrContext
from rillnode.actors.streamr.fanout import Audience
from rillnode.actors.streamr.outlet import Outlet
from rillnode.actors.streamr.publishing import Publishing
from rillnode.actors.streamr.requests import (
    NOT_FOUND,
    REQUEST_FAILED,
    Publication,
    Publish,
    Revoked,
    Subscribe,
    Unsubscribe,
)
from rillnode.actors.streamr.stored import read_entry
from rillnode.codecs.entries import Entry, EntryKind, entries_of
from rillnode.codecs.errors import RequestError, StoreError
from rillnode.codecs.events import event_logger
from rillnode.codecs.streamr.message import STORED_VERSION

logger = event_logger("rillnode.actors.streamr.relay")

READ_BYTES: Final = 262_144
"""Bytes of blocks that are read at one time."""

SLICE_SIGNED: Final = 16
"""Messages of other protocols' clients that are signed in one turn: about 2 ms."""

PAUSE_SECONDS: Final = 0.02
"""How often it is looked whether any client takes more."""

RETRY_SECONDS: Final = 1.0
"""Pause after the store could not be read."""

MISSING_SECONDS: Final = 1.0
"""How long a relay stays for whose partition there is no stream."""


@dataclass(frozen=True, slots=True)
class _GoOn:
    """Time to send more, or to read again after a failure."""


@dataclass(frozen=True, slots=True)
class _Gathered:
    """What is ready has waited for long enough."""


@dataclass(frozen=True, slots=True)
class _Expire:
    """Time to end, if nothing has come since."""

    missed: int


class RelayActor(Worker):
    """A stream partition as Streamr's clients have it, while they have something to do with it.

    Args:
        context: the node's parts.
        stream_id: name of the stream.
        partition: the partition.
        clients: who follows it, whichever instance serves them.
    """

    mailbox_messages_max = 4_096
    spare: ClassVar = {StreamRemoved: STREAM_CHANGES_MAX, Removed: 1}
    idle_seconds = 600.0
    batches: ClassVar = {"_send": "deliver"}

    def __init__(
        self, context: StreamrContext, stream_id: str, partition: int, clients: Audience
    ) -> None:
        self._context = context
        self._stream_id = stream_id
        self._partition = partition
        self._clients = clients
        self._record: StreamRecord | None = None
        self._log = 0
        self._appends: Appends
        self._publishing = Publishing(context, stream_id, self, self._stored, self._removed)
        self._leaving = False
        self._missed = 0
        # What of the log was read, and is not made ready yet; it ends before the index `_next`.
        self._next: int = 0
        self._grown_to = 0
        self._entries: deque[Entry] = deque()
        self._busy = False
        self._gathering: TimerHandle | None = None
        self._gathered = False

    def started(self) -> None:
        """Go on for the clients that an instance before this one has left."""
        if self._clients:
            self._go_on()
        else:
            self._leave_later()

    def stopped(self) -> None:
        """Leave the clients to the next instance, if there is one."""
        self._unfollow()
        if self._clients:
            cut_off = partial(_cut_off, self.address, self._clients)
            self.system.timing.call_later(0.0, cut_off)

    def may_passivate(self) -> bool:
        """Stay while there are clients."""
        return not self._clients

    def handle(
        self,
        message: Publish
        | Subscribe
        | Unsubscribe
        | Revoked
        | Grown
        | Removed
        | StreamRecord
        | StreamRemoved
        | _GoOn
        | _Gathered
        | _Expire,
        sender: ActorAddress | None,
    ) -> Coroutine[Any, Any, None] | None:
        """Take requests, and news of the log and of the stream."""
        match message:
            case Publish():
                message.asker = message.asker or sender
                if self._record is None:
                    return self._look_and_publish(message)
                self._publish(message, self._record)
            case Grown(next_index=index):
                self._grown_to = max(self._grown_to, index)
                self._advance()
            case _GoOn():
                self._busy = False
                self._advance()
            case _Gathered():
                self._gathered = True
                self._advance()
            case Subscribe():
                return self._subscribe(message)
            case Unsubscribe():
                self._remove(message.outlet)
                unsubscribed(message)
            case Revoked():
                self._remove(message.outlet)
                revoked(message)
            case StreamRecord():
                self._changed(message)
            case StreamRemoved(record=record):
                if self._record is not None and self._record.id == record.id:
                    self._removed()
            case Removed(log=log):
                if log == self._log:
                    self._removed()
            case _Expire(missed=missed):
                self._expire(missed)
            case _:
                assert_never(message)
        return None

    # The stream ------------------------------------------------------------------------------

    async def _look(self) -> LogExtent:
        """Look for the stream, and how far the partition's log goes now.

        Raises:
            RequestError: NOT_FOUND, REQUEST_FAILED; one that is retryable says nothing of it.
        """
        found = FindStream(name=self._stream_id)
        with suppress(StoreError):  # it is in the operation
            await read(self._context.streams.store, found)
        record, missing = found.record, self._missing(found)
        if record is None or missing is not None:
            self._record = None
            self._leave_later()
            raise missing or self._unknown()
        streams = self._context.streams
        self._record = record
        self._log = log_id(record.id, self._partition)
        address = stream_address(self._stream_id, self._partition)
        self._appends = Appends(streams, address, self._log, record.owner)
        if streams.quotas.enabled:
            streams.quotas.found(record, found.extents)
        return found.extents[self._partition]

    def _missing(self, found: FindStream) -> RequestError | None:
        """Why the partition is not there for Streamr's clients."""
        if found.error is not None:
            return refusal(found.error)
        if self._leaving or self._context.streams.access.is_reserved(self._stream_id):
            return self._unknown()
        if found.record is not None and self._partition >= found.record.partitions:
            text = f"{self._stream_id} has {found.record.partitions} partitions, from 0 on"
            return RequestError(REQUEST_FAILED, text)
        return None

    def _unknown(self) -> RequestError:
        return RequestError(NOT_FOUND, f"Stream {self._stream_id} was not found")

    def _changed(self, record: StreamRecord) -> None:
        if self._record is not None and self._record.id == record.id:
            self._record = record
        elif self._clients:
            # A stream of this name is there again.
            self._go_on()

    def _removed(self) -> None:
        """Forget the stream; should it be made again, it is heard from its beginning."""
        self._unfollow()
        self._record = None
        self._forget_entries()
        self._leave_later()

    def _leave_later(self) -> None:
        self._missed += 1
        self.wake_after(MISSING_SECONDS, _Expire(self._missed))

    def _expire(self, missed: int) -> None:
        if self._record or self._clients or missed != self._missed:
            return
        self._leaving = True
        self._context.relays.forget(self._stream_id, self._partition)
        # What is on its way already comes before the exit, and is still answered.
        self.system.exit(self.address)

    # Clients ---------------------------------------------------------------------------------

    async def _look_and_publish(self, request: Publish) -> None:
        try:
            await self._look()
        except RequestError as error:
            refuse_all(self.system, request, error)
        else:
            assert self._record is not None
            self._publish(request, self._record)

    def _publish(self, request: Publish, record: StreamRecord) -> None:
        self._publishing.publish(request, record, self._appends, self._clients)

    async def _subscribe(self, request: Subscribe) -> None:
        """Let a client in; the first one hears everything from the log's end as it is now."""
        joins = not request.over and (self._record is None or not self._clients)
        if joins:
            try:
                extent = await self._look()
            except RequestError as error:
                not_subscribed(self.system, request, error)
                return
            self._follow(extent.next_index)
        if not request.over:
            self._clients.add(request.outlet)
            self._count()
        subscribed(request)
        if joins:
            self._read_on()  # what came between the look and the following

    def _remove(self, outlet: Outlet) -> None:
        self._clients.remove(outlet)
        if self._clients:
            self._count()
            return
        self._unfollow()
        if self._record is None:
            self._leave_later()

    def _follow(self, next_index: int) -> None:
        """Be told of what comes to the log; who follows already misses nothing of it."""
        clients = self._clients
        if not clients or clients.log != self._log:
            self._forget_entries()
            # Of another stream of this name those who are there hear everything.
            clients.log, clients.next = self._log, 0 if clients else next_index
        self._entries.clear()
        self._next = clients.next
        # What came since the look is read next; by whoever is busy, if somebody is.
        self._grown_to = next_index + self._busy
        self._context.streams.followers.add(self._log, self.address)
        self._count()

    def _unfollow(self) -> None:
        self._context.streams.followers.remove(self._log, self.address)
        self._context.streams.subscribers.set(self._log, "streamr", 0)

    def _count(self) -> None:
        self._context.streams.subscribers.set(self._log, "streamr", len(self._clients))

    def _go_on(self) -> None:
        """Serve the clients that there are: where they were, or from another stream's beginning."""
        self.begin(self._follow_again())

    async def _follow_again(self) -> None:
        while self._clients:
            try:
                extent = await self._look()
            except RequestError as error:
                if not error.retryable:
                    return  # should there be such a stream again, that is told
                await self.sleep(RETRY_SECONDS)
            else:
                self._follow(extent.next_index)
                self._read_on()
                return

    # Broadcasts ------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Make ready, send or read the next part; goes on in another turn."""
        if self._busy:
            return
        clients = self._clients
        if not clients:
            self._forget_entries()
            self._unfollow()
            return
        if clients.is_behind:
            clients.go_on()
        elif not clients.has_room:
            self._busy = True
            self.wake_after(PAUSE_SECONDS, _GoOn())
            return
        elif self._entries or clients.ready:
            self._make_ready()
            if self._gathers():
                return
            if clients.is_whole or not self._entries:
                self._send()
        elif self._next < self._grown_to:
            self._read_on()
            return
        if clients.is_behind or self._entries or clients.ready or self._next < self._grown_to:
            self._busy = True
            self.send(self.address, _GoOn())

    def _gathers(self) -> bool:
        """Whether what is ready waits for what is on its way to the disk, to go out with it.

        A broadcast costs a write for each client, however much is in it: so what is published
        while one is written would make many small ones, which take up the time that the next ones
        need. What waits does so for as long as one of them takes at most.
        """
        if (
            self._gathered
            or not self._publishing.under_way
            or self._clients.is_whole
            or self._entries
            or self._next < self._grown_to
        ):
            return False
        if self._gathering is None:
            self._gathering = self.wake_after(self._clients.write_seconds, _Gathered())
        return True

    def batch_of(self) -> tuple[str, int]:
        """The partition."""
        return self._stream_id, self._partition

    def _read_on(self) -> None:
        if self._record is None or self._busy or self._entries:
            return
        operation = Read(
            log=self._log, index=self._next, bytes_max=READ_BYTES, token=self._grown_to
        )
        self._busy = True
        if self._context.streams.store.read(self.then(operation, self._read)):
            self.operations_due -= 1
            self._read(operation)

    def _read(self, operation: Read) -> None:
        if operation.error is not None:
            logger.warning("not_read", extra={"code": operation.error.code})
            self.wake_after(RETRY_SECONDS, _GoOn())
            return
        if operation.log != self._log or operation.index != self._next:
            # Of a stream that is no more, or of where the clients were not.
            self.send(self.address, _GoOn())
            return
        extent = operation.extent
        # What was trimmed meanwhile is not there any more.
        self._next = max(self._next, extent.first_index)
        for block in operation.blocks:
            self._entries += entries_of(block, first=self._next)
            self._next = block.next_index
        if operation.token != self._grown_to and not self._entries:
            # The log has grown since it was read.
            self.send(self.address, _GoOn())
            return
        self._busy = False
        if self._entries:
            self._grown_to = max(self._grown_to, extent.next_index)
        else:
            self._grown_to = extent.next_index
        self._advance()

    def _make_ready(self) -> None:
        """Turn the next entries into messages, until they are enough."""
        clients, key, room = self._clients, self._context.node_key, SLICE_SIGNED
        while self._entries and room and not clients.is_whole:
            entry = self._entries.popleft()
            room -= entry.kind is EntryKind.BYTES
            # Before it is looked into: what makes the relay fail is not tried again and again.
            clients.next = entry.index + 1
            message = read_entry(entry, self._stream_id, self._partition, key)
            if message is not None:
                clients.add_ready(message, len(entry.data))

    def _stored(self, log: int, first_index: int, publications: Sequence[Publication]) -> None:
        """Take what was published as it was decoded, if it is what would be read next.

        Else it is read, as what others have pushed is: when what is before it is not read yet, or
        waits, and when its own text is not what is stored.
        """
        clients = self._clients
        if (
            self._record is not None
            and clients
            and (log, first_index) == (clients.log, self._next)
            and not self._entries
            and clients.ready_bytes < READ_BYTES
            and all(one.text and one.message.version == STORED_VERSION for one in publications)
        ):
            self._next = clients.next = first_index + len(publications)
            for one in publications:
                clients.add_ready(one.message, len(one.text or b""))

    def _send(self) -> tuple[int, int] | None:
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        self._gathered = False
        messages, size = self._clients.take_ready()
        self._context.counters["broadcast"] += len(messages)
        self._clients.broadcast(messages)
        return (len(messages), size) if messages else None

    def _forget_entries(self) -> None:
        """What was read is not to be sent any more."""
        self._entries.clear()
        self._clients.drop_ready()


def _cut_off(relay: Cell, clients: Audience) -> None:
    """Close the links of who follows a relay that has ended: they come again, to another one."""
    if relay.exited:
        for outlet in clients:
            outlet.link.close("the node has failed at this stream")
