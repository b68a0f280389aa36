"""The store for handlers that wait: operations that are awaited."""

import asyncio

from rillnode.actors.engine.waiting import Signal, Then, Work
from rillnode.actors.storage import LogStore, Operation, ReadOperation, WriteOperation


async def read(store: LogStore, *operations: ReadOperation) -> None:
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
