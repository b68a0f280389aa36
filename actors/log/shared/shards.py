"""The shards that a node uses, and what its store itself asks of them."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

from rillnode.actors.log import Operation, ReadOperation
from rillnode.actors.log.completion import closed_error
from rillnode.actors.log.shared.placement import Placement
from rillnode.actors.log.shared.port import unreachable
from rillnode.actors.log.shared.shard import Shard, SharedOptions


class Shards:
    """Each is made when it is first needed. All calls on the loop, but where it is said.

    Args:
        new: makes a shard.
        options: sizes and times.
        loop: that of the store.

    Attributes:
        placement: where names lie; None while the engine has not said how many shards there are.
    """

    def __init__(
        self,
        new: Callable[[int], Shard],
        options: SharedOptions,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.options = options
        self.placement: Placement | None = None
        self._new = new
        self._loop = loop
        self._shards: dict[int, Shard] = {}
        self._asked: dict[Operation, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def place(self) -> Placement:
        """Where names lie.

        Raises:
            StoreError: `store.unreachable`, that is not known, or no more.
        """
        if self.placement is None:
            raise unreachable("the log is being opened")
        return self.placement

    def __getitem__(self, number: int) -> Shard:
        """A shard, which is in use from now on; raises as `place` does where there can be none."""
        shard = self._shards.get(number)
        if shard is None:
            assert number < self.place.shards
            shard = self._shards[number] = self._new(number)
        return shard

    def __iter__(self) -> Iterator[Shard]:
        return iter(tuple(self._shards.values()))

    def get(self, number: int | None) -> Shard | None:
        """A shard, if it is in use."""
        return None if number is None else self._shards.get(number)

    def is_ready(self, number: int) -> bool:
        """Whether its view is open."""
        shard = self._shards.get(number)
        return shard is not None and shard.is_ready

    async def close(self, seconds: float = 0.0) -> None:
        """Close them all, and give what is under way so long to end."""
        await asyncio.gather(*(one.close(seconds) for one in self._shards.values()))

    def clear(self) -> None:
        """Forget them, closed as they are."""
        self._shards.clear()

    # What the store does itself --------------------------------------------------------------

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done beside all else, until the store is closed."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        """End all that was begun."""
        # What is cancelled before its first step never takes it, and could not tell of its end.
        await asyncio.sleep(0)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def ask(self, number: int, operation: ReadOperation) -> None:
        """Have a view answer.

        Raises:
            StoreError: it cannot.
        """
        shard = self[number]
        await shard.ready()
        view = shard.view
        if view is None:
            raise shard.refusal or closed_error()
        await self.wait_for(operation, view.read)

    async def wait_for(self, operation: Any, begin: Callable[[Any], bool | None]) -> None:
        """Begin an operation of the store's own, and wait for its end.

        Args:
            operation: whatever a view or a shard takes.
            begin: gives it to that; returns whether it is complete already.

        Raises:
            StoreError: it has failed.
        """
        answered = self._asked[operation] = self._loop.create_future()
        try:
            if not begin(operation):
                await answered
        finally:
            del self._asked[operation]
        if operation.error is not None:
            raise operation.error

    def is_own(self, operation: Operation) -> bool:
        """Whether the store itself waits for an operation; from any thread."""
        return operation in self._asked

    def take(self, operations: Sequence[Operation]) -> Sequence[Operation]:
        """Let go on what waits for operations that are complete; return the others."""
        if not self._asked:
            return operations
        others: list[Operation] = []
        for operation in operations:
            answered = self._asked.get(operation)
            if answered is None:
                others.append(operation)
            elif not answered.done():
                answered.set_result(None)
        return others
