"""Handlers that wait, work beside them, and operations of a store."""

import asyncio
from collections.abc import Callable
from typing import Any

from rillnode.actors.engine.waiting import next_turn
from rillnode.codecs.errors import ActorError
from rillnode.node.testing.contract.engines.parts import (
    Boom,
    Does,
    EnginePart,
    Interleaves,
    Operation,
    Probe,
    boom,
    wait,
)


def noting(
    notes: list[Any], name: str, future: "asyncio.Future[Any] | None" = None
) -> Callable[[Any], Any]:
    """A deed that notes its begin and its end, and waits in between."""

    async def deed(_: Any) -> None:
        notes.append(f"{name} begins")
        if future is not None:
            await future
        notes.append(f"{name} ends")

    return deed


class WaitingContract(EnginePart):
    """A handler may await anything of asyncio; meanwhile its actor takes no other message."""

    async def test_other_messages_wait_for_a_handler_that_waits(self) -> None:
        notes, future = list[Any](), asyncio.get_running_loop().create_future()
        cell = self.engine.spawn(Does)
        for name, one in (("a", future), ("b", None)):
            self.engine.post(cell, noting(notes, name, one))
        await self.soon()
        assert notes == ["a begins"]
        future.set_result(None)
        await self.soon()
        assert notes == ["a begins", "a ends", "b begins", "b ends"]

    async def test_other_messages_go_on_where_the_class_says_so(self) -> None:
        notes, future = list[Any](), asyncio.get_running_loop().create_future()
        cell = self.engine.spawn(Interleaves)
        for name, one in (("a", future), ("b", None)):
            self.engine.post(cell, noting(notes, name, one))
        await self.soon()
        assert notes == ["a begins", "b begins", "b ends"]
        future.set_result(None)
        await self.soon()
        assert notes[3:] == ["a ends"]

    async def test_no_more_handlers_interleave_than_the_class_says(self) -> None:
        class Two(Interleaves):
            handlers_max = 2

        loop, notes = asyncio.get_running_loop(), list[Any]()
        cell, futures = self.engine.spawn(Two), [loop.create_future() for _ in range(3)]
        for name, one in zip("abc", futures, strict=True):
            self.engine.post(cell, noting(notes, name, one))
        await self.soon()
        assert notes == ["a begins", "b begins"]
        for one in reversed(futures):
            one.set_result(None)
        await self.soon()
        assert sorted(notes) == [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]

    async def test_a_handler_that_waits_takes_completed_operations(self) -> None:
        notes, operation = list[Any](), Operation()

        async def submit(actor: Any) -> None:
            actor.then(operation, lambda _: notes.append("completed"))
            await wait(actor)

        cell = self.engine.spawn(Does)
        self.engine.post(cell, submit)
        self.engine.post(cell, noting(notes, "behind"))
        await self.soon()
        operation.complete(self.engine)
        await self.soon()
        assert notes == ["completed"]

    async def test_what_asyncio_has_can_be_awaited(self) -> None:
        async def much(_: Any) -> str:
            async with asyncio.timeout(5.0), asyncio.TaskGroup() as group:
                one = group.create_task(asyncio.sleep(0.001, "one"))
                loop = asyncio.get_running_loop()
                other = loop.run_in_executor(None, lambda: "other")
            await asyncio.sleep(0)
            both = await asyncio.gather(asyncio.sleep(0.001, "third"), asyncio.sleep(0, "fourth"))
            return " ".join((one.result(), await other, *both))

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

        cell = self.engine.spawn(Does)
        assert await self.engine.ask(cell, much) == "one other third fourth"
        for _ in range(2):
            assert await self.engine.ask(cell, too_long) == "in time"
        assert await self.engine.ask(cell, broken_group) == "caught"

    async def test_a_handler_may_let_others_have_their_turns(self) -> None:
        notes = list[Any]()

        def steps(name: str) -> Callable[[Any], Any]:
            async def deed(_: Any) -> None:
                for number in range(9):
                    notes.append((name, number))
                    await next_turn()

            return deed

        for name in "ab":
            self.engine.post(self.engine.spawn(Does), steps(name))
        await self.soon()
        assert sorted(notes) == [(name, number) for name in "ab" for number in range(9)]
        assert notes.index(("b", 4)) < notes.index(("a", 6)) < notes.index(("b", 8))

    async def test_an_actor_sleeps_by_the_engine_s_clock(self) -> None:
        async def nap(actor: Any) -> str:
            await actor.sleep(0.01)
            return "rested"

        asked = self.ask(self.engine.spawn(Does), nap)
        await self.soon()
        await self.pass_time(0.01)
        assert await asked == "rested"

    async def test_work_beside_the_handlers_has_one_outcome(self) -> None:
        told = list[str]()

        async def refuse(_: Any) -> None:
            await asyncio.sleep(0)
            raise ActorError("actor.busy", "as told")

        async def fail_later(_: Any) -> None:
            await asyncio.sleep(0)
            boom()

        async def fail_at_once(_: Any) -> None:
            boom()

        def begin(work: Callable[[Any], Any]) -> Callable[[Any], Any]:
            async def deed(actor: Any) -> None:
                actor.begin(work(actor), lambda error: told.append(error.code))

            return deed

        cell = self.engine.spawn(Does)
        for work in (refuse, wait, fail_later):
            self.engine.post(cell, begin(work))
        await self.soon()
        assert told == ["actor.busy", "actor.failed", "actor.failed"]
        told.clear()
        for work in (wait, fail_at_once):
            self.engine.post(cell, begin(work))
        await self.soon()
        assert told == ["actor.failed", "actor.failed"]
        told.clear()
        self.engine.post(cell, begin(wait))
        await self.soon()
        self.engine.exit(cell)
        await self.soon()
        assert told == ["actor.stopped"]

    async def test_work_beside_the_handlers_keeps_no_message_waiting(self) -> None:
        async def begin(actor: Any) -> None:
            actor.begin(wait(actor))

        cell = self.engine.spawn(Does)
        self.engine.post(cell, begin)
        assert await self.engine.ask(cell, "hello") == "hello"

    # Operations ------------------------------------------------------------------------------

    async def test_a_completed_operation_goes_on_in_a_turn_of_the_actor_that_asked(self) -> None:
        operation = Operation()

        def submit(actor: Probe, sender: Any) -> None:
            actor.then(operation, lambda one: actor.send(sender, (one, actor.address)))

        cell = self.engine.spawn(Probe)
        asked = self.ask(cell, submit)
        await self.soon()
        assert not asked.done()
        operation.complete(self.engine)
        assert not asked.done()
        assert await asked == (operation, cell)

    async def test_several_operations_go_on_together_when_all_are_complete(self) -> None:
        operations, seen = [Operation() for _ in range(3)], list[Any]()
        cell = self.engine.spawn(Probe)
        self.engine.post(cell, lambda actor, _: actor.then_all(operations, seen.append))
        await self.soon()
        for operation in reversed(operations):
            assert not seen
            operation.complete(self.engine)
            await self.soon()
        assert seen == [operations]
