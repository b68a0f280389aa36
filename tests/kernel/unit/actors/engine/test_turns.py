import asyncio
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from thespian.actors import (
    Actor,
    Thespian_ActorStatus,
    Thespian_StatusReq,
)

from actor_support import tell
from link_support import ManualClock
from rillnode.actors.engine.cell import EMPTY, Cell
from rillnode.actors.engine.kinds import TURN_BOUNDS
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.actors.engine.turns import PUMP_MESSAGES_MAX
from rillnode.actors.engine.worker import Worker
from rillnode.node.testing.contract.engines.parts import Echo, Probe, boom


async def handled_per_loop_turn(base: AsyncioSystemBase, notes: list[Any]) -> list[int]:
    """Let the actors work; the number of notes taken in each turn of the loop."""
    counts = list[int]()
    drained = asyncio.ensure_future(base.drain())
    while not drained.done():
        before = len(notes)
        await asyncio.sleep(0)
        counts.append(len(notes) - before)
    return counts


async def test_what_a_callback_of_the_loop_brings_is_handled_before_it_returns(
    base: AsyncioSystemBase,
) -> None:
    notes = list[Any]()
    cell = base.spawn(partial(Probe, notes))
    await base.drain()

    def bring() -> None:
        base.post(cell, 1)
        base.post(cell, 2)
        assert notes == []

    base.mailboxes.at_once(bring)
    assert notes == [1, 2]
    # No turn of the loop was asked for, and the next message has its own.
    base.post(cell, 3)
    assert notes == [1, 2]
    await base.drain()
    assert notes == [1, 2, 3]


async def test_what_is_brought_during_a_turn_or_while_one_is_due_waits_for_it(
    base: AsyncioSystemBase,
) -> None:
    notes = list[Any]()
    cell = base.spawn(partial(Probe, notes))

    def inside(actor: Probe, _: Any) -> None:
        base.mailboxes.at_once(lambda: base.post(cell, "brought"))
        actor.notes.append("end of the turn")

    base.post(cell, inside)
    base.mailboxes.at_once(lambda: base.post(cell, "behind"))
    assert notes == []
    await base.drain()
    assert notes == [inside, "end of the turn", "behind", "brought"]


async def test_a_pump_that_was_called_at_once_leaves_the_rest_to_the_loop(
    base: AsyncioSystemBase,
) -> None:
    notes = list[Any]()
    cell = base.spawn(partial(Probe, notes))
    await base.drain()

    def bring() -> None:
        for number in range(PUMP_MESSAGES_MAX + 1):
            base.post(cell, number)

    base.mailboxes.at_once(bring)
    assert len(notes) == PUMP_MESSAGES_MAX
    await base.drain()
    assert len(notes) == PUMP_MESSAGES_MAX + 1


async def test_a_mailbox_is_taken_whole_and_is_the_shared_empty_one_when_idle(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    seen = list[object]()

    def look(actor: Probe, _: Any) -> None:
        seen.append(actor.address.mailbox)

    cell = base.spawn(Probe)
    for _ in range(3):
        base.post(cell, look)
    await base.drain()
    assert seen == [EMPTY] * 3
    assert cell.mailbox is EMPTY


class Flood(Worker):
    """Keeps its mailbox full, until it is told to stop."""

    mailbox_messages_max = 10

    def __init__(self, turns: list[int]) -> None:
        self._turns = turns
        self._stop = False

    def handle(self, message: Any, sender: Any) -> None:
        if message == "stop":
            self._stop = True
        elif not self._stop:
            self._turns[0] += 1
            self.send(self.address, message)


async def test_one_busy_actor_does_not_keep_thousands_of_others_waiting(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    turns, notes = [0], list[Any]()
    others = [base.spawn(partial(Probe, notes)) for _ in range(5_000)]
    flood = base.spawn(partial(Flood, turns))
    await base.drain()
    for _ in range(100):
        base.post(flood, "again", flood)  # as from itself, which is taken
    for number, other in enumerate(others):
        base.post(other, number)
    loop_turns = 0
    while len(notes) < len(others):
        await asyncio.sleep(0)
        loop_turns += 1
    assert notes == list(range(5_000)), "actors are served in the order they became ready"
    assert turns[0] <= 2 * 100, "the busy one had one turn before them, one with the last"
    assert loop_turns == -(-5_100 // PUMP_MESSAGES_MAX), "and the loop had its own turns"
    base.post(flood, "stop", flood)
    await base.drain()


async def test_the_loop_gets_its_turn_after_a_quota_of_messages(base: AsyncioSystemBase) -> None:
    notes = list[Any]()
    cell = base.spawn(partial(Probe, notes))
    await base.drain()
    for number in range(5_000):
        base.post(cell, number)
    counts = await handled_per_loop_turn(base, notes)
    assert max(counts) == PUMP_MESSAGES_MAX
    assert notes == list(range(5_000))


async def test_the_loop_gets_its_turn_after_a_slice_of_time(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    notes = list[Any]()

    def work(actor: Probe, _: Any) -> None:
        clock.now += 0.000_2

    one, other = (base.spawn(partial(Probe, notes)) for _ in range(2))
    await base.drain()
    for cell in (one, other):
        for _ in range(20):
            base.post(cell, work)
    assert max(await handled_per_loop_turn(base, notes)) == 3
    assert len(notes) == 40


async def test_what_a_slice_cut_off_stays_in_front(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    notes = list[Any]()

    def slow(actor: Probe, _: Any) -> None:
        clock.now += 1.0
        actor.send(actor.address, "last")

    cell = base.spawn(partial(Probe, notes))
    base.post(cell, slow)
    base.post(cell, "second")
    base.post(cell, "third")
    await base.drain()
    assert notes[1:] == ["second", "third", "last"]


async def test_what_is_the_hosts_passes_through_and_nothing_is_lost(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    notes = list[Any]()

    class Stop(GeneratorExit):
        pass

    def stop(*_: Any) -> None:
        raise Stop

    reported = list[Any]()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    one, other = (base.spawn(partial(Probe, notes)) for _ in range(2))
    for message in (stop, "one"):
        base.post(one, message)
    base.post(other, "two")
    await base.drain()
    assert [type(error) for error in reported] == [Stop]
    assert sorted(notes[1:]) == ["one", "two"]


async def test_an_actor_may_send_to_one_of_another_system(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    other = AsyncioSystemBase(clock=clock)
    notes = list[Any]()
    echo = other.spawn(Echo)
    probe = base.spawn(partial(Probe, notes))
    tell(base, probe, lambda actor, _: actor.send(echo, "there and back"))
    async with asyncio.timeout(60.0):
        while len(notes) < 2:
            await asyncio.sleep(0)
    assert notes[1] == "there and back"
    await other.shutdown()


async def test_receive_message_is_looked_up_for_each_message(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    class Swapping(Actor):
        def receiveMessage(self, msg: Any, sender: Any) -> None:
            self.send(sender, "first")
            vars(self)["receiveMessage"] = self.then

        def then(self, msg: Any, sender: Any) -> None:
            self.send(sender, "then")

    notes = list[Any]()
    probe, swapping = base.spawn(partial(Probe, notes)), base.spawn(Swapping)
    for _ in range(3):
        base.post(swapping, "go", probe)
    await base.drain()
    assert notes == ["first", "then", "then"]


async def test_a_status_request_is_answered_by_the_system(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    cell = base.spawn(Probe)
    child = base.spawn(Probe, parent=cell)
    tell(base, cell, lambda actor, _: actor.wakeupAfter(10))
    await base.drain()
    clock.advance(4.0)
    status = await base.ask(cell, Thespian_StatusReq(), 1.0)
    assert isinstance(status, Thespian_ActorStatus)
    assert status.actorClass == "Probe"
    assert status.childActors == [child]
    ((sleeper, timer),) = status.pendingWakeups
    assert sleeper is cell
    assert timer.duration == timedelta(seconds=6)


async def test_stats_count_by_class(base: AsyncioSystemBase, clock: ManualClock) -> None:
    def slow(*_: Any) -> None:
        clock.now += 0.25

    cells: list[Cell] = [base.spawn(Probe) for _ in range(3)]
    echo = base.spawn(Echo)
    await base.drain()
    base.post(cells[0], slow)
    base.post(cells[1], boom)
    base.post(cells[1], "fine")
    await base.drain()
    base.exit(cells[2])
    await base.drain()
    base.post(cells[0], 1)
    base.post(cells[0], 2)
    base.post(echo, 3, cells[0])
    stats = base.stats()[f"{Probe.__module__}.Probe"]
    assert (stats.cells, stats.instances, stats.mailbox_depth) == (2, 2, 2)
    assert stats.handled == 3 + 3 + 1  # each Start, what was posted, the exit
    assert stats.failures == 1
    assert stats.failure_reasons == {"Boom": 1}
    assert stats.last_failure == "Boom: as told"
    assert stats.slowest_handler_seconds == pytest.approx(0.25)
    # Turns: three first ones, the slow one, the failing one and what came behind it, the exit.
    assert stats.turns == [6, *(int(bound == 0.25) for bound in TURN_BOUNDS[1:]), 0]
    assert stats.turn_seconds == pytest.approx(0.25)
    assert base.stats()[f"{Echo.__module__}.Echo"].mailbox_depth == 1
