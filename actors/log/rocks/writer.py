"""The writer's thread: groups what was submitted, and repairs the store when a group fails."""

import logging
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
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

logger = logging.getLogger("rillnode.actors.log")

_OPERATIONS_MAX: Final = 16_384
"""Operations in one group: what has no body is bounded by number."""

_LAST_SECONDS: Final = 0.1
"""How long who has looked whether writes are taken may need to submit one."""


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
        self._writes.append(operation)
        if self._idle:
            self._idle = False
            self._wake.put(None)

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
        commit: GroupCommit | None = None
        while group := self._next_group():
            try:
                commit = commit or self._make_commit(tables, self._view, self._tail, self._tuning)
                commit.run(group)
            except ThreadKilled:
                raise
            except BaseException as error:
                # A panic of the store's native code is none of Exception's kind.
                commit = None
                return self._repair(tables, group, error)
            self._failures = 0
            self._finish(group)
        with self._view.replaced():
            tables.close()
        return None

    def _next_group(self) -> list[Operation]:
        """Wait for writes and take as many as make a group; none when there is to be no more."""
        writes = self._writes
        while not writes:
            self._idle = True
            # Looked at again, as a submitter may have looked at `_idle` just before.
            if writes:
                break
            if self._stopping.is_set():
                return []
            self._wake.get()
        self._idle = False
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
