"""The store for handlers that wait: operations that are awaited."""

import asyncio
from typing import Protocol, TypeVar

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
    await arrivals.all
    _check(operations)


async def write(store: LogStore, *operations: WriteOperation) -> None:
    """Submit operations in order, and wait until all are complete.

    Where this is cancelled they go on, as what is submitted always does.

    Raises:
        StoreError: the first that one of them has.
    """
    arrivals = _Arrivals(operations)
    for operation in operations:
        store.submit(operation)
    await arrivals.all
    _check(operations)


class _Arrivals:
    """Operations that one handler waits for.

    Attributes:
        all: set when the last is complete.
    """

    __slots__ = ("_left", "all")

    def __init__(self, operations: tuple[Operation, ...]) -> None:
        self._left = len(operations)
        self.all = Signal()
        work = asyncio.current_task()
        assert isinstance(work, Work), "only handlers of actors wait for the store"
        then = Then(work.instance, self.arrived, self.arrived)
        for operation in operations:
            operation.reply_to, operation.then = work.cell, then
        if not operations:
            self.all.set()

    def arrived(self, _: Operation) -> None:
        """One is complete."""
        self._left -= 1
        if not self._left:
            self.all.set()


def _check(operations: tuple[Operation, ...]) -> None:
    for operation in operations:
        if operation.error is not None:
            raise operation.error
