"""Mistakes in what a node keeps for others, and for how long, each as a patch of the right code."""

# Mistakes are made inside of classes.
# pyright: reportPrivateUsage=false

from typing import Any

import msgspec
import pytest

from planted_bugs import Patch, Planted, always
from planted_service_bugs import CALLERS
from rillnode.actors.core.delivery import Delivery, Origin
from rillnode.actors.core.router import Router
from rillnode.actors.core.streams.followers import Followers
from rillnode.actors.core.streams.service import StreamService
from rillnode.actors.core.streams.stream import StreamActor
from rillnode.actors.core.streams.subscription import SubscriptionActor
from rillnode.actors.log import Read
from rillnode.actors.log.rocks import commit
from rillnode.actors.ockam.forwarder import Forwarder


def ended_subscriptions_kept(patch: pytest.MonkeyPatch) -> None:
    """A node remembers subscriptions that have ended."""
    patch.setattr(Followers, "remove", always(None))


def reads_never_done(patch: pytest.MonkeyPatch) -> None:
    """A stream counts reads that were answered among those under way."""
    read = StreamActor._read

    def counting(self: StreamActor, operation: Read) -> None:
        self.operations_due += 1
        read(self, operation)

    patch.setattr(StreamActor, "_read", counting)


def addresses_kept(patch: pytest.MonkeyPatch) -> None:
    """The addresses of actors that have ended stay."""
    patch.setattr(Router, "unregister", always(None))


def subscriptions_outlive_links(patch: pytest.MonkeyPatch) -> None:
    """What is there for a connection does not end with it."""
    patch.setattr(Origin, "end", always(None))


def removal_not_told(patch: pytest.MonkeyPatch) -> None:
    """Who follows a stream is not told that it was removed."""
    patch.setattr(Followers, "removed", always(None))


def failed_reads_are_the_end(patch: pytest.MonkeyPatch) -> None:
    """A subscription that could not read does not try again."""
    patch.setattr(SubscriptionActor, "wake_after", always(None))


def fewer_partitions(patch: pytest.MonkeyPatch) -> None:
    """A stream has as many partitions as who opened it last knew of."""
    wanted = StreamService._with_partitions

    def shrinking(self: StreamService, who: str, name: str, partitions: int, record: Any) -> Any:
        found = wanted(self, who, name, partitions, record)
        return msgspec.structs.replace(found, partitions=partitions)

    patch.setattr(StreamService, "_with_partitions", shrinking)


def positions_outlive_streams(patch: pytest.MonkeyPatch) -> None:
    """The saved positions of a stream that is removed stay."""
    patch.setattr(commit, "saved_index_range", always((b"x", b"x")))


def forwarded_twice(patch: pytest.MonkeyPatch) -> None:
    """What is sent to an alias is sent on twice."""
    handle = Forwarder.handle

    def eager(self: Forwarder, message: Delivery, sender: Any) -> None:
        handle(self, message, sender)
        handle(self, message, sender)

    patch.setattr(Forwarder, "handle", eager)


def _planted(patch: Patch, *rules: str, **more: Any) -> Planted:
    name = patch.__name__.replace("_", "-")
    return Planted(name, patch, rules, store="rocks", **more)


PLANTED_LASTING = (
    _planted(ended_subscriptions_kept, "left-over"),
    _planted(reads_never_done, "left-over"),
    _planted(addresses_kept, "left-over"),
    _planted(subscriptions_outlive_links, "left-over"),
    _planted(removal_not_told, "removed-served"),
    _planted(failed_reads_are_the_end, "no-progress", faults=("bit_flip",)),
    _planted(fewer_partitions, "stream-changed"),
    _planted(positions_outlive_streams, "removed-served"),
    _planted(forwarded_twice, "answered-twice", clients=CALLERS, nodes=3),
)
