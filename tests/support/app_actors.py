"""An application's actor in every form that there is, and all of them do the same.

It does what it is told: `count` counts and answers how far, `slow` takes a moment, `hang` does not
return where that is possible, `fail` raises, `none` answers nothing, `text` answers what is no
bytes, `refuse` refuses, `twice` answers twice, `ask` and an address asks there for the rest.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from thespian.actors import Actor as StockActor, ActorExitRequest

from rillnode import Actor, ActorError, ActorReply, Context, Message

PAUSE_SECONDS: Final = 0.005


class Boom(Exception):
    """Raised by the actors."""


@dataclass
class Deeds:
    """The deeds of a test's actors, over all their instances.

    Attributes:
        notes: the numbers that `count` gave, and the payloads of others.
        under_way: handlers that have begun and not ended.
        most: how many were under way at a time.
        hangs: set when one hangs.
        release: lets a thread that hangs return.
    """

    notes: list[str] = field(default_factory=list[str])
    under_way: int = 0
    most: int = 0
    instances: int = 0
    stopped: int = 0
    hangs: asyncio.Event = field(default_factory=asyncio.Event)
    release: threading.Event = field(default_factory=threading.Event)

    def begin(self, payload: bytes) -> None:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        self.notes.append(payload.decode())

    def end(self) -> None:
        self.under_way -= 1


class Doing:
    """One instance's state, and what it does that takes no time."""

    def __init__(self, deeds: Deeds) -> None:
        self.deeds = deeds
        self.count = 0
        deeds.instances += 1

    def do(self, message: Message, ctx: "Context | Silent") -> Any:
        match message.payload.split()[0]:
            case b"count":
                self.count += 1
                return b"%d" % self.count
            case b"fail":
                raise Boom("as told")
            case b"none":
                return None
            case b"text":
                return "no bytes"
            case b"refuse":
                raise ActorReply("tests.refused", "as told")
            case b"twice":
                ctx.reply(b"first")
                return b"second"
            case _:
                return message.payload


class Sync(Actor):
    """Plain methods."""

    def __init__(self, deeds: Deeds) -> None:
        self._doing = Doing(deeds)

    def receive(self, message: Message, ctx: Context) -> Any:
        deeds = self._doing.deeds
        deeds.begin(message.payload)
        try:
            return self._doing.do(message, ctx)
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
            return self._doing.do(message, ctx)
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
        return doing.do(message, ctx)
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
            answer = self._doing.do(Message(payload=msg, principal="", address=""), Silent())
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
            return doing.do(message, ctx)
        finally:
            deeds.end()

    return handler


def async_function_of(deeds: Deeds) -> Callable[[Message, Context], Any]:
    """A function that waits."""
    doing = Doing(deeds)

    async def handler(message: Message, ctx: Context) -> Any:
        return await waiting(doing, message, ctx)

    return handler


@dataclass(frozen=True)
class Form:
    """One form of actors.

    Attributes:
        name: of the form.
        given: what `spawn` is given for actors that note what they do.
        waits: whether one can hang and hold up nobody else.
        stateful: whether it has instances, whose state goes with them.
        ours: whether it knows more than Thespian's own do: what a refusal is, and what bytes are.
    """

    name: str
    given: Callable[[Deeds], tuple[Any, ...]]
    waits: bool
    stateful: bool
    ours: bool = True


FORMS: Final = (
    Form("sync", lambda deeds: (Sync, deeds), waits=False, stateful=True),
    Form("async", lambda deeds: (Async, deeds), waits=True, stateful=True),
    Form("thread", lambda deeds: (Threaded, deeds), waits=True, stateful=True),
    Form("function", lambda deeds: (function_of(deeds),), waits=False, stateful=False),
    Form("async function", lambda deeds: (async_function_of(deeds),), waits=True, stateful=False),
    Form("thespian", lambda deeds: (Stock, deeds), waits=False, stateful=False, ours=False),
)
