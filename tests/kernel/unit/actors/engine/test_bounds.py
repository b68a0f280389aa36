"""How much may wait, to the byte; and what ends the process, or comes from another thread."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from actor_support import run
from link_support import ManualClock
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.actors.engine.worker import Worker
from rillnode.codecs.errors import ActorError
from rillnode.node.testing.contract.engines.parts import Does, Echo, Probe, code_of, wait


async def soon(base: AsyncioSystemBase, rounds: int = 8) -> None:
    for _ in range(rounds):
        await asyncio.sleep(0)
        await base.drain()


def ask(base: AsyncioSystemBase, cell: Cell, message: Any) -> "asyncio.Future[Any]":
    return asyncio.ensure_future(base.ask(cell, message))


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
