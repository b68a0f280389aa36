"""The task inside `async with node`: the one that is cancelled when the node cannot go on.

As `asyncio.timeout` does it: whoever has cancelled the task besides wins, what the block has raised
by itself stands, and the count of cancellations is at the end what it was at the start.
"""

import asyncio
from typing import Any

from rillnode.codecs.errors import NodeFailed


class Entered:
    """One entry of one task at a time; all calls on the loop's thread.

    Attributes:
        failure: why the task was cancelled; None: it was not.
    """

    def __init__(self) -> None:
        self.failure: NodeFailed | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0

    def enter(self) -> None:
        """Take the running task for the one that is inside."""
        task = self._task = asyncio.current_task()
        assert task is not None, "a node is entered in a task"
        self._cancelling = task.cancelling()
        self.failure = None

    def fail(self, failure: NodeFailed) -> None:
        """Cancel the task that is inside, once; where none is, nothing happens."""
        if self._task is not None and self.failure is None:
            self.failure = failure
            self._task.cancel()

    async def leave(self, raised: BaseException | None) -> NodeFailed | None:
        """Let the task go.

        Args:
            raised: what it leaves with.

        Returns:
            What it is to leave with instead; None: with what it has.

        Raises:
            CancelledError: somebody else has cancelled the task, which has not noticed so far.
        """
        task, self._task = self._task, None
        if task is None or self.failure is None:
            return None
        ours_alone = task.uncancel() <= self._cancelling
        if isinstance(raised, asyncio.CancelledError):
            return self.failure if ours_alone else None
        # It may have left without noticing: before Python 3.13 its next await still would.
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if task.cancelling() > self._cancelling:
                raise
        return None
