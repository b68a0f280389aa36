"""Tests each form that an application's actor may have; all of them do what they are told."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from thespian.actors import Actor as StockActor, ActorExitRequest

from rillnode import Actor, ActorError, Context, Message
from rillnode.node.testing.contract.actor_forms import (
    ActorFormContract,
    Deeds,
    Doing,
    RefusingFormContract,
    StatefulFormContract,
    WaitingFormContract,
)

PAUSE_SECONDS: Final = 0.005


class Sync(Actor):
    """Plain methods."""

    def __init__(self, deeds: Deeds) -> None:
        self._doing = Doing(deeds)

    def receive(self, message: Message, ctx: Context) -> Any:
        deeds = self._doing.deeds
        deeds.begin(message.payload)
        try:
            return self._doing.do(message.payload, ctx)
        finally:
            deeds.end()

    def stopped(self, ctx: Context) -> None:
        self._doing.deeds.stopped += 1


class Async(Actor):
    """Methods that wait."""

    def __init__(self, deeds: Deeds) -> None:
        self._doing = Doing(deeds)

    async def started(self, ctx: Context) -> None:
        await asyncio.sleep(0)

    async def receive(self, message: Message, ctx: Context) -> Any:
        return await waiting(self._doing, message, ctx)

    async def stopped(self, ctx: Context) -> None:
        await asyncio.sleep(0)
        self._doing.deeds.stopped += 1


class Threaded(Actor):
    """Methods that block."""

    blocking = True

    def __init__(self, deeds: Deeds) -> None:
        self._doing = Doing(deeds)
        self._loop = asyncio.get_running_loop()

    def receive(self, message: Message, ctx: Context) -> Any:
        deeds = self._doing.deeds
        deeds.begin(message.payload)
        try:
            if message.payload.startswith(b"hang"):
                self._loop.call_soon_threadsafe(deeds.hangs.set)
                deeds.release.wait(30.0)
            if message.payload.startswith(b"ask "):
                return ctx.wait(passed_on(message, ctx))
            time.sleep(PAUSE_SECONDS if message.payload == b"slow" else 0)
            return self._doing.do(message.payload, ctx)
        finally:
            deeds.end()

    def stopped(self, ctx: Context) -> None:
        self._doing.deeds.stopped += 1


async def waiting(doing: Doing, message: Message, ctx: Context) -> Any:
    """Do it with a wait in between."""
    doing.deeds.begin(message.payload)
    try:
        if message.payload.startswith(b"hang"):
            doing.deeds.hangs.set()
            await asyncio.Event().wait()
        if message.payload.startswith(b"ask "):
            return await passed_on(message, ctx)
        await asyncio.sleep(PAUSE_SECONDS if message.payload == b"slow" else 0)
        return doing.do(message.payload, ctx)
    finally:
        doing.deeds.end()


class Stock(StockActor):
    """Thespian's own kind, with as many attempts as the others have."""

    attempts = 1

    def __init__(self, deeds: Deeds) -> None:
        self._doing = Doing(deeds)

    def receiveMessage(self, msg: Any, sender: Any) -> None:
        if isinstance(msg, ActorExitRequest):
            return
        deeds = self._doing.deeds
        deeds.begin(msg)
        try:
            if msg == b"twice":
                self.send(sender, b"first")
            answer = self._doing.do(msg, Silent())
            if answer is not None:
                self.send(sender, answer)
        finally:
            deeds.end()


class Silent:
    """Stands where ours have a context."""

    def reply(self, payload: bytes) -> None:
        """It was sent already."""


async def passed_on(message: Message, ctx: Context) -> bytes:
    """Ask whom the message names, and answer with what comes of it: an answer, or a code."""
    _, address, rest = message.payload.split(b" ", 2)
    try:
        return (await ctx.ask(address.decode(), rest)).payload
    except ActorError as error:
        return error.code.encode()


def function_of(deeds: Deeds) -> Callable[[Message, Context], Any]:
    """A plain function."""
    doing = Doing(deeds)

    def handler(message: Message, ctx: Context) -> Any:
        deeds.begin(message.payload)
        try:
            return doing.do(message.payload, ctx)
        finally:
            deeds.end()

    return handler


def async_function_of(deeds: Deeds) -> Callable[[Message, Context], Any]:
    """A function that waits."""
    doing = Doing(deeds)

    async def handler(message: Message, ctx: Context) -> Any:
        return await waiting(doing, message, ctx)

    return handler


class TestSync(RefusingFormContract, StatefulFormContract):
    def given(self, deeds: Deeds) -> tuple[Any, ...]:
        return Sync, deeds


class TestAsync(RefusingFormContract, StatefulFormContract, WaitingFormContract):
    def given(self, deeds: Deeds) -> tuple[Any, ...]:
        return Async, deeds


class TestThread(RefusingFormContract, StatefulFormContract, WaitingFormContract):
    def given(self, deeds: Deeds) -> tuple[Any, ...]:
        return Threaded, deeds


class TestFunction(RefusingFormContract):
    def given(self, deeds: Deeds) -> tuple[Any, ...]:
        return (function_of(deeds),)


class TestAsyncFunction(RefusingFormContract, WaitingFormContract):
    def given(self, deeds: Deeds) -> tuple[Any, ...]:
        return (async_function_of(deeds),)


class TestThespian(ActorFormContract):
    """Its actors know no refusals, take a message twice, and are told of no end."""

    def given(self, deeds: Deeds) -> tuple[Any, ...]:
        return Stock, deeds
