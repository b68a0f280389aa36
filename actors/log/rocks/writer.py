"""The writer: groups what was submitted, and repairs the store when a group fails.

It has a thread for that. A small group may also be committed on the submitter's own thread, at the
end of the turn that has submitted it, which saves two hand-overs between threads; repairs are the
thread's.
"""

import traceback
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from pathlib import Path
from threading import Lock
from time import monotonic, thread_time
from typing import Final

from rillnode.actors.core.threads import Queue, Running, ThreadKilled, Threads
from rillnode.actors.log import (
    Complete,
    OnHealth,
    Operation,
    StoreHealth,
    written_bytes,
)
from rillnode.actors.log.completion import closed_error, deliver, tell
from rillnode.actors.log.rocks.commit import GroupCommit, MakeCommit
from rillnode.actors.log.rocks.tables import Tables, Tuning, full_error, is_full
from rillnode.actors.log.rocks.tail import TailCache
from rillnode.actors.log.rocks.view import DurableView
from rillnode.codecs.errors import StoreError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.log")

_OPERATIONS_MAX: Final = 16_384
"""Operations in one group: what has no body is bounded by number."""

_LAST_SECONDS: Final = 0.1
"""How long who has looked whether writes are taken may need to submit one."""


_Failed = tuple[Sequence[Operation], BaseException]
"""A group, and with what it has failed."""

AtTurnsEnd = Callable[[Callable[[], None]], bool]
"""Has something done on the submitter's thread at the end of its turn; False: it is in none."""

HERE_OPERATIONS_MAX: Final = 64
HERE_BYTES_MAX: Final = 131_072
"""A larger group is the thread's: the submitter has other things to do."""

HERE_SECONDS_MAX: Final = 0.000_8
"""What commits take on average where they are made on the submitter's thread. Own choice: about
twice what a sync to a good disk takes."""

STALL_SECONDS: Final = 0.002
"""A commit that takes longer stalls the submitter: for `SPARED_TIMES` of that, and at most for
`SPARED_SECONDS`, no other one may. So it stands still for a hundredth of its time, at most."""

SPARED_TIMES: Final = 100
SPARED_SECONDS: Final = 10.0

BUSY_MAX: Final = 0.85
"""The share of its time for which the submitter may be at work and yet commit, too. Above it, what
comes meanwhile had better gather behind the thread's commit and go out together."""

BUSY_SECONDS: Final = 0.01
"""Time over which that share is taken."""

OVERLAPS: Final = 1_024
"""So many groups the thread makes after one during which the next was submitted: there is more to
do than one commit at a time, and the submitter had better go on with it meanwhile."""

HERE_GROUPS: Final = 16
"""After so many groups of the submitter's the thread makes one, which shows whether that is so."""


class _Busy:
    """The share of its time for which a thread is at work, which is asked on that thread.

    What it waits for the disk is none: one push after the other waits for little else.
    """

    def __init__(self) -> None:
        self._share = 0.0
        self._since = -inf
        self._worked = 0.0

    def share(self, now: float) -> float:
        """Its share of late; `now` is by the monotonic clock."""
        passed = now - self._since
        if passed >= BUSY_SECONDS:
            worked = thread_time()
            self._share = (worked - self._worked) / passed
            self._since, self._worked = now, worked
        return self._share


class Writer:
    """Owns the tables while it runs; `submit` is for one other thread.

    What is submitted while a group is on its way to the disk makes the next group. After a
    failure everything waiting, and everything that comes, is refused until the tables were opened
    again, as RocksDB takes no writes before that. Readers keep the old ones meanwhile.
    """

    def __init__(
        self,
        path: Path,
        tuning: Tuning,
        *,
        view: DurableView,
        tail: TailCache,
        open_tables: Callable[[], Tables],
        make_commit: MakeCommit,
        complete: Complete,
        on_health: OnHealth,
        threads: Threads,
        at_turns_end: AtTurnsEnd | None = None,
    ) -> None:
        self._path = path
        self._tuning = tuning
        self._view = view
        self._tail = tail
        self._open_tables = open_tables
        self._make_commit = make_commit
        self._complete = complete
        self._on_health = on_health
        self._writes: deque[Operation] = deque()
        self._group: Sequence[Operation] = ()
        self._threads = threads
        self._wake: Queue[None] = threads.queue()
        self._idle = False
        self._stopping = threads.flag()
        self._thread: Running | None = None
        self._refusal: StoreError | None = closed_error()
        self._health = StoreHealth(writable=False, reason="the store is not open")
        # Each is counted by one thread only.
        self._bytes_submitted = 0
        self._bytes_completed = 0
        self._failures = 0
        # Held by who takes writes and commits them.
        self._committing = Lock()
        self._commit: GroupCommit | None = None
        self._at_turns_end = at_turns_end
        self._left_to_submitter = False
        self._failed_here: _Failed | None = None
        self._mean_seconds = 0.0
        self._spared_until = 0.0
        self._overlaps = 0
        self._here = 0
        self._busy = _Busy()

    @property
    def health(self) -> StoreHealth:
        """Whether writes are taken."""
        return self._health

    @property
    def pending_bytes(self) -> int:
        """Bytes submitted and not yet completed."""
        return self._bytes_submitted - self._bytes_completed

    def start(self, tables: Tables) -> None:
        """Take writes for these tables."""
        self._stopping.clear()
        self._view.show(tables)
        self._take_writes()
        self._thread = self._threads.start(partial(self._run, tables), "store-writer")

    def stop(self) -> None:
        """Refuse what comes, carry out what was submitted, close the tables."""
        if self._thread is None:
            return
        self._refusal = closed_error()
        self._stopping.set()
        self._wake.put(None)
        self._thread.join()
        self._thread = None
        self._health = StoreHealth(writable=False, reason="the store is closed")

    def submit(self, operation: Operation) -> None:
        """Queue a write, or complete it with an error at once while none are taken."""
        if self._refusal is not None:
            operation.error = self._refusal
            self._complete((operation,))
            return
        self._bytes_submitted += written_bytes(operation)
        # Before the thread can see that there is something to do.
        if self._idle and not self._left_to_submitter and self._is_quick():
            assert self._at_turns_end is not None
            self._left_to_submitter = self._at_turns_end(self._commit_here)
        self._writes.append(operation)
        if self._idle and not self._left_to_submitter:
            self._wake_thread()

    def _wake_thread(self) -> None:
        self._idle = False
        self._wake.put(None)

    # On the submitter's thread ---------------------------------------------------------------

    def _is_quick(self) -> bool:
        """Whether what is submitted now had better be committed by who submits it."""
        if self._at_turns_end is None or self._commit is None:
            return False
        if self._overlaps > 0:
            self._overlaps -= 1
            return False
        now = monotonic()
        if self._mean_seconds >= HERE_SECONDS_MAX or now <= self._spared_until:
            return False
        if self._busy.share(now) >= BUSY_MAX:
            return False
        self._here = (self._here + 1) % (HERE_GROUPS + 1)
        return self._here > 0

    def _commit_here(self) -> None:
        """Commit what a turn has submitted; what it is not to commit goes to the thread."""
        self._left_to_submitter = False
        failed: _Failed | None = None
        if self._committing.acquire(blocking=False):
            try:
                commit = self._commit
                small = 0 < len(self._writes) <= HERE_OPERATIONS_MAX
                if commit is not None and small and self.pending_bytes <= HERE_BYTES_MAX:
                    # The tables are the thread's to close and to open again.
                    failed = self._failed_here = self._run_commit(commit, self._take_group())
            finally:
                self._committing.release()
        if self._writes or failed is not None:
            self._wake_thread()
        if failed is not None and isinstance(failed[1], KeyboardInterrupt):
            raise failed[1]  # it was meant for whoever runs this thread

    def _run_commit(self, commit: GroupCommit, group: Sequence[Operation]) -> _Failed | None:
        """Commit a group and tell of it; or return what has failed.

        Within `_committing`, so that groups are told of in their order.
        """
        begun = monotonic()
        try:
            commit.run(group)
        except ThreadKilled:
            raise
        except BaseException as error:
            # A panic of the store's native code is none of Exception's kind.
            self._commit = None
            return group, error
        ended = monotonic()
        seconds = ended - begun
        if seconds > STALL_SECONDS:
            self._spared_until = ended + min(SPARED_SECONDS, SPARED_TIMES * seconds)
        # One that takes long says no more than that it does.
        self._mean_seconds += (min(seconds, STALL_SECONDS) - self._mean_seconds) / 8
        self._failures = 0
        if self._writes:  # before who waits for this group can answer it
            self._overlaps = OVERLAPS
        self._finish(group)
        return None

    # The thread ------------------------------------------------------------------------------

    def _run(self, tables: Tables | None) -> None:
        try:
            while tables is not None:
                tables = self._write(tables)
        except ThreadKilled:
            raise
        except BaseException as error:
            # Not even its repair could go on: nothing is confirmed that nobody writes.
            refusal = self._refusal = StoreError(
                "store.failed", f"the thread that writes has ended ({error!r}): start the node anew"
            )
            self._set_health(StoreHealth(writable=False, reason=refusal.text))
            self._refuse(self._group, refusal)
            self._refuse_waiting(refusal)
            # What was submitted while the refusal was being set: nobody else will look.
            self._stopping.wait(_LAST_SECONDS)
            self._refuse_waiting(refusal)
            raise
        # What was submitted while the refusal was being set.
        self._refuse_waiting(closed_error())

    def _write(self, tables: Tables) -> Tables | None:
        """Commit groups until told to stop; returns other tables after a repair."""
        while self._wait():
            with self._committing:
                failed, self._failed_here = self._failed_here, None
                if failed is None and (group := self._take_group()):
                    failed = self._commit_group(tables, group)
            if failed is not None:
                return self._repair(tables, *failed)
        with self._committing:  # who has submitted the last may be at it
            failed, self._failed_here = self._failed_here, None
            self._commit = None
            if failed is not None:
                return self._repair(tables, *failed)
            with self._view.replaced():
                tables.close()
        return None

    def _commit_group(self, tables: Tables, group: Sequence[Operation]) -> _Failed | None:
        if self._commit is None:
            try:
                self._commit = self._make_commit(tables, self._view, self._tail, self._tuning)
            except ThreadKilled:
                raise
            except BaseException as error:
                return group, error
        return self._run_commit(self._commit, group)

    def _wait(self) -> bool:
        """Wait until there is something to do; False when there is to be no more."""
        while True:
            self._idle = True
            # Looked at after that, as a submitter may have looked at `_idle` just before.
            if self._failed_here is not None or (self._writes and not self._left_to_submitter):
                break
            if self._stopping.is_set():
                # What was left to a submitter who does not come to it any more is done here.
                self._idle = False
                return bool(self._writes)
            self._wake.get()
        self._idle = False
        return True

    def _take_group(self) -> list[Operation]:
        """Take as many writes as make a group."""
        writes = self._writes
        group: list[Operation] = []
        size, size_max = 0, self._tuning.group_bytes_max
        while writes and size < size_max and len(group) < _OPERATIONS_MAX:
            operation = writes.popleft()
            group.append(operation)
            size += written_bytes(operation)
        self._group = group
        return group

    def _finish(self, group: Sequence[Operation]) -> None:
        self._bytes_completed += sum(map(written_bytes, group))
        self._group = ()
        deliver(self._complete, group)

    # Failure and repair ----------------------------------------------------------------------

    def _repair(
        self, tables: Tables, group: Sequence[Operation], error: BaseException
    ) -> Tables | None:
        """Refuse writes until the tables could be opened again; None when told to stop."""
        refusal = self._failure(error)
        where = "".join(traceback.format_exception(error))
        logger.error("store_failed", extra={"code": refusal.code, "traceback": where})
        # Not given to the log as it is: its frames hold handles, which keep the database open.
        error.__traceback__ = None
        self._refusal = refusal
        self._set_health(StoreHealth(writable=False, reason=refusal.text))
        self._refuse(group, refusal)
        broken: Tables | None = tables
        reopened: Tables | None = None
        while reopened is None:
            self._refuse_waiting(refusal)
            self._failures += 1
            stopping = self._stopping.wait(self._pause_seconds())
            # Until there is room readers are better off with what is open.
            full = refusal.code == "store.full" and not stopping
            if full and broken is not None and not broken.has_room():
                continue
            with self._view.replaced():
                if broken is not None:
                    _close(broken)
                    broken = None
                if stopping:
                    return None
                reopened = self._reopen()
        self._refuse_waiting(refusal)
        logger.warning("store_repaired", extra={"attempts": self._failures})
        self._take_writes()
        return reopened

    def _reopen(self) -> Tables | None:
        try:
            tables = self._open_tables()
        except ThreadKilled:
            raise
        except BaseException as error:
            code = error.code if isinstance(error, StoreError) else type(error).__name__
            logger.warning("store_not_reopened", extra={"code": code, "reason": str(error)})
            return None
        # Of the failed group some writes may be there after all; what the tail has ends before.
        self._tail.clear()
        self._view.show(tables)
        return tables

    def _failure(self, error: BaseException) -> StoreError:
        if is_full(str(error)):
            return full_error(self._path)
        return StoreError(
            "store.failed",
            f"the store in {self._path} could not write ({error}): check the disk; it tries "
            "again by itself",
            path=str(self._path),
        )

    def _pause_seconds(self) -> float:
        first, longest = self._tuning.repair_seconds_min, self._tuning.repair_seconds_max
        return float(min(longest, first * 2 ** min(self._failures - 1, 30)))

    def _take_writes(self) -> None:
        if not self._stopping.is_set():
            self._refusal = None
            self._set_health(StoreHealth(writable=True))

    def _set_health(self, health: StoreHealth) -> None:
        self._health = health
        tell(self._on_health, health)

    def _refuse_waiting(self, refusal: StoreError) -> None:
        group: list[Operation] = []
        while self._writes:
            group.append(self._writes.popleft())
        self._refuse(group, refusal)

    def _refuse(self, group: Sequence[Operation], refusal: StoreError) -> None:
        for operation in group:
            operation.error = refusal
        if group:
            self._finish(group)


def _close(broken: Tables) -> None:
    """Close what has failed, whatever becomes of that: the next attempt to open it tells."""
    try:
        broken.close()
    except ThreadKilled:
        raise
    except BaseException as error:
        logger.warning("store_not_closed", extra={"reason": repr(error)})
