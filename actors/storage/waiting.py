"""The store for handlers that wait: operations that are awaited."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, Self, TypeVar

from rillnode.actors.engine.waiting import Continuation, Signal, current_work
from rillnode.actors.storage import LogStore, Operation, ReadOperation, WriteOperation

R = TypeVar("R", bound=ReadOperation)
Asked = TypeVar("Asked", bound=ReadOperation, contravariant=True)


class Reads(Protocol[Asked]):
    """A store, or the room of a link, through which it is read."""

    def read(self, operation: Asked, /) -> bool:
        """Answer at once (True), or later (False)."""
        ...


def read(store: Reads[R], *operations: R) -> Awaitable[None]:
    """Read, and wait until all is read; the results are in the operations.

    It is awaited at once, in a handler.

    Raises:
        StoreError: awaited, the first that one of them has.
    """
    arrivals = _Arrivals(operations)
    for operation in operations:
        if store.read(operation):
            arrivals.late(operation)
    return arrivals


def write(
    store: LogStore,
    *operations: WriteOperation,
    done: Callable[[WriteOperation], object] | None = None,
) -> Awaitable[None]:
    """Submit operations in order, and wait until all are complete.

    It is awaited at once, in a handler. Where that is cancelled they go on, as what is submitted
    always does.

    Args:
        store: the store.
        operations: what to write.
        done: called with each when it is complete, also if nobody waits for it any more: for what
            follows from a write whatever becomes of the instance that has asked for it.

    Raises:
        StoreError: awaited, the first that one of them has.
    """
    arrivals = _Arrivals(operations, done)
    for operation in operations:
        store.submit(operation)
    return arrivals


class _Arrivals(Signal, Continuation):
    """Operations that one handler waits for; set when the last is complete."""

    __slots__ = ("_done", "_left", "_operations", "instance")

    counts = False

    def __init__(
        self, operations: tuple[Operation, ...], done: Callable[[Any], object] | None = None
    ) -> None:
        super().__init__()
        work = current_work()
        self.instance = work.instance
        self._operations = operations
        self._left = len(operations)
        self._done = done
        for operation in operations:
            operation.reply_to, operation.then = work.cell, self
        if not operations:
            self.set()

    def late(self, operation: Operation, /) -> None:
        """One is complete; harmless when repeated."""
        if self._took(operation):
            self.set()

    def run(self, operation: Operation, /) -> None:
        """One is complete, and this a turn of its own: the handler goes on in it."""
        if self._took(operation):
            self.is_set = True
            if self.work is not None:
                self.work.go_on()

    def _took(self, operation: Operation) -> bool:
        if operation.then is None:
            return False
        operation.then = None
        self._left -= 1
        if self._done is not None:
            self._done(operation)
        return not self._left

    def __next__(self) -> Self:
        """Wait; raises StopIteration when all are complete, or the first's error."""
        if not self.is_set:
            return self
        for operation in self._operations:
            if operation.error is not None:
                raise operation.error
        raise StopIteration
