"""Iterations: a cancelled `anext` loses nothing, whatever they read from."""

import asyncio
import gc
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any

import pytest

from iteration_support import read_impatiently
from rillnode.codecs.errors import TransportError
from rillnode.node.iteration import Iteration, iterate


def run(test: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await test

    asyncio.run(bounded())


class Counting:
    """Groups of numbers, as a generator; each group takes a few turns of the loop."""

    def __init__(self, *, groups: int = 50, error: Exception | None = None) -> None:
        self.began = self.ended = False
        self._groups = groups
        self._error = error

    async def steps(self) -> AsyncGenerator[Sequence[int]]:
        self.began = True
        try:
            for group in range(self._groups):
                for _ in range(group % 5):
                    await asyncio.sleep(0)
                yield range(3 * group, 3 * group + group % 4)
            if self._error is not None:
                raise self._error
        finally:
            await asyncio.sleep(0)
            self.ended = True

    @property
    def numbers(self) -> list[int]:
        return [3 * group + at for group in range(self._groups) for at in range(group % 4)]


async def test_nothing_is_lost_or_doubled_however_often_anext_is_cancelled() -> None:
    counting = Counting(groups=200)
    items = iterate(counting.steps())
    found, cancelled = await read_impatiently(items, len(counting.numbers))
    assert found == counting.numbers
    assert cancelled > 50
    with pytest.raises(StopAsyncIteration):
        await anext(items)
    assert counting.ended


async def test_a_timeout_is_not_the_end() -> None:
    go = asyncio.Event()

    async def steps() -> AsyncGenerator[tuple[int]]:
        await go.wait()
        yield (1,)

    items = iterate(steps())
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(items), 0.001)
    go.set()
    assert [item async for item in items] == [1]


async def test_an_error_comes_once_what_was_before_it_is_taken_and_again_ever_after() -> None:
    error = TransportError("link.closed", "over")
    counting = Counting(groups=4, error=error)
    items = iterate(counting.steps())
    assert [await anext(items) for _ in counting.numbers] == counting.numbers
    for _ in range(3):
        with pytest.raises(TransportError) as raised:
            await anext(items)
        assert raised.value is error
    assert counting.ended


@pytest.mark.parametrize("take", [0, 1, 2])
async def test_it_is_closed_with_its_context(take: int) -> None:
    counting = Counting()
    async with iterate(counting.steps()) as items:
        for _ in range(take):
            await anext(items)
    assert counting.ended == counting.began == bool(take)
    with pytest.raises(StopAsyncIteration):
        await anext(items)
    await items.aclose()


async def test_who_waits_while_it_is_closed_is_told_so() -> None:
    async def steps() -> AsyncGenerator[tuple[int]]:
        await asyncio.Event().wait()
        yield (1,)

    items = iterate(steps())
    waiting = [asyncio.ensure_future(anext(items, None)) for _ in range(2)]
    await asyncio.sleep(0)
    await items.aclose()
    assert await asyncio.gather(*waiting) == [None, None]


async def test_two_who_wait_get_different_items() -> None:
    counting = Counting()
    items = iterate(counting.steps())
    both = await asyncio.gather(*(read_impatiently(items, 30) for _ in range(2)))
    found = sorted(both[0][0] + both[1][0])
    assert found == counting.numbers[:60]


async def test_a_cancelled_close_goes_on() -> None:
    saved = asyncio.Event()
    may_save = asyncio.Event()

    class Saving:
        async def fetch(self) -> Sequence[int]:
            return (1, 2)

        async def close(self) -> None:
            await may_save.wait()
            saved.set()

    items: Iteration[int] = Iteration(Saving())
    assert await anext(items) == 1
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(items.aclose(), 0.001)
    may_save.set()
    await saved.wait()


def test_a_close_that_fails_when_nobody_waits_any_more_is_no_complaint() -> None:
    complaints: list[dict[str, Any]] = []

    async def test() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
        may_fail = asyncio.Event()

        class Failing:
            async def fetch(self) -> Sequence[int]:
                return (1, 2)

            async def close(self) -> None:
                await may_fail.wait()
                raise TransportError("link.closed", "over")

        items: Iteration[int] = Iteration(Failing())
        await anext(items)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(items.aclose(), 0.001)
        del items
        may_fail.set()
        await asyncio.sleep(0.01)
        gc.collect()

    run(test())
    assert complaints == []


def _broken_out(items: Iteration[int]) -> Coroutine[Any, Any, None]:
    async def read() -> None:
        async for _ in items:
            break

    return read()


def _given_up(items: Iteration[int]) -> Coroutine[Any, Any, None]:
    async def read() -> None:
        for turns in range(6):
            asking = asyncio.ensure_future(anext(items))
            for _ in range(turns):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait((asking,))

    return read()


@pytest.mark.parametrize("leave", [_broken_out, _given_up])
def test_what_is_dropped_is_closed(
    leave: Callable[[Iteration[int]], Coroutine[Any, Any, None]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)

    async def test() -> None:
        counting = Counting(groups=10_000)
        await leave(iterate(counting.steps()))
        gc.collect()
        while not counting.ended:
            await asyncio.sleep(0)

    run(test())
    assert not caplog.records


def test_an_error_that_nobody_waits_for_is_no_complaint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        async def steps() -> AsyncGenerator[tuple[int]]:
            await asyncio.sleep(0)
            raise TransportError("link.closed", "over")
            yield (1,)

        async def one() -> None:
            items = iterate(steps())
            asking = asyncio.ensure_future(anext(items))
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait((asking,))
            await asyncio.sleep(0.01)

        await one()
        gc.collect()

    run(test())
    assert not caplog.records
