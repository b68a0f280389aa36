"""Questions: each has exactly one outcome, an answer or an error with a code."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from thespian.actors import ActorExitRequest, Thespian_StatusReq, WakeupMessage

from rillnode.actors.engine.worker import Worker
from rillnode.codecs.errors import ActorError, RillnodeError
from rillnode.node.testing.contract.engines.parts import (
    Boom,
    Does,
    Echo,
    EnginePart,
    Interleaves,
    Probe,
    boom,
    code_of,
    codes_of,
    fail,
    wait,
)


class AskingContract(EnginePart):
    """Whoever asks is answered, or told why not, once."""

    # Answers ---------------------------------------------------------------------------------

    async def test_who_asks_gets_the_first_answer_and_a_second_is_a_dead_letter(self) -> None:
        def answer_twice(actor: Probe, sender: Any) -> None:
            actor.send(sender, "one")
            actor.send(sender, "two")

        letters = self.engine.dead_letters
        assert await self.engine.ask(self.engine.spawn(Probe), answer_twice) == "one"
        assert [letter.message for letter in letters] == ["two"]
        assert letters.reasons == {"unwanted": 1}

    async def test_many_may_ask_at_once_and_each_gets_its_own_answer(self) -> None:
        echo = self.engine.spawn(Echo)
        answers = await asyncio.gather(*(self.ask(echo, number) for number in range(1_000)))
        assert answers == list(range(1_000))

    async def test_an_actor_may_answer_later(self) -> None:
        cell, kept = self.engine.spawn(Probe), list[Any]()
        asked = self.ask(cell, lambda _, sender: kept.append(sender))
        await self.soon()
        assert not asked.done()
        self.engine.post(cell, lambda actor, _: actor.send(kept[0], "late"))
        assert await asked == "late"

    async def test_a_question_that_is_not_answered_in_time_ends_and_the_answer_is_a_dead_letter(
        self,
    ) -> None:
        cell, kept = self.engine.spawn(Probe), list[Any]()
        asked = self.ask(cell, lambda _, sender: kept.append(sender), 0.01)
        await self.soon()
        await self.pass_time(0.01)
        assert await code_of(asked) == "message.timeout"
        self.engine.post(kept[0], "late")
        assert self.engine.dead_letters.reasons == {"unwanted": 1}

    async def test_who_gives_up_asking_disturbs_nobody(self) -> None:
        cell = self.engine.spawn(Does)
        asked = self.ask(cell, wait)
        await self.soon()
        asked.cancel()
        behind = self.ask(cell, "behind")
        await self.soon()
        self.engine.exit(cell)
        assert await code_of(behind) == "actor.stopped"
        assert asked.cancelled()

    async def test_an_actor_asks_another(self) -> None:
        async def ask(actor: Any) -> Any:
            try:
                return await actor.ask(echo, "hello")
            except ActorError as error:
                return error.code

        echo, cell = self.engine.spawn(Echo), self.engine.spawn(Does)
        assert await self.engine.ask(cell, ask) == "hello"
        self.engine.exit(echo)
        await self.soon()
        assert await self.engine.ask(cell, ask) == "actor.stopped"

    async def test_an_actor_that_asks_itself_and_takes_nothing_else_is_told_so(self) -> None:
        async def itself(actor: Any) -> Any:
            try:
                return await actor.ask(actor.address, "hello")
            except ActorError as error:
                return error.code

        assert await self.engine.ask(self.engine.spawn(Interleaves), itself) == "hello"
        assert await self.engine.ask(self.engine.spawn(Does), itself) == "actor.would_block"

    async def test_in_a_circle_of_questions_the_one_with_a_time_ends_it(self) -> None:
        async def ask_back(actor: Any) -> Any:
            return await actor.ask(first, "are you there?", 0.01)

        async def begin(actor: Any) -> Any:
            return await actor.ask(second, ask_back)

        first, second = self.engine.spawn(Does), self.engine.spawn(Does)
        asked = self.ask(first, begin)
        await self.soon()
        await self.pass_time(0.01)
        assert await code_of(asked) == "actor.failed"
        assert await self.engine.ask(first, "hello") == "hello"
        assert await self.engine.ask(second, "hello") == "hello"

    async def test_a_question_that_was_handed_on_is_the_other_actor_s(self) -> None:
        class Forwards(Worker):
            def handle(self, message: Any, sender: Any) -> None:
                if message is boom:
                    boom()
                self.system.forward(other, message, sender)

        first, second = (asyncio.get_running_loop().create_future() for _ in range(2))
        other, cell = self.engine.spawn(Does), self.engine.spawn(Forwards)
        # One is handled by the other actor, one waits in its mailbox.
        asked = [self.ask(cell, lambda _, one=one: one) for one in (first, second)]
        await self.soon()
        self.engine.post(cell, boom)
        await self.soon()
        assert not any(one.done() for one in asked)
        first.set_result("hello")
        second.set_result("again")
        assert await asyncio.gather(*asked) == ["hello", "again"]

    # Failures --------------------------------------------------------------------------------

    async def test_who_asks_is_told_when_the_handler_raises_and_what_it_raised(self) -> None:
        for actor_class, deed in ((Probe, boom), (Does, fail), (Interleaves, fail)):
            cell = self.engine.spawn(actor_class)
            with pytest.raises(ActorError, match="Boom: as told") as caught:
                await self.engine.ask(cell, deed)
            assert caught.value.code == "actor.failed"

    async def test_who_asks_is_told_when_the_handler_raises_after_it_has_waited(self) -> None:
        async def late(_: Any) -> None:
            await asyncio.sleep(0)
            boom()

        for actor_class in (Does, Interleaves):
            cell = self.engine.spawn(actor_class)
            asked, behind = self.ask(cell, late), self.ask(cell, "behind")
            assert await code_of(asked) == "actor.failed"
            assert await behind == "behind"

    async def test_what_was_answered_before_the_handler_raises_stays_answered(self) -> None:
        def answer(actor: Probe, sender: Any) -> None:
            actor.send(sender, "answer")
            boom()

        cell = self.engine.spawn(Probe)
        assert await self.engine.ask(cell, answer) == "answer"
        await self.soon()
        assert await self.engine.ask(cell, lambda actor, to: actor.send(to, "on")) == "on"

    async def test_who_waits_by_the_class_of_a_message_is_told_once(self) -> None:
        class Picky(Worker):
            def handle(self, message: int | str, sender: Any) -> None:
                boom()

        codes = self.told(int)
        cell, gone = self.engine.spawn(Picky), self.engine.spawn(Probe)
        self.engine.post(cell, 1)
        await self.soon()
        assert codes == ["actor.failed"]
        self.engine.exit(gone)
        self.engine.post(gone, 2)
        await self.soon()
        self.engine.post(gone, 3)
        assert codes == ["actor.failed", "actor.stopped", "actor.stopped"]

    async def test_an_exception_that_cannot_be_shown_is_a_failure_like_others(self) -> None:
        class Mute(Exception):
            def __str__(self) -> str:
                raise Boom("not even that")

        def mute(*_: Any) -> None:
            raise Mute

        for actor_class in (Probe, Does):
            cell = self.engine.spawn(actor_class)
            assert await code_of(self.ask(cell, mute)) == "actor.failed"
            assert await self.engine.ask(self.engine.spawn(Does), "hello") == "hello"

    async def test_a_cancelled_result_is_the_actor_s_own_failure(self) -> None:
        def look(*_: Any) -> None:
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            future.result()

        cell = self.engine.spawn(Probe)
        assert await code_of(self.ask(cell, look)) == "actor.failed"
        assert await self.engine.ask(cell, lambda actor, to: actor.send(to, "on")) == "on"

    async def test_a_group_whose_task_fails_fails_the_handler(self) -> None:
        async def group(_: Any) -> None:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(fail(_))
                tasks.create_task(wait(_))

        for actor_class in (Does, Interleaves):
            cell = self.engine.spawn(actor_class)
            assert await code_of(self.ask(cell, group)) == "actor.failed"
            assert await self.engine.ask(cell, "hello") == "hello"

    async def test_a_handler_that_nobody_can_await_is_a_failure(self) -> None:
        class Generates(Worker):
            async def handle(self, message: Any, sender: Any) -> AsyncIterator[int]:  # type: ignore[override]
                yield 1

        class Future(Worker):
            def handle(self, message: Any, sender: Any) -> Any:
                return asyncio.get_running_loop().create_future()

        for actor_class in (Generates, Future):
            cell = self.engine.spawn(actor_class)
            assert await codes_of(self.ask(cell, one) for one in "ab") == ["actor.failed"] * 2

    async def test_who_sends_what_a_class_does_not_declare_is_told_and_it_is_a_dead_letter(
        self,
    ) -> None:
        class Declares(Worker):
            def handle(self, message: int | list[str], sender: Any) -> None:
                self.send(sender, message)

        cell = self.engine.spawn(Declares)
        assert await code_of(self.ask(cell, "text")) == "actor.failed"
        assert [(one.message, one.reason) for one in self.engine.dead_letters] == [
            ("text", "undeclared")
        ]
        # Of what the system itself sends that is none, but who asks is told.
        assert await code_of(self.ask(cell, WakeupMessage(1))) == "actor.failed"
        self.engine.post(cell, Thespian_StatusReq())  # nobody is there for the answer
        assert await self.engine.ask(cell, 1) == 1
        assert await self.engine.ask(cell, ["a"]) == ["a"]
        assert self.engine.dead_letters.count == 1

    # Ends ------------------------------------------------------------------------------------

    async def test_who_asks_an_actor_that_is_gone_is_told_at_once(self) -> None:
        cell = self.engine.spawn(Probe)
        self.engine.exit(cell)
        await self.soon()
        assert await code_of(self.ask(cell, "anyone?")) == "actor.stopped"

    async def test_who_asks_behind_an_exit_is_told(self) -> None:
        cell = self.engine.spawn(Probe)
        self.engine.exit(cell)
        assert await code_of(self.ask(cell, "anyone?")) == "actor.stopped"

    async def test_an_exit_tells_all_who_wait_for_what_is_handled_kept_or_waits(self) -> None:
        for actor_class, count in ((Does, 3), (Interleaves, 5)):
            cell = self.engine.spawn(actor_class)
            asked = [self.ask(cell, wait) for _ in range(count)]
            await self.soon()
            self.engine.exit(cell)
            assert await codes_of(asked) == ["actor.stopped"] * count
            await self.soon()
            assert cell.exited
        keeper = self.engine.spawn(Probe)
        asked = [self.ask(keeper, "never answered") for _ in range(3)]
        await self.soon()
        self.engine.exit(keeper)
        assert await codes_of(asked) == ["actor.stopped"] * 3

    async def test_who_asks_an_actor_to_exit_is_told_that_it_has(self) -> None:
        cell = self.engine.spawn(Does)
        for _ in range(2):
            assert await code_of(self.ask(cell, ActorExitRequest())) == "actor.stopped"
        cell = self.engine.spawn(Interleaves)
        asked = [self.ask(cell, one) for one in (wait, ActorExitRequest(), ActorExitRequest())]
        assert await codes_of(asked) == ["actor.stopped"] * 3

    async def test_a_handler_that_swallows_its_cancellation_is_late_with_its_answer(self) -> None:
        async def swallow(_: Any) -> str:
            with suppress(asyncio.CancelledError):
                await wait(_)
            await asyncio.sleep(0)
            return "too late"

        cell = self.engine.spawn(Interleaves)
        asked = self.ask(cell, swallow)
        await self.soon()
        self.engine.exit(cell)
        assert await code_of(asked) == "actor.stopped"
        await self.soon()
        assert cell.exited
        assert self.engine.dead_letters.reasons["unwanted"] == 1

    async def test_what_fails_while_an_instance_goes_keeps_nobody_waiting(self) -> None:
        class Native(BaseException):
            pass

        def refuse(*_: Any) -> None:
            raise Native

        async def begin(actor: Any) -> None:
            actor.begin(wait(actor), refuse)

        def note(_: object, error: RillnodeError) -> None:
            raise Native

        self.engine.outcomes[int] = note
        ends = (
            (partial(self.engine.post, message=fail), "actor.failed"),
            (self.engine.exit, "actor.stopped"),
        )
        for end, code in ends:
            cell = self.engine.spawn(Interleaves)
            await self.engine.ask(cell, begin)
            asked = [self.ask(cell, wait) for _ in range(3)]
            await self.soon()
            end(cell)
            self.engine.post(cell, 1)
            assert await codes_of(asked) == [code] * 3
            await self.soon()
            assert cell.exited == (code == "actor.stopped")
