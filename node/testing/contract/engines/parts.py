"""The surface of an engine, and actors that do as they are told: what its suites are made of."""

import asyncio
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Container,
    Iterable,
    Iterator,
    MutableMapping,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar, Protocol

import pytest
from thespian.actors import Actor, ActorAddress, ActorSystemMessage

from rillnode.actors.engine.cell import Tell
from rillnode.actors.engine.kinds import OnFailure
from rillnode.actors.engine.supervision import OnFatal
from rillnode.actors.engine.waiting import last_of
from rillnode.actors.engine.worker import Worker
from rillnode.actors.ports import TimerHandle
from rillnode.codecs.errors import RillnodeError
from rillnode.node.testing.contract.base import Contract

Address = Any
"""An ActorAddress that `spawn` has returned; `exited` says whether its actor has ended."""


class Letters(Protocol):
    """The dead letters of a system: the newest, oldest first, and how many of each kind.

    Attributes:
        reasons: how many there have been, by their reason.
    """

    reasons: Counter[Any]

    @property
    def count(self) -> int:
        """How many there have been."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Engine(Protocol):
    """A running actor system, as far as the suites use it; see `AsyncioSystemBase`.

    Its actors are subclasses of `Worker` or of Thespian's Actor.

    Attributes:
        on_fatal: called when an essential actor was given up, with it and its last failure.
    """

    on_fatal: OnFatal

    @property
    def outcomes(self) -> MutableMapping[type, Tell]:
        """How to tell who waits for a message, by its class, that nothing comes of it."""
        ...

    @property
    def sizes(self) -> MutableMapping[type, Callable[[Any], int]]:
        """How large messages are, by their class."""
        ...

    @property
    def ended(self) -> MutableMapping[Address, Callable[[], object]]:
        """What is called, once, when an actor has exited."""
        ...

    @property
    def dead_letters(self) -> Letters:
        """Messages that no actor has handled."""
        ...

    def spawn(
        self, factory: Callable[[], Actor], *, parent: Address = None, name: str | None = None
    ) -> Address:
        """Make an actor and return its address."""
        ...

    def exit(self, target: ActorAddress) -> None:
        """Ask an actor to exit after the messages it already has."""
        ...

    def post(self, target: ActorAddress, message: Any, sender: Any = None) -> None:
        """Put a message into an actor's mailbox."""
        ...

    def post_threadsafe(self, deliveries: Iterable[Any], /) -> None:
        """Post `(target, message)` or `(target, message, sender)`; any thread."""
        ...

    async def send(self, target: ActorAddress, message: Any) -> None:
        """Post a message as soon as there is room for it."""
        ...

    def forward(self, target: ActorAddress, message: Any, sender: ActorAddress | None) -> None:
        """Post a message that came to another actor."""
        ...

    def ask(
        self, target: ActorAddress, message: Any, timeout_seconds: float | None = None
    ) -> Awaitable[Any]:
        """Post a message and wait for the first answer to it."""
        ...

    def wake_after(self, cell: Address, seconds: float, message: object) -> TimerHandle:
        """Post a message to an actor, from itself, after `seconds`."""
        ...

    async def drain(self) -> None:
        """Wait until no message waits."""
        ...

    async def settle(self) -> None:
        """Wait until nobody waits for an actor."""
        ...

    async def end_unsettled(self, but: Container[ActorAddress]) -> list[str]:
        """End the actors that keep somebody waiting, and return their names."""
        ...

    def shutdown(self) -> Awaitable[None]:
        """Ask every actor to exit, and wait until all have."""
        ...

    def given_up(self, cell: Address) -> bool:
        """Whether an actor ended because it failed too often."""
        ...


class Boom(Exception):
    """Raised by actors that are told to fail."""


def boom(*_: object) -> None:
    """A deed that fails."""
    raise Boom("as told")


async def fail(_: object) -> None:
    """The same for actors whose deeds are awaited."""
    boom()


async def wait(_: object) -> None:
    """A deed that never ends by itself."""
    await asyncio.get_running_loop().create_future()


class Probe(Worker):
    """Notes what it gets, and calls what can be called with itself and the sender."""

    on_failure: ClassVar[OnFailure] = "resume"

    def __init__(self, notes: list[Any] | None = None) -> None:
        self.notes: list[Any] = [] if notes is None else notes

    def handle(self, message: Any, sender: Any) -> None:
        """Note it, and do what it says."""
        self.notes.append(message)
        if callable(message):
            message(self, sender)


class Echo(Worker):
    """Answers with what it got."""

    def handle(self, message: Any, sender: Any) -> None:
        """Answer."""
        if not isinstance(message, ActorSystemMessage):
            self.send(sender, message)


class Does(Worker):
    """Awaits what it gets, if that can be called, with itself, and answers what comes of it."""

    on_failure: ClassVar[OnFailure] = "restart"

    async def handle(self, message: Any, sender: Any) -> None:
        """Do what it says."""
        deed: Any = message if callable(message) else None
        answer = message if deed is None else await deed(self)
        if sender is not None:
            self.send(sender, answer)


class Interleaves(Does):
    """The same, several at a time."""

    interleaves = True


class Operation:
    """A store's operation: `Worker.then` says how its actor goes on.

    Attributes:
        reply_to: whose it is.
        then: what goes on with it.
    """

    reply_to: Any
    then: Any

    def complete(self, engine: Engine) -> None:
        """Let it be done."""
        if last_of(self):
            engine.post_threadsafe([(self.reply_to, self, self.then)])


class EnginePart(Contract):
    """The actors and probes that one part of the contract of engines is tested with.

    Attributes:
        engine: a running one, in each test.
    """

    engine: Engine

    def running(self) -> AbstractAsyncContextManager[Engine]:
        """Make an engine on the running loop; when the block is left it has been shut down."""
        raise NotImplementedError

    async def pass_time(self, seconds: float) -> None:
        """Let `seconds` of the engine's clock pass, or some more, and what is due then happen."""
        raise NotImplementedError

    @asynccontextmanager
    async def around(self) -> AsyncGenerator[None, None]:
        """Make the engine of a test."""
        async with self.running() as self.engine:
            yield

    def ask(
        self, target: Address, message: Any, seconds: float | None = None
    ) -> "asyncio.Future[Any]":
        """Ask, and go on."""
        return asyncio.ensure_future(self.engine.ask(target, message, seconds))

    def told(self, kind: type) -> list[str]:
        """Note the codes that whoever waits for messages of a class is told."""
        codes: list[str] = []

        def note(_: object, error: RillnodeError) -> None:
            codes.append(error.code)

        self.engine.outcomes[kind] = note
        return codes

    async def soon(self, rounds: int = 8) -> None:
        """Let happen what needs no time."""
        for _ in range(rounds):
            await asyncio.sleep(0)
            await self.engine.drain()


async def code_of(answer: Awaitable[Any]) -> str:
    """The code of the error that comes instead of an answer."""
    with pytest.raises(RillnodeError) as caught:
        await answer
    return caught.value.code


async def codes_of(answers: Iterable[Awaitable[Any]]) -> list[str]:
    """Likewise of several."""
    return [await code_of(one) for one in answers]
