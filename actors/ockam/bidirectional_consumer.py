"""Consumers of bi-directional streams: messages come out of a stream as out of a connection.

A consumer reads its stream from the index that is saved under its subscription id. Each item's
message goes to the worker that its onward route names; first in its return route stands a publisher
into the item's return stream. The index is saved when the workers have handled the messages, so
that each is delivered at least once, in order, whether or not anybody was there when it was pushed.

The stream is read with the rights of the principal that subscribed, and publishers push with them.
The messages have no rights but those of `anonymous`: nothing tells who put them into the stream,
and who may push to it shall not act as its consumer.

Source: ockam-network/proposals, design 0009, bidirectional_worker; the Elixir nodes since 2021-05,
which deliver an item once, wherever it leads.
"""

from collections import deque
from dataclasses import dataclass
from typing import ClassVar, Final, assert_never

from rillnode.actors.core.access import ANONYMOUS, NODE_PRINCIPAL
from rillnode.actors.core.delivery import Delivery, Handled, Origin, Slice
from rillnode.actors.core.rights import RightsChanged
from rillnode.actors.core.streams.context import StreamContext
from rillnode.actors.core.streams.index_service import AskPosition
from rillnode.actors.core.streams.service import ADDRESSES
from rillnode.actors.engine.described import Described
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import SavedIndexKey
from rillnode.actors.ockam.bidirectional_items import ItemRouting, Subscription
from rillnode.actors.ockam.bidirectional_publisher import LOOK_SECONDS, RETRY_SECONDS
from rillnode.actors.ports import TimerHandle
from rillnode.codecs import native
from rillnode.codecs.entries import Block, items_of
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import FRAME_BYTES_MAX, U16_MESSAGE_BYTES_MAX
from rillnode.codecs.ockam.limits import STREAM_SUBSCRIBER_AWAY_SECONDS_MAX
from rillnode.codecs.routing.routes import Route, WireMessage, local

logger = event_logger("rillnode.actors.ockam.bidirectional_consumer")

PREFIX: Final = b"STB_C_"
"""Released nodes name consumers so."""

CREDIT_BYTES: Final = 262_144
"""Bytes of blocks that are read ahead."""

SLICE_ITEMS: Final = 64
"""Items delivered before their workers have handled them."""

RESERVED_HIGH_BYTES: Final = 1_048_576
"""Bytes that workers have not pushed or sent on yet, above which no further item is delivered."""

ITEM_BYTES_MAX: Final = U16_MESSAGE_BYTES_MAX - 1_024
"""What a worker's answer may take: with its routes it can still be pulled over u16 frames."""

WAIT_SECONDS: Final = 1.0
"""How long a consumer waits before it looks again whether an item can go on."""

HOLD_SECONDS: Final = 0.005
"""How often it looks whether what was sent on, or the subscriber's share of it, has been taken."""

UNHANDLED_SECONDS: Final = 1.0
"""How long it waits for the workers of one slice before it delivers another all the same: they may
wait for an answer that is behind it."""

SLICES_MAX: Final = 8
"""Slices whose workers are not done yet, with which nothing is delivered."""

_REQUEST_ID: Final = 1
"""Of all requests: their answers are told apart by what they are."""


@dataclass(frozen=True, slots=True)
class Renewed:
    """The subscriber has come back."""

    def merged(self, later: "Renewed") -> "Renewed":
        """One is enough."""
        return later


@dataclass(frozen=True, slots=True)
class _Open:
    """Time to find the stream again."""


@dataclass(frozen=True, slots=True)
class _More:
    """There is more to deliver, in another turn."""


@dataclass(frozen=True, slots=True)
class _GoOn:
    """Time to look again whether items can be delivered."""


@dataclass(frozen=True, slots=True)
class _Look:
    """Time to look whether the subscriber has stayed away."""


Message = Delivery | Handled | RightsChanged | Renewed | _More | _GoOn | _Open | _Look


class ConsumerActor(Worker):
    """The consumer of a bi-directional subscription.

    An instance that follows a failed one goes on from the saved index.
    """

    mailbox_messages_max = 1_024
    spare: ClassVar = {Handled: 1}
    on_failure = "restart"

    def __init__(
        self,
        context: StreamContext,
        index_service: Cell,
        own_address: bytes,
        subscription: Subscription,
    ) -> None:
        self._context = context
        self._index_service = index_service
        self._own_address = own_address
        self._subscription = subscription
        self._routing = ItemRouting(context, own_address, subscription)
        # The stream is opened with the subscriber's rights and, where it may pull, followed with
        # the node's; each has its origin, by which its answers are known.
        self._opening = Origin(subscription.principal, FRAME_BYTES_MAX, native=True)
        self._following = Origin(NODE_PRINCIPAL, FRAME_BYTES_MAX, native=True)
        self._items = Origin(ANONYMOUS, ITEM_BYTES_MAX, native=False)
        self._stream, self._created_at = b"", 0
        self._source: Route = ()
        self._timer: TimerHandle | None = None
        self._blocks: deque[Block] = deque()
        self._entries: deque[tuple[int, bytes]] = deque()
        self._credit_due = 0
        self._busy = False
        # What is not handled yet, and where the next item is behind it.
        self._under_way: deque[tuple[Slice, int]] = deque()
        self._next = 0
        self._handled = 0
        self._saved = 0
        self._saving = False

    def started(self) -> None:
        """Take an address for the answers of the stream, and open it."""
        self._subscription.began(self.address)
        self._context.router.register(self._own_address, self.address)
        self._items.connection = self.address
        self._context.access.rights.watch(self._subscription.stream, self.address)
        self.wake_after(LOOK_SECONDS, _Look())
        self._open()

    def handle(self, message: Message, sender: Cell | None) -> None:
        """Take entries, answers, and the ends of what was waited for."""
        match message:
            case Delivery(origin=origin, messages=messages) if origin is self._following:
                for wire in messages:
                    self._read(wire)
            case Delivery(origin=origin, messages=messages) if origin is self._opening:
                for wire in messages:
                    self._opened(wire)
            case Delivery():
                self._context.router.undeliverable("refused", message)
            case Handled() if self._busy and self._under_way[-1][0].unhandled:
                self._settle()  # of an earlier slice
            case Handled() | _GoOn():
                self._go_on()
            case RightsChanged():
                if self._stream and not self._may_pull():
                    self._end("refused")
            case Renewed() | _More():
                self._deliver()
            case _Open():
                self._open()
            case _Look():
                self._look()
            case _:
                assert_never(message)

    def described(self, address: bytes) -> Described:
        """The subscription."""
        asked = self._subscription
        kept = "it ends with the link of whom it serves"
        return Described("subscription", asked.stream, asked.principal, open_to="owner", kept=kept)

    def stopped(self) -> None:
        """Give the address back; end what lives no longer than this instance."""
        self._context.router.unregister(self._own_address)
        self._context.access.rights.unwatch(self._subscription.stream, self.address)
        self._following.end()
        self._items.end()
        self._subscription.ended(self.address)

    # The stream ------------------------------------------------------------------------------

    def _open(self) -> None:
        """Find the stream; a subscriber makes it at first, but not again after its removal."""
        name = self._subscription.stream
        if self._subscription.opened:
            self._ask(self._opening, ADDRESSES[0], native.DescribeRequest(_REQUEST_ID, name))
        else:
            self._ask(self._opening, ADDRESSES[0], native.OpenRequest(_REQUEST_ID, name, 1))

    def _ask(self, origin: Origin, address: bytes, request: native.Request) -> None:
        own = (local(self._own_address),)
        message = WireMessage((local(address),), own, native.encode(request))
        self._context.router.route(origin, [message])

    def _opened(self, wire: WireMessage) -> None:
        match native.decode_response(wire.payload):
            case native.StreamResponse(stream=info) if self._may_pull():
                self._subscription.opened = True
                self._stream, self._created_at = info.partitions[0].address, info.created_at
                self.begin(self._follow())
            case native.Failure(retryable=True):
                self.wake_after(RETRY_SECONDS, _Open())
            case _:
                self._end("refused")

    def _may_pull(self) -> bool:
        subscription = self._subscription
        return self._context.access.allows(subscription.principal, "pull", subscription.stream)

    async def _follow(self) -> None:
        """Follow the stream from the saved index."""
        try:
            index = await self._position(None)
        except RillnodeError:
            self.wake_after(RETRY_SECONDS, _Open())
            return
        if not self._following.attached:
            self._next = self._handled = self._saved = index
            request = native.SubscribeRequest(
                _REQUEST_ID, self._next, CREDIT_BYTES, self._created_at
            )
            self._ask(self._following, self._stream, request)

    async def _position(self, index: int | None) -> int:
        """Load the saved index, or save one; what is durably saved then.

        Raises:
            RillnodeError: that could not be done.
        """
        subscription = self._subscription
        key = SavedIndexKey(subscription.stream, 0, subscription.subscription_id)
        asked = AskPosition(key, index, created_at=self._created_at)
        position = await self.ask(self._index_service, asked)
        if position.error is not None:
            raise position.error
        return position.index or 0

    def _read(self, wire: WireMessage) -> None:
        """Take entries; they wait here until they can be delivered."""
        match native.decode_response(wire.payload):
            case native.BlocksResponse() as response if self._may_pull():
                self._source = wire.return_route
                self._blocks.extend(native.blocks_of(response))
                self._deliver()
            case native.Failure(retryable=True):
                self.wake_after(RETRY_SECONDS, _Open())
            case _:
                self._end("refused")

    def _end(self, reason: str) -> None:
        logger.info(
            "subscription_ended", extra={"stream": self._subscription.stream, "reason": reason}
        )
        self._blocks.clear()
        self._entries.clear()
        self.system.exit(self.address)

    def _look(self) -> None:
        if self._subscription.presence.away_seconds() > STREAM_SUBSCRIBER_AWAY_SECONDS_MAX:
            self._end("subscriber_away")
            return
        if not self._following.attached:
            # What followed the stream is gone, and so perhaps is the stream.
            self._blocks.clear()
            self._entries.clear()
            self._credit_due = 0
            self._open()
        self.wake_after(LOOK_SECONDS, _Look())

    # Delivering ------------------------------------------------------------------------------

    def _deliver(self) -> None:
        """Hand on what can go on now; the rest follows when that is handled."""
        if self._busy:
            return
        congested = (
            self._subscription.presence.congested
            or self._items.reserved_bytes > RESERVED_HIGH_BYTES
        )
        if congested or len(self._under_way) >= SLICES_MAX:
            self._wait(HOLD_SECONDS)
            return
        messages, waits = self._slice()
        if messages:
            part = Slice()
            self._under_way.append((part, self._next))
            self._context.router.route(self._items, messages, tracked=part)
            if part.unhandled:
                self._busy = True
                part.waiter = self.address
                self._wait(UNHANDLED_SECONDS)
                return
        self._settle()
        if waits:
            self._wait(WAIT_SECONDS)
            return
        if self._credit_due:
            request = native.CreditRequest(_REQUEST_ID, self._credit_due)
            self._credit_due = 0
            self._ask(self._following, self._source[0].value, request)
        if self._blocks or self._entries:
            self.send(self.address, _More())

    def _slice(self) -> tuple[list[WireMessage], bool]:
        """Take what can be handed on together, and tell whether the next entry has to wait."""
        messages: list[WireMessage] = []
        while len(messages) < SLICE_ITEMS and (self._entries or self._unpack()):
            index, data = self._entries[0]
            message = self._routing.message(data, self.address)
            if message is not None:
                message = self._routing.reachable(message, index)
                if message is None:
                    return messages, True
                messages.append(message)
            self._entries.popleft()
            self._next = index + 1
        return messages, False

    def _unpack(self) -> bool:
        """Take the next block's entries out of it, one block at a time; False: there is none."""
        while self._blocks and not self._entries:
            block = self._blocks.popleft()
            self._credit_due += len(block.value)
            indexed = enumerate(items_of(block.value), block.first_index)
            self._entries.extend(entry for entry in indexed if entry[0] >= self._next)
        return bool(self._entries)

    def _go_on(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._busy = False
        self._settle()
        self._deliver()

    def _settle(self) -> None:
        """Save the index up to the first item that is not handled."""
        while self._under_way and not self._under_way[0][0].unhandled:
            _, self._handled = self._under_way.popleft()
        if not self._under_way:
            self._handled = self._next
        self._save()

    def _wait(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.wake_after(seconds, _GoOn())

    def _save(self) -> None:
        if self._handled > self._saved and not self._saving:
            self.begin(self._save_handled())

    async def _save_handled(self) -> None:
        self._saving = True
        try:
            while self._handled > self._saved:
                self._saved = max(self._saved, await self._position(self._handled))
        except RillnodeError:
            self._wait(RETRY_SECONDS)
        finally:
            self._saving = False
