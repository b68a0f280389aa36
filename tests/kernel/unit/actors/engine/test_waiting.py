import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

import pytest

from actor_support import Boom, Echo, Probe, boom
from link_support import ManualClock
from rillnode.actors.engine import mailboxes
from rillnode.actors.engine.cell import GONE, Cell
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.actors.engine.waiting import Signal, Then, next_turn
from rillnode.actors.engine.worker import Worker
from rillnode.codecs.errors import ActorError, RequestError, RillnodeError

Deed = Callable[[Any], Awaitable[Any]]


async def awaited(message: Any, actor: Worker) -> Any:
    work = cast(Deed | None, message if callable(message) else None)
    return message if work is None else await work(actor)


class Waiter(Worker):
    """Awaits what it gets, if that can be called, and notes begin and end; answers the result."""

    def __init__(self, notes: list[Any]) -> None:
        self.notes = notes

    async def handle(self, message: Any, sender: Any) -> None:
        self.notes.append(("begins", message))
        result = await awaited(message, self)
        self.notes.append(("ends", message))
        if sender is not None:
            self.send(sender, result)


class Interleaving(Waiter):
    interleaves = True


async def code_of(answer: Any) -> str:
    with pytest.raises(RillnodeError) as caught:
        await answer
    return caught.value.code


def waiting_for(future: "asyncio.Future[Any]") -> Callable[[Any], Any]:
    async def wait(_: Any) -> Any:
        return await future

    return wait


async def soon(base: AsyncioSystemBase) -> None:
    for _ in range(5):
        await asyncio.sleep(0)
        await base.drain()


async def test_a_handler_that_need_not_wait_is_no_task(base: AsyncioSystemBase) -> None:
    seen = list[Any]()

    async def look(_: Any) -> None:
        seen.append(len(asyncio.all_tasks()))

    notes = list[Any]()
    cell = base.spawn(partial(Waiter, notes))
    before = len(asyncio.all_tasks())
    await base.ask(cell, look)
    assert seen == [before]
    assert cell.owned is None


async def test_other_messages_wait_for_a_handler_that_waits(base: AsyncioSystemBase) -> None:
    notes, future = list[Any](), asyncio.get_running_loop().create_future()
    cell = base.spawn(partial(Waiter, notes))
    first = waiting_for(future)
    base.post(cell, first)
    base.post(cell, "next")
    await soon(base)
    assert notes == [("begins", first)]
    future.set_result(None)
    await soon(base)
    assert notes == [("begins", first), ("ends", first), ("begins", "next"), ("ends", "next")]


async def test_what_waits_behind_handlers_that_wait_is_looked_at_once(
    base: AsyncioSystemBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = list[Any]()
    does_not_wait = mailboxes._does_not_wait  # pyright: ignore[reportPrivateUsage]

    def look(envelope: Any) -> bool:
        looked_at.append(envelope)
        return does_not_wait(envelope)

    async def pause(_: Any) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(mailboxes, "_does_not_wait", look)
    notes = list[Any]()
    cell = base.spawn(partial(Waiter, notes))
    for _message in range(200):
        base.post(cell, pause)
    while len(notes) < 400:
        await soon(base)
    assert len([one for one in looked_at if one[0] is pause]) < 200


async def test_an_actor_that_goes_on_is_in_the_queue_once(base: AsyncioSystemBase) -> None:
    over, queued = Signal(), list[int]()

    async def wait(_: Any) -> None:
        await over

    cell = base.spawn(partial(Waiter, []))
    for message in (wait, "behind"):
        base.post(cell, message)
    await soon(base)

    def go_on(_: Any) -> None:
        base.post(cell, None, Then(cell.instance, lambda _: None))
        over.is_set = True
        assert over.work is not None
        over.work.go_on()
        queued.append(base.mailboxes.ready.count(cell))

    base.post(cell, None, Then(cell.instance, go_on))
    await soon(base)
    assert queued == [1]


async def test_other_messages_go_on_where_the_class_says_so(base: AsyncioSystemBase) -> None:
    notes, future = list[Any](), asyncio.get_running_loop().create_future()
    cell = base.spawn(partial(Interleaving, notes))
    first = waiting_for(future)
    base.post(cell, first)
    base.post(cell, "next")
    await soon(base)
    assert notes == [("begins", first), ("begins", "next"), ("ends", "next")]
    future.set_result(None)
    await soon(base)
    assert notes[-1] == ("ends", first)


async def test_what_asyncio_has_can_be_awaited(base: AsyncioSystemBase) -> None:
    async def much(_: Any) -> str:
        async with asyncio.timeout(5.0), asyncio.TaskGroup() as group:
            one = group.create_task(asyncio.sleep(0.001, "one"))
            other = group.create_task(asyncio.to_thread(lambda: "other"))
        await asyncio.sleep(0)
        gathered = await asyncio.gather(asyncio.sleep(0.001, "third"), asyncio.sleep(0, "fourth"))
        return " ".join((one.result(), other.result(), *gathered))

    async def too_long(_: Any) -> str:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.sleep(10.0)
        except TimeoutError:
            return "in time"
        return "never"

    async def broken_group(_: Any) -> str:
        async def fail() -> None:
            boom()

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
                await asyncio.sleep(10.0)
        except* Boom:
            pass
        return "caught"

    cell = base.spawn(partial(Waiter, []))
    assert await base.ask(cell, much) == "one other third fourth"
    assert await base.ask(cell, too_long) == "in time"
    assert await base.ask(cell, broken_group) == "caught"
    # At the first step, before anything was waited for.
    assert await base.ask(cell, too_long) == "in time"


async def test_who_asks_is_told_when_the_handler_fails_after_it_has_waited(
    base: AsyncioSystemBase,
) -> None:
    async def fail(_: Any) -> None:
        await asyncio.sleep(0)
        boom()

    notes = list[Any]()
    cell = base.spawn(partial(Waiter, notes))
    asked, behind = asyncio.ensure_future(base.ask(cell, fail)), base.ask(cell, "behind")
    assert await code_of(asked) == "actor.failed"
    assert await behind == "behind"


async def test_an_exit_ends_what_waits_and_tells_who_asked(base: AsyncioSystemBase) -> None:
    future = asyncio.get_running_loop().create_future()
    cell = base.spawn(partial(Waiter, []))
    asked = asyncio.ensure_future(base.ask(cell, waiting_for(future)))
    behind = asyncio.ensure_future(base.ask(cell, "behind"))
    await soon(base)
    base.exit(cell)
    assert await code_of(asked) == "actor.stopped"
    assert await code_of(behind) == "actor.stopped"
    assert cell.mailbox is GONE
    assert future.cancelled()


async def test_a_replaced_instance_tells_who_asked_and_its_work_ends_before_the_next_begins(
    base: AsyncioSystemBase,
) -> None:
    order = list[str]()

    class Restarted(Interleaving):
        on_failure = "restart"

        def started(self) -> None:
            order.append("started")

    async def tidy(_: Any) -> None:
        try:
            await asyncio.sleep(60.0)
        finally:
            await asyncio.sleep(0.001)
            order.append("tidied")

    async def fail(_: Any) -> None:
        boom()

    cell = base.spawn(partial(Restarted, []))
    asked = asyncio.ensure_future(base.ask(cell, tidy))
    await soon(base)
    base.post(cell, fail)
    behind = asyncio.ensure_future(base.ask(cell, "behind"))
    assert await code_of(asked) == "actor.failed"
    assert await behind == "behind"
    assert order == ["started", "tidied", "started"]


async def test_work_that_does_not_end_is_abandoned(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    async def stubborn(_: Any) -> None:
        try:
            await asyncio.sleep(60.0)
        finally:
            await asyncio.sleep(60.0)

    cell = base.spawn(partial(Waiter, []))
    base.post(cell, stubborn)
    await soon(base)
    base.exit(cell)
    await soon(base)
    assert cell.mailbox is not GONE
    clock.advance(6.0)
    await soon(base)
    assert cell.mailbox is GONE


async def test_messages_wait_until_started_is_done_and_outlive_its_failure(
    base: AsyncioSystemBase,
) -> None:
    class Slow(Probe):
        on_failure = "restart"

        async def started(self) -> None:
            await asyncio.sleep(0)
            if luck:
                raise luck.pop()
            self.notes.append("started")

    luck = [Boom("not yet")]
    notes = list[Any]()
    cell = base.spawn(partial(Slow, notes))
    for number in range(3):
        base.post(cell, number)
    await soon(base)
    assert notes == ["started", 0, 1, 2]


async def test_a_start_that_always_fails_gives_the_actor_up_and_tells_who_waits(
    base: AsyncioSystemBase,
) -> None:
    class Hopeless(Probe):
        on_failure = "restart"

        async def started(self) -> None:
            await asyncio.sleep(0)
            boom()

    cell = base.spawn(Hopeless)
    assert await code_of(base.ask(cell, "anyone?")) == "actor.stopped"
    assert base.given_up(cell)


async def test_a_question_kept_by_an_instance_that_is_replaced_is_answered(
    base: AsyncioSystemBase,
) -> None:
    class Keeper(Worker):
        on_failure = "restart"

        def __init__(self) -> None:
            self.kept = list[Any]()

        def handle(self, message: Any, sender: Any) -> None:
            if callable(message):
                message()
            self.kept.append(sender)

    cell = base.spawn(Keeper)
    asked = asyncio.ensure_future(base.ask(cell, "keep"))
    await soon(base)
    base.post(cell, boom)
    assert await code_of(asked) == "actor.failed"
    asked = asyncio.ensure_future(base.ask(cell, "keep"))
    await soon(base)
    base.exit(cell)
    assert await code_of(asked) == "actor.stopped"


async def test_a_question_that_was_handed_on_is_the_others(base: AsyncioSystemBase) -> None:
    class Forwarding(Worker):
        on_failure = "restart"

        def __init__(self, other: Cell) -> None:
            self.other = other

        def handle(self, message: Any, sender: Any) -> None:
            if message is boom:
                boom()
            self.system.forward(self.other, message, sender)

    first, second = (asyncio.get_running_loop().create_future() for _ in range(2))
    other = base.spawn(partial(Waiter, []))
    cell = base.spawn(partial(Forwarding, other))
    # One is handled by the other actor, one waits in its mailbox.
    asked = [asyncio.ensure_future(base.ask(cell, waiting_for(one))) for one in (first, second)]
    await soon(base)
    base.post(cell, boom)
    await soon(base)
    assert not any(one.done() for one in asked)
    first.set_result("hello")
    second.set_result("again")
    assert await asyncio.gather(*asked) == ["hello", "again"]


async def test_work_beside_a_handler_has_one_outcome(base: AsyncioSystemBase) -> None:
    class Begins(Worker):
        on_failure = "restart"

        def __init__(self) -> None:
            self.told = told

        def handle(self, message: Any, sender: Any) -> None:
            self.begin(message(self), lambda error: self.told.append(error.code))

    async def refuse(_: Any) -> None:
        await asyncio.sleep(0)
        raise RequestError("request.refused", "no")

    async def fail(_: Any) -> None:
        await asyncio.sleep(0)
        boom()

    async def fail_at_once(_: Any) -> None:
        boom()

    async def wait(_: Any) -> None:
        await asyncio.sleep(60.0)

    told = list[str]()
    cell = base.spawn(Begins)
    for work in (refuse, wait, fail):
        base.post(cell, work)
    await soon(base)
    assert told == ["request.refused", "actor.failed", "actor.failed"]
    told.clear()
    for work in (wait, fail_at_once):
        base.post(cell, work)
    await soon(base)
    assert told == ["actor.failed", "actor.failed"]
    told.clear()
    base.post(cell, wait)
    await soon(base)
    base.exit(cell)
    await soon(base)
    assert told == ["actor.stopped"]


async def test_sleep_is_by_the_systems_clock(base: AsyncioSystemBase, clock: ManualClock) -> None:
    async def nap(actor: Any) -> str:
        await actor.sleep(5.0)
        return "rested"

    cell = base.spawn(partial(Waiter, []))
    asked = asyncio.ensure_future(base.ask(cell, nap))
    await soon(base)
    assert not asked.done()
    clock.advance(5.0)
    assert await asked == "rested"


async def test_a_handler_lets_others_have_their_turns(base: AsyncioSystemBase) -> None:
    notes = list[Any]()

    def steps(name: str) -> Callable[[Any], Any]:
        async def deed(_: Any) -> None:
            for number in range(9):
                notes.append((name, number))
                await next_turn()

        return deed

    for name in "ab":
        base.post(base.spawn(partial(Waiter, [])), steps(name))
    await base.drain()
    assert sorted(notes) == [(name, number) for name in "ab" for number in range(9)]
    assert notes.index(("b", 4)) < notes.index(("a", 6)) < notes.index(("b", 8))


async def test_an_actor_asks_another(base: AsyncioSystemBase) -> None:
    async def ask(target: Cell, message: Any, actor: Any) -> Any:
        return await actor.ask(target, message)

    echo, cell = base.spawn(Echo), base.spawn(partial(Waiter, []))
    assert await base.ask(cell, partial(ask, echo, "hello")) == "hello"
    base.exit(echo)
    await soon(base)
    assert await code_of(base.ask(cell, partial(ask, echo, "hello"))) == "actor.failed"
    notes = list[Any]()

    async def note(actor: Any) -> None:
        try:
            await actor.ask(echo, "hello")
        except ActorError as error:
            notes.append(error.code)

    await base.ask(cell, note)
    assert notes == ["actor.stopped"]
