"""Counts what one turn does: work that grows with a node is done in slices, one in each turn."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from rillnode.actors.engine.turns import Turns
from rillnode.actors.engine.worker import Worker


class Counted:
    """A count of something in each turn that did it at all."""

    def __init__(self) -> None:
        self.turns: list[int] = []
        self._now = 0

    @property
    def most(self) -> int:
        """In the turn that did it most often."""
        return max(self.turns, default=0)

    @property
    def total(self) -> int:
        """In all turns together."""
        return sum(self.turns)

    def count(self) -> None:
        """It is done once more."""
        self._now += 1

    def end_turn(self) -> None:
        """What follows is done in another turn."""
        if self._now:
            self.turns.append(self._now)
        self._now = 0


@contextmanager
def counted_by_turn(owner: Any, name: str) -> Generator[Counted]:
    """Count the calls of `owner.name` that actors make at each message or completed operation."""
    counted = Counted()

    def bounded(original: Callable[..., Any]) -> Callable[..., Any]:
        def handled(*args: Any) -> Any:
            counted.end_turn()
            try:
                return original(*args)
            finally:
                counted.end_turn()

        return handled

    with pytest.MonkeyPatch.context() as patch:
        _count_calls(patch, owner, name, counted)
        patch.setattr(Worker, "receiveMessage", bounded(Worker.receiveMessage))
        patch.setattr(Turns, "_complete", bounded(Turns._complete))  # pyright: ignore[reportPrivateUsage]
        yield counted


@asynccontextmanager
async def counted_by_loop_turn(owner: Any, name: str) -> AsyncGenerator[Counted]:
    """Count the calls of `owner.name` by the turns of the running loop in which they are made."""
    counted = Counted()

    async def tick() -> None:
        while True:
            counted.end_turn()
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    try:
        with pytest.MonkeyPatch.context() as patch:
            _count_calls(patch, owner, name, counted)
            yield counted
    finally:
        counted.end_turn()
        ticking.cancel()


def _count_calls(patch: pytest.MonkeyPatch, owner: Any, name: str, counted: Counted) -> None:
    original: Callable[..., Any] = getattr(owner, name)

    def called(*args: Any, **kwargs: Any) -> Any:
        counted.count()
        return original(*args, **kwargs)

    patch.setattr(owner, name, called)
