"""The store for handlers that wait: operations that are awaited."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from rillnode.actors.engine.waiting import Signal, Then, Work
from rillnode.actors.storage import LogStore, Operation, ReadOperation, WriteOperation

R = TypeVar("R", bound=ReadOperation)
Asked = TypeVar("Asked", bound=ReadOperation, contravariant=True)


class Reads(Protocol[Asked]):
    """A store, or the room of a link, through which it is read."""

    def read(self, operation: Asked, /) -> bool:
        """Answer at once (True), or later (False)."""
        ...


async def read(store: Reads[R], *operations: R) -> None:
    """Read, and wait until all is read; the results are in the operations.

    Raises:
        StoreError: the first that one of them has.
    """
    arrivals = _Arrivals(operations)
    for operation in operations:
        if store.read(operation):
            arrivals.arrived(operation)
    await arrivals
    _check(operations)


async def write(
    store: LogStore,
    *operations: WriteOperation,
    done: Callable[[WriteOperation], object] | None = None,
) -> None:
    """Submit operations in order, and wait until all are complete.

    Where this is cancelled they go on, as what is submitted always does.

    Args:
        store: the store.
        operations: what to write.
        done: called with each when it is complete, also if nobody waits for it any more: for what
            follows from a write whatever becomes of the instance that has asked for it.

    Raises:
        StoreError: the first that one of them has.
    """
    arrivals = _Arrivals(operations, done)
    for operation in operations:
        store.submit(operation)
    await arrivals
    _check(operations)


class _Arrivals(Signal):
    """Operations that one handler waits for; set when the last is complete."""

    __slots__ = ("_done", "_left")

    def __init__(
        self, operations: tuple[Operation, ...], done: Callable[[Any], object] | None = None
    ) -> None:
        super().__init__()
        self._left = len(operations)
        self._done = done
        work = asyncio.current_task()
        assert isinstance(work, Work), "only handlers of actors wait for the store"
        then = Then(work.instance, self._complete, self.arrived)
        for operation in operations:
            operation.reply_to, operation.then = work.cell, then
        if not operations:
            self.set()

    def arrived(self, operation: Operation) -> None:
        """One is complete; harmless when repeated."""
        if self._took(operation):
            self.set()

    def _complete(self, operation: Operation) -> None:
        # In a turn of its own: the handler goes on in it.
        if self._took(operation):
            self.set_in_turn()

    def _took(self, operation: Operation) -> bool:
        if operation.then is None:
            return False
        operation.then = None
        self._left -= 1
        if self._done is not None:
            self._done(operation)
        return not self._left


def _check(operations: tuple[Operation, ...]) -> None:
    for operation in operations:
        if operation.error is not None:
            raise operation.error
