"""Helps tests of the actor system: actors that do as they are told, a system for them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, TypeVar

from thespian.actors import ActorAddress, ActorSystemMessage

from link_support import ManualClock
from rillnode.actors.engine.kinds import OnFailure
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.actors.engine.worker import Worker

T = TypeVar("T")

Deed = Callable[["Probe", Any], object]


class Probe(Worker):
    """Notes what it gets, and calls what can be called with itself and the sender."""

    on_failure: ClassVar[OnFailure] = "resume"

    def __init__(self, notes: list[Any] | None = None) -> None:
        self.notes: list[Any] = [] if notes is None else notes

    def handle(self, message: Any, sender: Any) -> None:
        self.notes.append(message)
        if callable(message):
            message(self, sender)


class Echo(Worker):
    """Answers with what it got."""

    def handle(self, message: Any, sender: Any) -> None:
        if not isinstance(message, ActorSystemMessage):
            self.send(sender, message)


class Boom(Exception):
    """Raised by actors of tests."""


def tell(base: AsyncioSystemBase, target: ActorAddress, deed: Deed) -> None:
    """Have a probe do something."""
    base.post(target, deed)


def boom(*_: Any) -> None:
    raise Boom("as told")


def run(test: Callable[[AsyncioSystemBase, ManualClock], Awaitable[T]], **options: Any) -> T:
    """Run a test with a system whose time stands still, then shut the system down."""

    async def main() -> T:
        clock = ManualClock()
        base = AsyncioSystemBase(clock=clock, **options)
        async with asyncio.timeout(120.0):
            result = await test(base, clock)
            await base.shutdown()
        return result

    return asyncio.run(main())
