import gc
import tracemalloc
from functools import partial
from typing import Any

from link_support import ManualClock
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.lifecycle import LOOK_CELLS_MAX
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.node.testing.contract.engines.parts import Probe, boom

IDLE = 10.0


class Sleepy(Probe):
    idle_seconds = IDLE


def go_idle(clock: ManualClock) -> None:
    clock.advance(2 * IDLE)


async def test_a_turn_that_was_cut_short_counts_too(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    cell = base.spawn(Sleepy)
    await base.drain()
    clock.advance(IDLE)

    def long(*_: Any) -> None:
        clock.now += 1.0

    for _ in range(3):
        base.post(cell, long)
    await base.drain()
    clock.advance(IDLE - 3.0)
    assert cell.instance is not None


async def test_nobody_looks_while_there_is_nothing_to_look_at(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    cell = base.spawn(Sleepy)
    other = base.spawn(Probe)
    await base.drain()
    assert clock.timers == 1
    go_idle(clock)
    assert clock.timers == 0
    base.post(cell, "wake")
    base.post(other, "has no idle time")
    await base.drain()
    assert clock.timers == 1
    base.exit(cell)
    await base.drain()
    go_idle(clock)
    assert clock.timers == 0


async def test_a_restarted_instance_is_looked_at_once(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    class Restarting(Sleepy):
        on_failure = "restart"

    cell = base.spawn(Restarting)
    base.post(cell, boom)
    await base.drain()
    assert base.life.passivation.awake == {cell.kind: [cell]}
    go_idle(clock)
    assert cell.instance is None


async def test_many_cells_are_looked_at_in_parts(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    class Counting(ManualClock):
        def call_later(self, seconds: float, callback: Any) -> Any:
            delays.append(seconds)
            return super().call_later(seconds, callback)

    delays = list[float]()
    clock = Counting()
    base = AsyncioSystemBase(clock=clock)
    cells = [base.spawn(Sleepy) for _ in range(3 * LOOK_CELLS_MAX)]
    await base.drain()
    go_idle(clock)
    assert all(cell.instance is None for cell in cells)
    assert delays == [IDLE, 0.0, 0.0, IDLE, 0.0, 0.0]
    await base.shutdown()


async def test_a_passivated_cell_is_small(base: AsyncioSystemBase, clock: ManualClock) -> None:
    count = 10_000
    parent = base.spawn(Probe)
    notes = list[Any]()
    await base.drain()
    gc.collect()
    tracemalloc.start()
    cells: list[Cell] = [base.spawn(partial(Sleepy, notes), parent=parent) for _ in range(count)]
    await base.drain()
    go_idle(clock)
    gc.collect()
    size = tracemalloc.get_traced_memory()[0] / count
    tracemalloc.stop()
    assert all(cell.instance is None for cell in cells)
    assert size <= 500, "with its mailbox, its factory and its place in the parent"
