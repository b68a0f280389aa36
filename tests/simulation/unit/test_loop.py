"""Virtual time and the event loops of simulated processes."""

import asyncio
import gc
import weakref
from collections.abc import Coroutine, Generator
from contextvars import ContextVar
from typing import Any, TypeVar

import pytest

from rillnode.node.simulation.interpreter import one_by_one
from rillnode.node.simulation.loop import ProcessLoop, Scheduler, SimulationStuck

T = TypeVar("T")


class World:
    """A scheduler and one process."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.loop = ProcessLoop(self.scheduler, "one")

    def run(self, coroutine: Coroutine[Any, Any, T], loop: ProcessLoop | None = None) -> T:
        task = (loop or self.loop).create_task(coroutine)
        self.scheduler.run_until(task)
        return task.result()


@pytest.fixture
def world() -> Generator[World]:
    found = World()
    yield found
    found.loop.close()


def test_sleeping_moves_time_and_nothing_else(world: World) -> None:
    world.run(asyncio.sleep(86_400.0))
    assert world.scheduler.now == 86_400.0


def test_timers_run_in_the_order_of_their_times_and_then_of_their_making(world: World) -> None:
    found: list[int] = []
    for number, when in enumerate((3.0, 1.0, 2.0, 1.0)):
        world.loop.call_at(when, found.append, number)
    world.run(asyncio.sleep(5.0))
    assert found == [1, 3, 2, 0]


def test_a_cancelled_timer_neither_runs_nor_moves_time(world: World) -> None:
    found: list[int] = []
    world.loop.call_later(1.0, found.append, 1).cancel()
    world.run(asyncio.sleep(0.5))
    assert found == []
    assert world.scheduler.now == 0.5


def test_a_cancelled_callback_that_is_ready_does_not_run(world: World) -> None:
    found: list[int] = []
    handle = world.loop.call_soon(found.append, 1)
    handle.cancel()
    world.run(asyncio.sleep(0.0))
    assert handle.cancelled()
    assert found == []


def test_a_timer_knows_its_time(world: World) -> None:
    world.run(asyncio.sleep(2.0))
    assert world.loop.call_later(1.5, print).when() == 3.5


def test_a_callback_sees_the_context_in_which_it_was_made(world: World) -> None:
    variable: ContextVar[int] = ContextVar("variable", default=0)
    found: list[int] = []

    def look() -> None:
        found.append(variable.get())
        variable.set(99)

    async def make() -> None:
        variable.set(1)
        world.loop.call_soon(look)
        variable.set(2)
        world.loop.call_later(1.0, look)
        variable.set(3)
        await asyncio.sleep(2.0)
        found.append(variable.get())

    world.run(make())
    assert found == [1, 2, 3]
    assert variable.get() == 0


def test_each_process_finds_its_own_loop(world: World) -> None:
    other = ProcessLoop(world.scheduler, "two")

    async def where() -> asyncio.AbstractEventLoop:
        await asyncio.sleep(1.0)
        return asyncio.get_running_loop()

    task = other.create_task(where())
    assert world.run(where()) is world.loop
    assert world.run(where(), other) is other
    assert task.done()


def test_a_paused_process_catches_up_when_it_goes_on(world: World) -> None:
    other, found = ProcessLoop(world.scheduler, "two"), list[float]()

    async def tick() -> None:
        while True:
            await asyncio.sleep(1.0)
            found.append(world.scheduler.now)

    task = other.create_task(tick())
    world.run(asyncio.sleep(2.5))
    other.pause()
    world.run(asyncio.sleep(10.0))
    assert found == [1.0, 2.0]
    other.resume()
    world.run(asyncio.sleep(1.25))
    assert found == [1.0, 2.0, 12.5, 13.5]
    assert not task.done()


def test_a_dead_process_never_runs_again(world: World) -> None:
    other, found = ProcessLoop(world.scheduler, "two"), list[str]()

    async def work() -> None:
        try:
            await asyncio.sleep(1.0)
            found.append("worked")
        finally:
            found.append("ended")

    task = other.create_task(work())
    world.run(asyncio.sleep(0.5))
    other.kill()
    other.resume()
    world.run(asyncio.sleep(5.0))
    assert found == []
    assert not task.done()
    other.close()
    assert found == ["ended"]


@pytest.mark.filterwarnings("error:.*never awaited")
def test_a_task_of_a_dead_process_finds_its_loop_at_the_end_and_leaves_no_complaint(
    world: World,
) -> None:
    found: list[object] = []

    async def close() -> None:
        found.append("closed")

    async def work() -> None:
        try:
            await asyncio.sleep(5.0)
        finally:
            closing = close()
            found.append(asyncio.get_running_loop())
            await asyncio.get_running_loop().create_task(closing)

    task = world.loop.create_task(work())
    world.run(asyncio.sleep(1.0))
    world.loop.kill()
    world.loop.close()
    del task
    gc.collect()
    assert found == [world.loop]


def test_executors_work_inline(world: World) -> None:
    async def use() -> int:
        return await asyncio.to_thread(lambda: 42)

    assert world.run(use()) == 42
    assert world.scheduler.now == 0.0


def test_what_an_executor_raises_reaches_who_waits(world: World) -> None:
    async def use() -> None:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)

    world.run(use())


def test_timeouts_are_virtual(world: World) -> None:
    async def wait() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1_000.0):
                await asyncio.Event().wait()

    world.run(wait())
    assert world.scheduler.now == 1_000.0


def test_waiting_for_what_cannot_happen_is_an_error(world: World) -> None:
    with pytest.raises(SimulationStuck):
        world.run(asyncio.Event().wait())


def test_failures_that_nobody_sees_are_noted(world: World) -> None:
    async def fail() -> None:
        raise ValueError("lost")

    def callback() -> None:
        raise ValueError("callback")

    async def seen() -> None:
        with pytest.raises(ValueError, match="lost"):
            await asyncio.get_running_loop().create_task(fail())

    world.run(seen())
    assert world.loop.unseen_failures() == []
    unseen = world.loop.create_task(fail())
    world.loop.call_soon(callback)
    world.run(asyncio.sleep(1.0))
    assert world.loop.unseen_failures() == ["ValueError('lost')"]
    assert [str(error["exception"]) for error in world.loop.errors] == ["callback"]
    assert unseen.done()


class Cycle:
    """A cycle that only the garbage collector frees."""

    def __init__(self) -> None:
        self.itself = self


def test_garbage_of_a_run_is_collected_before_the_next_one_and_no_sooner() -> None:
    left: list[weakref.ref[Cycle]] = []
    frozen = gc.get_freeze_count()
    for _ in one_by_one(range(3)):
        assert [one() for one in left] == [None] * len(left)
        assert not gc.isenabled()
        left.append(weakref.ref(Cycle()))
        assert left[-1]() is not None
    assert left[-1]() is None
    for _ in one_by_one(range(3)):
        left.append(weakref.ref(Cycle()))
        for _ in one_by_one(range(3)):  # as for a run that is shortened
            left.append(weakref.ref(Cycle()))
            break
        assert [one() for one in left] == [None] * len(left)
        assert not gc.isenabled()
        break
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen
