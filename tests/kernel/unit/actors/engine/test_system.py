import asyncio
import threading
from functools import partial
from typing import Any

from thespian.actors import ActorExitRequest

from link_support import ManualClock
from rillnode.actors.engine.cell import GONE
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.node.testing.contract.engines.parts import Echo, Probe, boom


async def test_who_gives_up_asking_leaves_no_timer(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    cell = base.spawn(Probe)
    task = asyncio.ensure_future(base.ask(cell, "no answer", 5.0))
    await asyncio.sleep(0)
    assert clock.timers == 1
    task.cancel()
    await asyncio.wait([task])
    assert clock.timers == 0


# The system's life -------------------------------------------------------------------------------


async def test_drain_waits_for_what_threads_have_sent(base: AsyncioSystemBase) -> None:
    notes = list[Any]()
    cell, gone = base.spawn(partial(Probe, notes)), base.spawn(Probe)
    base.exit(gone)
    await base.drain()
    base.post_threadsafe([(cell, 1), (gone, 2)])
    await base.drain()
    assert notes == [1]
    base.post_threadsafe([(gone, 3)])
    await base.drain()
    assert base.dead_letters.count == 2


async def test_systems_in_one_process_share_nothing(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    other = AsyncioSystemBase(clock=clock)
    mine = base.create_child(None, Probe, global_name="the one")
    yours = other.create_child(None, Probe, global_name="the one")
    assert mine is not yours
    base.post(mine, boom)
    base.exit(mine)
    await base.drain()
    base.post(mine, "dead")
    assert (base.dead_letters.count, other.dead_letters.count) == (2, 0)
    assert other.stats()[f"{Probe.__module__}.Probe"].failures == 0
    assert yours.mailbox is not GONE
    await base.shutdown()
    other.post(yours, "alive")
    await other.drain()
    await other.shutdown()


def test_without_a_clock_timers_are_the_loops() -> None:
    async def main() -> Any:
        base = AsyncioSystemBase()
        cell = base.spawn(Probe)
        waiter = asyncio.get_running_loop().create_future()

        def ring(*_: Any) -> None:
            waiter.set_result("rung")

        await base.drain()
        base.wake_after(cell, 0.001, ring)
        result = await asyncio.wait_for(waiter, 60.0)
        await base.shutdown()
        return result

    assert asyncio.run(main()) == "rung"


# A loop of its own -------------------------------------------------------------------------------


def test_without_a_running_loop_the_system_has_one_in_a_named_thread() -> None:
    before = set(threading.enumerate())
    base = AsyncioSystemBase(name="own-actors")
    assert [thread.name for thread in threading.enumerate()].count("own-actors") == 1
    cell = base.newPrimaryActor(Echo)
    blocking: Any = base
    assert blocking.ask(cell, "hello", 60.0) == "hello"
    base.tell(cell, "told")
    assert base.listen(60.0) == "told"
    base.tell(cell, ActorExitRequest())
    assert blocking.ask(cell, "gone", 0.01) is None
    base.shutdown()
    base.shutdown()
    assert set(threading.enumerate()) <= before
    base.tell(cell, "after")
    assert base.dead_letters.count == 2


def test_what_ends_a_thread_elsewhere_does_not_end_that_loop() -> None:
    base = AsyncioSystemBase()
    blocking: Any = base

    def leave() -> None:
        raise SystemExit(3)

    blocking._loop.call_soon_threadsafe(leave)
    echo = base.newPrimaryActor(Echo)
    assert blocking.ask(echo, "hello", 60.0) == "hello"
    base.shutdown()


def test_these_tests_run_on_both_kinds_of_loops(kind_of_loop: str) -> None:
    async def module() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert asyncio.run(module()).partition(".")[0] == kind_of_loop
