"""The connection actor: one link that carries Ockam wire messages, whatever frames them.

It turns the frames of a read into routed batches and the batches routed to it into one write. It
reads only as fast as the workers, the store and the peer itself take what comes of it.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Final, assert_never

from rillnode.actors.core.access import Access
from rillnode.actors.core.delivery import HANDLED, Delivery, Handled, Origin, Slice
from rillnode.actors.core.links.link_actor import (
    HELD_READS_MAX,
    Closed,
    LinkActorEvents,
    Received,
    link_named,
)
from rillnode.actors.core.links.tracing import Kind, wire_kind
from rillnode.actors.core.rights import RightsChanged
from rillnode.actors.core.router import Router
from rillnode.actors.engine.cell import Cells
from rillnode.actors.engine.described import Described
from rillnode.actors.engine.system import AsyncioSystemBase, Cell
from rillnode.actors.engine.worker import Variant, Worker, plain
from rillnode.actors.log import LogStore
from rillnode.actors.ports import Entropy, Link, TimerHandle
from rillnode.codecs.errors import CodecError, RequestError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import (
    LINK_BUFFER_HIGH_BYTES,
    STORE_PENDING_HIGH_BYTES,
    STORE_PENDING_LOW_BYTES,
)
from rillnode.codecs.routing.routes import Address, Route, WireMessage, local, make_message
from rillnode.codecs.routing.wire import wire_codec

logger = event_logger("rillnode.actors.core.links.connection")

SLICE_FRAMES: Final = 64
"""Frames handed on in one turn: the workers get theirs between two slices."""

RESERVED_HIGH_BYTES: Final = 4_194_304
"""Bytes of what came from the peer that workers keep, above which nothing further is handed on."""

READS_WAITING_MAX: Final = 1_024
"""Reads for the peer that wait for room on its link, above which nothing further is handed on."""

HOLD_SECONDS: Final = 0.005
"""How often a held connection looks whether it may go on."""

STALLED_SECONDS: Final = 1.0
"""How long a peer takes nothing until it is read from all the same."""

UNHANDLED_SECONDS: Final = 1.0
"""How long a connection waits for the workers of one slice before it hands on another all the same:
they may wait for an answer that is behind it."""

OVERDUE_SLICES_MAX: Final = 8
"""Slices whose workers have taken longer, and are not done yet, with which nothing is handed on."""

PING: Final = b"\x00"
PONG: Final = b"\x01"
"""Payloads of nodes of 2021 that test a connection with an empty onward route."""


_NONE: Final = Slice()
"""Stands for a slice where none is under way."""


@dataclass(frozen=True, slots=True)
class PeerContext:
    """The node's parts that connections work with.

    Attributes:
        open: the connections that there are.
        malformed: messages that could not be decoded, by transport and error code.
        actor: which actors to make for a class of them.
    """

    system: AsyncioSystemBase
    router: Router
    store: LogStore
    access: Access
    entropy: Entropy
    open: Cells = field(default_factory=Cells)
    malformed: Counter[tuple[str, str]] = field(default_factory=Counter)
    actor: Variant = plain


@dataclass(frozen=True, slots=True)
class Drain:
    """Read no more from the link; what was read is still answered."""


class _Drained:
    """The peer took what was buffered."""

    def merged(self, later: "_Drained") -> "_Drained":
        """One is enough."""
        return later


_DRAINED: Final = _Drained()


class _Stop:
    """Close the link, after what waits for it."""

    def merged(self, later: "_Stop") -> "_Stop":
        """One is enough."""
        return later


_STOP: Final = _Stop()


@dataclass(frozen=True, slots=True)
class _Continue:
    """Time to look again whether something can be handed on."""


ConnectionMessage = (
    Delivery | Received | Handled | _Continue | _Drained | Drain | _Stop | RightsChanged | Closed
)
"""What a connection's actor takes."""


class ConnectionEvents(LinkActorEvents[Link]):
    """The events of one link that carries Ockam wire messages."""

    __slots__ = ()

    def __init__(self, context: PeerContext, *, prefix: bytes, strict: bool = False) -> None:
        actor = context.actor(ConnectionActor)
        super().__init__(context.system, lambda link: partial(actor, context, link, prefix, strict))

    def kind_of(self, link: Link) -> Kind:
        """What names wire messages."""
        return wire_kind(link)

    def link_drained(self) -> None:
        """Let go on who waits to send more."""
        if self._cell is not None:
            self._system.post(self._cell, _DRAINED)


class ConnectionActor(Worker):
    """The connection of an open link, at a random address."""

    mailbox_messages_max = 8_192
    spare: ClassVar = {
        Received: HELD_READS_MAX,
        Handled: OVERDUE_SLICES_MAX + 1,
        Drain: 1,
        Closed: 1,
    }
    on_failure = "stop"

    _left: tuple[int, float] = (0, 0.0)

    def __init__(self, context: PeerContext, link: Link, prefix: bytes, strict: bool) -> None:
        info = link.info
        self._context = context
        self._link = link
        self._wire = wire_codec(info.wire_format, strict=strict)
        self._own_address = prefix + context.entropy(8).hex().encode()
        self._own: Address = local(self._own_address)
        self._origin = Origin(
            principal=context.access.principal_of(info.principal),
            message_bytes_max=info.message_bytes_max,
            native=info.transport != "ockam",
            link=link,
            wire_format=info.wire_format,
        )
        self._granted = self._is_granted()
        self._made_at = 0.0
        # Both are empty nearly always, and an empty list takes as much as a route.
        self._frames: list[bytes] | tuple[()] = ()
        self._slice = _NONE
        self._overdue: list[Slice] | tuple[()] = ()
        self._timer: TimerHandle | None = None
        self._store_held = False
        self._draining = False
        self._traced: tuple[Route, Route] = ((), (self._own,))
        self._header: tuple[Route, Route, bytes] = ((), (), b"")
        self._outgoing: list[bytes] | tuple[()] = ()
        self._outgoing_bytes = 0

    def started(self) -> None:
        """Take an address: answers and forwarded messages come to it."""
        self._context.router.register(self._own_address, self.address)
        self._context.open.add(self.address)
        self._origin.connection = self.address
        self._made_at = self.system.timing.monotonic()
        logger.info("link_opened", extra=link_named(self._link))

    def handle(self, message: ConnectionMessage, sender: Cell | None) -> None:
        """Take frames from the link, routed messages for it, and its end."""
        match message:
            case Delivery():
                self._send(message)
            case Received(frames=frames):
                if self._frames:
                    self._frames += frames
                else:
                    self._frames = frames
                if not self._slice.unhandled and self._timer is None:
                    self._dispatch()
                elif self._timer is None:
                    self._wait(UNHANDLED_SECONDS)
                if message.held and self._timer is None and not self._draining:
                    self._link.resume_reading()
            case Handled():
                if not self._slice.unhandled:
                    self._go_on()
            case _Continue():
                if self._slice.unhandled:
                    self._overdue = [*self._overdue, self._slice]
                    self._slice = _NONE
                self._go_on()
            case _Drained():
                if self._origin.own_room is not None:
                    self._origin.own_room.look()
            case Drain():
                self._draining = True
                self._link.pause_reading()
            case _Stop():
                self.finish()
                self._link.close("it was stopped at its address")
            case RightsChanged():
                if self._granted and not self._is_granted():
                    self._link.close("no grant names its principal any more")
            case Closed(reason=reason):
                logger.info("link_closed", extra={**link_named(self._link), "reason": reason})
                self.system.exit(self.address)
            case _:
                assert_never(message)

    def stopped(self) -> None:
        """Give the address back; end what lives no longer than the link."""
        try:
            self._context.router.unregister(self._own_address)
            self._context.open.discard(self.address)
            self._origin.end()
            self.finish()
        finally:
            self._link.close("connection ended")

    def described(self, address: bytes) -> Described:
        """The link, which its peer and administrators may close."""
        return Described(
            "link",
            name=f"{self._link.info.transport} {self._link.info.remote}",
            owner=self._origin.principal,
            origin=self._origin,
            made_at=self._made_at,
            open_to="owner",
            stop=partial(self.system.post, self.address, _STOP),
        )

    @property
    def link(self) -> Link:
        """The link."""
        return self._link

    @property
    def route(self) -> bytes:
        """Its address."""
        return self._own_address

    def owes(self) -> bool:
        """Whether what was read was not handed on yet."""
        return bool(self._frames)

    @property
    def unhandled(self) -> int:
        """Batches that it has handed on and workers have not handled."""
        return sum(one.unhandled for one in (*self._overdue, self._slice))

    @property
    def origin(self) -> Origin:
        """What its messages come from, for who looks how much is under way."""
        return self._origin

    def _is_granted(self) -> bool:
        """Whether a grant names the peer, as it proves or claims to be."""
        known, claim = self._context.access.known, self._link.info.claim
        return known(self._origin.principal) or (claim is not None and known(claim.principal))

    # Inwards ---------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._dispatch()
        if not self._frames and not self._draining:
            self._link.resume_reading()

    def _dispatch(self) -> None:
        """Hand on one slice; the next follows when its workers have handled it.

        What they reserve for their answers is known then, and may hold the connection.
        """
        if not self._frames:
            return
        if self._held():
            self._wait(HOLD_SECONDS)
            return
        if len(self._frames) <= SLICE_FRAMES:
            frames, self._frames = self._frames, ()
        else:
            frames = self._frames[:SLICE_FRAMES]
            del self._frames[:SLICE_FRAMES]
        messages: list[WireMessage] = []
        try:
            for message in self._wire.decode(frames):
                if message.onward_route:
                    messages.append(self._trace(message))
                elif message.payload == PING:
                    pong = WireMessage(message.return_route, (), PONG)
                    self._link.send([self._wire.encode(pong)])
        except CodecError as error:
            self._frames = ()
            self._context.malformed[self._link.info.transport, error.code] += 1
            logger.info("bad_message", extra={"code": error.code, "offset": error.offset})
            self.finish()
            self._link.close(str(error))
        self._slice = Slice()
        self._context.router.route(self._origin, messages, tracked=self._slice)
        if self._frames:
            if self._slice.unhandled:
                self._wait(UNHANDLED_SECONDS)
            else:
                self.send(self.address, HANDLED)

    def _wait(self, seconds: float) -> None:
        """Read and hand on nothing until the workers are done, or for this long."""
        if self._slice.unhandled:
            self._slice.waiter = self.address
        self._link.pause_reading()
        self._timer = self.wake_after(seconds, _Continue())

    def _held(self) -> bool:
        store = self._context.store.pending_bytes
        # Between the two marks the decision stays, so that a busy store is not polled to and fro.
        limit = STORE_PENDING_LOW_BYTES if self._store_held else STORE_PENDING_HIGH_BYTES
        self._store_held = store > limit
        if self._overdue:
            self._overdue = [one for one in self._overdue if one.unhandled]
        room = self._origin.own_room
        return (
            self._store_held
            or self._origin.reserved_bytes > RESERVED_HIGH_BYTES
            or (room is not None and room.waiting > READS_WAITING_MAX)
            or len(self._overdue) >= OVERDUE_SLICES_MAX
            or (
                (buffered := self._link.buffered_bytes + self._outgoing_bytes)
                > LINK_BUFFER_HIGH_BYTES
                and self._waits_for_peer(buffered)
            )
        )

    def _waits_for_peer(self, buffered: int) -> bool:
        """Whether the peer is to take what it was sent before more is read from it.

        One that takes nothing at all may be waiting for this side in the same way, as where two
        nodes tell each other at once what they have missed: then one of them has to read on.
        """
        now = self.system.timing.monotonic()
        if buffered != self._left[0]:
            self._left = buffered, now
        return now - self._left[1] < STALLED_SECONDS

    def _trace(self, message: WireMessage) -> WireMessage:
        """Put this connection first in the return route, so that answers come back through it."""
        route, traced = self._traced
        if message.return_route is not route:
            traced = (self._own, *message.return_route)
            self._traced = (message.return_route, traced)
        return make_message((message.onward_route, traced, message.payload))

    # Outwards --------------------------------------------------------------------------------

    def _send(self, delivery: Delivery) -> None:
        """Encode messages; they go out with what else the mailbox holds, as one sealed write."""
        limit = self._origin.message_bytes_max
        encode_with_header = self._wire.encode_with_header
        frames = self._outgoing
        if not frames:
            frames = self._outgoing = []
            self.finish_later()
        for message in delivery.messages:
            onward_route, return_route, payload = message
            onward, back, header = self._header
            if onward_route is not onward or return_route is not back:
                try:
                    header = self._wire.encode_header(onward_route[1:], return_route)
                except CodecError as error:
                    logger.warning("unsendable", extra={"code": error.code})
                    self._context.router.undelivered[error.code] += 1
                    continue
                self._header = (onward_route, return_route, header)
            frame = encode_with_header(header, payload)
            if len(frame) > limit:
                self._too_large(delivery.origin, message, len(frame))
                continue
            frames.append(frame)
            self._outgoing_bytes += len(frame)

    def _too_large(self, origin: Origin, message: WireMessage, size: int) -> None:
        limit, router = self._origin.message_bytes_max, self._context.router
        logger.warning("message_too_large", extra={"bytes": size, "limit": limit})
        if origin is self._origin:  # an answer: its worker is not to be answered
            router.undelivered["too_large"] += 1
            return
        text = f"The message has {size:,} bytes with its routes, the next link takes {limit:,}"
        error = RequestError("message.size", text)
        router.undeliverable("too_large", Delivery(origin, [message]), error)

    def finish(self) -> None:
        """Send all that has come for the link as one write."""
        frames, self._outgoing = self._outgoing, ()
        size, self._outgoing_bytes = self._outgoing_bytes, 0
        self._link.send(frames)
        room = self._origin.own_room
        if room is not None:
            room.flushed(size, all_of_it=len(self.address.mailbox) == 0)
