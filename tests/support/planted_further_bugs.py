"""Mistakes that show to who sends much, asks for odd things, or looks at what is left.

Each is a patch of the right code.
"""

# Mistakes are made inside of classes.
# pyright: reportPrivateUsage=false

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from planted_bugs import Patch, Planted, always
from planted_overlay import PlantedOverlay
from planted_service_bugs import CALLERS, CONSUMERS
from rillnode.actors.core.access import Access
from rillnode.actors.core.delivery import Delivery
from rillnode.actors.core.links import dialling
from rillnode.actors.core.links.dialling import PeerActor
from rillnode.actors.core.streams import (
    reading,
    retention as retention_actor,
    service,
    stream as stream_actor,
)
from rillnode.actors.core.streams.answers import unknown_stream
from rillnode.actors.core.streams.appending import Appends
from rillnode.actors.core.streams.asked import Pushes
from rillnode.actors.core.streams.context import StreamRemoved
from rillnode.actors.core.streams.followers import Followers
from rillnode.actors.core.streams.index import Positions
from rillnode.actors.core.streams.index_service import IndexService
from rillnode.actors.core.streams.pulling import collect
from rillnode.actors.core.streams.retention import RetentionActor
from rillnode.actors.core.streams.stream import StreamActor
from rillnode.actors.core.streams.subscribers import Subscribers
from rillnode.actors.core.streams.subscription import SubscriptionActor
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import Append, LogExtent, StoreHealth, log_id
from rillnode.actors.log.rocks import commit, logs, retention
from rillnode.actors.log.rocks.commit import GroupCommit
from rillnode.actors.log.rocks.readers import ReaderPool
from rillnode.actors.log.rocks.writer import Writer
from rillnode.actors.log.waiting import read
from rillnode.codecs import native
from rillnode.codecs.entries import pack_body, split_items
from rillnode.codecs.errors import RillnodeError, StoreError
from rillnode.node.client.session import Session
from rillnode.node.simulation.scenario import FaultKind
from rillnode.transports.tcp_link import TcpLink

# Links --------------------------------------------------------------------------------------------


def drained_not_told(patch: pytest.MonkeyPatch) -> None:
    """A link does not tell that it takes more again."""
    resumed = TcpLink.resume_writing

    def silent(self: TcpLink) -> None:
        events, self._events = self._events, None
        resumed(self)
        self._events = events

    patch.setattr(TcpLink, "resume_writing", silent)


def drained_not_heard(patch: pytest.MonkeyPatch) -> None:
    """A client that has held something back does not go on when its link takes more."""
    patch.setattr(Session, "link_drained", always(None))


def held_back_for_ever(patch: pytest.MonkeyPatch) -> None:
    """What was held back for a peer that had much to take stays where it is."""
    handle = PeerActor.handle

    def deaf(self: PeerActor, message: Any, sender: Any) -> None:
        if not isinstance(message, dialling._Drained):
            handle(self, message, sender)

    patch.setattr(PeerActor, "handle", deaf)


def held_back_is_overtaken(patch: pytest.MonkeyPatch) -> None:
    """What is new goes on to a peer before what was held back for it."""
    drained: Any = PeerActor.__dict__["_drained"]

    def hasty(self: PeerActor) -> bool:
        waiting, self._waiting = self._waiting, []
        try:
            return bool(drained.fget(self))
        finally:
            self._waiting = waiting

    patch.setattr(PeerActor, "_drained", property(hasty))


def unreachable_not_told(patch: pytest.MonkeyPatch) -> None:
    """What waits for a peer waits on when it could not be reached, and nobody is told."""
    failed = PeerActor._failed

    def patient(self: PeerActor, error: Any) -> None:
        self._take_waiting = list  # type: ignore[method-assign]
        try:
            failed(self, error)
        finally:
            del self._take_waiting

    patch.setattr(PeerActor, "_failed", patient)


def dialled_without_pauses(patch: pytest.MonkeyPatch) -> None:
    """A peer that cannot be reached is dialled again at once."""

    def at_once(self: PeerActor, seconds: float, message: object) -> Any:
        pause = 0.0 if isinstance(message, dialling._PauseOver) else seconds
        return Worker.wake_after(self, pause, message)

    patch.setattr(PeerActor, "wake_after", at_once)


def waiting_reserved_for_ever(patch: pytest.MonkeyPatch) -> None:
    """What has waited for a peer counts for its sender for ever."""
    take = PeerActor._take_waiting

    def counting(self: PeerActor) -> Any:
        for delivery, size in self._waiting:
            delivery.origin.account.reserved_bytes += size
        return take(self)

    patch.setattr(PeerActor, "_take_waiting", counting)


def _idle_limits(patch: pytest.MonkeyPatch, **changed: Any) -> None:
    check = TcpLink._check_idle

    def other(self: TcpLink, now: float, limits: Any) -> None:
        check(self, now, replace(limits, **changed))

    patch.setattr(TcpLink, "_check_idle", other)


def silence_is_borne(patch: pytest.MonkeyPatch) -> None:
    """A link over which nothing comes any more stays."""
    _idle_limits(patch, idle_close_seconds=None)


def nobody_pings(patch: pytest.MonkeyPatch) -> None:
    """Over an idle link no pings are sent, and so both sides take it for dead."""
    _idle_limits(patch, idle_ping_seconds=None)


# What is left on disks ----------------------------------------------------------------------------


def removed_keys_stay(patch: pytest.MonkeyPatch) -> None:
    """The secondary keys of a stream that is removed stay."""
    write = GroupCommit._write_slice

    def keeping(self: GroupCommit) -> None:
        ranges, keys = self._changes.ranges, self._tables.keys
        self._changes.ranges = [one for one in ranges if one[2] is not keys]
        write(self)

    patch.setattr(GroupCommit, "_write_slice", keeping)


def removed_chains_stay(patch: pytest.MonkeyPatch) -> None:
    """What an overlay keeps beside the logs of a stream stays when the stream is removed."""
    patch.setattr(commit, "records_range", always((b"x", b"x")))


def trimmed_blocks_stay(patch: pytest.MonkeyPatch) -> None:
    """A trim moves the beginning of a log, and leaves the blocks before it."""
    cut = GroupCommit._cut

    def lazy(self: GroupCommit, *args: Any) -> None:
        cut(self, *args)
        self._changes.ranges.clear()

    patch.setattr(GroupCommit, "_cut", lazy)


def trimmed_keys_stay(patch: pytest.MonkeyPatch) -> None:
    """A trim leaves the secondary keys of what goes."""
    patch.setattr(GroupCommit, "_cut_keys", always(None))


# Failures -----------------------------------------------------------------------------------------


def unread_positions_are_none(patch: pytest.MonkeyPatch) -> None:
    """A position that could not be read is taken for one that was never saved."""
    look = Positions._look

    async def hopeful(self: Positions, key: Any, line: Any, position: Any) -> None:
        try:
            await look(self, key, line, position)
        except StoreError:
            position.known, position.index = True, None

    patch.setattr(Positions, "_look", hopeful)


def unread_streams_are_unknown(patch: pytest.MonkeyPatch) -> None:
    """Of a stream that could not be looked up it is said that there is none."""
    lose = StreamActor._lose

    def sure(self: StreamActor, message: Any, _: Any) -> None:
        lose(self, message, unknown_stream(self._name))

    patch.setattr(StreamActor, "_lose", sure)


def repairs_read_as_empty(patch: pytest.MonkeyPatch) -> None:
    """What is asked for while the store is repaired is answered as if nothing were there."""
    answer = ReaderPool._answer

    def silent(self: ReaderPool, number: int, operations: Any) -> None:
        answer(self, number, operations)
        for operation in operations:
            if operation.error is not None and operation.error.code == "store.repair":
                operation.error = None
                operation.extent = LogExtent()

    patch.setattr(ReaderPool, "_answer", silent)


def failed_work_unanswered(patch: pytest.MonkeyPatch) -> None:
    """Who asks something of a stream that the store cannot do is not answered."""

    refuse = service._Ask.refuse

    def silent(self: Any, error: RillnodeError) -> None:
        if not isinstance(error, StoreError):
            refuse(self, error)

    patch.setattr(service._Ask, "refuse", silent)


def _ignore(_: StoreHealth) -> None:
    """Tell nobody."""


def repairs_not_told(patch: pytest.MonkeyPatch) -> None:
    """That the store takes writes again is not told."""
    take = Writer._take_writes

    def silent(self: Writer) -> None:
        told, self._on_health = self._on_health, _ignore
        take(self)
        self._on_health = told

    patch.setattr(Writer, "_take_writes", silent)


# Limits, partitions, trims ------------------------------------------------------------------------


def limits_for_one_partition(patch: pytest.MonkeyPatch) -> None:
    """Of a stream's partitions only the first is kept within its limits."""

    def first(stream_id: int, _: int) -> int:
        return log_id(stream_id, 0)

    patch.setattr(retention_actor, "log_id", first)


def limits_of_opened_streams(patch: pytest.MonkeyPatch) -> None:
    """After a restart only streams that somebody opens are kept within their limits."""
    patch.setattr(RetentionActor, "started", always(None))


def removed_limits_kept(patch: pytest.MonkeyPatch) -> None:
    """Streams that were removed are looked after for ever."""
    handle = RetentionActor.handle

    def deaf(self: RetentionActor, message: Any, sender: Any) -> Any:
        return None if isinstance(message, StreamRemoved) else handle(self, message, sender)

    patch.setattr(RetentionActor, "handle", deaf)


def partitions_without_end(patch: pytest.MonkeyPatch) -> None:
    """A stream takes entries for partitions that it does not have."""

    async def generous(store: Any, operation: Any) -> None:
        await read(store, operation)
        if operation.record is not None:
            operation.record = msgspec.structs.replace(operation.record, partitions=100)

    patch.setattr(stream_actor, "read", generous)


def trims_beyond_the_end(patch: pytest.MonkeyPatch) -> None:
    """A trim beyond the end of a log moves its beginning there."""

    def far(trim: Any, state: Any, block_at: Any) -> int:
        return max(int(trim.before), retention.cut_index(trim, state, block_at))

    patch.setattr(commit, "cut_index", far)


def cut_blocks_count_whole(patch: pytest.MonkeyPatch) -> None:
    """Of a block that a trim has cut all bytes count still."""
    position = logs.block_position

    def whole(block: Any, _: int) -> int:
        return position(block, block.first_index)

    patch.setattr(commit, "block_position", whole)


def cut_blocks_brought_whole(patch: pytest.MonkeyPatch) -> None:
    """Of a block that a trim has cut what was trimmed is brought, too."""
    encode = native.encode_blocks

    def whole(number: int, first: int, end: int, blocks: Any) -> bytes:
        return encode(number, blocks[0].first_index if blocks else first, end, blocks)

    patch.setattr(native, "encode_blocks", whole)


def pulls_from_blocks_on(patch: pytest.MonkeyPatch) -> None:
    """An Ockam pull begins with the first entry of the block in which its index is."""

    def early(pull: Any, operation: Any, own_address: bytes) -> Any:
        return collect(msgspec.structs.replace(pull, first_index=0), operation, own_address)

    patch.setattr(reading, "collect", early)


# Clients ------------------------------------------------------------------------------------------


def confirms_of_the_first_block(patch: pytest.MonkeyPatch) -> None:
    """Of pushes that make several blocks the first are confirmed for each of these."""

    def wrong(self: Appends, origin: Any, pushes: Any) -> Iterator[Append | None]:
        for items in split_items([request.data for _, request in pushes]):
            token = Pushes(origin, pushes[: len(items)], self._owner)
            yield self._admitted(len(items), pack_body(items), token, origin.principal)

    patch.setattr(Appends, "pushes", wrong)


def all_positions_listed(patch: pytest.MonkeyPatch) -> None:
    """A list of positions shows those in streams, too, that the asker may not read."""
    listed = IndexService._list

    async def generous(self: IndexService, asked: Any, request: Any) -> None:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(Access, "allows", always(True))
            await listed(self, asked, request)

    patch.setattr(IndexService, "_list", generous)


def anybody_is_the_subscriber(patch: pytest.MonkeyPatch) -> None:
    """Whoever knows the address of a subscription is taken for its subscriber."""
    requests = SubscriptionActor._requests

    def trusting(self: SubscriptionActor, delivery: Delivery) -> None:
        requests(self, Delivery(self._origin, delivery.messages, delivery.tracked))

    patch.setattr(SubscriptionActor, "_requests", trusting)


def askers_remembered(patch: pytest.MonkeyPatch) -> None:
    """A node remembers who has asked for subscriptions that are over."""
    remove = Followers.remove

    def forgetful(self: Followers, log: int, cell: Any, _: object = None) -> None:
        remove(self, log, cell)

    patch.setattr(Followers, "remove", forgetful)


def followers_only_counted_up(patch: pytest.MonkeyPatch) -> None:
    """Who follows a log no more is counted among its followers."""
    add = Subscribers.add

    def upwards(self: Subscribers, log: int, protocol: str, more: int) -> None:
        add(self, log, protocol, max(0, more))

    patch.setattr(Subscribers, "add", upwards)


def _planted(patch: Patch, *rules: str, **more: Any) -> Planted:
    return Planted(patch.__name__.replace("_", "-"), patch, rules, store="rocks", **more)


def _between(patch: Patch, *rules: str, **more: Any) -> Planted:
    return _planted(patch, *rules, clients=CALLERS, nodes=3, faults=("kill",), **more)


POSITIONS: tuple[FaultKind, ...] = ("disk_failing", "bit_flip")

PLANTED_FURTHER = (
    _between(drained_not_told, "no-progress"),
    _between(drained_not_heard, "no-progress"),
    _between(held_back_for_ever, "no-progress"),
    _between(held_back_is_overtaken, "route-order"),
    _between(unreachable_not_told, "route-answer"),
    _between(dialled_without_pauses, "dialled-often"),
    _between(waiting_reserved_for_ever, "left-over"),
    _planted(silence_is_borne, "left-over"),
    _planted(nobody_pings, "link-lost"),
    PlantedOverlay(removed_keys_stay, ("left-over",)),
    PlantedOverlay(removed_chains_stay, ("left-over",)),
    _planted(trimmed_blocks_stay, "left-over"),
    PlantedOverlay(trimmed_keys_stay, ("left-over",)),
    _planted(unread_positions_are_none, "saved-index-lost", faults=POSITIONS, clients=CONSUMERS),
    _planted(unread_streams_are_unknown, "stream-changed", faults=POSITIONS),
    _planted(repairs_read_as_empty, "pull-short", "pull-gap", faults=("disk_failing",)),
    _planted(failed_work_unanswered, "no-progress", faults=("disk_failing",)),
    _planted(repairs_not_told, "no-progress", faults=("disk_failing",)),
    _planted(limits_for_one_partition, "retained"),
    _planted(limits_of_opened_streams, "retained"),
    _planted(removed_limits_kept, "left-over"),
    _planted(partitions_without_end, "stream-changed"),
    _planted(trims_beyond_the_end, "trimmed"),
    _planted(cut_blocks_count_whole, "stream-changed"),
    _planted(cut_blocks_brought_whole, "trimmed"),
    _planted(pulls_from_blocks_on, "pull-gap"),
    _planted(confirms_of_the_first_block, "index-reassigned", "confirm-lost"),
    _planted(all_positions_listed, "grant-ignored"),
    _planted(anybody_is_the_subscriber, "impostor"),
    _planted(askers_remembered, "left-over"),
    _planted(followers_only_counted_up, "left-over"),
)
