"""MemoryLogStore: the store for tests and simulations, with the faults of a disk.

It keeps the promises of every LogStore, and the time and order of all it does are its driver's:
it has no thread, and works in callbacks given to `post` and to a clock's timers, or in `flush`.
"""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, Final

from rillnode.actors.log import (
    AnyWatch,
    Complete,
    OnHealth,
    Operation,
    Read,
    ReadOperation,
    StoreHealth,
    WriteOperation,
    written_bytes,
)
from rillnode.actors.log.completion import closed_error
from rillnode.actors.log.memory_tables import MemoryTables
from rillnode.actors.ports import Clock, TimerHandle
from rillnode.codecs.errors import StoreError

Post = Callable[[Callable[[], None]], object]

TAIL_BLOCKS: Final = 64
"""Reads that need no more than the last blocks of a log are answered at once."""


@dataclass(slots=True, kw_only=True)
class Faults:
    """The behaviour of the disk; may be changed at any time.

    Attributes:
        sync_seconds: what a sync takes; needs a clock.
        failing_syncs: so many of the next syncs fail.
        surviving: so many of the first writes of a group whose sync fails are there all the same
            after the repair.
        capacity_bytes: a group that does not fit fails with `store.full`.
        repair_seconds: time from a failure to the repair; needs a clock.
    """

    sync_seconds: float = 0.0
    failing_syncs: int = 0
    surviving: int = 0
    capacity_bytes: int | None = None
    repair_seconds: float = 0.1


class MemoryLogStore:
    """A LogStore in memory.

    With `post`, each group is committed in a callback of its own; without it, everything happens
    in `flush`, and a failed store is repaired by the next `flush`. What is durable outlives
    `close` and `crash`, to be found by the next `open`.
    """

    def __init__(
        self,
        *,
        complete: Complete,
        on_health: OnHealth,
        post: Post | None = None,
        clock: Clock | None = None,
        faults: Faults | None = None,
        tables: MemoryTables | None = None,
    ) -> None:
        self.faults = faults or Faults()
        self._complete = complete
        self._on_health = on_health
        self._post = post
        self._clock = clock
        self._durable = tables or MemoryTables()
        self._writes: list[Operation] = []
        self._reads: list[ReadOperation] = []
        # The group under way to the disk.
        self._group: list[Operation] = []
        self._survivors: list[Operation] = []
        self._failed = False
        self._refusal: StoreError | None = closed_error()
        self._health = StoreHealth(writable=False, reason="the store is not open")
        self._scheduled = False
        self._timer: TimerHandle | None = None
        # Counts openings, so that a callback from before a crash does nothing.
        self._life = 0

    @property
    def health(self) -> StoreHealth:
        """The state now."""
        return self._health

    @property
    def pending_bytes(self) -> int:
        """Bytes submitted and not yet completed."""
        if not self._group and not self._writes:  # asked for each read of a link
            return 0
        return sum(map(written_bytes, (*self._group, *self._writes)))

    def open(self) -> None:
        """Take operations, on what was made durable before."""
        self._life += 1
        self._take_writes()

    def close(self) -> None:
        """Complete what was submitted, without waiting for time to pass, then close."""
        if self._group:
            self._finish_group()
        self._work()
        self._stop("the store is closed")

    def submit(self, operation: WriteOperation) -> None:
        """Queue a write; while the store cannot write it is completed with an error at once."""
        self._take(operation)

    def _take(self, operation: Operation) -> None:
        if self._refusal is not None:
            operation.error = self._refusal
            self._complete((operation,))
            return
        self._writes.append(operation)
        self._schedule()

    def read(self, operation: ReadOperation) -> bool:
        """Answer at once out of the tail cache (True), or later through `complete` (False)."""
        if isinstance(operation, Read) and self._durable.in_tail(operation, TAIL_BLOCKS):
            self._durable.answer(operation)
            return True
        self._reads.append(operation)
        self._schedule()
        return False

    def watch(self, operation: AnyWatch) -> None:
        """Nobody else writes to it: there is never anything to tell."""

    def rest(self) -> None:
        """Nothing: all that it has in memory is what it keeps."""

    def describe(self) -> Mapping[str, Any]:
        """Nothing: no others write to its logs."""
        return {}

    def crash(self, *, surviving: int = 0) -> None:
        """Lose power: what was not confirmed is lost and never completed.

        Args:
            surviving: so many of the first writes of the group under way, or else of those that
                were waiting, had reached the disk all the same.
        """
        self._survivors += (self._group or self._writes)[:surviving]
        self._group, self._writes, self._reads = [], [], []
        self._stop("the power is off")

    def look(self, operation: ReadOperation) -> None:
        """Answer a read now, for who only watches: nothing is completed, counted or called."""
        self._durable.answer(operation)

    def flush(self) -> None:
        """Do now all that waits: a repair, the group under way, groups and reads."""
        if self._failed:
            self._take_writes()
        if self._group:
            self._finish_group()
        self._work()

    # Groups ----------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if self._post is not None and not self._scheduled:
            self._scheduled = True
            life = self._life
            self._post(lambda: self._posted(life))

    def _posted(self, life: int) -> None:
        if life != self._life:
            return
        self._scheduled = False
        clock, seconds = self._clock, self.faults.sync_seconds
        if clock is None or seconds <= 0.0:
            self._work()
            return
        self._answer_reads()
        if self._writes and not self._group:
            self._group, self._writes = self._writes, []
            self._timer = clock.call_later(seconds, self._synced)

    def _synced(self) -> None:
        self._finish_group()
        if self._writes:
            self._schedule()

    def _work(self) -> None:
        while self._writes and not self._group:
            self._group, self._writes = self._writes, []
            self._finish_group()
        self._answer_reads()

    def _finish_group(self) -> None:
        self._cancel_timer()
        group, self._group = self._group, []
        failure = self._failure(group)
        if failure is not None:
            self._survivors = group[: self.faults.surviving]
            self._fence(group, failure)
            return
        for operation in group:
            self._apply(operation)
        self._complete(group)

    def _apply(self, operation: Operation) -> None:
        try:
            self._durable.apply(operation)
        except StoreError as error:
            operation.error = error

    def _answer_reads(self) -> None:
        while self._reads:
            reads, self._reads = self._reads, []
            for operation in reads:
                self._durable.answer(operation)
            self._complete(reads)

    # Faults ----------------------------------------------------------------------------------

    def _failure(self, group: list[Operation]) -> StoreError | None:
        faults = self.faults
        if faults.failing_syncs > 0:
            faults.failing_syncs -= 1
            return StoreError("store.failed", "the disk failed; the store tries again by itself")
        needed = sum(map(written_bytes, group))
        room = faults.capacity_bytes
        if room is not None and needed and self._durable.size + needed > room:
            return StoreError("store.full", "the disk is full: free space on it")
        return None

    def _fence(self, group: list[Operation], failure: StoreError) -> None:
        waiting, self._writes = self._writes, []
        self._failed, self._refusal = True, failure
        self._set_health(StoreHealth(writable=False, reason=failure.text))
        for operation in (*group, *waiting):
            operation.error = failure
        self._complete([*group, *waiting])
        if self._clock is not None:
            self._timer = self._clock.call_later(self.faults.repair_seconds, self._take_writes)

    def _take_writes(self) -> None:
        """Begin, or go on after a repair: now it is settled what a failed group left behind."""
        self._cancel_timer()
        survivors, self._survivors = self._survivors, []
        for operation in survivors:
            # Its submitter has long had an error, or is gone.
            self._apply(copy(operation))
        self._failed, self._refusal = False, None
        self._set_health(StoreHealth(writable=True))

    def _stop(self, reason: str) -> None:
        self._life += 1
        self._scheduled = self._failed = False
        self._cancel_timer()
        self._refusal = closed_error()
        self._health = StoreHealth(writable=False, reason=reason)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_health(self, health: StoreHealth) -> None:
        self._health = health
        self._on_health(health)
