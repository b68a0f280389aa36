"""A subscription: one link follows one partition, first out of the log, then as it grows.

It always reads from the log and is merely woken when the log has grown, so that there is no seam
between old and new entries at which one could be lost or sent twice. The subscriber's credit
bounds what is on its way, and the room of its link what all its subscriptions have on theirs.
"""

from dataclasses import dataclass
from typing import ClassVar, Final, assert_never

from rillnode.actors.core.delivery import Delivery, Origin
from rillnode.actors.core.rights import RightsChanged
from rillnode.actors.core.streams.answering import Answering
from rillnode.actors.core.streams.context import StreamContext
from rillnode.actors.core.streams.followers import Grown, Removed
from rillnode.actors.core.streams.searching import SEARCH_BYTES, SEARCH_ENTRIES, only, search
from rillnode.actors.engine.described import Described
from rillnode.actors.engine.system import Cell
from rillnode.actors.log import INDEX_MAX, LogExtent, Read
from rillnode.codecs import native
from rillnode.codecs.entries import Block
from rillnode.codecs.limits import SUBSCRIPTION_CREDIT_BYTES_MAX
from rillnode.codecs.routing.routes import Route
from rillnode.codecs.where import Where

RETRY_SECONDS: Final = 1.0
"""Pause after the store could not read."""

_PARTITION: Final = 2**32 - 1
"""The bits of a log's number that are its partition."""

TELL_ENTRIES: Final = 10_000
"""Entries without a match after which a subscriber is told how far its node has looked."""

CHUNK_BYTES: Final = 1_048_576
"""Bytes of blocks in one message: enough to be cheap, small enough for others to get between."""


@dataclass(frozen=True, slots=True)
class _Retry:
    """Time to read again: after a failure, or when others have had a turn."""


Message = Grown | Delivery | Removed | RightsChanged | _Retry


class SubscriptionActor(Answering):
    """A subscription, at a random address; it ends with its link, with its stream, or on request.

    It ends at its first failure, too, as where it stood is not known then; its subscriber is told
    of any end that it has not asked for, and follows anew from where it is.
    """

    mailbox_messages_max = 1_024
    spare: ClassVar = {Removed: 1}
    prefix = b"SUB_"
    called = "subscription"
    anew = "follow anew"
    batches: ClassVar = {"_advance": "deliver"}

    def __init__(
        self,
        context: StreamContext,
        name: str,
        log: int,
        origin: Origin,
        return_route: Route,
        request: native.SubscribeRequest,
        where: Where | None = None,
    ) -> None:
        super().__init__(context, origin, return_route, request.request_id)
        self._name = name
        self._log = log
        self._where = where
        self._next = self._told = request.index
        self._credit = 0
        self._grant(request.credit_bytes)
        self._grown_to = request.index + 1
        self._news = False
        self._reading = False
        self._end_told = False

    def started(self) -> None:
        """Take an address and read what is there, if the right has not ended since it was asked."""
        super().started()
        self._context.subscribers.add(self._log, "rillnode", 1)
        self._context.access.rights.watch(self._name, self.address)
        try:
            if self._may_go_on():
                self._advance()
            else:
                self._revoke()
        except BaseException:
            self.stopped()  # which is not called for what has not started
            raise

    def handle(self, message: Message, sender: Cell | None) -> None:
        """Take credit and news of growth, and what ends it."""
        if self._ended:
            return
        match message:
            case Grown(next_index=index):
                self._grown_to = max(self._grown_to, index)
                self._news = True
                self._advance()
            case Delivery():
                self._requests(message)
                if not self._ended:
                    self._advance()
            case _Retry():
                self._reading = False
                self._advance()
            case Removed():
                self._end("stream.removed", "The stream was removed")
            case RightsChanged():
                if not self._may_go_on():
                    self._revoke()
            case _:
                assert_never(message)

    def stopped(self) -> None:
        """Give the address back, and follow no more; tell the subscriber if nobody has."""
        super().stopped()
        self._context.access.rights.unwatch(self._name, self.address)
        self._context.subscribers.add(self._log, "rillnode", -1)
        self._context.followers.remove(self._log, self.address, (self._origin, self._id))

    def described(self, address: bytes) -> Described:
        """The subscription, which its subscriber and administrators may end."""
        return self._described(f"{self._name}/{self._log & _PARTITION} from {self._next}")

    def _stop(self) -> None:
        self._end("subscription.stopped", "This subscription was stopped at its address")

    def _may_go_on(self) -> bool:
        return self._context.access.allows(self._origin.principal, "subscribe", self._name)

    def _revoke(self) -> None:
        text = "The right to follow this stream has ended: ask for a grant, and follow it again"
        self._end("subscription.revoked", text)

    def _grant(self, credit: int) -> None:
        self._credit = min(self._credit + credit, SUBSCRIPTION_CREDIT_BYTES_MAX)

    def batch_of(self) -> tuple[str, int]:
        """The partition that is read."""
        return self._name, self._log & 0xFFFF_FFFF

    def _advance(self) -> None:
        """Read and send as long as there are entries, and credit."""
        store = self._context.store
        reader = self._origin.room(store) or store
        chunk = CHUNK_BYTES if self._where is None else SEARCH_BYTES
        while self._credit > 0 and not self._reading and self._next < self._grown_to:
            self._news = False
            operation = Read(
                log=self._log,
                index=self._next,
                bytes_max=native.block_budget(
                    self._origin.message_bytes_max, min(self._credit, chunk)
                ),
            )
            if not reader.read(self.then(operation, self._read)):
                self._reading = True
                return
            self._send(operation)

    def _read(self, operation: Read) -> None:
        self._reading = False
        if not self._ended:
            self._send(operation)
            self._advance()

    def _send(self, operation: Read) -> None:
        if operation.error is not None:
            self._reading = True
            self.wake_after(RETRY_SECONDS, _Retry())
            return
        extent, blocks = operation.extent, operation.blocks
        if not blocks:
            # Caught up, or the rest was trimmed: go on where the log does. What the log has grown
            # by while this was read is still to be read.
            if not self._news:
                self._grown_to = extent.next_index
            if extent.next_index < self._next:
                self._tell_end(extent)
            self._next = max(self._next, extent.first_index)
            return
        self._grown_to = max(self._grown_to, extent.next_index)
        if self._where is not None:
            self._send_matching(self._where, operation)
            return
        self._next = blocks[-1].next_index
        self._credit -= sum(len(block.value) for block in blocks)
        payload = native.encode_blocks(self._id, extent.first_index, extent.next_index, blocks)
        self._reply(payload)

    def _tell_end(self, extent: LogExtent) -> None:
        """Tell the subscriber, once, that the log has yet to grow to where it wants to begin."""
        if self._end_told:
            return
        self._end_told = True
        ends = extent.first_index, extent.next_index
        if self._where is None:
            self._reply(native.encode_blocks(self._id, *ends, ()))
        else:
            self._reply(native.found(self._id, ends, self._next, ()))

    def _send_matching(self, where: Where, operation: Read) -> None:
        """Send what matches of what was read, then let others have a turn.

        The subscriber is told from time to time how far that is, also where nothing matches: it
        goes on from there over another link, and what is trimmed before it is not missed.
        """
        extent = operation.extent
        first = max(self._next, extent.first_index)
        look = search(operation.blocks, where, first, INDEX_MAX, SEARCH_ENTRIES)
        self._next = look.reached
        only(self._context.store, self._origin, operation, sum(map(_size, look.blocks)))
        if look.blocks or self._next - self._told >= TELL_ENTRIES:
            self._told = self._next
            self._credit -= sum(map(_size, look.blocks))
            ends = extent.first_index, extent.next_index
            self._reply(native.found(self._id, ends, look.reached, look.blocks))
        if self._next < self._grown_to:
            self._reading = True
            self.wake_after(0.0, _Retry())


def _size(block: Block) -> int:
    return len(block.value)
