"""The neighbours actor: one stream partition, as it is shared with other nodes.

What local clients have made durable goes to all neighbours; what comes from one goes to all others
and into the local log, where all local subscribers find it. So a message goes around no circle and
is stored once at each node. Whoever was away, in part or wholly, is brought up to date when a link
is made again: both ways, from a while before the trouble began.
"""

from dataclasses import dataclass
from typing import ClassVar, Final, TypeVar, assert_never

from thespian.actors import ChildActorExited

from rillnode.actors.core.delivery import Delivery, LinkLost, Origin
from rillnode.actors.core.rights import RightsChanged
from rillnode.actors.core.streams.followers import Grown, Removed
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import Read, StreamRecord
from rillnode.actors.overlay.announcing import LogReader
from rillnode.actors.overlay.context import OverlayContext, identity_of
from rillnode.actors.overlay.dialect import (
    Dialect,
    broadcast_text,
    decode,
    decode_wrapped,
    read_broadcast,
)
from rillnode.actors.overlay.intake import Intake
from rillnode.actors.overlay.keeping import Keeper, Underway
from rillnode.actors.overlay.linking import Neighbourhood
from rillnode.actors.overlay.loading import Loaded, load
from rillnode.actors.overlay.messages import (
    Began,
    BeganAnew,
    Instructed,
    Linked,
    StorageFound,
    TrackerHeard,
)
from rillnode.actors.overlay.missing import Missing
from rillnode.actors.overlay.rendering import Renderer, is_carried, is_own
from rillnode.actors.overlay.settling import MARGIN_MS, Settling
from rillnode.actors.overlay.sharing import Sharing
from rillnode.actors.overlay.stream_keys import overlay_address
from rillnode.codecs.entries import Entry, EntryKind
from rillnode.codecs.errors import CodecError, StoreError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import CONNECTIONS_MAX
from rillnode.codecs.routing.routes import Route, WireMessage, local
from rillnode.codecs.streamr.control_messages import (
    BroadcastMessage,
    ControlMessage,
    RequestId,
    ResendFromRequest,
    ResendLastRequest,
    ResendRangeRequest,
    ResendResponseNoResend,
    SubscribeRequest,
    SubscribeResponse,
    UnicastMessage,
    UnsubscribeRequest,
    UnsubscribeResponse,
)
from rillnode.codecs.streamr.network import Wrapper
from rillnode.codecs.streamr.stream_message import StreamMessage

logger = event_logger("rillnode.actors.overlay.neighbours")

_M = TypeVar(
    "_M",
    SubscribeRequest,
    SubscribeResponse,
    UnsubscribeRequest,
    UnsubscribeResponse,
    ResendResponseNoResend,
)

TICK_SECONDS: Final = 1.0
"""How often neighbours that are not linked yet are asked, and those left out are looked at."""

PAUSE_SECONDS: Final = 0.02
"""How often it is looked whether any neighbour takes more."""

RETRY_SECONDS: Final = 1.0
"""Pause after the store could not be read or written."""

LEFT_OUT_MS: Final = 10_000
"""How long before it is noticed that a neighbour takes nothing it may have been left out."""

SAVE_SECONDS: Final = 5.0
"""How often it is kept how far the log was announced."""


@dataclass(frozen=True, slots=True)
class _Tick:
    """Time to look after links, gaps and what is kept."""


@dataclass(frozen=True, slots=True)
class _Announce:
    """Time to see whether any neighbour takes more."""


class NeighboursActor(Worker):
    """The neighbours in a shared stream partition, at `overlay/<stream>/<partition>`.

    Args:
        context: the node's parts.
        record: the stream.
        partition: the partition.
        member: the node's, which tells whom to be linked to.
        underway: the appends of this partition, whichever instance has begun them.
    """

    mailbox_messages_max = 16_384
    spare: ClassVar = {LinkLost: CONNECTIONS_MAX, Removed: 1}

    _settling: Settling

    def __init__(
        self,
        context: OverlayContext,
        record: StreamRecord,
        partition: int,
        member: Cell,
        underway: Underway,
    ) -> None:
        self._context = context
        self._record = record
        self._partition = partition
        self._member = member
        self._underway = underway
        self._own_address = overlay_address(record.name, partition)
        self._behind: dict[str, int] = {}
        self._ticking = False
        self._pausing = False
        self._saved_at = 0.0

    async def started(self) -> None:
        """Take the address, and take up what is kept beside the log; messages wait for that."""
        context, record, partition, me = self._context, self._record, self._partition, self.address
        context.streams.router.register(self._own_address, me)
        context.streams.access.rights.watch(record.name, me)
        own: Route = (local(self._own_address),)
        self._intake = Intake()
        self._links = Neighbourhood(context, own, me)
        self._reader = LogReader(context, record, partition, self, self._read)
        self._keeper = Keeper(
            context, self._intake, record, partition, self, self._underway, self._reader.skip
        )
        self._renderer = Renderer(record, partition, context.settings.identity)
        self._sharing = Sharing(context, record, partition, self._links, self._intake, self._keeper)
        self._missing = Missing(context, record, partition, self._links, self._reader, me)
        # What the member answers waits as well.
        self.system.post(self._member, Began(record.name, partition))
        await self._underway.ended()
        self._begin(await self._load())

    async def _load(self) -> Loaded:
        while True:
            try:
                return await load(
                    self._context, self._record, self._partition, self._intake, self._reader
                )
            except StoreError as error:
                logger.warning("not_loaded", extra={"code": error.code})
                await self.sleep(RETRY_SECONDS)

    def _begin(self, loaded: Loaded) -> None:
        clock = self._context.streams.clock
        since_ms = loaded.last_received_at
        if since_ms is None:
            since_ms = 0 if self._context.settings.storage else clock.now_ms()
        self._settling = Settling(max(0, since_ms - MARGIN_MS), clock.monotonic())
        self._reader.grown(loaded.next_index)
        self._saved_at = clock.monotonic()
        self._tell()
        self._tick_later()

    def stopped(self) -> None:
        """Give everything back."""
        self._reader.unfollow()
        self._keeper.drop()
        self._missing.close()
        for one in self._links.close():
            self._links.tell(one, self._about(UnsubscribeRequest))
        router = self._context.streams.router
        if router.table.get(self._own_address) is self.address:  # and not of a later stream's
            router.unregister(self._own_address)
        self._context.streams.access.rights.unwatch(self._record.name, self.address)

    def handle(
        self,
        message: Delivery
        | LinkLost
        | Instructed
        | TrackerHeard
        | StorageFound
        | BeganAnew
        | StreamRecord
        | RightsChanged
        | Grown
        | Removed
        | ChildActorExited
        | _Tick
        | _Announce,
        sender: Cell | None,
    ) -> None:
        """Take what comes from nodes, the member, the log and the store."""
        match message:
            case Delivery():
                self._deliver(message)
            case Grown(next_index=index):
                self._reader.grown(index)
                self._announce()
            case Instructed():
                self._instruct(message)
            case TrackerHeard(heard=heard):
                self._tracked(heard)
            case StorageFound(nodes=nodes):
                self._missing.storage_found(nodes, self._since_ms())
            case BeganAnew():
                self._tracked(False)
                self._links.forget_told()
                self._tell()
            case LinkLost(origin=origin):
                if self._links.lost(origin):
                    self._disturbed()
                    self._tell()
            case ChildActorExited():
                self._missing.ended(message.childAddress)
            case StreamRecord():
                self._record = message
                self._sharing.update(message)
            case RightsChanged():
                self._revoke()
            case _Announce():
                self._pausing = False
                self._announce()
            case _Tick():
                self._tick()
            case Removed():
                pass  # the member hears of it, too, and ends this
            case _:
                assert_never(message)
        self._tick_later()

    def _tick_later(self) -> None:
        if not self._ticking and self._has_work:
            self._ticking = True
            self.wake_after(TICK_SECONDS, _Tick())

    @property
    def _has_work(self) -> bool:
        """Whether time has to bring something: so that idle streams cost none."""
        return (
            not self._links.exact
            or bool(self._behind)
            or self._intake.deadline is not None
            or self._reader.unsaved
            or (bool(self._links.linked) and self._reader.behind)
        )

    # Links -----------------------------------------------------------------------------------

    def _instruct(self, instructed: Instructed) -> None:
        now = self._context.streams.clock.monotonic()
        for one in self._links.instruct(instructed.nodes, instructed.counter, now):
            self._links.tell(one, self._about(UnsubscribeRequest))
        self._disturbed()
        self._ask_neighbours()
        self._tell()

    def _ask_neighbours(self) -> None:
        request = self._about(SubscribeRequest)
        for route, dialect in self._links.to_ask():
            self._links.send(route, [dialect.encode_control(request)])

    def _about(self, kind: type[_M], request_id: RequestId | None = "") -> _M:
        """A message of the control layer about this partition."""
        return kind(stream_id=self._record.name, partition=self._partition, request_id=request_id)

    def _tick(self) -> None:
        """Look after what time may have brought."""
        clock = self._context.streams.clock
        self._ticking = False
        self._ask_neighbours()
        self._tell()
        self._sharing.poll()
        self._flush(None)
        self._announce()
        for identity, since_ms in list(self._behind.items()):
            one = self._links.linked.get(identity)
            if one is None or not one.congested:
                del self._behind[identity]
                if one is not None:
                    self._missing.push(one, since_ms)
        if clock.monotonic() - self._saved_at >= SAVE_SECONDS:
            self._saved_at = clock.monotonic()
            self._reader.save(self._sharing.records())

    def _tracked(self, heard: bool) -> None:
        clock = self._context.streams.clock
        self._settling.tracked(heard, clock.now_ms(), clock.monotonic())

    def _disturbed(self) -> None:
        clock = self._context.streams.clock
        self._settling.disturbed(clock.now_ms(), clock.monotonic())

    def _tell(self) -> None:
        """Tell the member, and through it the tracker, how this node is linked now."""
        told = self._links.news(self._context.streams.clock.monotonic())
        if told is not None:
            linked = Linked(self._record.name, self._partition, *told)
            self.system.post(self._member, linked)

    # What nodes say --------------------------------------------------------------------------

    def _deliver(self, delivery: Delivery) -> None:
        origin, sharing = delivery.origin, self._sharing
        news = False
        for wire in delivery.messages:
            try:
                text = broadcast_text(wire.payload)
                if text is not None and sharing.is_copy(text):
                    continue  # as most that come here
                news = True
                if text is None:
                    self._take(origin, wire)
                elif isinstance(message := read_broadcast(text), BroadcastMessage | UnicastMessage):
                    sharing.received(message, origin)
            except CodecError as error:
                self._context.counters[error.code] += 1
                logger.info("bad_message", extra={"code": error.code, "offset": error.offset})
        if news:
            self._flush(origin)

    def _take(self, origin: Origin, wire: WireMessage) -> None:
        frame = decode(wire.payload)
        if not isinstance(frame.message, Wrapper):
            raise CodecError("network.type", "nodes send each other messages of the control layer")
        dialect = self._context.dialect.answering(frame)
        match decode_wrapped(frame.message):
            case BroadcastMessage() | UnicastMessage() as message:
                self._sharing.received(message, origin)
            case SubscribeRequest(request_id=request_id):
                self._reply(wire, dialect, self._about(SubscribeResponse, request_id))
                self._link(origin, wire.return_route, dialect)
            case SubscribeResponse() if identity_of(origin) in self._links.wanted:
                self._link(origin, wire.return_route, dialect)
            case SubscribeResponse():  # it was asked before the tracker changed its mind
                self._reply(wire, dialect, self._about(UnsubscribeRequest))
            case UnsubscribeRequest(request_id=request_id):
                self._reply(wire, dialect, self._about(UnsubscribeResponse, request_id))
                if self._links.lost(origin):
                    self._tell()
            case (
                ResendLastRequest(request_id=request_id)
                | ResendRangeRequest(request_id=request_id, publisher_id=None)
            ) if not self._context.settings.storage:
                # It may not have all of it: who asks goes on to those that keep the stream.
                self._reply(wire, dialect, self._about(ResendResponseNoResend, request_id))
            case ResendFromRequest() | ResendRangeRequest() | ResendLastRequest() as request:
                self._missing.answer(origin, wire.return_route, dialect, request)
            case _:
                pass  # how a resend begins and ends says nothing that the messages do not

    def _reply(self, wire: WireMessage, dialect: Dialect, message: ControlMessage) -> None:
        self._links.send(wire.return_route, [dialect.encode_control(message)])

    def _link(self, origin: Origin, route: Route, dialect: Dialect) -> None:
        identity = identity_of(origin)
        if not self._links.link(identity, origin, route, dialect):
            return
        self._tell()
        since_ms = self._since_ms()
        if since_ms is not None:
            one = self._links.linked[identity]
            self._links.tell(one, self._missing.everything_since(since_ms))
            self._missing.push(one, since_ms)
        self._announce()

    def _revoke(self) -> None:
        """Let go of neighbours that may not have the stream any more."""
        for one in list(self._links.linked.values()):
            if not self._context.admits(self._own_address, one.origin):
                self._links.tell(one, self._about(UnsubscribeRequest))
                self._links.unlink(one.identity)
        self._tell()

    def _since_ms(self) -> int | None:
        return self._settling.since_ms(self._context.streams.clock.monotonic())

    def _flush(self, source: Origin | None) -> None:
        for one in self._sharing.flush(source):
            now_ms = self._context.streams.clock.now_ms()
            self._behind.setdefault(one.identity, now_ms - LEFT_OUT_MS)
        if self._sharing.gaps:
            gaps, self._sharing.gaps = self._sharing.gaps, []
            for gap in gaps:
                self._missing.ask_for(gap)

    # The local log ---------------------------------------------------------------------------

    def _announce(self) -> None:
        """Hand on what is new in the log, while there is somebody who takes it."""
        if not self._links.linked or self._pausing or not self._reader.pass_over():
            return
        reader = self._links.reader(self._context.streams.store)
        if reader is None:
            self._pausing = True
            self.wake_after(PAUSE_SECONDS, _Announce())
            return
        self._reader.advance(reader)

    def _read(self, operation: Read) -> None:
        entries = self._reader.entries(operation)
        if entries is None:
            return
        messages: list[tuple[StreamMessage, bytes | None]] = []
        for entry in entries:
            message = self._render(entry)
            if message is not None:
                exact = entry.data if entry.kind is EntryKind.STREAMR else None
                messages.append((message, exact))
        self._sharing.published(messages)
        self._flush(None)
        self._announce()
        self._tick_later()

    def _render(self, entry: Entry) -> StreamMessage | None:
        if entry.kind is EntryKind.BYTES and entry.meta:
            return None  # it came from another node
        message = self._renderer.message(entry, self._reader.previous)
        if is_own(entry):
            self._reader.previous = entry.index
        elif message is not None and is_carried(message):
            self._context.counters["forged"] += 1  # only a node speaks on its chain
            return None
        return message
