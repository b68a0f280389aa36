"""Bounds: what a full mailbox takes, refuses, puts together and drops."""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import pytest

from rillnode.actors.engine.worker import Worker
from rillnode.codecs.errors import ActorError
from rillnode.node.testing.contract.base import until
from rillnode.node.testing.contract.engines.parts import (
    Address,
    Does,
    EnginePart,
    Operation,
    Probe,
    code_of,
    codes_of,
    wait,
)

FEW = 10


@dataclass(frozen=True)
class News:
    """News of which the latest stands for all."""

    number: int

    def merged(self, later: "News") -> "News":
        """The later one."""
        return later


@dataclass(frozen=True)
class Note:
    """News of which whoever sends it bounds the number."""

    number: int


class Bounded(Does):
    """Takes ten messages, of 1,000 bytes, and three notes more."""

    mailbox_messages_max = FEW
    mailbox_bytes_max = 1_000
    spare: ClassVar = {Note: 3}


class BoundsContract(EnginePart):
    """A mailbox is bounded by number and bytes, and whoever waits is told that it is full."""

    async def full(self, notes: list[Any] | None = None) -> "tuple[Address, asyncio.Future[None]]":
        """An actor whose mailbox is full until a future is done; it notes its messages."""

        class Notes(Bounded):
            async def handle(self, message: Any, sender: Any) -> None:
                await super().handle(message, sender)
                if notes is not None and not callable(message):
                    notes.append(message)

        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        cell = self.engine.spawn(Notes)
        self.engine.post(cell, lambda _: over)
        await self.soon()
        for number in range(FEW):
            self.engine.post(cell, number)
        return cell, over

    async def test_what_somebody_waits_for_is_refused_and_he_is_told(self) -> None:
        cell, over = await self.full()
        assert await codes_of(self.ask(cell, one) for one in "ab") == ["actor.busy"] * 2
        told = self.told(str)
        self.engine.post(cell, "somebody waits")
        assert told == ["actor.busy"]
        over.set_result(None)
        await self.soon()
        assert await self.engine.ask(cell, "again") == "again"

    async def test_an_actor_s_own_send_is_refused(self) -> None:
        def send(actor: Probe, sender: Any) -> None:
            with pytest.raises(ActorError) as caught:
                actor.send(cell, "one more")
            actor.send(sender, caught.value.code)

        cell, over = await self.full(notes := list[Any]())
        assert await self.engine.ask(self.engine.spawn(Probe), send) == "actor.busy"
        over.set_result(None)
        await self.soon()
        assert notes == [*range(FEW)]

    async def test_a_sender_from_outside_waits_for_room(self) -> None:
        cell, over = await self.full(notes := list[Any]())

        async def send(numbers: range) -> None:
            for number in numbers:
                await self.engine.send(cell, number)

        sending = asyncio.ensure_future(send(range(FEW, 5 * FEW)))
        await self.soon()
        assert not sending.done()
        over.set_result(None)
        await sending
        await until(lambda: len(notes) == 5 * FEW)
        assert notes == [*range(5 * FEW)]
        assert self.engine.dead_letters.count == 0

    async def test_a_sender_that_waits_for_room_is_told_when_the_actor_exits(self) -> None:
        cell, _ = await self.full()
        sending = asyncio.ensure_future(self.engine.send(cell, "text"))
        await self.soon()
        self.engine.exit(cell)
        assert await code_of(sending) == "actor.stopped"

    async def test_news_that_nobody_waits_for_is_dropped_and_counted(self) -> None:
        cell, over = await self.full(notes := list[Any]())
        for number in range(3):
            self.engine.post(cell, f"news {number}")
        assert self.engine.dead_letters.reasons == {"busy": 3}
        over.set_result(None)
        await self.soon()
        assert notes == [*range(FEW)]

    async def test_news_of_which_one_stands_for_all_is_put_together(self) -> None:
        cell, over = await self.full(notes := list[Any]())
        for number in range(5):
            self.engine.post(cell, News(number))
        over.set_result(None)
        await self.soon()
        assert notes == [*range(FEW), News(4)]
        assert self.engine.dead_letters.count == 0

    async def test_news_that_its_sender_bounds_is_taken_as_far_as_the_class_says(self) -> None:
        cell, over = await self.full(notes := list[Any]())
        for number in range(20):
            self.engine.post(cell, Note(number))
        over.set_result(None)
        await self.soon()
        taken = [one for one in notes if isinstance(one, Note)]
        assert taken == [Note(number) for number in range(3)]
        assert self.engine.dead_letters.reasons == {"busy": 17}

    async def test_timers_completed_operations_and_exits_are_taken(self) -> None:
        operation = Operation()

        class Keeps(Bounded):
            async def handle(self, message: Any, sender: Any) -> None:
                if message == "begin":
                    self.then(operation, lambda _: seen.append("operation"))
                    self.wake_after(0.01, "timer")
                    await over
                seen.append(message)

        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        seen = list[Any]()
        cell = self.engine.spawn(Keeps)
        self.engine.post(cell, "begin")
        await self.soon()
        for number in range(FEW):
            self.engine.post(cell, number)
        operation.complete(self.engine)
        await self.pass_time(0.01)
        await self.soon()
        assert seen == ["operation"]
        over.set_result(None)
        await until(lambda: len(seen) == FEW + 3)
        assert seen == ["operation", "begin", *range(FEW), "timer"]
        self.engine.post(cell, "begin")
        await self.soon()
        full, _ = await self.full()
        self.engine.exit(full)
        await self.soon()
        assert full.exited

    async def test_bytes_are_bounded_too_and_what_is_refused_does_not_count(self) -> None:
        self.engine.sizes[bytes] = len
        cell, sender = self.engine.spawn(Bounded), self.engine.spawn(Probe)
        self.engine.post(cell, wait)
        await self.soon()
        self.engine.post(cell, bytes(10))
        for _ in range(3):
            self.engine.post(cell, bytes(500))
            with pytest.raises(ActorError):
                self.engine.post(cell, bytes(1_001), sender)
        assert await code_of(self.ask(cell, bytes(1_001))) == "actor.busy"
        self.engine.post(cell, bytes(400), sender)
        assert self.engine.dead_letters.reasons["busy"] >= 2

    async def test_room_of_bytes_comes_back_when_they_are_handled(self) -> None:
        class Takes(Worker):
            mailbox_bytes_max = 1_000

            def handle(self, message: bytes, sender: Any) -> None:
                taken.append(len(message))

        taken = list[int]()
        self.engine.sizes[bytes] = len
        cell = self.engine.spawn(partial(Takes))

        async def send() -> None:
            for _ in range(20):
                await self.engine.send(cell, bytes(100))

        async with asyncio.TaskGroup() as senders:
            for _ in range(5):
                senders.create_task(send())
        await self.soon()
        assert taken == [100] * 100
