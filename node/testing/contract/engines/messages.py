"""Messages: their order, whose turn is next, and what becomes of those that nobody handles."""

import asyncio
from contextvars import ContextVar
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
)

from rillnode.actors.engine.worker import Worker
from rillnode.node.testing.contract.base import until
from rillnode.node.testing.contract.engines.parts import Does, Echo, EnginePart, Probe


class MessagesContract(EnginePart):
    """Each sender's messages are handled in order, one at a time, and none is lost in silence."""

    async def test_messages_are_handled_in_the_order_in_which_they_were_posted(self) -> None:
        notes = list[Any]()
        cell = self.engine.spawn(partial(Probe, notes))
        for number in range(5_000):
            self.engine.post(cell, number)
        await self.engine.drain()
        assert notes == list(range(5_000))

    async def test_nothing_is_handled_before_its_post_has_returned(self) -> None:
        notes = list[Any]()
        cell, other = (self.engine.spawn(partial(Probe, notes)) for _ in range(2))
        await self.soon()
        self.engine.post(cell, "text")
        assert notes == []

        def send(actor: Probe, _: Any) -> None:
            actor.send(other, "sent")
            actor.notes.append("after sending")

        self.engine.post(cell, send)
        await self.soon()
        assert notes == ["text", send, "after sending", "sent"]

    async def test_what_each_actor_sends_arrives_in_its_order(self) -> None:
        notes = list[Any]()
        target = self.engine.spawn(partial(Probe, notes))

        def send(name: str, actor: Probe, _: Any) -> None:
            for number in range(100):
                actor.send(target, (name, number))

        for name in "abc":
            self.engine.post(self.engine.spawn(Probe), partial(send, name))
        await self.soon()
        for name in "abc":
            assert [one for one in notes if one[0] == name] == [(name, at) for at in range(100)]

    async def test_what_an_actor_sends_itself_comes_after_what_it_already_has(self) -> None:
        notes = list[Any]()
        cell = self.engine.spawn(partial(Probe, notes))
        self.engine.post(cell, lambda actor, _: actor.send(actor.address, "own"))
        self.engine.post(cell, "other")
        await self.soon()
        assert notes[1:] == ["other", "own"]

    async def test_what_other_threads_post_comes_in_their_order(self) -> None:
        notes = list[Any]()
        cell = self.engine.spawn(partial(Probe, notes))
        for number in range(0, 200, 2):
            self.engine.post_threadsafe([(cell, number), (cell, number + 1)])
        await self.engine.drain()
        assert notes == list(range(200))

    async def test_a_busy_actor_keeps_no_other_waiting(self) -> None:
        turns, notes = [0], list[Any]()

        class Floods(Worker):
            def handle(self, message: Any, sender: Any) -> None:
                turns[0] += 1
                if len(notes) < len(others):
                    self.send(self.address, message)

        others = [self.engine.spawn(partial(Probe, notes)) for _ in range(1_000)]
        flood = self.engine.spawn(Floods)
        await self.soon()
        for _ in range(100):
            self.engine.post(flood, "again", flood)  # as from itself
        for number, other in enumerate(others):
            self.engine.post(other, number)
        await until(lambda: len(notes) == len(others))
        assert notes == list(range(1_000)), "they are served in the order they became ready"

    async def test_the_loop_has_its_turns_however_much_actors_do(self) -> None:
        left = [20_000]

        class Runs(Worker):
            def handle(self, message: Any, sender: Any) -> None:
                left[0] -= 1
                if left[0]:
                    self.send(self.address, message)

        self.engine.post(self.engine.spawn(Runs), "on")
        turns = 0
        while left[0]:
            turns += 1
            await asyncio.sleep(0)
        assert turns > 10

    async def test_a_worker_knows_its_system_and_address_from_its_start_on(self) -> None:
        known = list[Any]()

        class Curious(Probe):
            def started(self) -> None:
                known.append((self.system, self.address))

        cell = self.engine.spawn(Curious)
        await self.soon()
        assert known == [(self.engine, cell)]

    async def test_what_an_actor_sends_bears_its_address(self) -> None:
        notes = list[Any]()
        probe, echo = self.engine.spawn(partial(Probe, notes)), self.engine.spawn(Echo)
        self.engine.post(probe, lambda actor, _: actor.send(echo, "to and fro"))
        await self.soon()
        assert notes[1:] == ["to and fro"]

    async def test_actors_share_no_context(self) -> None:
        variable = ContextVar("variable", default="nobody's")
        seen = list[str]()

        async def own(_: Any) -> None:
            variable.set("mine")
            await self.engine.ask(other, "wait for it")
            seen.append(variable.get())

        async def look(_: Any) -> None:
            seen.append(variable.get())

        variable.set("the poster's")
        one, other = self.engine.spawn(Does), self.engine.spawn(Does)
        await self.engine.ask(one, own)
        self.engine.post(other, look)
        await self.soon()
        assert seen == ["mine", "nobody's"]

    # Dead letters ----------------------------------------------------------------------------

    async def test_a_message_to_an_actor_that_is_gone_is_a_dead_letter(self) -> None:
        cell, sender = self.engine.spawn(Probe), self.engine.spawn(Probe)
        self.engine.exit(cell)
        await self.soon()
        self.engine.post(cell, "late", sender)
        letters = [(one.target, one.message, one.sender) for one in self.engine.dead_letters]
        assert letters == [(cell, "late", sender)]
        assert self.engine.dead_letters.reasons == {"gone": 1}
        self.engine.exit(cell)
        assert self.engine.dead_letters.count == 1, "an exit that was already done is none"

    async def test_what_an_actor_leaves_behind_is_a_dead_letter(self) -> None:
        cell = self.engine.spawn(Probe)
        self.engine.post(cell, lambda actor, _: actor.send(actor.address, "to itself"))
        self.engine.exit(cell)
        self.engine.post(cell, "behind the exit")
        await self.soon()
        letters = [(letter.message, letter.reason) for letter in self.engine.dead_letters]
        assert sorted(letters) == [("behind the exit", "unhandled"), ("to itself", "unhandled")]

    async def test_only_some_dead_letters_are_kept_the_newest_and_all_are_counted(self) -> None:
        cell = self.engine.spawn(Probe)
        self.engine.exit(cell)
        await self.soon()
        for number in range(1_000):
            self.engine.post(cell, number)
        kept = [letter.message for letter in self.engine.dead_letters]
        assert 0 < len(kept) < 1_000
        assert kept == [*range(1_000 - len(kept), 1_000)]
        assert self.engine.dead_letters.reasons["gone"] == self.engine.dead_letters.count == 1_000

    async def test_an_actor_can_get_the_dead_letters(self) -> None:
        notes = list[Any]()
        undertaker, dead = self.engine.spawn(partial(Probe, notes)), self.engine.spawn(Probe)
        self.engine.exit(dead)
        await self.soon()
        for enable, text in ((True, "one"), (False, "two")):
            self.engine.post(undertaker, lambda one, _, on=enable: one.handleDeadLetters(on))
            await self.soon()
            self.engine.post(dead, text)
            await self.soon()
        assert [one for one in notes if not callable(one)] == [DeadEnvelope(dead, "one")]

    async def test_dead_letters_do_not_go_round_when_their_handler_is_dead(self) -> None:
        undertaker = self.engine.spawn(Probe)
        self.engine.post(undertaker, lambda actor, _: actor.handleDeadLetters())
        self.engine.exit(undertaker)
        self.engine.post(undertaker, "behind the exit")
        await self.soon()
        self.engine.post(undertaker, "late")
        assert self.engine.dead_letters.reasons == {"unhandled": 1, "gone": 1}

    async def test_an_address_of_nothing_gets_nothing_and_no_address_is_an_error(self) -> None:
        self.engine.post(ActorAddress("elsewhere"), "lost")
        assert self.engine.dead_letters.reasons == {"unknown": 1}
        nothing: Any = None
        with pytest.raises(InvalidActorAddress):
            self.engine.post(nothing, "lost")

    # The system's own ------------------------------------------------------------------------

    async def test_a_thespian_actor_sees_its_exit_request_and_a_worker_does_not(self) -> None:
        class Plain(Actor):
            def __init__(self, notes: list[Any]) -> None:
                super().__init__()
                self._notes = notes

            def receiveMessage(self, msg: Any, sender: Any) -> None:
                self._notes.append(msg)

        plain_notes, notes = list[Any](), list[Any]()
        self.engine.exit(self.engine.spawn(partial(Plain, plain_notes)))
        self.engine.exit(self.engine.spawn(partial(Probe, notes)))
        await self.soon()
        assert plain_notes == [ActorExitRequest()]
        assert notes == []

    async def test_other_messages_of_the_system_reach_the_actor(self) -> None:
        class Other(ActorSystemMessage):
            pass

        notes, message = list[Any](), Other()
        self.engine.post(self.engine.spawn(partial(Probe, notes)), message)
        await self.soon()
        assert notes == [message]
