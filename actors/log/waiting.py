"""The store for handlers that wait: operations that are awaited."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from rillnode.actors.engine.waiting import Continuation, Signal, current_work
from rillnode.actors.log import LogStore, Operation, ReadOperation, WriteOperation

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
    arrivals = _arrivals(operations, None)
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
    arrivals = _arrivals(operations, done)
    for operation in operations:
        store.submit(operation)
    return arrivals


class _Arrivals(Signal, Continuation, eq=False, kw_only=True):
    """Operations that one handler waits for; set when the last is complete."""

    instance: Any
    operations: tuple[Operation, ...]
    left: int
    done: Callable[[Any], object] | None

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
        self.left -= 1
        if self.done is not None:
            self.done(operation)
        if self.left:
            return False
        for one in self.operations:
            if one.error is not None:
                self.error = one.error
                break
        return True


def _arrivals(operations: tuple[Operation, ...], done: Callable[[Any], object] | None) -> _Arrivals:
    work = current_work()
    left = len(operations)
    arrivals = _Arrivals(instance=work.instance, operations=operations, left=left, done=done)
    arrivals.is_set = not left
    for operation in operations:
        operation.reply_to, operation.then = work.cell, arrivals
    return arrivals
