"""Stopping: who is waited for when a system is to stop, how the rest ends, and the shutdown."""

import asyncio
from functools import partial
from typing import Any

import pytest

from rillnode.codecs.errors import ActorError
from rillnode.node.testing.contract.engines.parts import (
    Address,
    Boom,
    Does,
    EnginePart,
    Interleaves,
    Probe,
    code_of,
    codes_of,
    wait,
)


class Owing(Probe):
    """Says that somebody waits as long as it is told."""

    def owes(self) -> bool:
        """Whether it was told so last."""
        if "fail" in self.notes:
            raise Boom("as told")
        return "owe" in self.notes


class StoppingContract(EnginePart):
    """A stop waits for whoever waits, ends what does not end, and leaves nobody without a word."""

    # Draining --------------------------------------------------------------------------------

    async def test_drain_waits_for_all_that_follows_from_what_was_sent(self) -> None:
        notes = list[Any]()

        def count_down(left: int, actor: Probe, _: Any) -> None:
            if left:
                actor.send(actor.address, partial(count_down, left - 1))

        cell = self.engine.spawn(partial(Probe, notes))
        self.engine.post(cell, partial(count_down, 5_000))
        await self.engine.drain()
        assert len(notes) == 5_001
        await self.engine.drain()

    async def test_drain_does_not_wait_for_timers_nor_for_handlers_that_wait(self) -> None:
        cell = self.engine.spawn(Does)
        self.engine.post(cell, wait)
        self.engine.wake_after(cell, 3_600.0, "never")
        await self.engine.drain()

    # Settling --------------------------------------------------------------------------------

    async def settling(self) -> "asyncio.Task[None]":
        """A wait until nobody waits for an actor, which has not ended yet."""
        settling = asyncio.ensure_future(self.engine.settle())
        await asyncio.sleep(0.02)
        assert not settling.done()
        return settling

    async def test_handlers_that_wait_are_waited_for_with_what_waits_behind_them(self) -> None:
        for actor_class in (Does, Interleaves):
            cell, over = self.engine.spawn(actor_class), asyncio.Event()

            async def deed(_: Any, over: asyncio.Event = over) -> str:
                await over.wait()
                return "done"

            asked = [self.ask(cell, deed) for _ in range(3)]
            settling = await self.settling()
            over.set()
            await settling
            assert [one.result() for one in asked] == ["done"] * 3

    async def test_a_question_that_is_answered_later_is_waited_for(self) -> None:
        cell, kept = self.engine.spawn(Probe), list[Any]()
        asked = self.ask(cell, lambda _, sender: kept.append(sender))
        settling = await self.settling()
        self.engine.post(cell, lambda actor, _: actor.send(kept[0], "late"))
        await settling
        assert await asked == "late"

    async def test_work_is_waited_for_where_somebody_waits_for_it(self) -> None:
        cell, over, told = self.engine.spawn(Probe), asyncio.Event(), list[Any]()
        self.engine.post(cell, lambda actor, _: actor.begin(over.wait()))
        await self.engine.settle()
        self.engine.post(cell, lambda actor, _: actor.begin(over.wait(), told.append))
        settling = await self.settling()
        over.set()
        await settling
        assert told == []

    async def test_what_interleaves_and_nobody_has_asked_for_is_not_waited_for(self) -> None:
        self.engine.post(self.engine.spawn(Interleaves), wait)
        await self.engine.settle()

    async def test_timers_are_not_waited_for(self) -> None:
        cell = self.engine.spawn(Probe)
        await self.soon()
        self.engine.wake_after(cell, 3_600.0, "never")
        await self.engine.settle()

    async def test_an_actor_may_say_itself_that_somebody_waits(self) -> None:
        cell = self.engine.spawn(Owing)
        self.engine.post(cell, "owe")
        settling = await self.settling()
        self.engine.post(cell, "fail")
        await settling

    async def test_children_are_waited_for_like_others(self) -> None:
        parent, over = self.engine.spawn(Probe), asyncio.Event()
        child = self.engine.spawn(Does, parent=self.engine.spawn(Probe, parent=parent))
        self.engine.post(child, lambda _: over.wait())
        settling = await self.settling()
        over.set()
        await settling

    async def test_what_does_not_end_is_ended_and_each_who_waits_is_told(self) -> None:
        spawn, tidied, over = self.engine.spawn, list[str](), asyncio.Event()
        other, cell, spared = spawn(Probe), spawn(Does), spawn(Does)

        async def tidy(_: Any) -> None:
            try:
                await wait(_)
            finally:
                await asyncio.sleep(0)
                tidied.append("tidied up")

        async def last(_: Any) -> str:
            await over.wait()
            return "done"

        asked, spared_asked = [self.ask(cell, tidy) for _ in range(3)], self.ask(spared, last)
        await self.soon()
        assert await self.engine.end_unsettled(but=[spared]) == [cell.name]
        assert tidied == ["tidied up"]
        assert await codes_of(asked) == ["actor.stopped"] * 3
        assert cell.exited
        assert not other.exited
        over.set()
        assert await spared_asked == "done"

    # Shutdown --------------------------------------------------------------------------------

    async def test_shutdown_handles_what_was_sent_before_and_ends_all(self) -> None:
        notes = list[Any]()
        parent = self.engine.spawn(partial(Probe, notes))
        child = self.engine.spawn(partial(Probe, notes), parent=parent)
        for one in (parent, child):
            self.engine.post(one, "before")
        await self.engine.shutdown()
        assert notes == ["before", "before"]
        assert parent.exited
        assert child.exited
        self.engine.post(parent, "after")
        assert self.engine.dead_letters.count == 1
        await self.engine.shutdown()
        with pytest.raises(ActorError) as caught:
            self.engine.spawn(Probe)
        assert caught.value.code == "actor.closed"

    async def test_shutdown_tells_all_who_ask(self) -> None:
        cells = [self.engine.spawn(Does) for _ in range(3)]
        asked = [self.ask(cell, what) for cell in cells for what in (wait, "behind")]
        await self.soon()
        await self.engine.shutdown()
        assert await codes_of(asked) == ["actor.stopped"] * 6
        assert await code_of(self.ask(cells[0], "after")) == "actor.stopped"

    async def test_what_is_spawned_during_a_shutdown_ends_with_it(self) -> None:
        def spawn(actor: Probe, _: Any) -> None:
            cells.append(self.engine.spawn(Probe))
            actor.send(cells[0], "behind its exit")

        cells = list[Address]()
        self.engine.post(self.engine.spawn(Probe), spawn)
        await self.engine.shutdown()
        assert cells[0].exited
        assert self.engine.dead_letters.count == 1

    async def test_giving_up_the_wait_does_not_stop_a_shutdown(self) -> None:
        cell = self.engine.spawn(Probe)

        async def shut_down() -> None:
            await self.engine.shutdown()

        waiting = asyncio.ensure_future(shut_down())
        await asyncio.sleep(0)
        waiting.cancel()
        await self.engine.shutdown()
        assert cell.exited

    async def test_an_actor_may_end_the_system(self) -> None:
        cell, other = self.engine.spawn(Probe), self.engine.spawn(Probe)
        self.engine.post(cell, lambda actor, _: actor.actorSystemShutdown())
        await self.soon()
        assert cell.exited
        assert other.exited
