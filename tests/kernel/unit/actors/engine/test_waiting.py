import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

import pytest

from rillnode.actors.engine import mailboxes
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.actors.engine.waiting import Signal, Then
from rillnode.actors.engine.worker import Worker

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
