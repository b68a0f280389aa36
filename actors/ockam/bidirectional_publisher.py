"""Publishers of bi-directional streams: a worker's address that leads into a stream.

What is sent to it goes on as an item of the stream: the message without the publisher's address in
its onward route, beside the name of the stream that answers are to be pushed to. Whoever consumes
the stream finds in it a message as any connection would bring it.

A publisher pushes as the principal that it was made for. Its address is random, and whoever is
given it may publish through it, as with any return route.

Source: ockam-network/proposals, design 0009, bidirectional_worker; the Elixir nodes since 2021-05.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Final, assert_never

from rillnode.actors.core.delivery import Delivery, Origin
from rillnode.actors.core.streams.context import StreamContext
from rillnode.actors.core.streams.presence import Presence
from rillnode.actors.core.streams.service import ADDRESSES
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.ports import TimerHandle
from rillnode.codecs import native
from rillnode.codecs.entries import pack_body, split_items
from rillnode.codecs.errors import CodecError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import ENTRY_BYTES_MAX, FRAME_BYTES_MAX
from rillnode.codecs.ockam.limits import (
    STREAM_PUBLISHER_PENDING_BYTES_MAX,
    STREAM_PUBLISHERS_PER_SUBSCRIPTION_MAX,
    STREAM_SUBSCRIBER_AWAY_SECONDS_MAX,
)
from rillnode.codecs.ockam.stream_item import encode_entry
from rillnode.codecs.routing.routes import WireMessage, local

logger = event_logger("rillnode.actors.ockam.bidirectional_publisher")

PREFIX: Final = b"STB_PP_"
"""Released nodes name publishers so."""

ANSWER_SECONDS: Final = 10.0
"""How long a publisher waits for the stream before it asks again, as in released nodes."""

RETRY_SECONDS: Final = 1.0
"""Pause after the stream could not take something now."""

LOOK_SECONDS: Final = 60.0
"""How often a publisher looks whether somebody still needs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherSettings:
    """The settings that a publisher is made with.

    Attributes:
        principal: whose rights it pushes with.
        publisher_stream: where items go.
        consumer_stream: where answers to them are to go.
        create: whether it makes its stream where there is none.
        presence: of the peer that asked for it; None: it ends with its parent.
        ended: told of its end: what is counted for it does not wait for a message.
    """

    principal: str
    publisher_stream: str
    consumer_stream: str
    create: bool
    ended: Callable[[Cell], object]
    presence: Presence | None = None


@dataclass(frozen=True, slots=True)
class _Pending:
    """An item that is not durable yet, and whose connection waits for it."""

    data: bytes
    origin: Origin


@dataclass(frozen=True, slots=True)
class _Again:
    """Time to ask the stream again."""


@dataclass(frozen=True, slots=True)
class _Look:
    """Time to look whether somebody still needs it."""


class PublisherActor(Worker):
    """A publisher of bi-directional messages into a stream.

    Items keep their order; one append of them is under way at a time. An append that is not
    confirmed is sent again, so that an item may be stored twice. What the stream refuses for good
    is dropped and counted, as is what comes when too much waits already.
    """

    mailbox_messages_max = 4_096
    on_failure = "stop"

    def __init__(
        self, context: StreamContext, own_address: bytes, settings: PublisherSettings
    ) -> None:
        self._context = context
        self._own_address = own_address
        self._settings = settings
        self._origin = Origin(settings.principal, FRAME_BYTES_MAX, native=True)
        self._ids = count(1)
        self._asked = 0
        self._timer: TimerHandle | None = None
        self._stream: bytes | None = None
        self._pending: deque[_Pending] = deque()
        self._pending_bytes = 0
        self._appending: list[bytes] = []

    def started(self) -> None:
        """Find the stream, so that it is there for whoever subscribes to it."""
        if self._settings.presence is not None:
            self.wake_after(LOOK_SECONDS, _Look())
        self._ask()

    def handle(self, message: Delivery | _Again | _Look, sender: Cell | None) -> None:
        """Take messages to publish, and what the stream answers."""
        match message:
            case Delivery(origin=origin, messages=messages) if origin is self._origin:
                for wire in messages:
                    self._answered(wire)
            case Delivery():
                self._publish(message)
            case _Again():
                self._timer = None
                self._ask()
            case _Look():
                self._look()
            case _:
                assert_never(message)

    def stopped(self) -> None:
        """Give the address back, and let go of the connections that wait."""
        self._context.router.unregister(self._own_address)
        if self._pending:
            self._give_up("publisher_ended")
        self._settings.ended(self.address)

    def owes(self) -> bool:
        """Whether items that it has taken are not in the stream yet."""
        return bool(self._pending)

    # Items -----------------------------------------------------------------------------------

    def _publish(self, delivery: Delivery) -> None:
        for wire in delivery.messages:
            message = WireMessage(wire.onward_route[1:], wire.return_route, wire.payload)
            try:
                item = encode_entry(self._settings.consumer_stream, message)
            except CodecError as error:
                self._refuse(error.code, delivery.origin, wire)
                continue
            size = len(item)
            if size > ENTRY_BYTES_MAX:
                self._refuse("item_too_large", delivery.origin, wire)
            elif self._pending_bytes + size > STREAM_PUBLISHER_PENDING_BYTES_MAX:
                self._refuse("publisher_full", delivery.origin, wire)
            else:
                self._pending.append(_Pending(item, delivery.origin))
                self._pending_bytes += size
                delivery.origin.account.reserved_bytes += size
        if self._pending and not self._asked:
            self._ask()

    def _refuse(self, reason: str, origin: Origin, wire: WireMessage) -> None:
        self._context.router.undeliverable(reason, Delivery(origin, [wire]))

    def _drop(self, number: int) -> None:
        for _ in range(number):
            done = self._pending.popleft()
            self._pending_bytes -= len(done.data)
            done.origin.account.reserved_bytes -= len(done.data)

    def _give_up(self, reason: str) -> None:
        logger.warning(
            "items_lost",
            extra={
                "stream": self._settings.publisher_stream,
                "reason": reason,
                "items": len(self._pending),
            },
        )
        self._context.router.undelivered[reason] += len(self._pending)
        self._drop(len(self._pending))

    # The stream ------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Send what is to be sent now, and wait for its answer."""
        if self._stream is None:
            self._send(ADDRESSES[0], self._finding())
        elif self._pending:
            self._appending = next(split_items(item.data for item in self._pending))
            body = pack_body(self._appending)
            self._send(self._stream, native.AppendRequest(self._next(), len(self._appending), body))

    def _finding(self) -> native.OpenRequest | native.DescribeRequest:
        name = self._settings.publisher_stream
        if self._settings.create:
            return native.OpenRequest(self._next(), name, 1)
        return native.DescribeRequest(self._next(), name)

    def _next(self) -> int:
        self._asked = next(self._ids)
        return self._asked

    def _send(self, address: bytes, request: native.Request) -> None:
        self._wait(ANSWER_SECONDS)
        own = (local(self._own_address),)
        message = WireMessage((local(address),), own, native.encode(request))
        self._context.router.route(self._origin, [message])

    def _wait(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.wake_after(seconds, _Again())

    def _answered(self, wire: WireMessage) -> None:
        response = native.decode_response(wire.payload)
        if response.request_id != self._asked:
            return  # to a request that was sent again since
        match response:
            case native.StreamResponse(stream=info):
                self._stream = info.partitions[0].address
            case native.PositionResponse():
                self._drop(len(self._appending))
            case native.Failure(retryable=True):
                self._wait(RETRY_SECONDS)
                return
            case native.Failure(code=code):
                # The stream is gone, or not to be pushed to any more: the next item asks anew.
                self._stream = None
                if self._pending:
                    self._give_up(code)
            case _:
                return
        self._asked = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pending:
            self._ask()

    def _look(self) -> None:
        presence = self._settings.presence
        away = 0.0 if presence is None else presence.away_seconds()
        if away > STREAM_SUBSCRIBER_AWAY_SECONDS_MAX and not self._pending:
            self.system.exit(self.address)
        else:
            self.wake_after(LOOK_SECONDS, _Look())


def spawn_publisher(
    context: StreamContext, settings: PublisherSettings, parent: Cell
) -> tuple[bytes, Cell]:
    """Make a publisher; its address can be used at once."""
    address = PREFIX + context.entropy(8).hex().encode()
    factory = partial(PublisherActor, context, address, settings)
    cell = context.system.spawn(factory, parent=parent)
    context.router.register(address, cell)
    return address, cell


class ReturnPublishers:
    """The publishers that one subscription has made for the return streams it has met.

    They make no streams: who puts an item into a stream shall not make others by naming them.
    """

    def __init__(self, context: StreamContext, principal: str, consumer_stream: str) -> None:
        self._context = context
        self._principal = principal
        self._consumer_stream = consumer_stream
        self._known: OrderedDict[str, tuple[bytes, Cell]] = OrderedDict()

    def address_of(self, return_stream: str, parent: Cell) -> bytes:
        """The address of the publisher into a stream, which is made where there is none.

        Above STREAM_PUBLISHERS_PER_SUBSCRIPTION_MAX the one not asked for for longest ends.
        """
        known = self._known.get(return_stream)
        if known is None or known[1].exited:
            settings = PublisherSettings(
                principal=self._principal,
                publisher_stream=return_stream,
                consumer_stream=self._consumer_stream,
                create=False,
                ended=self._forget,
            )
            known = self._known[return_stream] = spawn_publisher(self._context, settings, parent)
            if len(self._known) > STREAM_PUBLISHERS_PER_SUBSCRIPTION_MAX:
                _, (_, oldest) = self._known.popitem(last=False)
                self._context.system.exit(oldest)
        else:
            self._known.move_to_end(return_stream)
        return known[0]

    def _forget(self, ended: Cell) -> None:
        """A publisher has ended."""
        for name, (_, cell) in self._known.items():
            if cell is ended:
                del self._known[name]
                return
