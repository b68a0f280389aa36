"""A node's side towards trackers: one actor that says how the node is linked, and hears to whom.

It makes a neighbours actor for each partition of each shared stream. Statuses are said soon after
a change, and again from time to time, so that a tracker that has started anew learns of the node.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, assert_never

from rillnode.actors.delivery import Delivery, LinkLost, Origin
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.overlay.context import MEMBER_ADDRESS, OverlayContext, claim_of
from rillnode.actors.overlay.dialect import decode
from rillnode.actors.overlay.messages import (
    Instructed,
    Leave,
    Linked,
    StorageFound,
    TrackerHeard,
)
from rillnode.actors.overlay.neighbours import NeighboursActor
from rillnode.actors.overlay.stream_keys import stream_key
from rillnode.actors.storage import FOR_EVER, ListStreams, StreamRecord
from rillnode.actors.streams.ask import EnsureStream
from rillnode.actors.streams.context import StreamRemoved
from rillnode.actors.streams.service import ADDRESSES as STREAM_SERVICE
from rillnode.codecs.errors import CodecError
from rillnode.codecs.ockam.routing import Route, WireMessage, local
from rillnode.codecs.streamr.network import (
    FindStorageNodes,
    Instruction,
    Status,
    StatusMessage,
    StorageNodes,
    StreamStatus,
)
from rillnode.codecs.streamr.node_address import (
    AnyAddress,
    ReleasedAddress,
    parse_node_address,
    parse_url,
)
from rillnode.codecs.streamr.partition import tracker_of
from rillnode.codecs.streamr.times import iso_time

logger = logging.getLogger("rillnode.actors.overlay.member")

SOON_SECONDS: Final = 0.2
"""From a change to the status that tells of it: others are told of along with it."""

REPEAT_SECONDS: Final = 10.0
"""How often the status is said although nothing has changed; and after a link to a tracker is
lost, `SOON_SECONDS` until that hears."""

RETRY_SECONDS: Final = 1.0
"""Pause after the store could not list the streams."""


@dataclass(slots=True)
class _Tracker:
    """One tracker; `origin` while it is heard."""

    route: Route
    origin: Origin | None = None


@dataclass(slots=True)
class _Share:
    """A stream partition that is shared, and its neighbours as they were told."""

    cell: Cell
    tracker: _Tracker
    linked: tuple[str, ...] = ()
    counter: int = 0


@dataclass(frozen=True, slots=True)
class _Say:
    """Time to say the status."""


@dataclass(frozen=True, slots=True)
class _Repeat:
    """Time to say it although nothing has changed."""


@dataclass(frozen=True, slots=True)
class _List:
    """Time to ask again for the streams after a name."""

    after: str


class MemberActor(Worker):
    """The member of one node; its address is MEMBER_ADDRESS."""

    mailbox_messages_max = 16_384
    on_failure = "resume"

    def __init__(self, context: OverlayContext) -> None:
        self._context = context
        self._trackers = [_Tracker(route) for route in context.settings.trackers]
        self._shares: dict[tuple[str, int], _Share] = {}
        self._records: dict[str, StreamRecord] = {}
        self._early: dict[tuple[str, int], Instructed] = {}
        self._saying = False
        self._started = iso_time(context.streams.clock.now_ms())

    def started(self) -> None:
        """Take the address and look what streams there are."""
        self._context.streams.router.register(MEMBER_ADDRESS, self.address)
        self._list("")
        self._repeat()

    def handle(
        self,
        message: Delivery
        | LinkLost
        | Linked
        | StreamRecord
        | StreamRemoved
        | ListStreams
        | _Say
        | _Repeat
        | _List,
        sender: Cell | None,
    ) -> None:
        """Take the trackers' words, news of streams, and what neighbours actors tell."""
        match message:
            case Delivery(origin=origin, messages=messages):
                for wire in messages:
                    self._take(origin, wire)
            case Linked(stream_id=stream_id, partition=partition):
                share = self._shares.get((stream_id, partition))
                if share is not None:
                    share.linked, share.counter = tuple(message.names), message.counter
                    self._context.neighbours[stream_key(stream_id, partition)] = share.linked
                    self._say_soon()
            case ListStreams():
                self._listed(message)
            case StreamRecord():
                self._share(message)
            case StreamRemoved(record=record):
                self._unshare(record)
            case LinkLost(origin=origin):
                self._lost(origin)
            case _Say():
                self._saying = False
                self._say()
            case _Repeat():
                self._repeat()
            case _List(after=after):
                self._list(after)
            case _:
                assert_never(message)

    # Streams ---------------------------------------------------------------------------------

    def _list(self, after: str) -> None:
        operation = ListStreams(reply_to=self.address, after=after)
        if self._context.streams.store.read(operation):
            self.system.post(self.address, operation)

    def _listed(self, operation: ListStreams) -> None:
        if operation.error is not None:
            logger.warning("not_listed", extra={"code": operation.error.code})
            self.wake_after(RETRY_SECONDS, _List(operation.after))
            return
        for record in operation.records:
            self._share(record)
        if operation.more:
            self._list(operation.records[-1].name)

    def _share(self, record: StreamRecord) -> None:
        """Take part in a stream's partitions, those that it has now."""
        known = self._records.get(record.name)
        if known is not None and known.id != record.id:
            self._unshare(known)
        if not self._context.settings.takes_part(record.name):
            return
        self._records[record.name] = record
        for partition in range(record.partitions):
            share = self._shares.get((record.name, partition))
            if share is not None:
                self.system.post(share.cell, record)
                continue
            factory = partial(NeighboursActor, self._context, record, partition, self.address)
            cell = self.system.spawn(factory)
            tracker = self._tracker(record.name, partition)
            self._shares[record.name, partition] = _Share(cell, tracker)
            self.system.post(cell, TrackerHeard(tracker.origin is not None))
            told = self._early.pop((record.name, partition), None)
            if told is not None:
                self.system.post(cell, told)
            if tracker.origin is not None:
                self._find_storage(tracker, record.name, partition)
        self._say_soon()

    def _unshare(self, record: StreamRecord) -> None:
        known = self._records.get(record.name)
        if known is None or known.id != record.id:
            return
        del self._records[record.name]
        for partition in range(known.partitions):
            share = self._shares.pop((record.name, partition), None)
            if share is not None:
                self.system.post(share.cell, Leave())
            self._context.neighbours.pop(stream_key(record.name, partition), None)
        self._say_soon()

    # Statuses --------------------------------------------------------------------------------

    def _say_soon(self) -> None:
        if not self._saying:
            self._saying = True
            self.wake_after(SOON_SECONDS, _Say())

    def _repeat(self) -> None:
        self._say_soon()
        self.wake_after(REPEAT_SECONDS, _Repeat())

    def _say(self) -> None:
        """Tell each tracker how the node is linked in what it is responsible for."""
        said: dict[int, dict[str, StreamStatus]] = {id(one): {} for one in self._trackers}
        for (stream_id, partition), share in self._shares.items():
            said[id(share.tracker)][stream_key(stream_id, partition)] = StreamStatus(
                inbound_nodes=share.linked, outbound_nodes=share.linked, counter=share.counter
            )
        for tracker in self._trackers:
            streams = said[id(tracker)]
            message = StatusMessage(status=Status(streams=streams, started=self._started))
            self._send(tracker.route, self._context.dialect.encode(message))

    def _send(self, route: Route, payload: bytes) -> None:
        own: Route = (local(MEMBER_ADDRESS),)
        wire = WireMessage(route, own, payload)
        self._context.streams.router.route(self._context.origin, [wire])

    # What trackers say -----------------------------------------------------------------------

    def _take(self, origin: Origin, wire: WireMessage) -> None:
        try:
            frame = decode(wire.payload)
            match frame.message:
                case Instruction() as instruction:
                    share = self._find(origin, instruction.stream_id, instruction.stream_partition)
                    nodes = self._addresses(origin, instruction.node_addresses)
                    told = Instructed(nodes, instruction.counter or 0)
                    if share is not None:
                        self.system.post(share.cell, told)
                    else:
                        self._ensure(instruction.stream_id, instruction.stream_partition or 0, told)
                case StorageNodes() as found:
                    share = self._find(origin, found.stream_id, found.stream_partition)
                    if share is not None:
                        nodes = self._addresses(origin, found.node_addresses)
                        self.system.post(share.cell, StorageFound(nodes))
                case _:
                    raise CodecError("network.type", "trackers do not send this")
        except CodecError as error:
            self._context.counters[error.code] += 1
            logger.info("bad_message", extra={"code": error.code})

    def _find(self, origin: Origin, stream_id: str, partition: int | None) -> _Share | None:
        """What a tracker speaks of; it is heard from now on."""
        tracker = self._tracker(stream_id, partition or 0)
        if tracker.origin is not origin:
            self._heard(tracker, origin)
        return self._shares.get((stream_id, partition or 0))

    def _tracker(self, stream_id: str, partition: int) -> _Tracker:
        return self._trackers[tracker_of(stream_id, partition, len(self._trackers))]

    def _heard(self, tracker: _Tracker, origin: Origin) -> None:
        tracker.origin = origin
        origin.watch(self.address)
        for (stream_id, partition), share in self._shares.items():
            if share.tracker is tracker:
                self.system.post(share.cell, TrackerHeard(True))
                self._find_storage(tracker, stream_id, partition)

    def _find_storage(self, tracker: _Tracker, stream_id: str, partition: int) -> None:
        request = FindStorageNodes(stream_id=stream_id, stream_partition=partition)
        self._send(tracker.route, self._context.dialect.encode(request))

    def _lost(self, origin: Origin) -> None:
        for tracker in self._trackers:
            if tracker.origin is origin:
                tracker.origin = None
                for share in self._shares.values():
                    if share.tracker is tracker:
                        self.system.post(share.cell, TrackerHeard(False))
                self._say_soon()

    def _ensure(self, stream_id: str, partition: int, told: Instructed) -> None:
        """A storage node makes the streams that it is to keep; then the instruction counts."""
        settings = self._context.settings
        if not settings.storage or not settings.takes_part(stream_id):
            return
        self._early[stream_id, partition] = told
        service = self._context.streams.router.lookup(STREAM_SERVICE[0])
        if service is not None:
            self.system.post(service, EnsureStream(stream_id, partition + 1, FOR_EVER))

    def _addresses(self, origin: Origin, texts: Sequence[str]) -> list[AnyAddress]:
        """The nodes that this one can be linked to; others speak other protocols."""
        released_tracker = claim_of(origin) is not None
        found: list[AnyAddress] = []
        for text in texts:
            try:
                if text.startswith("noise:"):
                    found.append(parse_node_address(text))
                elif self._context.settings.released:
                    found.append(ReleasedAddress(parse_url(text), released_tracker))
            except CodecError:
                continue
        return found
