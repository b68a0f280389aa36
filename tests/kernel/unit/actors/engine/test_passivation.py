import gc
import tracemalloc
from functools import partial
from typing import Any

from thespian.actors import Actor

from actor_support import Probe, boom, tell
from link_support import ManualClock
from rillnode.actors.engine.cell import GONE, Cell
from rillnode.actors.engine.lifecycle import LOOK_CELLS_MAX
from rillnode.actors.engine.system import AsyncioSystemBase

IDLE = 10.0


class Sleepy(Probe):
    idle_seconds = IDLE
    willing = True

    def may_passivate(self) -> bool:
        return self.willing


def go_idle(clock: ManualClock) -> None:
    clock.advance(2 * IDLE)


async def test_an_idle_instance_goes_and_its_cell_stays(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    heard, notes = list[Any](), list[Any]()
    parent = base.spawn(partial(Probe, heard))
    cell = base.spawn(partial(Sleepy, notes), parent=parent)
    await base.drain()
    clock.advance(IDLE)
    assert cell.instance is not None
    clock.advance(IDLE)
    assert cell.instance is None
    assert cell.mailbox is not GONE
    assert cell.kind.stats(0).cells == 1
    assert cell.kind.stats(0).instances == 0
    await base.drain()
    assert heard == [], "its parent hears nothing"


async def test_the_next_message_brings_a_new_instance_of_the_same_factory(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    notes = list[Any]()
    cell = base.spawn(partial(Sleepy, notes))
    await base.drain()
    for number in range(3):
        go_idle(clock)
        assert cell.instance is None
        base.post(cell, number)
        await base.drain()
        assert isinstance(cell.instance, Sleepy)
        assert cell.instance.address is cell
    assert notes == [0, 1, 2]


async def test_started_is_called_again_and_stopped_is_not(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    class Hooked(Sleepy):
        def started(self) -> None:
            self.notes.append("started")

        def stopped(self) -> None:
            self.notes.append("stopped")

    notes = list[Any]()
    cell = base.spawn(partial(Hooked, notes))
    await base.drain()
    go_idle(clock)
    base.post(cell, "wake")
    await base.drain()
    assert notes == ["started", "started", "wake"]


async def test_an_actor_that_had_a_turn_is_not_idle(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    cell = base.spawn(Sleepy)
    await base.drain()
    for _ in range(10):
        clock.advance(IDLE * 0.9)
        base.post(cell, "busy")
        await base.drain()
    assert cell.kind.stats(0).instances == 1
    assert cell.instance is not None


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


async def test_a_pending_timer_keeps_the_instance(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    notes = list[Any]()
    cell = base.spawn(partial(Sleepy, notes))
    tell(base, cell, lambda actor, _: actor.wake_after(5 * IDLE, "awake"))
    await base.drain()
    before = cell.instance
    clock.advance(5 * IDLE)
    await base.drain()
    assert notes[1:] == ["awake"]
    assert cell.instance is before
    go_idle(clock)
    assert cell.instance is None


async def test_an_unwilling_actor_stays_and_one_whose_hook_fails_too(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    class Failing(Sleepy):
        def may_passivate(self) -> bool:
            boom()
            return True

    unwilling, failing = base.spawn(Sleepy), base.spawn(Failing)
    await base.drain()
    assert isinstance(unwilling.instance, Sleepy)
    unwilling.instance.willing = False
    go_idle(clock)
    assert unwilling.instance is not None
    assert failing.instance is not None
    assert failing.kind.stats(0).failures >= 1
    unwilling.instance.willing = True
    go_idle(clock)
    assert unwilling.instance is None


async def test_an_actor_with_messages_waiting_stays(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    cell = base.spawn(Sleepy)
    await base.drain()
    clock.advance(IDLE)
    base.post(cell, "waits")
    clock.advance(IDLE)
    assert cell.instance is not None


async def test_plain_thespian_actors_can_have_an_idle_time(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    class Plain(Actor):
        idle_seconds = IDLE

        def receiveMessage(self, msg: Any, sender: Any) -> None:
            self.send(sender, msg)

    cell = base.spawn(Plain)
    await base.drain()
    go_idle(clock)
    assert cell.instance is None
    assert await base.ask(cell, "still there", 1.0) == "still there"


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


async def test_an_instance_that_came_after_failures_is_looked_at_too(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    failures = [ValueError(), ValueError()]

    def make() -> Sleepy:
        if failures:
            raise failures.pop()
        return Sleepy()

    cell = base.spawn(make)
    base.post(cell, "now")
    await base.drain()
    assert cell.instance is not None
    go_idle(clock)
    assert cell.instance is None


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


async def test_a_shutdown_makes_no_instances(base: AsyncioSystemBase, clock: ManualClock) -> None:
    notes = list[Any]()

    class Noting(Sleepy):
        def started(self) -> None:
            notes.append("started")

    for _ in range(10):
        base.spawn(Noting)
    await base.drain()
    go_idle(clock)
    await base.shutdown()
    assert len(notes) == 10


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
