import asyncio
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from thespian.actors import (
    Actor,
    ActorAddress,
    ActorExitRequest,
    ActorSystemMessage,
    DeadEnvelope,
    InvalidActorAddress,
    Thespian_ActorStatus,
    Thespian_StatusReq,
)

from actor_support import Boom, Echo, Probe, boom, tell
from link_support import ManualClock
from rillnode.actors.engine.cell import EMPTY, GONE, Cell
from rillnode.actors.engine.dead_letters import KEPT_MAX
from rillnode.actors.engine.kinds import TURN_BOUNDS
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.actors.engine.turns import PUMP_MESSAGES_MAX
from rillnode.actors.engine.worker import Worker


async def handled_per_loop_turn(base: AsyncioSystemBase, notes: list[Any]) -> list[int]:
    """Let the actors work; the number of notes taken in each turn of the loop."""
    counts = list[int]()
    drained = asyncio.ensure_future(base.drain())
    while not drained.done():
        before = len(notes)
        await asyncio.sleep(0)
        counts.append(len(notes) - before)
    return counts


async def test_messages_of_a_sender_are_handled_in_order_and_never_before_the_posts_return(
    base: AsyncioSystemBase,
) -> None:
    notes = list[Any]()
    cell = base.spawn(partial(Probe, notes))
    for number in range(100):
        base.post(cell, number)
    assert notes == []
    await base.drain()
    assert notes == list(range(100))


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


async def test_what_an_actor_sends_itself_comes_after_what_it_already_has(
    base: AsyncioSystemBase,
) -> None:
    notes = list[Any]()
    cell = base.spawn(partial(Probe, notes))
    tell(base, cell, lambda actor, _: actor.send(actor.address, "own"))
    base.post(cell, "other")
    await base.drain()
    assert notes[1:] == ["other", "own"]


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


async def test_a_message_to_an_exited_actor_is_a_dead_letter(base: AsyncioSystemBase) -> None:
    cell, sender = base.spawn(Probe), base.spawn(Probe)
    base.exit(cell)
    await base.drain()
    base.post(cell, "late", sender)
    (letter,) = base.dead_letters
    assert (letter.target, letter.message, letter.sender) == (cell, "late", sender)
    assert letter.reason == "gone"
    assert base.dead_letters.count == 1
    base.exit(cell)
    assert base.dead_letters.count == 1, "an exit that was already done is none"


async def test_what_an_actor_leaves_behind_is_a_dead_letter(base: AsyncioSystemBase) -> None:
    cell = base.spawn(Probe)
    tell(base, cell, lambda actor, _: actor.send(actor.address, "to itself"))
    base.exit(cell)
    base.post(cell, "behind the exit")
    await base.drain()
    assert cell.mailbox is GONE
    letters = [(letter.message, letter.reason) for letter in base.dead_letters]
    assert sorted(letters) == [("behind the exit", "unhandled"), ("to itself", "unhandled")]


async def test_only_the_newest_dead_letters_are_kept_and_all_are_counted(
    base: AsyncioSystemBase,
) -> None:
    cell = base.spawn(Probe)
    base.exit(cell)
    await base.drain()
    for number in range(KEPT_MAX + 7):
        base.post(cell, number)
    assert [letter.message for letter in base.dead_letters] == [*range(7, KEPT_MAX + 7)]
    assert len(base.dead_letters) == KEPT_MAX
    assert base.dead_letters.reasons["gone"] == base.dead_letters.count == KEPT_MAX + 7


async def test_an_actor_can_get_the_dead_letters(base: AsyncioSystemBase) -> None:
    notes = list[Any]()
    undertaker, dead = base.spawn(partial(Probe, notes)), base.spawn(Probe)
    base.exit(dead)
    await base.drain()
    tell(base, undertaker, lambda actor, _: actor.handleDeadLetters())
    await base.drain()
    base.post(dead, "one")
    await base.drain()
    assert notes[1:] == [DeadEnvelope(dead, "one")]
    tell(base, undertaker, lambda actor, _: actor.handleDeadLetters(False))
    await base.drain()
    base.post(dead, "two")
    await base.drain()
    assert len(notes) == 3


async def test_dead_letters_do_not_go_round_when_their_handler_is_dead(
    base: AsyncioSystemBase,
) -> None:
    undertaker = base.spawn(Probe)
    tell(base, undertaker, lambda actor, _: actor.handleDeadLetters())
    base.exit(undertaker)
    base.post(undertaker, "behind the exit")
    await base.drain()
    base.post(undertaker, "late")
    assert base.dead_letters.reasons == {"unhandled": 1, "gone": 1}


async def test_an_address_of_nothing_gets_nothing_and_no_address_is_an_error(
    base: AsyncioSystemBase,
) -> None:
    base.post(ActorAddress("elsewhere"), "lost")
    base.post(base.address, "to the system")
    assert base.address == base.address
    assert base.address != ActorAddress("system")
    assert base.dead_letters.reasons == {"unknown": 1, "unwanted": 1}
    nothing: Any = None
    with pytest.raises(InvalidActorAddress):
        base.post(nothing, "lost")


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


async def test_a_thespian_actor_sees_its_exit_request_and_a_worker_does_not(
    base: AsyncioSystemBase,
) -> None:
    class Plain(Actor):
        def __init__(self, notes: list[Any]) -> None:
            super().__init__()
            self._notes = notes

        def receiveMessage(self, msg: Any, sender: Any) -> None:
            self._notes.append(msg)

    plain_notes, notes = list[Any](), list[Any]()
    base.exit(base.spawn(partial(Plain, plain_notes)))
    base.exit(base.spawn(partial(Probe, notes)))
    await base.drain()
    assert plain_notes == [ActorExitRequest()]
    assert notes == []


async def test_an_actor_that_fails_at_its_exit_exits(base: AsyncioSystemBase) -> None:
    class Confused(Actor):
        def receiveMessage(self, msg: Any, sender: Any) -> None:
            boom()

    cell = base.spawn(Confused)
    base.exit(cell)
    await base.drain()
    assert cell.mailbox is GONE
    (stats,) = base.stats().values()
    assert stats.failure_reasons == {Boom.__name__: 1}


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


async def test_other_messages_of_the_system_reach_the_actor(base: AsyncioSystemBase) -> None:
    class Other(ActorSystemMessage):
        pass

    notes = list[Any]()
    message = Other()
    base.post(base.spawn(partial(Probe, notes)), message)
    await base.drain()
    assert notes == [message]


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
    stats = base.stats()["actor_support.Probe"]
    assert (stats.cells, stats.instances, stats.mailbox_depth) == (2, 2, 2)
    assert stats.handled == 3 + 3 + 1  # each Start, what was posted, the exit
    assert stats.failures == 1
    assert stats.failure_reasons == {"Boom": 1}
    assert stats.last_failure == "Boom: as told"
    assert stats.slowest_handler_seconds == pytest.approx(0.25)
    # Turns: three first ones, the slow one, the failing one and what came behind it, the exit.
    assert stats.turns == [6, *(int(bound == 0.25) for bound in TURN_BOUNDS[1:]), 0]
    assert stats.turn_seconds == pytest.approx(0.25)
    assert base.stats()["actor_support.Echo"].mailbox_depth == 1
