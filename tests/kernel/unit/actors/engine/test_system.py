import asyncio
import threading
from functools import partial
from typing import Any

import pytest
from thespian.actors import ActorExitRequest

from actor_support import Echo, Probe, boom, tell
from link_support import ManualClock
from rillnode.actors.engine.cell import GONE
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.codecs.errors import ActorError


async def code_of(awaitable: Any) -> str:
    with pytest.raises(ActorError) as caught:
        await awaitable
    return caught.value.code


# Asking ------------------------------------------------------------------------------------------


async def test_ask_returns_the_first_answer(base: AsyncioSystemBase, clock: ManualClock) -> None:
    def answer_twice(actor: Probe, sender: Any) -> None:
        actor.send(sender, "one")
        actor.send(sender, "two")

    cell = base.spawn(Probe)
    assert await base.ask(cell, answer_twice, 5.0) == "one"
    assert [letter.message for letter in base.dead_letters] == ["two"]
    assert base.dead_letters.reasons == {"unwanted": 1}
    assert clock.timers == 0


async def test_many_may_ask_at_once(base: AsyncioSystemBase) -> None:
    echo = base.spawn(Echo)
    answers = await asyncio.gather(*(base.ask(echo, number, 5.0) for number in range(1_000)))
    assert answers == list(range(1_000))


async def test_ask_times_out_on_the_given_clock_and_a_late_answer_is_counted(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    asked = list[Any]()

    def keep(_: Probe, sender: Any) -> None:
        asked.append(sender)

    cell = base.spawn(Probe)
    question = base.ask(cell, keep, 2.0)
    task = asyncio.ensure_future(question)
    await asyncio.sleep(0)
    await base.drain()
    clock.advance(1.9)
    await asyncio.sleep(0)
    assert not task.done()
    clock.advance(0.1)
    assert await code_of(task) == "message.timeout"
    base.post(asked[0], "late")
    assert base.dead_letters.reasons == {"unwanted": 1}


async def test_ask_fails_at_once_when_the_actor_is_gone(base: AsyncioSystemBase) -> None:
    cell = base.spawn(Probe)
    base.exit(cell)
    await base.drain()
    assert await code_of(base.ask(cell, "anyone?", 5.0)) == "actor.stopped"


async def test_ask_fails_when_the_actor_exits_with_the_question_in_its_mailbox(
    base: AsyncioSystemBase,
) -> None:
    cell = base.spawn(Probe)
    base.exit(cell)
    assert await code_of(base.ask(cell, "anyone?", None)) == "actor.stopped"


async def test_ask_fails_when_the_question_is_poison(base: AsyncioSystemBase) -> None:
    cell = base.spawn(Probe)
    with pytest.raises(ActorError, match="Boom: as told") as caught:
        await base.ask(cell, boom, 5.0)
    assert caught.value.code == "actor.failed"


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


async def test_drain_waits_for_all_that_follows_from_what_was_sent(base: AsyncioSystemBase) -> None:
    notes = list[Any]()

    def count_down(left: int, actor: Probe, _: Any) -> None:
        if left:
            actor.send(actor.address, partial(count_down, left - 1))

    base.post(base.spawn(partial(Probe, notes)), partial(count_down, 5_000))
    await base.drain()
    assert len(notes) == 5_001
    await base.drain()


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


async def test_shutdown_handles_what_was_sent_before_and_ends_all(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    notes = list[Any]()
    parent = base.spawn(partial(Probe, notes))
    child = base.spawn(partial(Probe, notes), parent=parent)
    base.wake_after(child, 10.0, "never")
    base.post(parent, "before")
    base.post(child, "before")
    await base.shutdown()
    assert notes == ["before", "before"]
    assert parent.mailbox is GONE
    assert child.mailbox is GONE
    assert clock.timers == 0
    assert base.stats()["actor_support.Probe"].cells == 0
    base.post(parent, "after")
    assert base.dead_letters.count == 1
    await base.shutdown()
    with pytest.raises(ActorError) as caught:
        base.spawn(Probe)
    assert caught.value.code == "actor.closed"


async def test_what_is_spawned_during_a_shutdown_ends_with_it(base: AsyncioSystemBase) -> None:
    notes = list[Any]()

    def spawn(actor: Probe, _: Any) -> None:
        cells.append(base.spawn(partial(Probe, notes)))
        actor.send(cells[0], "still handled")

    cells = list[Any]()
    base.post(base.spawn(Probe), spawn)
    ending = base.shutdown()
    await ending
    assert cells[0].mailbox is GONE
    assert base.dead_letters.count == 1, "what came behind its exit is counted"


async def test_giving_up_the_wait_does_not_stop_a_shutdown(base: AsyncioSystemBase) -> None:
    cell = base.spawn(Probe)

    async def wait() -> None:
        await base.shutdown()

    waiting = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await base.shutdown()
    assert cell.mailbox is GONE


async def test_an_actor_may_end_the_system(base: AsyncioSystemBase) -> None:
    cell, other = base.spawn(Probe), base.spawn(Probe)
    tell(base, cell, lambda actor, _: actor.actorSystemShutdown())
    await base.drain()
    assert cell.mailbox is GONE
    assert other.mailbox is GONE


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
    assert other.stats()["actor_support.Probe"].failures == 0
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
