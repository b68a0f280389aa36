"""Mistakes that somebody could make in a node or a client, each as a patch of the right code.

A simulation that is worth anything finds each of them.
"""

# Mistakes are made inside of classes.
# pyright: reportPrivateUsage=false

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from msgspec import structs

from rillnode.actors.core.delivery import Delivery
from rillnode.actors.core.streams import asked, stream
from rillnode.actors.core.streams.stream import StreamActor
from rillnode.actors.core.streams.subscription import SubscriptionActor
from rillnode.actors.log import Append, SaveIndex, Trim
from rillnode.actors.log.memory import MemoryLogStore
from rillnode.actors.log.memory_tables import MemoryTables
from rillnode.codecs.errors import CodecError
from rillnode.codecs.noise import link as noise, xx as noise_xx
from rillnode.codecs.noise.cipher import CipherState
from rillnode.codecs.requests import decode_request
from rillnode.codecs.routing.stream import PullRequest
from rillnode.node.client import subscription as client_subscription
from rillnode.node.client.consumer import Saving
from rillnode.node.client.session import Session
from rillnode.node.ockam.simulation.table import OckamClients
from rillnode.node.simulated.tables import SimulatedTable
from rillnode.node.simulation.disk import SimulatedStore
from rillnode.node.simulation.scenario import (
    ClientsTable,
    DiskTable,
    FaultKind,
    LatencyTable,
    RandomFaults,
    Scenario,
)

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True)
class Planted:
    """A mistake, the rules of which it must break one, and where it shows.

    Attributes:
        name: of the mistake.
        patch: plants it.
        rules: one of them must be found broken.
        faults: kinds of faults that the scenario draws.
        clients: who is there; None: the usual ones, and one that speaks Ockam's protocols.
        tables: of plug-ins, with their clients.
        messages: how many are pushed.
        nodes: how many.
        partitions: of their streams.
        store: of the nodes.
    """

    name: str
    patch: Patch
    rules: tuple[str, ...]
    faults: tuple[FaultKind, ...] = ("kill", "power_cut")
    clients: ClientsTable | None = None
    tables: tuple[SimulatedTable, ...] = ()
    messages: int = 60
    nodes: int = 1
    partitions: int = 1
    store: Literal["memory", "rocks"] = "memory"

    @property
    def scenario(self) -> Scenario:
        """A small scenario in which the mistake can show."""
        return Scenario(
            name=self.name,
            nodes=self.nodes,
            partitions=self.partitions,
            messages=self.messages,
            seconds=8.0,
            heal_seconds=90.0,
            latency=LatencyTable(model="constant", mean_ms=5.0),
            disk=DiskTable(store=self.store),
            clients=self.clients or ClientsTable(),
            random_faults=RandomFaults(count=4, kinds=self.faults),
            tables=self.tables if self.clients else (OckamClients(),),
        )


def always(value: object) -> Callable[..., object]:
    """A method that does nothing but to return this."""

    def method(*_: object) -> object:
        return value

    return method


def confirm_before_sync(patch: pytest.MonkeyPatch) -> None:
    """An append is answered when it is queued."""
    submit = SimulatedStore.submit

    def hasty(self: SimulatedStore, operation: Any) -> None:
        if not isinstance(operation, Append) or self._refusal is not None:
            submit(self, operation)
            return
        log = self._durable._logs.get(operation.log)
        early = copy(operation)
        waiting = [*self._group, *self._writes]
        early.first_index = (log.state.next_index if log else 0) + sum(
            one.count for one in waiting if isinstance(one, Append) and one.log == operation.log
        )
        operation.reply_to = None
        submit(self, operation)
        self._complete((early,))

    complete = MemoryLogStore._finish_group

    def finish(self: MemoryLogStore) -> None:
        told, self._complete = self._complete, _without_nobody(self._complete)
        try:
            complete(self)
        finally:
            self._complete = told

    patch.setattr(SimulatedStore, "submit", hasty)
    patch.setattr(MemoryLogStore, "_finish_group", finish)


def _without_nobody(complete: Any) -> Any:
    def some(operations: Any) -> None:
        complete([one for one in operations if one.reply_to is not None])

    return some


def index_reused_after_crash(patch: pytest.MonkeyPatch) -> None:
    """After a restart the last block's index is given again."""
    opened = MemoryLogStore.open

    def open_again(self: MemoryLogStore) -> None:
        opened(self)
        for log in self._durable._logs.values():
            if log.blocks:
                log.state.next_index = log.blocks.pop().first_index

    patch.setattr(MemoryLogStore, "open", open_again)


def seam_off_by_one(patch: pytest.MonkeyPatch) -> None:
    """A subscription that has caught up goes on one entry behind the end."""
    send = SubscriptionActor._send

    def skipping(self: SubscriptionActor, operation: Any) -> None:
        behind = operation.extent.next_index - self._next
        send(self, operation)
        if operation.error is None and operation.blocks and behind > 4:
            self._next += 1

    patch.setattr(SubscriptionActor, "_send", skipping)


def seam_twice(patch: pytest.MonkeyPatch) -> None:
    """A client that subscribes again asks from the last entry that it has."""
    resume = client_subscription._Partition.resume

    def behind(self: Any) -> Any:
        self._next = max(0, self._next - 1)
        return resume(self)

    patch.setattr(client_subscription._Partition, "resume", behind)


def resume_skips(patch: pytest.MonkeyPatch) -> None:
    """A client that subscribes again asks from behind the next entry."""
    resume = client_subscription._Partition.resume

    def ahead(self: Any) -> Any:
        self._next += self._next > 0
        return resume(self)

    patch.setattr(client_subscription._Partition, "resume", ahead)


def errors_confirmed(patch: pytest.MonkeyPatch) -> None:
    """What a failed sync has lost is answered as if it had worked."""
    fence = MemoryLogStore._fence

    def optimistic(self: MemoryLogStore, group: Any, failure: Any) -> None:
        told, self._complete = self._complete, _without_errors(self._complete)
        fence(self, group, failure)
        self._complete = told

    patch.setattr(MemoryLogStore, "_fence", optimistic)


def _without_errors(complete: Any) -> Any:
    def hopeful(operations: Any) -> None:
        for operation in operations:
            operation.error = None
            if isinstance(operation, Append):
                operation.first_index = max(0, operation.first_index)
        complete(operations)

    return hopeful


def saved_index_goes_back(patch: pytest.MonkeyPatch) -> None:
    """Saved positions are confirmed and not written."""
    apply = MemoryTables.apply

    def forgetful(self: MemoryTables, operation: Any) -> None:
        if not isinstance(operation, SaveIndex):
            apply(self, operation)

    patch.setattr(MemoryTables, "apply", forgetful)


def saves_what_was_delivered(patch: pytest.MonkeyPatch) -> None:
    """A consumer's position counts the entry that it is given as processed, and one more."""
    save = Saving.save

    async def ahead(self: Any) -> None:
        honest = self._positions
        self._positions = {p: index + 2 for p, index in honest.items()}
        try:
            await save(self)
        finally:
            self._positions = honest

    patch.setattr(Saving, "save", ahead)


def requests_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A client does not ask again after its link was lost."""
    opened = Session.link_opened

    def forgetful(self: Session, link: Any) -> None:
        pending, self._pending = self._pending, {}
        opened(self, link)
        self._pending = pending

    patch.setattr(Session, "link_opened", forgetful)


def plain_records(patch: pytest.MonkeyPatch) -> None:
    """Records are not sealed."""

    def seal(_: CipherState, data: bytes | memoryview) -> bytes:
        return bytes(data) + bytes(16)

    def open_again(_: CipherState, data: bytes | memoryview) -> bytes:
        return bytes(data)[:-16]

    patch.setattr(CipherState, "seal", seal)
    patch.setattr(CipherState, "open", open_again)


def nonce_stands_still(patch: pytest.MonkeyPatch) -> None:
    """Every record is sealed with the nonce of the first."""
    for name in ("seal", "open"):
        right = getattr(CipherState, name)

        def stuck(self: Any, data: Any, *, right: Any = right) -> Any:
            before = self._number
            result = right(self, data)
            self._number = before
            return result

        patch.setattr(CipherState, name, stuck)


def same_ephemeral(patch: pytest.MonkeyPatch) -> None:
    """Every handshake uses the same ephemeral key."""

    def fixed(identity: Any, output: Any, ephemeral: Any, rekey: Any) -> Any:
        return noise_xx.Local(identity, output, b"\x01" * 32, rekey)

    patch.setattr(noise, "Local", fixed)


def credit_ignored(patch: pytest.MonkeyPatch) -> None:
    """A subscription sends whatever its subscriber has room for."""
    advance = SubscriptionActor._advance

    def endless(self: SubscriptionActor) -> None:
        self._credit = 1 << 60
        advance(self)

    patch.setattr(SubscriptionActor, "_advance", endless)


def writes_torn(patch: pytest.MonkeyPatch) -> None:
    """Every second write of a group is left out, and all are confirmed."""
    apply = MemoryLogStore._apply

    def half(self: MemoryLogStore, operation: Any) -> None:
        if isinstance(operation, Append) and operation is not self_first(self):
            log = self._durable._logs.get(operation.log)
            operation.first_index = log.state.next_index if log else 0
            return
        apply(self, operation)

    def self_first(store: MemoryLogStore) -> Any:
        return None if store._durable.size % 2 else store

    patch.setattr(MemoryLogStore, "_apply", half)


def trims_by_itself(patch: pytest.MonkeyPatch) -> None:
    """What is old goes, although nobody said so."""
    apply = MemoryTables.apply

    def eager(self: MemoryTables, operation: Any) -> None:
        apply(self, operation)
        if isinstance(operation, Append) and operation.first_index > 20:
            apply(self, Trim(log=operation.log, before=operation.first_index - 10))

    patch.setattr(MemoryTables, "apply", eager)


def harmed_records_skipped(patch: pytest.MonkeyPatch) -> None:
    """A record that does not authenticate is passed over, and the link goes on."""
    right = CipherState.open

    def lenient(self: CipherState, record: Any) -> bytes:
        try:
            return right(self, record)
        except CodecError:
            self._number += 1
            return b""

    patch.setattr(CipherState, "open", lenient)


def groups_reversed(patch: pytest.MonkeyPatch) -> None:
    """What waits for the disk is written last come, first served."""
    finish = MemoryLogStore._finish_group

    def reversed_group(self: MemoryLogStore) -> None:
        self._group.reverse()
        finish(self)

    patch.setattr(MemoryLogStore, "_finish_group", reversed_group)


def requests_deduplicated(patch: pytest.MonkeyPatch) -> None:
    """A request whose number its client has used before is taken for a repetition."""
    requests = StreamActor._take
    seen: dict[tuple[str, bytes], None] = {}

    def once(self: StreamActor, delivery: Delivery) -> None:
        fresh = [
            wire
            for wire in delivery.messages
            if (delivery.origin.principal, bytes(wire.payload)) not in seen
        ]
        seen.update(((delivery.origin.principal, bytes(wire.payload)), None) for wire in fresh)
        requests(self, structs.replace(delivery, messages=fresh))

    patch.setattr(StreamActor, "_take", once)


def log_forgets_its_tail(patch: pytest.MonkeyPatch) -> None:
    """After a power cut the last block is gone, although it was synced."""
    crash = MemoryLogStore.crash

    def lossy(self: MemoryLogStore, *, surviving: int = 0) -> None:
        crash(self, surviving=surviving)
        for log in self._durable._logs.values():
            if log.blocks:
                log.state.next_index = log.blocks.pop().first_index

    patch.setattr(MemoryLogStore, "crash", lossy)


def misread_pulls(patch: pytest.MonkeyPatch, *, index: int = 0, limit: int = 0) -> None:
    """Let a node read other numbers in Ockam's pulls than their clients have written."""

    def misread(*args: Any, **options: Any) -> Any:
        request = decode_request(*args, **options)
        if isinstance(request, PullRequest):
            request.index += index
            request.limit += limit
        return request

    patch.setattr(stream, "decode_request", misread)


def pull_begins_late(patch: pytest.MonkeyPatch) -> None:
    """An Ockam pull begins behind the index that was asked for."""
    misread_pulls(patch, index=1)


def confirms_repeated(patch: pytest.MonkeyPatch) -> None:
    """The confirm of a push is the one that was made before it."""
    confirm = asked.confirm
    made: list[bytes] = []

    def stale(request: Any, status: Any, index: int) -> bytes:
        made.append(confirm(request, status, index))
        return made[max(0, len(made) - 2)]

    patch.setattr(asked, "confirm", stale)


def _planted(patch: Patch, *rules: str, **more: Any) -> Planted:
    return Planted(patch.__name__.replace("_", "-"), patch, rules, **more)


SLOW_READER = ClientsTable(
    producers=1,
    followers=0,
    consumers=0,
    readers=0,
    slow_readers=1,
    payload_bytes=250_000,
)

PLANTED = (
    _planted(confirm_before_sync, "confirm-lost", "index-reassigned", "pull-short"),
    _planted(index_reused_after_crash, "index-reassigned", "confirm-lost"),
    _planted(log_forgets_its_tail, "index-reassigned", "confirm-lost", "seen-lost"),
    _planted(writes_torn, "index-reassigned", "copies-merged", "confirm-lost"),
    _planted(groups_reversed, "producer-order", "subscription-gap"),
    _planted(errors_confirmed, "index-reassigned", "confirm-lost", faults=("disk_failing",)),
    _planted(trims_by_itself, "log-dense", "confirm-lost"),
    _planted(seam_off_by_one, "subscription-gap"),
    _planted(seam_twice, "subscription-duplicate"),
    _planted(resume_skips, "subscription-gap"),
    _planted(saved_index_goes_back, "saved-index-lost"),
    _planted(saves_what_was_delivered, "saved-index-ahead", "consumer-seam"),
    _planted(pull_begins_late, "pull-gap", "pull-short"),
    _planted(confirms_repeated, "route-answer"),
    _planted(requests_forgotten, "no-progress"),
    _planted(requests_deduplicated, "no-progress", faults=("kill",)),
    _planted(plain_records, "plain-data"),
    _planted(nonce_stands_still, "nonce-reuse"),
    _planted(same_ephemeral, "nonce-reuse"),
    _planted(harmed_records_skipped, "no-progress", faults=("corrupt_record",)),
    _planted(credit_ignored, "window-exceeded", faults=("pause",), clients=SLOW_READER),
)
