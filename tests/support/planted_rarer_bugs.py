"""Mistakes that show to who asks for what is not there, looks at what is told, or rests.

Each is a patch of the right code.
"""

# Mistakes are made inside of classes.
# pyright: reportPrivateUsage=false

from itertools import repeat
from typing import Any

import msgspec
import pytest

from planted_bugs import Patch, Planted, always
from planted_service_bugs import CALLERS
from rillnode.actors.core.access import Access
from rillnode.actors.core.delivery import Delivery
from rillnode.actors.core.streams import appending, asked, index_service, stream
from rillnode.actors.core.streams.records import Named, Records
from rillnode.actors.core.streams.retention import RetentionActor
from rillnode.actors.core.streams.service import StreamService
from rillnode.actors.core.streams.stream import StreamActor
from rillnode.actors.core.streams.subscription import SubscriptionActor
from rillnode.actors.log import RemoveStream, SavedIndexKey
from rillnode.actors.log.rocks import commit, retention
from rillnode.actors.ockam import static_forwarding
from rillnode.actors.ockam.pub_sub import PubSubService
from rillnode.codecs import native
from rillnode.codecs.errors import CodecError
from rillnode.codecs.requests import decode_request
from rillnode.node.client.subscription import _Partition


def lengths_counted(patch: pytest.MonkeyPatch) -> None:
    """What stands before entries to tell how long they are counts among their bytes."""

    def whole(_: int, body: Any, flags: int) -> int:
        return len(body) + flags

    patch.setattr(commit, "data_bytes", whole)


def owners_forgotten(patch: pytest.MonkeyPatch) -> None:
    """It is not written down who has made a stream."""
    fresh = StreamService._fresh

    def nobodys(self: StreamService, name: str, _: str) -> Any:
        return fresh(self, name, "")

    patch.setattr(StreamService, "_fresh", nobodys)


def positions_of_one_partition(patch: pytest.MonkeyPatch) -> None:
    """A consumer has one saved position in all partitions of a stream."""

    def first(name: str, _: int, client_id: str) -> SavedIndexKey:
        return SavedIndexKey(name, 0, client_id)

    patch.setattr(index_service, "SavedIndexKey", first)


def positions_for_all(patch: pytest.MonkeyPatch) -> None:
    """Who may not read a stream may ask for positions in it."""
    allows = Access.allows

    def generous(self: Access, principal: str, verb: Any, name: str) -> bool:
        return verb == "pull" or allows(self, principal, verb, name)

    patch.setattr(Access, "allows", generous)


def first_partition_trimmed(patch: pytest.MonkeyPatch) -> None:
    """Whichever partition is to be trimmed, the first is."""
    trim = Named.trim

    async def first(self: Named, record: Any, _: int, before: int) -> int:
        return await trim(self, record, 0, before)

    patch.setattr(Named, "trim", first)


def first_partition_told(patch: pytest.MonkeyPatch) -> None:
    """Of a stream's removal only those hear who follow its first partition."""
    written = Records.written

    def short(self: Records, operation: Any) -> None:
        if isinstance(operation, RemoveStream) and operation.record is not None:
            operation.record = msgspec.structs.replace(operation.record, partitions=1)
        written(self, operation)

    patch.setattr(Records, "written", short)


def nonsense_not_expected(patch: pytest.MonkeyPatch) -> None:
    """A request that cannot be decoded is a failure of the stream's actor."""

    def strict(*args: Any, **options: Any) -> Any:
        try:
            return decode_request(*args, **options)
        except CodecError as error:
            raise ValueError(str(error)) from None

    patch.setattr(stream, "decode_request", strict)


def bodies_not_checked(patch: pytest.MonkeyPatch) -> None:
    """What a client says that a block holds is believed."""
    patch.setattr(appending, "check_body", always(None))


def one_index_for_all(patch: pytest.MonkeyPatch) -> None:
    """Pushes that came together are confirmed at the index of the first."""
    patch.setattr(asked, "count", repeat)


def first_subscriber_served(patch: pytest.MonkeyPatch) -> None:
    """What is sent to a topic goes to its first subscriber only."""
    publish = PubSubService._publish

    def short(self: PubSubService, delivery: Delivery, topic: Any) -> None:
        publish(self, delivery, dict(list(topic.items())[:1]))

    patch.setattr(PubSubService, "_publish", short)


def aliases_taken_over(patch: pytest.MonkeyPatch) -> None:
    """An alias in use goes to whoever asks for it."""
    patch.setattr(static_forwarding.StaticForwardingService, "_may_replace", always(True))


def ends_ignored(patch: pytest.MonkeyPatch) -> None:
    """A subscription goes on though its subscriber has ended it."""
    requests = SubscriptionActor._requests

    def deaf(self: SubscriptionActor, delivery: Delivery) -> None:
        left = [
            wire
            for wire in delivery.messages
            if not isinstance(
                decode_request(wire.payload, speaks_native=True), native.UnsubscribeRequest
            )
        ]
        requests(self, Delivery(delivery.origin, left, delivery.tracked))

    patch.setattr(SubscriptionActor, "_requests", deaf)


def early_ends_not_told(patch: pytest.MonkeyPatch) -> None:
    """A client that ends a subscription before anything has come does not say so."""
    close = _Partition.close

    def silent(self: Any) -> None:
        if self._route is None:
            self._session._subscribers.pop(self._id, None)
        close(self)

    patch.setattr(_Partition, "close", silent)


def followed_streams_sleep(patch: pytest.MonkeyPatch) -> None:
    """When a stream goes to sleep it is forgotten who follows it."""
    may_passivate = StreamActor.may_passivate

    def careless(self: StreamActor) -> bool:
        goes = may_passivate(self)
        if goes:
            self._context.followers._of.pop(self._log, None)
        return goes

    patch.setattr(StreamActor, "may_passivate", careless)


def limits_take_one_more(patch: pytest.MonkeyPatch) -> None:
    """What is over a stream's limits goes, and the next entry with it."""

    def greedy(trim: Any, state: Any, block_at: Any) -> int:
        cut = retention.cut_index(trim, state, block_at)
        if not trim.before and cut > state.first_index:
            cut = min(cut + 1, state.next_index)
        return cut

    patch.setattr(commit, "cut_index", greedy)


def limits_kept_once(patch: pytest.MonkeyPatch) -> None:
    """After the first sweep nothing is over any limit."""
    sweep = RetentionActor._sweep

    async def once(self: RetentionActor) -> None:
        await sweep(self)
        patch.setattr(RetentionActor, "_looks", always(iter(())))

    patch.setattr(RetentionActor, "_sweep", once)


def _planted(patch: Patch, *rules: str, **more: Any) -> Planted:
    return Planted(patch.__name__.replace("_", "-"), patch, rules, store="rocks", **more)


PLANTED_RARER = (
    _planted(lengths_counted, "stream-changed"),
    _planted(owners_forgotten, "stream-changed"),
    _planted(positions_of_one_partition, "saved-index-lost"),
    _planted(positions_for_all, "grant-ignored"),
    _planted(first_partition_trimmed, "trimmed", "confirm-lost"),
    _planted(first_partition_told, "removed-served"),
    _planted(nonsense_not_expected, "unhandled-error"),
    _planted(bodies_not_checked, "unknown-entry"),
    _planted(one_index_for_all, "copies-merged", "index-reassigned"),
    _planted(first_subscriber_served, "no-progress", clients=CALLERS, nodes=3),
    _planted(aliases_taken_over, "impostor"),
    _planted(ends_ignored, "left-over"),
    _planted(early_ends_not_told, "left-over"),
    _planted(followed_streams_sleep, "no-progress"),
    _planted(limits_take_one_more, "retained"),
    _planted(limits_kept_once, "retained"),
)
