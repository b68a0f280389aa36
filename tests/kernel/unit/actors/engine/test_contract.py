"""The failure contract under everything that a handler may do to it: each question ends, once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, ClassVar

import pytest
from thespian.actors import ActorExitRequest, Thespian_StatusReq, WakeupMessage

from actor_support import Boom, Echo, Probe, boom, run
from link_support import ManualClock
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.kinds import OnFailure
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.actors.engine.waiting import Then
from rillnode.actors.engine.worker import Worker
from rillnode.codecs.errors import ActorError, RillnodeError


class Does(Worker):
    """Does what it gets with itself, and answers what comes of it."""

    on_failure: ClassVar[OnFailure] = "restart"

    async def handle(self, message: Any, sender: Any) -> None:
        deed: Any = message if callable(message) else None
        answer = message if deed is None else await deed(self)
        if sender is not None:
            self.send(sender, answer)


class Interleaves(Does):
    interleaves = True


async def code_of(answer: Any) -> str:
    async with asyncio.timeout(5.0):
        with pytest.raises(RillnodeError) as caught:
            await answer
    return caught.value.code


async def soon(base: AsyncioSystemBase, rounds: int = 8) -> None:
    for _ in range(rounds):
        await asyncio.sleep(0)
        await base.drain()


def ask(base: AsyncioSystemBase, cell: Cell, message: Any) -> "asyncio.Future[Any]":
    return asyncio.ensure_future(base.ask(cell, message))


async def wait(_: Any) -> None:
    await asyncio.get_running_loop().create_future()


async def fail(_: Any) -> None:
    boom()


# What goes with an instance ----------------------------------------------------------------------


async def test_work_that_tidies_up_is_awaited_although_the_exit_comes_meanwhile(
    base: AsyncioSystemBase,
) -> None:
    order = list[str]()

    async def tidy(_: Any) -> None:
        try:
            await wait(_)
        finally:
            for _step in range(20):
                await asyncio.sleep(0)
            order.append("tidied")

    class Restarts(Interleaves):
        def stopped(self) -> None:
            order.append("stopped")

    cell = base.spawn(Restarts)
    asked = ask(base, cell, tidy)
    await soon(base)
    base.post(cell, fail)
    await asyncio.sleep(0)
    base.exit(cell)
    base.exit(cell)
    await asyncio.sleep(0)
    assert not cell.exited
    assert await code_of(asked) == "actor.failed"
    while not cell.exited:
        await asyncio.sleep(0)
    assert order == ["stopped", "tidied"]


@pytest.mark.parametrize("late", [False, True])
async def test_what_is_begun_while_an_instance_goes_does_not_outlive_it(
    base: AsyncioSystemBase, clock: ManualClock, late: bool
) -> None:
    told, ticks = list[str](), list[Any]()

    def note(error: RillnodeError) -> None:
        told.append(error.code)

    async def tidy(actor: Any) -> None:
        try:
            await wait(actor)
        finally:
            if late:
                await asyncio.sleep(0)
            actor.wake_after(60.0, "tick")
            actor.begin(wait(actor), note)

    class Ticks(Interleaves):
        async def handle(self, message: Any, sender: Any) -> None:
            if message == "tick":
                ticks.append(message)
            else:
                await super().handle(message, sender)

    cell = base.spawn(Ticks)
    asked = ask(base, cell, tidy)
    await soon(base)
    base.post(cell, fail)
    assert await code_of(asked) == "actor.failed"
    assert await base.ask(cell, "hello") == "hello"
    assert len(told) == 1
    clock.advance(61.0)
    await soon(base)
    assert not ticks


async def test_tasks_that_a_handler_waits_for_end_before_the_next_instance_begins(
    base: AsyncioSystemBase,
) -> None:
    order = list[str]()

    async def child() -> None:
        try:
            await asyncio.sleep(60.0)
        finally:
            await asyncio.sleep(0.001)
            order.append("tidied")

    async def gathers(_: Any) -> None:
        await asyncio.gather(child(), child())

    async def groups(_: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(child())
            group.create_task(child())

    class Starts(Interleaves):
        def started(self) -> None:
            order.append("started")

    for work in (gathers, groups):
        cell = base.spawn(Starts)
        asked = ask(base, cell, work)
        await soon(base)
        base.post(cell, fail)
        assert await code_of(asked) == "actor.failed"
        assert await base.ask(cell, "hello") == "hello"
        assert order == ["started", "tidied", "tidied", "started"]
        order.clear()


async def test_a_timer_that_has_fired_does_not_meet_the_next_instance(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    ticks = list[int]()
    numbers = iter(range(9))

    class Ticks(Worker):
        def started(self) -> None:
            self.number = next(numbers)
            self.wake_after(1.0, "tick")

        async def handle(self, message: Any, sender: Any) -> None:
            if message == "tick":
                ticks.append(self.number)
                self.wake_after(1.0, "tick")
            else:
                await message
                boom()

    future = asyncio.get_running_loop().create_future()
    cell = base.spawn(Ticks)
    base.post(cell, future)
    await soon(base)
    clock.advance(1.5)
    future.set_result(None)
    await soon(base)
    assert not ticks
    clock.advance(1.0)
    await soon(base)
    assert ticks == [1]


async def test_who_waits_for_what_an_instance_has_sent_itself_is_told(
    base: AsyncioSystemBase,
) -> None:
    told = list[str]()

    class Resends(Worker):
        def handle(self, message: Any, sender: Any) -> None:
            if sender is None:
                self.send(self.address, message)
                boom()

    def note(_: object, error: RillnodeError) -> None:
        told.append(error.code)

    base.outcomes[int] = note
    cell = base.spawn(Resends)
    base.post(cell, 1)
    base.post(cell, "behind")
    await soon(base)
    # Of the message at which it has failed, and of what it has sent itself.
    assert told == ["actor.failed"] * 2


async def test_what_fails_while_an_instance_goes_keeps_nobody_waiting(
    base: AsyncioSystemBase,
) -> None:
    """Who is to be told raises, a late continuation raises: the others have their outcome."""

    class Native(BaseException):
        pass

    def refuse(*_: Any) -> None:
        raise Native

    async def begin(actor: Any) -> None:
        actor.begin(wait(actor), refuse)

    for end in (partial(base.post, message=fail), base.exit):
        cell = base.spawn(Interleaves)
        await base.ask(cell, begin)
        asked = [ask(base, cell, wait) for _ in range(3)]
        await soon(base)
        end(cell)
        expected = "actor.stopped" if end == base.exit else "actor.failed"
        assert [await code_of(one) for one in asked] == [expected] * 3
        await soon(base)
        assert cell.exited == (end == base.exit)

    # A continuation without an instance, in front of those who wait, and to one that is gone.
    cell = base.spawn(Does)
    await soon(base)
    base.exit(cell)
    base.post(cell, None, Then(None, refuse, refuse))
    behind = ask(base, cell, "behind")
    assert await code_of(behind) == "actor.stopped"
    base.post(cell, None, Then(None, refuse, refuse))


# Handlers that swallow, group, cancel ------------------------------------------------------------


async def test_a_handler_that_swallows_its_cancellation_is_late_with_its_answer(
    base: AsyncioSystemBase,
) -> None:
    async def swallow(_: Any) -> str:
        with suppress(asyncio.CancelledError):
            await wait(_)
        await asyncio.sleep(0)
        return "too late"

    cell = base.spawn(Interleaves)
    asked = ask(base, cell, swallow)
    await soon(base)
    base.exit(cell)
    assert await code_of(asked) == "actor.stopped"
    await soon(base)
    assert cell.exited
    assert base.dead_letters.reasons["unwanted"] == 1


async def test_an_exit_ends_all_that_interleaves_and_tells_each(base: AsyncioSystemBase) -> None:
    cell = base.spawn(Interleaves)
    asked = [ask(base, cell, wait) for _ in range(5)]
    await soon(base)
    base.exit(cell)
    assert [await code_of(one) for one in asked] == ["actor.stopped"] * 5
    assert cell.owned is None


async def test_a_group_whose_child_fails_fails_the_handler(base: AsyncioSystemBase) -> None:
    async def group(_: Any) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail(_))
            tasks.create_task(wait(_))

    for actor_class in (Does, Interleaves):
        cell = base.spawn(actor_class)
        assert await code_of(ask(base, cell, group)) == "actor.failed"
        assert await base.ask(cell, "hello") == "hello"


async def test_children_that_wait_end_with_their_parent(base: AsyncioSystemBase) -> None:
    class Parent(Does):
        def started(self) -> None:
            children.extend(self.system.spawn(Does, parent=self.address) for _ in range(3))

    children = list[Cell]()
    parent = base.spawn(Parent)
    await soon(base)
    asked = [ask(base, cell, what) for cell in (*children, parent) for what in (wait, "behind")]
    await soon(base)
    base.exit(parent)
    assert [await code_of(one) for one in asked] == ["actor.stopped"] * 8
    assert all(cell.exited for cell in children)


async def test_shutdown_tells_all_who_ask(base: AsyncioSystemBase) -> None:
    cells = [base.spawn(Does) for _ in range(3)]
    asked = [ask(base, cell, what) for cell in cells for what in (wait, "behind")]
    await soon(base)
    await base.shutdown()
    assert [await code_of(one) for one in asked] == ["actor.stopped"] * 6
    assert await code_of(ask(base, cells[0], "after")) == "actor.stopped"


# What may be raised, sent, and asked -------------------------------------------------------------


async def test_an_exception_that_cannot_be_shown_is_a_failure_like_others(
    base: AsyncioSystemBase,
) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise Boom("not even that")

    def mute(*_: Any) -> None:
        raise Mute

    cell = base.spawn(Probe)
    assert await code_of(ask(base, cell, mute)) == "actor.failed"
    cell = base.spawn(Does)
    assert await code_of(ask(base, cell, mute)) == "actor.failed"
    assert await base.ask(cell, "hello") == "hello"


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("waits", [False, True])
def test_what_asks_the_process_to_end_leaves_no_question_open(
    kind: type[BaseException], waits: bool
) -> None:
    async def leave(_: Any) -> None:
        if waits:
            await asyncio.sleep(0)
        raise kind

    codes = list[str]()

    async def main() -> None:
        base = AsyncioSystemBase()
        cell = base.spawn(Does)
        asked = [ask(base, cell, leave), ask(base, cell, "behind")]
        codes.append(await code_of(asked[0]))
        assert await asked[1] == "behind"
        await base.shutdown()

    loop = asyncio.new_event_loop()
    seen = list[BaseException | None]()
    loop.set_exception_handler(lambda _, context: seen.append(context.get("exception")))
    task = loop.create_task(main())
    try:
        while not task.done():
            try:
                loop.run_until_complete(task)
            except (SystemExit, KeyboardInterrupt) as error:
                seen.append(error)
    finally:
        loop.close()
    assert codes == ["actor.failed"]
    assert [type(one) for one in seen] == [kind]


async def test_who_asks_an_actor_to_exit_is_told_that_it_has(base: AsyncioSystemBase) -> None:
    cell = base.spawn(Does)
    assert await code_of(ask(base, cell, ActorExitRequest())) == "actor.stopped"
    assert await code_of(ask(base, cell, ActorExitRequest())) == "actor.stopped"
    cell = base.spawn(Interleaves)
    asked = [ask(base, cell, one) for one in (wait, ActorExitRequest(), ActorExitRequest())]
    assert [await code_of(one) for one in asked] == ["actor.stopped"] * 3


async def test_a_message_of_the_systems_that_is_not_declared_is_answered_too(
    base: AsyncioSystemBase,
) -> None:
    class Declares(Worker):
        def handle(self, message: int, sender: Any) -> None:
            self.send(sender, message)

    cell = base.spawn(Declares)
    assert await code_of(ask(base, cell, WakeupMessage(1))) == "actor.failed"
    base.post(cell, Thespian_StatusReq())  # nobody is there for the answer
    assert await base.ask(cell, 1) == 1
    assert not base.dead_letters.count
    assert not any(one.failures for one in base.stats().values())


async def test_a_handler_that_nobody_can_await_is_a_failure(base: AsyncioSystemBase) -> None:
    class Generates(Worker):
        async def handle(self, message: Any, sender: Any) -> AsyncIterator[int]:  # type: ignore[override]
            yield 1

    class Future(Worker):
        def handle(self, message: Any, sender: Any) -> Any:
            return asyncio.get_running_loop().create_future()

    for actor_class in (Generates, Future):
        cell = base.spawn(actor_class)
        assert await code_of(ask(base, cell, "hello")) == "actor.failed"
        base.post(cell, "hello")
        await soon(base)
        assert base.stats()[cell.kind.name].failures == 2


async def test_an_actor_that_asks_itself_is_told_that_it_would_wait_for_ever(
    base: AsyncioSystemBase,
) -> None:
    async def itself(actor: Any) -> Any:
        return await actor.ask(actor.address, "hello")

    assert await base.ask(base.spawn(Interleaves), itself) == "hello"
    cell = base.spawn(Does)
    assert await code_of(ask(base, cell, itself)) == "actor.failed"
    assert await base.ask(cell, "hello") == "hello"


async def test_a_failure_in_a_turn_leaves_its_completed_operation_to_late(
    base: AsyncioSystemBase,
) -> None:
    outcomes = list[str]()

    class Fails(Probe):
        on_failure: ClassVar[OnFailure] = "restart"

    cell = base.spawn(Fails)
    await soon(base)
    then = Then(cell.instance, lambda _: outcomes.append("run"), lambda _: outcomes.append("late"))
    for message, sender in ((boom, None), (None, then), ("next", None)):
        base.post(cell, message, sender)
    await soon(base)
    assert outcomes == ["late"]
    instance: Any = cell.instance
    assert instance.notes == ["next"]


async def test_an_operation_at_which_an_actor_fails_is_not_tried_again_as_a_message(
    base: AsyncioSystemBase,
) -> None:
    class Repeats(Probe):
        attempts = 2

    cell = base.spawn(Repeats)
    await soon(base)
    base.post(cell, "an operation", Then(cell.instance, boom))
    await soon(base)
    instance: Any = cell.instance
    assert instance.notes == []


async def test_actors_share_no_context(base: AsyncioSystemBase) -> None:
    variable = ContextVar("variable", default="nobody's")
    seen = list[str]()

    async def own(_: Any) -> None:
        variable.set("mine")
        await asyncio.sleep(0)
        seen.append(variable.get())

    async def look(_: Any) -> None:
        seen.append(variable.get())

    variable.set("the poster's")
    one, other = base.spawn(Does), base.spawn(Does)
    base.post(one, own)

    async def later(actor: Any) -> None:
        await own(actor)
        base.post(other, look)

    base.post(one, later)
    await soon(base)
    assert seen == ["mine", "mine", "nobody's"]


# Bounds ------------------------------------------------------------------------------------------


class Slow(Worker):
    mailbox_bytes_max = 1_000

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock

    def handle(self, message: bytes, sender: Any) -> None:
        self.clock.advance(1.0)  # one message in each turn


def waiting_bytes(cell: Cell) -> int:
    return sum(len(message) for message, _ in cell.mailbox if isinstance(message, bytes))


async def test_bytes_that_a_turn_has_left_still_count(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    base.sizes[bytes] = len
    sender = base.spawn(Probe)
    cell = base.spawn(partial(Slow, clock))
    await soon(base)
    for _ in range(50):
        for _ in range(5):
            with suppress(ActorError):
                base.post(cell, bytes(100), sender)
        await asyncio.sleep(0)
        assert waiting_bytes(cell) <= 1_200
    await soon(base)
    assert not cell.waiting_bytes


async def test_bytes_that_a_quota_has_left_still_count(base: AsyncioSystemBase) -> None:
    class Quick(Worker):
        mailbox_bytes_max = 3_000

        def handle(self, message: bytes, sender: Any) -> None:
            pass

    base.sizes[bytes] = len
    sender, cell = base.spawn(Probe), base.spawn(Quick)
    await soon(base)
    for _message in range(3_000):
        base.post(cell, bytes(1), sender)
    await asyncio.sleep(0)
    assert len(cell.mailbox) == 3_000 - 1_024
    with pytest.raises(ActorError):
        base.post(cell, bytes(1_500), sender)
    base.post(cell, bytes(1_000), sender)


async def test_what_is_refused_does_not_count(base: AsyncioSystemBase) -> None:
    base.sizes[bytes] = len
    sender, cell = base.spawn(Probe), base.spawn(Does)
    await soon(base)
    base.post(cell, wait)
    await soon(base)
    bound = cell.kind.mailbox_bytes_max
    for _refused in range(3):
        with pytest.raises(ActorError):
            base.post(cell, bytes(bound + 1), sender)
    assert await code_of(ask(base, cell, bytes(bound + 1))) == "actor.busy"
    base.post(cell, bytes(10), sender)
    assert len(cell.mailbox) == 1
    assert cell.waiting_bytes == 10


def test_who_sends_from_outside_waits_for_room_of_bytes_too() -> None:
    async def test(base: AsyncioSystemBase, clock: ManualClock) -> None:
        base.sizes[bytes] = len
        cell = base.spawn(partial(Slow, clock))
        await soon(base)
        highest = 0

        async def send() -> None:
            nonlocal highest
            for _ in range(20):
                await base.send(cell, bytes(100))
                highest = max(highest, waiting_bytes(cell))

        async with asyncio.TaskGroup() as senders:
            for _ in range(5):
                senders.create_task(send())
        assert 900 <= highest <= 1_200
        await soon(base)
        assert base.stats()[cell.kind.name].handled == 101

    run(test)


async def test_messages_that_wait_for_a_handler_are_seen(base: AsyncioSystemBase) -> None:
    cell = base.spawn(Does)
    for message in (wait, "one", "two"):
        base.post(cell, message)
    await soon(base)
    assert base.stats()[cell.kind.name].mailbox_depth == 2


# Other threads -----------------------------------------------------------------------------------


def test_who_asks_an_actor_on_another_thread_is_told_that_he_cannot() -> None:
    other = AsyncioSystemBase()
    echo = other.newPrimaryActor(Echo)

    async def test(base: AsyncioSystemBase, _: ManualClock) -> None:
        assert await code_of(ask(base, echo, "hello")) == "actor.unsupported"

    try:
        run(test)
    finally:
        other.shutdown()
