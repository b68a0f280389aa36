"""The readers' threads: answer from the disk what the tail cache does not hold."""

from collections.abc import Sequence
from functools import partial
from queue import Empty
from typing import Final

from rillnode.actors.core.threads import Queue, Running, ThreadKilled, Threads
from rillnode.actors.log import Complete, Read, ReadOperation
from rillnode.actors.log.completion import deliver
from rillnode.actors.log.rocks.reads import answer
from rillnode.actors.log.rocks.tables import Cursors
from rillnode.actors.log.rocks.view import DurableView
from rillnode.codecs.errors import StoreError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.log")


_BATCH_MAX: Final = 64
"""Look-ups that are delivered together."""


class ReaderPool:
    """Some threads on one bounded queue."""

    def __init__(
        self,
        view: DurableView,
        *,
        readers: int,
        reads_max: int,
        complete: Complete,
        threads: Threads,
    ) -> None:
        self._view = view
        self._readers = readers
        self._reads_max = reads_max
        self._complete = complete
        self._threads = threads
        self._queue: Queue[ReadOperation | None] = threads.queue()
        self._running: list[Running] = []

    def start(self) -> None:
        """Take reads."""
        # Whoever has ended without being asked has left behind what would end another.
        self._queue = self._threads.queue()
        self._running = [
            self._threads.start(partial(self._run, number), f"store-reader-{number}")
            for number in range(self._readers)
        ]

    def stop(self) -> None:
        """Refuse what comes and answer what waits."""
        running, self._running = self._running, []
        for _ in running:
            self._queue.put(None)
        for thread in running:
            thread.join()

    def submit(self, operation: ReadOperation) -> None:
        """Queue a read; it is completed with an error at once where it cannot be taken."""
        if not self._running:
            operation.error = StoreError("store.closed", "the store is not open")
        elif self._queue.qsize() >= self._reads_max:
            operation.error = StoreError(
                "store.busy", f"{self._reads_max} reads are waiting already: ask again"
            )
        else:
            self._queue.put(operation)
            return
        self._complete((operation,))

    def _run(self, number: int) -> None:
        while (operation := self._queue.get()) is not None:
            done: list[ReadOperation] = []
            waiting = [operation]
            # What waits is answered together: waking the loop, and the cursors, cost more than a
            # look-up. Ranges are delivered at once.
            while waiting:
                self._answer(number, waiting)
                done += waiting
                waiting = (
                    [] if isinstance(done[-1], Read) else self._waiting(_BATCH_MAX - len(done))
                )
            deliver(self._complete, done)

    def _waiting(self, room: int) -> list[ReadOperation]:
        """At most so many operations that wait already, up to a range."""
        waiting: list[ReadOperation] = []
        while len(waiting) < room:
            try:
                operation = self._queue.get_nowait()
            except Empty:
                break
            if operation is None:
                self._queue.put(None)
                break
            waiting.append(operation)
            if isinstance(operation, Read):
                break
        return waiting

    def _answer(self, number: int, operations: Sequence[ReadOperation]) -> None:
        # Their cursors are made now: they show all that was durable when these were submitted.
        try:
            self._view.read(number, partial(_answer_each, operations))
        except ThreadKilled:
            raise
        except BaseException as error:
            failure = _failure(error)
            for operation in operations:
                operation.error = failure


def _answer_each(operations: Sequence[ReadOperation], cursors: Cursors) -> None:
    for operation in operations:
        try:
            answer(operation, cursors)
        except ThreadKilled:
            raise
        except BaseException as error:  # a panic of native code is none of Exception's kind
            operation.error = _failure(error)


def _failure(error: BaseException) -> StoreError:
    if isinstance(error, StoreError):
        # Without its traceback, whose frames hold cursors: they keep the database open.
        return error.with_traceback(None)
    logger.error("read_failed", extra={"reason": repr(error)})
    return StoreError("store.read", f"the store could not be read ({error}): check the disk")
