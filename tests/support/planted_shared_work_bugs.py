"""Mistakes that show where several share the entries of a stream: workers of queues, members.

Each is a patch of the right code.
"""

# Mistakes are made inside of classes.
# pyright: reportPrivateUsage=false

from typing import Any
from weakref import WeakKeyDictionary

import pytest

from planted_bugs import Patch, Planted, always
from rillnode.actors.core.groups import group
from rillnode.actors.core.groups.group import GroupActor
from rillnode.actors.core.queues import letters, partitions
from rillnode.actors.core.queues.state import Open, QueueState
from rillnode.actors.core.streams.index_service import ADDRESSES, AskPosition
from rillnode.actors.log import SavedIndexKey
from rillnode.codecs import native
from rillnode.node.client.group import Sharing
from rillnode.node.simulation.scenario import ClientsTable


def done_is_not_written(patch: pytest.MonkeyPatch) -> None:
    """A queue confirms what its workers have said, and writes down what was so before that."""
    encode, last = QueueState.encode, WeakKeyDictionary[QueueState, bytes]()

    def late(self: QueueState, stamp: int) -> bytes:
        value = encode(self, stamp)
        before = last.get(self, value)
        last[self] = value
        return before

    patch.setattr(QueueState, "encode", late)


def queue_looks_past_entries(patch: pytest.MonkeyPatch) -> None:
    """A queue takes some entries for settled when it looks at them."""
    look_at = QueueState.look_at

    def hasty(self: QueueState, partition: int, index: int, key: int) -> None:
        look_at(self, partition, index, key)
        if index % 10 == 7:
            self._close((partition, index))

    patch.setattr(QueueState, "look_at", hasty)


def keys_in_any_order(patch: pytest.MonkeyPatch) -> None:
    """A queue that is to keep the order of keys sees none."""
    patch.setattr(partitions, "key_number", always(0))
    patch.setattr(letters, "key_number", always(0))


def rejected_without_a_letter(patch: pytest.MonkeyPatch) -> None:
    """What a queue gives up is gone, and is no dead letter."""

    def careless(self: QueueState, place: tuple[int, int], entry: Open, _: str) -> None:
        self._close(place)
        self.dead += 1

    patch.setattr(QueueState, "_doom", careless)


def partition_begins_early(patch: pytest.MonkeyPatch) -> None:
    """A member begins before the group's position."""
    _patch_position(patch, -1)


def partition_begins_late(patch: pytest.MonkeyPatch) -> None:
    """A member begins behind the group's position."""
    _patch_position(patch, 1)


def _patch_position(patch: pytest.MonkeyPatch, more: int) -> None:
    load = Sharing._load_position

    async def wrong(self: Sharing, partition: int) -> int | None:
        found = await load(self, partition)
        return max(0, found + more) if found else found

    patch.setattr(Sharing, "_load_position", wrong)


def late_saves_taken(patch: pytest.MonkeyPatch) -> None:
    """A group gives up who is well, tells nobody, and takes a position from anybody."""

    async def careless(self: GroupActor, ask: Any, request: native.SaveGroupRequest) -> None:
        key = SavedIndexKey(self._stream, request.partition, self._name)
        indexes = self._context.router.table[ADDRESSES[0]]
        saved = await self.ask(indexes, AskPosition(key, request.index, ()))
        ask.reply(native.encode(native.SavedIndexResponse(request.request_id, saved.index)))

    patch.setattr(group, "SILENCE_SECONDS", 0.4)  # members tell less often
    patch.setattr(GroupActor, "_refuse", always(None))
    patch.setattr(GroupActor, "_save", careless)


def _planted(patch: Patch, rule: str, **more: Any) -> Planted:
    return Planted(patch.__name__.replace("_", "-"), patch, (rule,), **more)


WORKERS = ClientsTable(producers=2, followers=0, consumers=0, readers=0, workers=3)
MEMBERS = ClientsTable(producers=2, followers=0, consumers=0, readers=0, members=3)
"""Many of a kind, and nobody else."""

PLANTED_SHARED_WORK = (
    _planted(done_is_not_written, "job-again", clients=WORKERS),
    _planted(queue_looks_past_entries, "job-lost", clients=WORKERS),
    _planted(keys_in_any_order, "key-order", clients=WORKERS),
    _planted(rejected_without_a_letter, "dead-letter", clients=WORKERS),
    _planted(partition_begins_early, "member-again", clients=MEMBERS, partitions=2),
    _planted(partition_begins_late, "member-skipped", clients=MEMBERS, partitions=2),
    _planted(late_saves_taken, "late-save", clients=MEMBERS, partitions=2),
)
