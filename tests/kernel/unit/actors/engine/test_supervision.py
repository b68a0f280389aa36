import asyncio
import logging
from functools import partial
from typing import Any

import pytest
from thespian.actors import Actor, ChildActorExited, PoisonMessage

from actor_support import Boom, Probe, boom, run, tell
from link_support import ManualClock
from rillnode.actors.engine.cell import GONE, Cell
from rillnode.actors.engine.kinds import ActorStats
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.actors.engine.worker import Worker


class Restarting(Probe):
    on_failure = "restart"
    restarts_max = 4
    restart_window_seconds = 10.0

    made: list["Restarting"]

    def __init__(self, notes: list[Any], made: list["Restarting"]) -> None:
        super().__init__(notes)
        made.append(self)

    def started(self) -> None:
        self.notes.append("started")

    def stopped(self) -> None:
        self.notes.append("stopped")


class Stopping(Probe):
    on_failure = "stop"


def fail_times(count: int) -> Any:
    """A deed that fails as often as told, then succeeds."""
    left = [count]

    def fail(actor: Probe, _: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise Boom("as told")

    return fail


def stats_of(base: AsyncioSystemBase, actor_class: type[Actor]) -> ActorStats:
    return base.stats()[f"{actor_class.__module__}.{actor_class.__qualname__}"]


class Twice(Probe):
    attempts = 2


async def test_a_message_is_tried_once_unless_its_class_says_otherwise(
    base: AsyncioSystemBase,
) -> None:
    notes = list[Any]()
    cell, fail = base.spawn(partial(Probe, notes)), fail_times(1)
    base.post(cell, fail)
    base.post(cell, "next")
    await base.drain()
    assert notes == [fail, "next"]
    assert base.dead_letters.reasons == {"poison": 1}


async def test_a_failed_message_is_tried_again_before_any_other(base: AsyncioSystemBase) -> None:
    notes = list[Any]()
    cell, fail = base.spawn(partial(Twice, notes)), fail_times(1)
    base.post(cell, fail)
    base.post(cell, "next")
    await base.drain()
    assert notes == [fail, fail, "next"]
    assert stats_of(base, Twice).failures == 1
    assert base.dead_letters.count == 0


async def test_the_last_failure_of_a_message_makes_it_poison_for_its_sender(
    base: AsyncioSystemBase,
) -> None:
    heard, notes = list[Any](), list[Any]()
    sender, cell = base.spawn(partial(Probe, heard)), base.spawn(partial(Twice, notes))
    base.post(cell, boom, sender)
    base.post(cell, "next", sender)
    await base.drain()
    assert notes == [boom, boom, "next"]
    (poison,) = heard
    assert isinstance(poison, PoisonMessage)
    assert poison.poisonMessage is boom
    assert "Boom: as told" in (poison.details or "")


async def test_poison_without_a_sender_and_poison_that_poisons_are_dead_letters(
    base: AsyncioSystemBase,
) -> None:
    class Touchy(Probe):
        def handle(self, message: Any, sender: Any) -> None:
            boom()

    one, other = base.spawn(Touchy), base.spawn(Touchy)
    base.post(one, "nobody's")
    base.post(one, "somebody's", other)
    await base.drain()
    letters = [letter.message for letter in base.dead_letters]
    assert letters[0] == "nobody's"
    assert isinstance(letters[1], PoisonMessage)
    assert base.dead_letters.reasons == {"poison": 2}


async def test_resume_keeps_the_instance(base: AsyncioSystemBase) -> None:
    cell = base.spawn(Probe)
    await base.drain()
    before = cell.instance
    base.post(cell, boom)
    await base.drain()
    assert cell.instance is before is not None


async def test_restart_makes_a_new_instance_at_the_same_address(base: AsyncioSystemBase) -> None:
    notes, made = list[Any](), list[Restarting]()
    cell, fail = base.spawn(partial(Restarting, notes, made)), fail_times(1)
    base.post(cell, fail)
    base.post(cell, "next")
    await base.drain()
    assert notes == ["started", fail, "stopped", "started", "next"]
    assert len(made) == 2
    assert cell.instance is made[1]
    assert made[1].address is cell
    assert stats_of(base, Restarting).restarts == 1


async def test_a_restart_drops_the_old_instances_timers(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    notes = list[Any]()
    cell = base.spawn(partial(Restarting, notes, []))
    tell(base, cell, lambda actor, _: actor.wake_after(1.0, "old"))
    base.post(cell, fail_times(1))
    tell(base, cell, lambda actor, _: actor.wake_after(1.0, "new"))
    await base.drain()
    clock.advance(2.0)
    await base.drain()
    assert notes[-1] == "new"
    assert "old" not in notes


async def test_restarts_above_the_intensity_stop_the_actor(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    heard = list[Any]()
    parent = base.spawn(partial(Probe, heard))
    cell = base.spawn(partial(Restarting, [], []), parent=parent)
    for _ in range(5):
        base.post(cell, boom, parent)
    base.post(cell, "behind", parent)
    await base.drain()
    assert cell.mailbox is GONE
    assert stats_of(base, Restarting).restarts == 4
    assert [type(message) for message in heard] == [PoisonMessage] * 5 + [ChildActorExited]
    assert [letter.message for letter in base.dead_letters] == ["behind"]


async def test_restarts_long_ago_do_not_count(base: AsyncioSystemBase, clock: ManualClock) -> None:
    cell = base.spawn(partial(Restarting, [], []))
    for _ in range(20):
        base.post(cell, boom)
        await base.drain()
        clock.advance(Restarting.restart_window_seconds / 2)
    assert cell.mailbox is not GONE
    assert stats_of(base, Restarting).restarts == 20


async def test_stop_ends_the_actor_at_its_first_failure(base: AsyncioSystemBase) -> None:
    heard, notes = list[Any](), list[Any]()
    parent = base.spawn(partial(Probe, heard))
    cell = base.spawn(partial(Stopping, notes), parent=parent)
    child = base.spawn(Probe, parent=cell)
    base.post(cell, boom, parent)
    base.post(cell, "behind")
    await base.drain()
    assert notes == [boom]
    assert cell.mailbox is GONE
    assert child.mailbox is GONE
    assert heard[0] == PoisonMessage(boom)
    assert heard[1:] == [ChildActorExited(cell)]
    assert [letter.reason for letter in base.dead_letters] == ["unhandled"]


async def test_a_factory_that_fails_is_tried_again_and_costs_no_message(
    base: AsyncioSystemBase,
) -> None:
    notes, failures = list[Any](), [Boom("no"), Boom("no")]

    def make() -> Probe:
        if failures:
            raise failures.pop()
        return Probe(notes)

    cell = base.spawn(make)
    base.post(cell, "now")
    await base.drain()
    assert notes == ["now"]
    assert cell.instance is not None
    assert base.stats()["actor_support.Probe"].cells == 1


async def test_a_start_that_fails_once_is_tried_again(base: AsyncioSystemBase) -> None:
    class Unlucky(Probe):
        def started(self) -> None:
            if luck:
                raise luck.pop()
            self.notes.append("started")

    luck = [Boom("not yet")]
    notes = list[Any]()
    base.post(base.spawn(partial(Unlucky, notes)), "message")
    await base.drain()
    assert notes == ["started", "message"]


async def test_the_failure_after_the_last_restart_is_told_as_any(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    class Once(Restarting):
        restarts_max = 1

    heard = list[Any]()
    sender = base.spawn(partial(Probe, heard))
    cell = base.spawn(partial(Once, [], []))
    for _ in range(2):
        base.post(cell, boom, sender)
    await base.drain()
    assert cell.mailbox is GONE
    assert base.given_up(cell)
    assert heard == [PoisonMessage(boom)] * 2


async def test_a_constructor_that_always_fails_exhausts_the_restarts(
    base: AsyncioSystemBase,
) -> None:
    class Stillborn(Worker):
        restarts_max = 3

        def __init__(self) -> None:
            boom()

    heard = list[Any]()
    parent = base.spawn(partial(Probe, heard))
    cell = base.spawn(Stillborn, parent=parent)
    await base.drain()
    assert cell.mailbox is GONE
    assert heard == [ChildActorExited(cell)]
    assert stats_of(base, Stillborn).failures == 4
    assert stats_of(base, Stillborn).instances == 0


async def test_a_start_that_fails_leaves_no_instance_and_no_timer(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    class BadStart(Probe):
        def started(self) -> None:
            self.wake_after(1.0, "never")
            boom()

    cell = base.spawn(BadStart)
    await base.drain()
    assert cell.instance is None
    assert cell.owned is None
    assert clock.timers == 0


async def test_a_failing_stop_hook_does_not_stop_the_stop(base: AsyncioSystemBase) -> None:
    class BadStop(Probe):
        def stopped(self) -> None:
            boom()

    cell = base.spawn(BadStop)
    base.exit(cell)
    await base.drain()
    assert cell.mailbox is GONE
    assert stats_of(base, BadStop).failure_reasons == {"Boom": 1}


async def test_a_cancelled_result_is_the_actors_own_failure(base: AsyncioSystemBase) -> None:
    def look(*_: Any) -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        future.result()

    notes = list[Any]()
    cell = base.spawn(partial(Probe, notes))
    base.post(cell, look)
    base.post(cell, "next")
    await base.drain()
    assert notes == [look, "next"]
    assert stats_of(base, Probe).failure_reasons == {"CancelledError": 1}


async def test_a_plain_thespian_actor_is_resumed(base: AsyncioSystemBase) -> None:
    class Plain(Actor):
        def receiveMessage(self, msg: Any, sender: Any) -> None:
            boom()

    cell = base.spawn(Plain)
    await base.drain()
    before = cell.instance
    base.post(cell, "fail")
    await base.drain()
    assert cell.instance is before
    assert stats_of(base, Plain).failures == 2


async def test_an_unknown_policy_is_refused(base: AsyncioSystemBase) -> None:
    policy: Any = "retry"
    wrong = type("Wrong", (Probe,), {"on_failure": policy})
    with pytest.raises(ValueError, match="on_failure is 'retry', not one of"):
        base.spawn(wrong)


def test_every_failure_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    async def test(base: AsyncioSystemBase, _: ManualClock) -> Cell:
        cell = base.spawn(Stopping, name="fragile")
        base.post(cell, boom)
        await base.drain()
        return cell

    run(test)
    failed, stopped = [one for one in caplog.records if one.name.startswith("rillnode.")]
    assert failed.msg == "actor_failed"
    assert failed.exc_info is not None
    assert isinstance(failed.exc_info[1], Boom)
    assert vars(failed)["actor"] == "fragile"
    assert vars(failed)["doing"] == "function"
    assert stopped.msg == "actor_stopped_by_failure"
    assert stopped.levelno == logging.ERROR
