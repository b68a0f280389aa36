"""Tests what a stopping system waits for, and how it ends the rest."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from actor_support import Probe, tell
from link_support import ManualClock
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.actors.engine.waiting import LINGER_SECONDS
from rillnode.actors.engine.worker import Worker
from rillnode.codecs.errors import ActorError

Wait = Callable[[], Any]


class Waiter(Worker):
    """Awaits what it gets, then answers."""

    async def handle(self, message: Wait, sender: Any) -> None:
        await message()
        if sender is not None:
            self.send(sender, "done")


class Interleaving(Waiter):
    interleaves = True


class Stubborn(Worker):
    """Does not end when it is cancelled."""

    async def handle(self, message: object, sender: Any) -> None:
        while True:
            try:
                await self.sleep(3_600.0)
            except asyncio.CancelledError:
                continue


class Owing(Probe):
    """Says that somebody waits as long as it is told."""

    def owes(self) -> bool:
        if "fail" in self.notes:
            raise RuntimeError("as told")
        return "owe" in self.notes


async def passes(base: AsyncioSystemBase) -> bool:
    """Whether nobody waits for an actor."""
    try:
        async with asyncio.timeout(0.03):
            await base.settle()
    except TimeoutError:
        return False
    return True


async def code_of(asked: "asyncio.Task[Any]") -> str:
    with pytest.raises(ActorError) as caught:
        await asked
    return caught.value.code


@pytest.mark.parametrize("actor_class", [Waiter, Interleaving])
async def test_handlers_that_wait_are_waited_for_with_what_waits_behind_them(
    base: AsyncioSystemBase, actor_class: type[Worker]
) -> None:
    cell, over = base.spawn(actor_class), asyncio.Event()
    asked = [asyncio.ensure_future(base.ask(cell, over.wait)) for _ in range(3)]
    await asyncio.sleep(0)
    assert not await passes(base)
    over.set()
    assert await passes(base)
    assert [one.result() for one in asked] == ["done"] * 3


async def test_a_question_that_is_answered_later_is_waited_for(base: AsyncioSystemBase) -> None:
    cell, kept = base.spawn(Probe), list[Any]()

    def keep(_: Probe, sender: object) -> None:
        kept.append(sender)

    asked = asyncio.ensure_future(base.ask(cell, keep))
    await asyncio.sleep(0)
    assert not await passes(base)
    tell(base, cell, lambda probe, _: probe.send(kept[0], "late"))
    assert await passes(base)
    assert await asked == "late"


async def test_work_is_waited_for_where_somebody_waits_for_it(base: AsyncioSystemBase) -> None:
    cell, over, told = base.spawn(Probe), asyncio.Event(), list[Any]()
    tell(base, cell, lambda probe, _: probe.begin(over.wait()))
    assert await passes(base)
    tell(base, cell, lambda probe, _: probe.begin(over.wait(), told.append))
    assert not await passes(base)
    over.set()
    assert await passes(base)
    assert told == []


async def test_what_interleaves_and_nobody_has_asked_for_is_not_waited_for(
    base: AsyncioSystemBase,
) -> None:
    base.post(base.spawn(Interleaving), asyncio.Event().wait)
    assert await passes(base)


async def test_an_actor_says_itself_that_somebody_waits(base: AsyncioSystemBase) -> None:
    cell = base.spawn(Owing)
    base.post(cell, "owe")
    assert not await passes(base)
    base.post(cell, "fail")
    assert await passes(base)


async def test_children_are_waited_for_like_others(base: AsyncioSystemBase) -> None:
    parent, over = base.spawn(Probe), asyncio.Event()
    child = base.spawn(Waiter, parent=base.spawn(Probe, parent=parent))
    base.post(child, over.wait)
    assert not await passes(base)
    over.set()
    assert await passes(base)


async def test_what_does_not_end_is_ended_and_each_who_waits_is_told(
    base: AsyncioSystemBase,
) -> None:
    other, cell, spared = base.spawn(Probe), base.spawn(Waiter), base.spawn(Waiter)
    tidied, over = list[str](), asyncio.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            tidied.append("tidied up")

    asked = [asyncio.ensure_future(base.ask(cell, wait)) for _ in range(3)]
    last = asyncio.ensure_future(base.ask(spared, over.wait))
    await asyncio.sleep(0)
    await base.drain()
    assert await base.end_unsettled(but=[spared]) == [cell.name]
    assert tidied == ["tidied up"]
    assert [await code_of(one) for one in asked] == ["actor.stopped"] * 3
    assert cell.exited
    assert not other.exited
    over.set()
    assert await last == "done"


async def test_what_does_not_end_when_it_is_cancelled_keeps_nobody_waiting(
    base: AsyncioSystemBase, clock: ManualClock
) -> None:
    cell = base.spawn(Stubborn)
    asked = [asyncio.ensure_future(base.ask(cell, "go")) for _ in range(3)]
    await asyncio.sleep(0)
    await base.drain()
    ending = asyncio.ensure_future(base.end_unsettled(but=()))
    assert await code_of(asked[0]) == "actor.stopped"
    clock.advance(LINGER_SECONDS)
    assert await ending == [cell.name]
    assert [await code_of(one) for one in asked[1:]] == ["actor.stopped"] * 2
