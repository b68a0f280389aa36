"""Failures: what one costs, what its class says of it, and what an instance takes with it."""

import asyncio
from functools import partial
from typing import Any, ClassVar

from thespian.actors import Actor, ChildActorExited, PoisonMessage

from rillnode.actors.engine.kinds import OnFailure
from rillnode.actors.engine.worker import Worker
from rillnode.node.testing.contract.engines.parts import (
    Address,
    Boom,
    Does,
    EnginePart,
    Interleaves,
    Operation,
    Probe,
    boom,
    code_of,
    codes_of,
    fail,
    wait,
)


class Hooked(Probe):
    """Notes its life, too."""

    def started(self) -> None:
        """Note it."""
        self.notes.append("started")

    def stopped(self) -> None:
        """Note it."""
        self.notes.append("stopped")


class Restarts(Hooked):
    """Is replaced when it fails, four times in ten seconds."""

    on_failure: ClassVar[OnFailure] = "restart"
    restarts_max = 4
    restart_window_seconds = 10.0


class Stops(Hooked):
    """Ends when it fails."""

    on_failure: ClassVar[OnFailure] = "stop"


class FailingContract(EnginePart):
    """A handler that raises costs its own message; then comes what the class says."""

    def heard(self) -> tuple[Address, list[Any]]:
        """An actor, and what it gets."""
        heard = list[Any]()
        return self.engine.spawn(partial(Probe, heard)), heard

    # Messages --------------------------------------------------------------------------------

    async def test_a_failed_message_costs_no_other(self) -> None:
        for actor_class in (Probe, Restarts):
            notes = list[Any]()
            cell = self.engine.spawn(partial(actor_class, notes))
            for message in (1, boom, 2, boom, 3):
                self.engine.post(cell, message)
            await self.soon()
            assert [one for one in notes if isinstance(one, int)] == [1, 2, 3]

    async def test_a_message_is_tried_once_unless_its_class_says_otherwise(self) -> None:
        class Twice(Probe):
            attempts = 2

        for actor_class, tries in ((Probe, 1), (Twice, 2)):
            notes = list[Any]()
            cell = self.engine.spawn(partial(actor_class, notes))
            for message in (boom, "next"):
                self.engine.post(cell, message)
            await self.soon()
            assert notes == [boom] * tries + ["next"], "again before any other"

    async def test_a_message_that_succeeds_at_the_second_try_is_no_dead_letter(self) -> None:
        class Twice(Probe):
            attempts = 2

        failures = [Boom()]

        def fail_once(*_: Any) -> None:
            if failures:
                raise failures.pop()

        cell = self.engine.spawn(Twice)
        self.engine.post(cell, fail_once)
        await self.soon()
        assert self.engine.dead_letters.count == 0

    async def test_a_sender_gets_the_message_back_as_poison_with_the_reason(self) -> None:
        sender, heard = self.heard()
        self.engine.post(self.engine.spawn(Probe), boom, sender)
        await self.soon()
        (poison,) = heard
        assert isinstance(poison, PoisonMessage)
        assert poison.poisonMessage is boom
        assert "Boom: as told" in (poison.details or "")

    async def test_poison_without_a_sender_and_poison_that_poisons_are_dead_letters(self) -> None:
        class Touchy(Probe):
            def handle(self, message: Any, sender: Any) -> None:
                boom()

        one, other = self.engine.spawn(Touchy), self.engine.spawn(Touchy)
        self.engine.post(one, "nobody's")
        self.engine.post(one, "somebody's", other)
        await self.soon()
        letters = [letter.message for letter in self.engine.dead_letters]
        assert letters[0] == "nobody's"
        assert isinstance(letters[1], PoisonMessage)
        assert self.engine.dead_letters.reasons == {"poison": 2}

    async def test_a_stock_thespian_class_gets_a_message_twice_and_goes_on(self) -> None:
        class Plain(Actor):
            def __init__(self, notes: list[Any]) -> None:
                super().__init__()
                self._notes = notes
                notes.append("made")

            def receiveMessage(self, msg: Any, sender: Any) -> None:
                self._notes.append(msg)
                boom()

        notes = list[Any]()
        sender, heard = self.heard()
        self.engine.post(self.engine.spawn(partial(Plain, notes)), "fail", sender)
        await self.soon()
        assert notes == ["made", "fail", "fail"]
        assert heard == [PoisonMessage("fail")]

    # Policies --------------------------------------------------------------------------------

    async def test_resume_keeps_the_instance(self) -> None:
        notes = list[Any]()
        cell = self.engine.spawn(partial(Hooked, notes))
        for message in (boom, "next"):
            self.engine.post(cell, message)
        await self.soon()
        assert notes == ["started", boom, "next"]

    async def test_restart_makes_a_new_instance_at_the_same_address(self) -> None:
        notes, made = list[Any](), list[Probe]()

        def make() -> Probe:
            made.append(Restarts(notes))
            return made[-1]

        cell = self.engine.spawn(make)
        for message in (boom, "next", 2):
            self.engine.post(cell, message)
        await self.soon()
        assert notes == ["started", boom, "stopped", "started", "next", 2]
        assert len(made) == 2
        assert made[1].address is cell

    async def test_stop_ends_the_actor_at_its_first_failure(self) -> None:
        parent, heard = self.heard()
        notes = list[Any]()
        cell = self.engine.spawn(partial(Stops, notes), parent=parent)
        child = self.engine.spawn(Probe, parent=cell)
        behind = self.told(int)
        self.engine.post(cell, boom, parent)
        self.engine.post(cell, 1)
        await self.soon()
        assert notes == ["started", boom, "stopped"]
        assert cell.exited
        assert child.exited
        assert heard == [PoisonMessage(boom), ChildActorExited(cell)]
        assert behind == ["actor.stopped"]

    async def test_more_restarts_than_the_class_allows_end_the_actor(self) -> None:
        parent, heard = self.heard()
        cell = self.engine.spawn(Restarts, parent=parent)
        for _ in range(5):
            self.engine.post(cell, boom, parent)
        behind = self.ask(cell, "behind")
        assert await code_of(behind) == "actor.stopped"
        await self.soon()
        assert cell.exited
        assert self.engine.given_up(cell)
        assert [type(one) for one in heard] == [PoisonMessage] * 5 + [ChildActorExited]

    async def test_the_end_of_an_essential_actor_is_told_with_its_last_failure(self) -> None:
        class Essential(Stops):
            essential = True

        told = list[Any]()
        self.engine.on_fatal = lambda cell, error: told.append((cell, type(error)))
        cell, other = self.engine.spawn(Essential), self.engine.spawn(Stops)
        for one in (cell, other):
            self.engine.post(one, boom)
        await self.soon()
        assert told == [(cell, Boom)]

    # Instances that cannot be made -----------------------------------------------------------

    async def test_a_factory_that_fails_is_tried_again_and_costs_no_message(self) -> None:
        notes, failures = list[Any](), [Boom("no"), Boom("no")]

        def make() -> Probe:
            if failures:
                raise failures.pop()
            return Probe(notes)

        cell = self.engine.spawn(make)
        for message in (1, 2):
            self.engine.post(cell, message)
        await self.soon()
        assert notes == [1, 2]

    async def test_messages_wait_until_started_is_done_and_outlive_its_failure(self) -> None:
        class Unlucky(Probe):
            def started(self) -> None:
                if luck:
                    raise luck.pop()
                self.notes.append("started")

        class Slow(Probe):
            async def started(self) -> None:
                await asyncio.sleep(0)
                Unlucky.started(self)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

        for actor_class in (Unlucky, Slow):
            luck, notes = [Boom("not yet")], list[Any]()
            cell = self.engine.spawn(partial(actor_class, notes))
            for number in range(3):
                self.engine.post(cell, number)
            await self.soon()
            assert notes == ["started", 0, 1, 2]

    async def test_an_instance_that_can_never_be_made_ends_the_actor_and_tells_who_waits(
        self,
    ) -> None:
        class Stillborn(Worker):
            restarts_max = 3

            def __init__(self) -> None:
                tries.append(self)
                boom()

            def handle(self, message: Any, sender: Any) -> None:
                """Never called."""

        class Hopeless(Probe):
            async def started(self) -> None:
                await asyncio.sleep(0)
                boom()

        tries = list[Any]()
        for actor_class in (Stillborn, Hopeless):
            parent, heard = self.heard()
            cell = self.engine.spawn(actor_class, parent=parent)
            assert await code_of(self.ask(cell, "anyone?")) == "actor.stopped"
            await self.soon()
            assert heard == [ChildActorExited(cell)]
            assert self.engine.given_up(cell)
        assert len(tries) == 4

    # What goes with an instance --------------------------------------------------------------

    async def test_its_waiting_work_ends_before_the_next_instance_begins(self) -> None:
        order = list[str]()

        class Starts(Interleaves):
            def started(self) -> None:
                order.append("started")

        async def tidies_up() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                for _ in range(20):
                    await asyncio.sleep(0)
                order.append("tidied up")

        async def alone(_: Any) -> None:
            await tidies_up()

        async def gathers(_: Any) -> None:
            await asyncio.gather(tidies_up(), tidies_up())

        async def groups(_: Any) -> None:
            async with asyncio.TaskGroup() as group:
                for _one in range(2):
                    group.create_task(tidies_up())

        for deed, count in ((alone, 1), (gathers, 2), (groups, 2)):
            order.clear()
            cell = self.engine.spawn(Starts)
            asked = self.ask(cell, deed)
            await self.soon()
            self.engine.post(cell, fail)
            behind = self.ask(cell, "behind")
            assert await code_of(asked) == "actor.failed"
            assert await behind == "behind"
            assert order == ["started", *["tidied up"] * count, "started"]

    async def test_an_exit_that_comes_meanwhile_waits_for_the_work_too(self) -> None:
        order = list[str]()

        async def tidy(_: Any) -> None:
            try:
                await wait(_)
            finally:
                for _step in range(20):
                    await asyncio.sleep(0)
                order.append("tidied up")

        class Notes(Interleaves):
            def stopped(self) -> None:
                order.append("stopped")

        cell = self.engine.spawn(Notes)
        self.engine.ended[cell] = lambda: order.append("ended")
        asked = self.ask(cell, tidy)
        await self.soon()
        self.engine.post(cell, fail)
        await asyncio.sleep(0)
        for _ in range(2):
            self.engine.exit(cell)
        assert await code_of(asked) == "actor.failed"
        while not cell.exited:
            await asyncio.sleep(0)
        assert order == ["stopped", "tidied up", "ended"]

    async def test_who_waits_for_what_an_instance_has_sent_itself_is_told(self) -> None:
        class Resends(Restarts):
            def handle(self, message: Any, sender: Any) -> None:
                if sender is None:
                    self.send(self.address, message)
                    boom()

        told = self.told(int)
        cell = self.engine.spawn(Resends)
        self.engine.post(cell, 1)
        self.engine.post(cell, "behind")
        await self.soon()
        # Of the message at which it has failed, and of what it has sent itself.
        assert told == ["actor.failed"] * 2

    async def test_a_question_kept_by_an_instance_that_is_replaced_is_answered(self) -> None:
        cell = self.engine.spawn(Restarts)
        asked = [self.ask(cell, one) for one in ("kept", "kept as well")]
        await self.soon()
        self.engine.post(cell, boom)
        assert await codes_of(asked) == ["actor.failed"] * 2

    async def test_what_a_store_completes_later_is_still_answered(self) -> None:
        outcomes = list[str]()

        def submit(actor: Probe, _: Any) -> None:
            for one in operations:
                actor.then(one, lambda _: outcomes.append("run"), lambda _: outcomes.append("late"))

        for end in (partial(self.engine.post, message=boom), self.engine.exit):
            outcomes.clear()
            operations = [Operation() for _ in range(3)]
            cell = self.engine.spawn(Restarts)
            self.engine.post(cell, submit)
            await self.soon()
            operations[0].complete(self.engine)
            await self.soon()
            end(cell)
            operations[1].complete(self.engine)
            await self.soon()
            operations[2].complete(self.engine)
            await self.soon()
            assert outcomes == ["run", "late", "late"]

    async def test_an_operation_at_which_an_actor_fails_is_answered_by_late_and_not_repeated(
        self,
    ) -> None:
        class Twice(Probe):
            attempts = 2

        late, operation, notes = list[Any](), Operation(), list[Any]()
        cell = self.engine.spawn(partial(Twice, notes))
        self.engine.post(cell, submit := lambda one, _: one.then(operation, boom, late.append))
        await self.soon()
        operation.complete(self.engine)
        await self.soon()
        assert late == [operation]
        assert notes == [submit]

    async def test_a_continuation_that_fails_for_one_that_is_gone_costs_no_other(self) -> None:
        operation = Operation()
        cell = self.engine.spawn(Does)

        async def submit(actor: Any) -> None:
            actor.then(operation, boom, boom)

        await self.engine.ask(cell, submit)
        self.engine.exit(cell)
        operation.complete(self.engine)
        assert await code_of(self.ask(cell, "behind")) == "actor.stopped"

    async def test_an_actor_that_fails_at_its_exit_exits(self) -> None:
        class Confused(Actor):
            def receiveMessage(self, msg: Any, sender: Any) -> None:
                boom()

        class BadStop(Probe):
            def stopped(self) -> None:
                boom()

        for actor_class in (Confused, BadStop):
            cell = self.engine.spawn(actor_class)
            await self.soon()
            self.engine.exit(cell)
            await self.soon()
            assert cell.exited
