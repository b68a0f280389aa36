"""Actors of an application that count, in several forms."""

import asyncio
from typing import Any, Final

from thespian.actors import Actor as StockActor, ActorExitRequest

from rillnode import Actor, ActorError, ActorReply, Context, Message, RequestError
from rillnode.testing.contract import Sample

COUNTED: Final = (
    Sample(b"1", b"1"),
    Sample(b"41", b"42"),
    Sample(b"many", code="counter.number"),
    Sample(b"0", lambda answer: int(answer) == 42),
)
DIGITS_MAX: Final = 20


def number_of(payload: bytes) -> int:
    """The number that a payload is, or a refusal."""
    if not payload.isdigit() or len(payload) > DIGITS_MAX:
        raise ActorReply("counter.number", "send a number")
    return int(payload)


class Counter(Actor):
    """Adds up what it is sent."""

    def __init__(self) -> None:
        self.total = 0

    def add(self, payload: bytes) -> bytes:
        self.total += number_of(payload)
        return b"%d" % self.total

    def receive(self, message: Message, ctx: Context) -> Any:
        return self.add(message.payload)


class SlowCounter(Counter):
    """Waits before it does."""

    async def receive(self, message: Message, ctx: Context) -> bytes:
        await asyncio.sleep(0.001)
        return self.add(message.payload)


class ThreadCounter(Counter):
    """Does it on a thread."""

    blocking = True


class StockCounter(StockActor):
    """Thespian's kind."""

    total = 0

    def receiveMessage(self, msg: Any, sender: Any) -> None:
        if not isinstance(msg, ActorExitRequest):
            try:
                self.total += number_of(msg)
            except ActorReply as refusal:
                self.send(sender, refusal.code)
            else:
                self.send(sender, b"%d" % self.total)


class StoredCounter(Counter):
    """Keeps each sum in a stream before it answers."""

    async def started(self, ctx: Context) -> None:
        self.sums = await ctx.node.stream(f"sums/{ctx.address}")
        for entry in await self.sums.pull(-1):
            self.total = int(entry.data)

    async def receive(self, message: Message, ctx: Context) -> bytes:
        total = self.total + number_of(message.payload)
        await self.sums.push(b"%d" % total)
        self.total = total
        return b"%d" % total


async def sized(message: Message, ctx: Context) -> bytes:
    """Has no state."""
    await asyncio.sleep(0.001)
    return b"%d" % len(message.payload)


async def greets(message: Message, ctx: Context) -> bytes:
    """Asks another one first."""
    try:
        number = (await ctx.ask("numbers")).payload
    except (RequestError, ActorError) as error:
        raise ActorReply("greeter.number", f"nobody has a number: {error}") from None
    return b"hello, number " + number
