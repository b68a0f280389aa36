"""More mistakes that somebody could make in a node, each as a patch of the right code.

Those of `planted_bugs.py` are about the log and its readers; these are about what stands around it.
"""

# Mistakes are made inside of classes.
# pyright: reportPrivateUsage=false

from typing import Any

import pytest
from msgspec import structs

from planted_bugs import Patch, Planted, always, misread_pulls
from rillnode.actors.core.access import VERBS, Access
from rillnode.actors.core.links import dialling
from rillnode.actors.core.streams import index_service, stream
from rillnode.actors.core.streams.appending import Appends
from rillnode.actors.core.streams.index import Positions
from rillnode.actors.core.streams.reading import Reads
from rillnode.actors.core.streams.stream import StreamActor
from rillnode.actors.core.streams.subscription import SubscriptionActor
from rillnode.actors.log import Append, Read, RemoveStream, SavedIndexKey, Trim, log_id
from rillnode.actors.log.memory import MemoryLogStore
from rillnode.actors.log.memory_tables import MemoryTables
from rillnode.codecs.noise import link as noise, xx as noise_xx
from rillnode.codecs.routing.routes import WireMessage
from rillnode.node.simulation.scenario import ClientsTable
from rillnode.transports.groups import LinkGroup

CALLERS = ClientsTable(producers=3, followers=0, consumers=0, readers=0, callers=3, examiners=0)
CONSUMERS = ClientsTable(consumers=4)
LARGE = ClientsTable(producers=1, followers=1, consumers=0, readers=0, payload_bytes=200_000)


def partition_ignored(patch: pytest.MonkeyPatch) -> None:
    """What is pushed to any partition goes to the first."""

    def first(stream_id: int, _: int) -> int:
        return log_id(stream_id, 0)

    patch.setattr(stream, "log_id", first)


def grants_ignored(patch: pytest.MonkeyPatch) -> None:
    """Whoever may connect may do all."""
    patch.setattr(Access, "verbs", always(frozenset(VERBS)))


def grants_for_reading_only_asked(patch: pytest.MonkeyPatch) -> None:
    """Who may read a stream may push to it."""
    verbs = Access.verbs

    def generous(self: Access, principal: str, name: str) -> Any:
        found = verbs(self, principal, name)
        return found | {"push"} if "pull" in found else found

    patch.setattr(Access, "verbs", generous)


def trims_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What was trimmed is there again after a restart."""
    opened, apply = MemoryLogStore.open, MemoryTables.apply
    trimmed: dict[tuple[int, int], list[Any]] = {}

    def noted(self: MemoryTables, operation: Any) -> None:
        log = self._logs.get(operation.log) if isinstance(operation, Trim) else None
        before = None if log is None else (list(log.blocks), log.state.first_index)
        apply(self, operation)
        if log is not None and before is not None and operation.trimmed:
            trimmed.setdefault((id(self), operation.log), [log, *before])

    def open_again(self: MemoryLogStore) -> None:
        opened(self)
        for (tables, number), (log, blocks, first) in tuple(trimmed.items()):
            there = self._durable._logs.get(number)
            if (tables, id(there)) == (id(self._durable), id(log)):
                known = {block.first_index for block in log.blocks}
                log.blocks[:0] = [one for one in blocks if one.first_index not in known]
                log.state.first_index = first

    patch.setattr(MemoryTables, "apply", noted)
    patch.setattr(MemoryLogStore, "open", open_again)


def trims_nothing(patch: pytest.MonkeyPatch) -> None:
    """A trim is answered as asked for, and leaves the entries where they are."""
    apply = MemoryTables.apply

    def idle(self: MemoryTables, operation: Any) -> None:
        if isinstance(operation, Trim):
            log = self._logs.get(operation.log)
            apply(self, structs.replace(operation, before=0))
            if log is not None:
                operation.extent = structs.replace(log.state.extent(), first_index=operation.before)
            return
        apply(self, operation)

    patch.setattr(MemoryTables, "apply", idle)


def trims_one_more(patch: pytest.MonkeyPatch) -> None:
    """A trim takes the first entry that was to be kept, too."""
    apply = MemoryTables.apply

    def greedy(self: MemoryTables, operation: Any) -> None:
        if isinstance(operation, Trim):
            operation.before += 1
        apply(self, operation)

    patch.setattr(MemoryTables, "apply", greedy)


def removed_entries_stay(patch: pytest.MonkeyPatch) -> None:
    """A stream that is made again under its name has what was in the old one."""
    remove, put = MemoryTables._remove_stream, MemoryTables._put_stream
    graves: dict[tuple[int, str], list[Any]] = {}

    def bury(self: MemoryTables, operation: RemoveStream) -> None:
        logs = dict(self._logs)
        remove(self, operation)
        gone = [log for number, log in logs.items() if number not in self._logs]
        graves[id(self), operation.name] = gone

    def raise_again(self: MemoryTables, operation: Any) -> None:
        known = operation.record.name in self._streams
        put(self, operation)
        if not known:
            for log in graves.pop((id(self), operation.record.name), ()):
                self._logs[log_id(operation.record.id, 0)] = log

    patch.setattr(MemoryTables, "_remove_stream", bury)
    patch.setattr(MemoryTables, "_put_stream", raise_again)


def positions_shared(patch: pytest.MonkeyPatch) -> None:
    """All consumers of a stream have one saved position."""

    def one_for_all(stream: str, partition: int, _: str) -> SavedIndexKey:
        return SavedIndexKey(stream, partition, "everybody")

    patch.setattr(index_service, "SavedIndexKey", one_for_all)


def positions_go_back(patch: pytest.MonkeyPatch) -> None:
    """A lesser position is saved as it is asked for."""
    settle = Positions._settle

    async def obedient(
        self: Positions, key: Any, line: Any, index: Any, number: int, save: Any, *, anew: bool
    ) -> int | None:
        if index is not None:
            position = self._known.of(key)
            position.known, position.index = True, None
        return await settle(self, key, line, index, number, save, anew=anew)

    patch.setattr(Positions, "_settle", obedient)


def credit_lost(patch: pytest.MonkeyPatch) -> None:
    """Of the credit that a subscriber gives back only half is counted."""
    requests = SubscriptionActor._requests

    def mean(self: SubscriptionActor, delivery: Any) -> None:
        before = self._credit
        advance, self._advance = self._advance, lambda: None  # type: ignore[method-assign]
        requests(self, delivery)
        self._advance = advance  # type: ignore[method-assign]
        self._credit = before + (self._credit - before) // 2
        advance()

    patch.setattr(SubscriptionActor, "_requests", mean)


def subscription_behind_the_end(patch: pytest.MonkeyPatch) -> None:
    """A subscription sends a chunk without its first block when it has fallen behind."""
    send = SubscriptionActor._send

    def hasty(self: SubscriptionActor, operation: Any) -> None:
        if operation.error is None and len(operation.blocks) > 3:
            operation.blocks = operation.blocks[1:]
        send(self, operation)

    patch.setattr(SubscriptionActor, "_send", hasty)


def confirms_twice(patch: pytest.MonkeyPatch) -> None:
    """A push is confirmed when it is durable, and once more."""
    answer = Appends._answer

    def eager(*args: Any) -> None:
        answer(*args)
        answer(*args)

    patch.setattr(Appends, "_answer", eager)


def refusals_unanswered(patch: pytest.MonkeyPatch) -> None:
    """An append that the store refuses is not answered."""
    answer = Appends._answer

    def silent(*args: Any) -> None:
        if args[-1] is None:
            answer(*args)

    patch.setattr(Appends, "_answer", silent)


def pulls_over_the_limit(patch: pytest.MonkeyPatch) -> None:
    """An Ockam pull brings one entry more than it was asked for."""
    misread_pulls(patch, limit=1)


def reads_end_early(patch: pytest.MonkeyPatch) -> None:
    """A read leaves out the last block that it has found."""
    read = MemoryTables._read

    def short(self: MemoryTables, operation: Read) -> None:
        read(self, operation)
        if len(operation.blocks) > 1:
            operation.blocks = operation.blocks[:-1]
            operation.extent = structs.replace(
                operation.extent, next_index=operation.blocks[-1].next_index
            )

    patch.setattr(MemoryTables, "_read", short)


def arrival_in_seconds(patch: pytest.MonkeyPatch) -> None:
    """The time of arrival is cut to seconds."""
    apply = MemoryTables.apply

    def coarse(self: MemoryTables, operation: Any) -> None:
        if isinstance(operation, Append):
            operation.received_at -= operation.received_at % 1_000
        apply(self, operation)

    patch.setattr(MemoryTables, "apply", coarse)


def idle_streams_end(patch: pytest.MonkeyPatch) -> None:
    """A stream that comes back after it was idle does not look where its log is."""
    look = StreamActor._look
    lives: dict[Any, int] = {}

    async def lazy(self: StreamActor) -> Any:
        lives[self.address] = lives.get(self.address, 0) + 1
        if lives[self.address] > 1:
            await self.sleep(1e9)
        return await look(self)

    patch.setattr(StreamActor, "_look", lazy)


def peers_left_out(patch: pytest.MonkeyPatch) -> None:
    """What is for a peer is handled by the node itself."""

    def short_cut(self: Any, delivery: Any) -> None:
        onward = [
            WireMessage(wire.onward_route[1:], wire.return_route, wire.payload)
            for wire in delivery.messages
        ]
        self._context.router.route(delivery.origin, onward)

    patch.setattr(dialling.PeerActor, "_take", short_cut)


def peers_not_redialled(patch: pytest.MonkeyPatch) -> None:
    """A peer whose link was lost is not dialled again."""
    patch.setattr(dialling.PeerActor, "wake_after", always(None))


def wrong_node_accepted(patch: pytest.MonkeyPatch) -> None:
    """A client takes any node for the one that it expects."""
    initiate = noise_xx.initiate

    def trusting(local: Any, _: Any, suite: Any) -> Any:
        return initiate(local, None, suite)

    patch.setattr(noise, "initiate", trusting)


def proofs_not_verified(patch: pytest.MonkeyPatch) -> None:
    """Who names an identity is taken for its holder."""

    def trusting(handshake: Any, said_hash: bytes, proof: bytes) -> bytes:
        return proof[:32]

    patch.setattr(noise_xx, "_proved", trusting)


def failures_read_as_empty(patch: pytest.MonkeyPatch) -> None:
    """A pull that could not be read is answered as if nothing were there."""
    done = Reads.done

    def silent(self: Reads, operation: Read) -> Read | None:
        operation.error = None
        return done(self, operation)

    patch.setattr(Reads, "done", silent)


def links_end_the_taking(patch: pytest.MonkeyPatch) -> None:
    """A node of which a link has gone takes no new one."""
    release = LinkGroup.release

    def last(self: LinkGroup, link: Any) -> None:
        release(self, link)
        self._open = False

    patch.setattr(LinkGroup, "release", last)


def _planted(patch: Patch, *rules: str, **more: Any) -> Planted:
    return Planted(patch.__name__.replace("_", "-"), patch, rules, **more)


PLANTED_SERVICES = (
    _planted(partition_ignored, "wrong-log", "no-progress", partitions=2),
    _planted(grants_ignored, "grant-ignored"),
    _planted(grants_for_reading_only_asked, "grant-ignored"),
    _planted(wrong_node_accepted, "impostor"),
    _planted(proofs_not_verified, "impostor"),
    _planted(trims_nothing, "trimmed"),
    _planted(trims_one_more, "trimmed", "confirm-lost"),
    _planted(trims_forgotten, "trimmed"),
    _planted(removed_entries_stay, "removed-served"),
    _planted(positions_shared, "saved-index-ahead", "saved-index-lost", clients=CONSUMERS),
    _planted(positions_go_back, "saved-index-lost"),
    _planted(credit_lost, "no-progress", clients=LARGE),
    _planted(subscription_behind_the_end, "subscription-gap"),
    _planted(confirms_twice, "answered-twice"),
    _planted(refusals_unanswered, "no-progress", faults=("disk_failing",)),
    _planted(failures_read_as_empty, "pull-short", faults=("bit_flip",)),
    _planted(pulls_over_the_limit, "pull-gap"),
    _planted(reads_end_early, "pull-short"),
    _planted(arrival_in_seconds, "received-at"),
    _planted(idle_streams_end, "no-progress"),
    _planted(peers_left_out, "pull-short", "wrong-log", clients=CALLERS, nodes=3),
    _planted(peers_not_redialled, "no-progress", clients=CALLERS, nodes=3),
    _planted(links_end_the_taking, "no-progress"),
)
