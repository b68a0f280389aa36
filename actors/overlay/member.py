"""A node's side towards trackers: one actor that says how the node is linked, and hears to whom.

It makes a neighbours actor for each partition of each shared stream. Statuses are said soon after
a change, and again from time to time, so that a tracker that has started anew learns of the node.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import ClassVar, Final, assert_never

from thespian.actors import ActorAddress, ChildActorExited

from rillnode.actors.core.delivery import Delivery, LinkLost, Origin
from rillnode.actors.core.streams.context import STREAM_CHANGES_MAX, StreamRemoved
from rillnode.actors.core.streams.revising import EnsureStream
from rillnode.actors.core.streams.service import ADDRESSES as STREAM_SERVICE
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import FOR_EVER, ListStreams, StreamRecord
from rillnode.actors.log.waiting import read
from rillnode.actors.overlay.context import MEMBER_ADDRESS, OverlayContext, claim_of
from rillnode.actors.overlay.dialect import decode
from rillnode.actors.overlay.keeping import Underway
from rillnode.actors.overlay.messages import (
    Began,
    BeganAnew,
    Instructed,
    Linked,
    StorageFound,
    TrackerHeard,
)
from rillnode.actors.overlay.neighbours import NeighboursActor
from rillnode.actors.overlay.stream_keys import stream_key
from rillnode.codecs.errors import CodecError, StoreError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import CONNECTIONS_MAX
from rillnode.codecs.routing.routes import Route, WireMessage, local
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

logger = event_logger("rillnode.actors.overlay.member")

SOON_SECONDS: Final = 0.2
"""From a change to the status that tells of it: others are told of along with it."""

REPEAT_SECONDS: Final = 10.0
"""How often the status is said although nothing has changed; and after a link to a tracker is
lost, `SOON_SECONDS` until that hears."""

RETRY_SECONDS: Final = 1.0
"""Pause after the store could not list the streams."""

RESPAWN_SECONDS: Final = 1.0
RESPAWN_SECONDS_MAX: Final = 60.0
"""Pause before a partition whose actor was given up gets another; twice as long each time."""


@dataclass(slots=True)
class _Tracker:
    """One tracker; `origin` while it is heard."""

    route: Route
    origin: Origin | None = None


@dataclass(slots=True)
class _Share:
    """A stream partition that is shared: its neighbours actor, what that tells and was told.

    Attributes:
        tracker: the number of its tracker.
        underway: its appends, for whichever actor serves it.
        instructed: the tracker's last word.
        storage: likewise, of who keeps the stream.
        failures: how often its actor was given up.
    """

    record: StreamRecord
    tracker: int
    cell: Cell
    underway: Underway
    linked: tuple[str, ...] = ()
    counter: int = 0
    instructed: Instructed | None = None
    storage: StorageFound | None = None
    failures: int = 0


@dataclass(slots=True)
class Shares:
    """A node's shares, which outlive a failing instance of its member.

    Attributes:
        of: by stream and partition.
        early: instructions for streams that a storage node is still to make.
    """

    of: dict[tuple[str, int], _Share] = field(default_factory=dict[tuple[str, int], _Share])
    early: dict[tuple[str, int], Instructed] = field(
        default_factory=dict[tuple[str, int], Instructed]
    )


@dataclass(frozen=True, slots=True)
class _Say:
    """Time to say the status."""


@dataclass(frozen=True, slots=True)
class _Repeat:
    """Time to say it although nothing has changed."""


@dataclass(frozen=True, slots=True)
class _Respawn:
    """Time for a new actor of a partition whose actor was given up."""

    stream_id: str
    partition: int


class MemberActor(Worker):
    """A node's side towards its trackers, at `overlay`.

    Args:
        context: the node's parts.
        shares: what is shared, whichever instance looks after it.
    """

    mailbox_messages_max = 16_384
    spare: ClassVar = {
        LinkLost: CONNECTIONS_MAX,
        StreamRecord: STREAM_CHANGES_MAX,
        StreamRemoved: STREAM_CHANGES_MAX,
    }
    essential = True

    def __init__(self, context: OverlayContext, shares: Shares) -> None:
        self._context = context
        self._trackers = [_Tracker(route) for route in context.settings.trackers]
        self._shares = shares.of
        self._early = shares.early
        self._saying = False
        self._started = iso_time(context.streams.clock.now_ms())

    def started(self) -> None:
        """Take the address, take up what is shared already, and look what streams there are."""
        self._context.streams.router.register(MEMBER_ADDRESS, self.address)
        asked = set[int]()
        for (stream_id, partition), share in self._shares.items():
            self._respawn(stream_id, partition)
            self.system.post(share.cell, BeganAnew())
            if share.tracker not in asked:  # its answer tells that it is heard
                asked.add(share.tracker)
                self._find_storage(self._trackers[share.tracker], stream_id, partition)
        self.begin(self._list())
        self._repeat()

    def handle(
        self,
        message: Delivery
        | LinkLost
        | Linked
        | Began
        | ChildActorExited
        | StreamRecord
        | StreamRemoved
        | _Say
        | _Repeat
        | _Respawn,
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
            case Began(stream_id=stream_id, partition=partition):
                self._tell(stream_id, partition)
            case StreamRecord():
                self._share(message)
            case StreamRemoved(record=record):
                self._unshare(record)
            case LinkLost(origin=origin):
                self._lost(origin)
            case ChildActorExited():
                self._ended(message.childAddress)
            case _Respawn(stream_id=stream_id, partition=partition):
                self._respawn(stream_id, partition)
            case _Say():
                self._saying = False
                self._say()
            case _Repeat():
                self._repeat()
            case _:
                assert_never(message)

    # Streams ---------------------------------------------------------------------------------

    async def _list(self) -> None:
        """Take part in all streams that there are, and in those no more that are not there."""
        before, there = dict(self._shares), set[int]()
        after = ""
        while True:
            page = ListStreams(after=after, names_only=True)
            try:
                await read(self._context.streams.store, page)
            except StoreError as error:
                logger.warning("not_listed", extra={"code": error.code})
                await self.sleep(RETRY_SECONDS)
                continue
            for record in page.records:
                there.add(record.id)
                self._share(record)
            if not page.more:
                break
            after = page.records[-1].name
        for share in before.values():
            if share.record.id not in there:
                self._unshare(share.record)

    def _share(self, record: StreamRecord) -> None:
        """Take part in a stream's partitions, those that it has now."""
        known = self._shares.get((record.name, 0))
        if known is not None and known.record.id != record.id:
            self._unshare(known.record)
        if not self._context.settings.takes_part(record.name):
            return
        for partition in range(record.partitions):
            share = self._shares.get((record.name, partition))
            if share is not None:
                share.record = record
                self.system.post(share.cell, record)
                continue
            underway = Underway()
            cell = self._spawn(record, partition, underway)
            nth = tracker_of(record.name, partition, len(self._trackers))
            share = _Share(record, nth, cell, underway)
            share.instructed = self._early.pop((record.name, partition), None)
            self._shares[record.name, partition] = share
            tracker = self._trackers[nth]
            if tracker.origin is not None:
                self._find_storage(tracker, record.name, partition)
        self._say_soon()

    def _spawn(self, record: StreamRecord, partition: int, underway: Underway) -> Cell:
        factory = partial(NeighboursActor, self._context, record, partition, self.address, underway)
        return self.system.spawn(factory, parent=self.address)

    def _tell(self, stream_id: str, partition: int) -> None:
        """Tell an actor that begins all that the tracker has said."""
        share = self._shares.get((stream_id, partition))
        if share is None:
            return
        heard = self._trackers[share.tracker].origin is not None
        for told in (TrackerHeard(heard), share.instructed, share.storage):
            if told is not None:
                self.system.post(share.cell, told)

    def _unshare(self, record: StreamRecord) -> None:
        for partition in count():
            share = self._shares.get((record.name, partition))
            if share is None or share.record.id != record.id:
                break
            del self._shares[record.name, partition]
            self.system.exit(share.cell)
            self._context.neighbours.pop(stream_key(record.name, partition), None)
        self._say_soon()

    def _ended(self, cell: ActorAddress) -> None:
        """A neighbours actor has ended: one that was given up is followed by another, later."""
        for (stream_id, partition), share in self._shares.items():
            if share.cell is cell:
                pause = min(RESPAWN_SECONDS * 2**share.failures, RESPAWN_SECONDS_MAX)
                share.failures += 1
                self.wake_after(pause, _Respawn(stream_id, partition))

    def _respawn(self, stream_id: str, partition: int) -> None:
        share = self._shares.get((stream_id, partition))
        if share is not None and share.cell.exited:
            share.cell = self._spawn(share.record, partition, share.underway)

    # Statuses --------------------------------------------------------------------------------

    def _say_soon(self) -> None:
        if not self._saying:
            self._saying = True
            self.wake_after(SOON_SECONDS, _Say())

    def _repeat(self) -> None:
        self._say_soon()
        for stream_id, partition in self._early:  # what was not made might have been forgotten
            self._ensure_stream(stream_id, partition)
        self.wake_after(REPEAT_SECONDS, _Repeat())

    def _say(self) -> None:
        """Tell each tracker how the node is linked in what it is responsible for."""
        said: list[dict[str, StreamStatus]] = [{} for _ in self._trackers]
        for (stream_id, partition), share in self._shares.items():
            said[share.tracker][stream_key(stream_id, partition)] = StreamStatus(
                inbound_nodes=share.linked, outbound_nodes=share.linked, counter=share.counter
            )
        for tracker, streams in zip(self._trackers, said, strict=True):
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
                        share.instructed = told
                        self.system.post(share.cell, told)
                    else:
                        self._ensure(instruction.stream_id, instruction.stream_partition or 0, told)
                case StorageNodes() as found:
                    share = self._find(origin, found.stream_id, found.stream_partition)
                    if share is not None:
                        nodes = self._addresses(origin, found.node_addresses)
                        share.storage = StorageFound(nodes)
                        self.system.post(share.cell, share.storage)
                case _:
                    raise CodecError("network.type", "trackers do not send this")
        except CodecError as error:
            self._context.counters[error.code] += 1
            logger.info("bad_message", extra={"code": error.code})

    def _find(self, origin: Origin, stream_id: str, partition: int | None) -> _Share | None:
        """What a tracker speaks of; it is heard from now on."""
        nth = tracker_of(stream_id, partition or 0, len(self._trackers))
        tracker = self._trackers[nth]
        if tracker.origin is not origin:
            self._heard(tracker, origin)
        return self._shares.get((stream_id, partition or 0))

    def _heard(self, tracker: _Tracker, origin: Origin) -> None:
        tracker.origin = origin
        origin.watch(self.address)
        for (stream_id, partition), share in self._shares.items():
            if self._trackers[share.tracker] is tracker:
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
                    if self._trackers[share.tracker] is tracker:
                        self.system.post(share.cell, TrackerHeard(False))
                self._say_soon()

    def _ensure(self, stream_id: str, partition: int, told: Instructed) -> None:
        """A storage node makes the streams that it is to keep; then the instruction counts."""
        settings = self._context.settings
        if not settings.storage or not settings.takes_part(stream_id):
            return
        self._early[stream_id, partition] = told
        self._ensure_stream(stream_id, partition)

    def _ensure_stream(self, stream_id: str, partition: int) -> None:
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
