"""Runs an application's actor: its messages, its answers, its timers and threads."""

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, cast

from msgspec import Struct
from thespian.actors import ActorAddress, PoisonMessage

from rillnode.actors.apps.actor import Actor
from rillnode.actors.apps.context import Context
from rillnode.actors.apps.endpoint import Call, Endpoint, Houses
from rillnode.actors.apps.messages import ActorReply, Answer, Message
from rillnode.actors.apps.policy import ENDPOINTS_MAX
from rillnode.actors.core.access import NODE_PRINCIPAL
from rillnode.actors.core.threads import Queue
from rillnode.actors.engine.cell import FAILURES
from rillnode.actors.engine.waiting import Signal
from rillnode.actors.engine.worker import Worker
from rillnode.actors.ports import TimerHandle
from rillnode.codecs import arguments
from rillnode.codecs.errors import ActorError, RillnodeError
from rillnode.codecs.routing.routes import local

ANSWER_SPARE_BYTES = 4_096
"""Of the largest message that a link takes what an answer leaves to its routes. Own choice."""

EVERY_SECONDS_MIN = 0.001
"""The shortest time between the ticks of a timer: without any, the loop would only tick."""


class News(Struct, frozen=True):
    """Something that an actor is told of, as the value of a message; nobody waits for it."""

    value: Any


class Tick(Struct, eq=False):
    """A timer of an actor; it is its handle, too.

    Attributes:
        value: what the actor is told with.
        seconds: how long until the next; None: there is none.
        timer: the one that is set.
    """

    value: Any
    seconds: float | None
    timer: TimerHandle | None = None
    cancelled: bool = False

    def cancel(self) -> None:
        """Drop it; one that has fired already is not handled any more."""
        self.cancelled = True
        if self.timer is not None:
            self.timer.cancel()


class Last:
    """Stands behind all that an actor which is to end still handles."""


class HostedActor(Worker, ABC):
    """The engine's actor behind an application's address.

    Each class of an application's actors, with each set of settings, has a class of its own, which
    `hosted_class` makes: the engine knows it by the application's name for it.

    Attributes:
        blocking: whether what is not `async def` runs on threads.
        concurrency: how many of them there are.
    """

    stops_when_idle = True
    # However full its mailbox: its own end, and that of each other which it watches.
    spare: ClassVar = {Last: 1, News: ENDPOINTS_MAX}
    blocking: ClassVar[bool] = False
    concurrency: ClassVar[int] = 1

    def __init__(self, hosting: Houses, endpoint: Endpoint, make: Callable[[], Actor]) -> None:
        self.hosting = hosting
        self.endpoint = endpoint
        self._make = make
        self._actor: Actor | None = None
        self._crew: _Crew | None = None
        self._under_way = 0
        self._is_last = False

    @property
    @abstractmethod
    def source(self) -> str:
        """What the application calls it."""

    # Its instances ---------------------------------------------------------------------------

    def started(self) -> Any:
        """Make the application's instance."""
        ctx = Context(self, None)
        try:
            actor = self._actor = self._make()
            begun = self._run(actor.started, ctx)
        except FAILURES as error:
            self._not_started(error)
            return None
        if begun is None:
            ctx.under_way = False
            self.endpoint.has_started()
            return None
        return self._starting(begun, ctx)

    async def _starting(self, begun: Awaitable[object], ctx: Context) -> None:
        try:
            await begun
        except FAILURES as error:
            self._not_started(error)
        else:
            self.endpoint.has_started()
        finally:
            ctx.under_way = False

    def _not_started(self, error: BaseException) -> None:
        """The first instance cannot start: who has spawned it is told, and it ends.

        Raises:
            BaseException: what a later one has raised, which is a failure as any other.
        """
        endpoint = self.endpoint
        if endpoint.starting is None or not isinstance(error, Exception):
            endpoint.error = error
            raise error
        self._actor = None
        endpoint.error, endpoint.reason = error, "failed"
        endpoint.has_started(error)
        self.system.exit(self.address)

    def stopped(self) -> None:
        """The instance goes: so do its children, and the application's own is told."""
        actor, crew = self._actor, self._crew
        self.hosting.instance_gone(self.endpoint)
        if actor is not None and type(actor).stopped is not Actor.stopped:
            self.begin(self._tidying(actor, crew), _nobody)
        elif crew is not None:
            crew.end()

    async def _tidying(self, actor: Actor, crew: "_Crew | None") -> None:
        with suppress(asyncio.CancelledError):
            await Signal()  # the instance goes now: what follows is tidying up
        ctx = Context(self, None)
        ctx.under_way = False
        try:
            done = self._run(actor.stopped, ctx)
            if done is not None:
                await done
        finally:
            if crew is not None:
                crew.end()

    def may_passivate(self) -> bool:
        """Not while it has children, which would go with the instance."""
        return not self.endpoint.children and not self._under_way

    # Messages --------------------------------------------------------------------------------

    def handle(self, message: Any, sender: Any) -> Any:
        """Give the application's actor a message, in the form in which it takes all."""
        match message:
            case Call():
                return self._receive(message)
            case Tick():
                if message.cancelled:
                    return None
                if message.seconds is not None:
                    message.timer = self.wake_after(message.seconds, message)
                return self._receive(self._told(message.value))
            case News():
                return self._receive(self._told(message.value))
            case Last():
                self._is_last = True
                self._end_if_last()
                return None
            case PoisonMessage() if sender is self.address:
                return None  # its own timer: it knows that it has failed
            case _:
                return self._receive(self._told(message, sender))

    def _told(self, value: Any, sender: ActorAddress | None = None) -> Call:
        """An object on its way to the actor, as the message that it gets."""
        address = self.endpoint.address
        message = Message(payload=b"", principal=NODE_PRINCIPAL, address=address, value=value)
        return Call(message, sender=sender)

    def _receive(self, call: Call) -> Any:
        actor = self._actor
        if actor is None:
            self.hosting.not_handled(call, ActorError("actor.stopped", f"{self.address} has ended"))
            return None
        ctx = Context(self, call)
        try:
            result = self._run(partial(actor.receive, call.message), ctx)
            if result is None or isinstance(result, bytes):
                self._done(call, result)
                ctx.under_way = False
                return None
        except ActorReply as refusal:
            ctx.under_way = False
            self.hosting.not_handled(call, refusal)
            return None
        except BaseException as error:
            ctx.under_way = False
            self.endpoint.error = error
            raise
        self._under_way += 1
        return self._waiting(call, ctx, result)

    async def _waiting(self, call: Call, ctx: Context, result: Any) -> None:
        try:
            if not inspect.isawaitable(result):
                raise _no_answer(result)
            self._done(call, await result)
        except ActorReply as refusal:
            self.hosting.not_handled(call, refusal)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.endpoint.error = error
            raise
        finally:
            ctx.under_way = False
            self._under_way -= 1
            self._end_if_last()

    def _done(self, call: Call, result: Any) -> None:
        if isinstance(result, bytes):
            self.reply(call, result, None)
        elif result is not None:
            raise _no_answer(result)
        elif call.question is not None:
            call.question.held_by(self.address)

    def _end_if_last(self) -> None:
        if self._is_last and not self._under_way:
            self.system.exit(self.address)

    def _run(self, method: Callable[[Context], Any], ctx: Context) -> Any:
        """Call a method of the application's, on a thread where it may block."""
        if not self.blocking or inspect.iscoroutinefunction(getattr(method, "func", method)):
            return method(ctx)
        if self._crew is None:
            self._crew = _Crew(self.hosting, self.endpoint.address, self.concurrency)
        return self._crew.run(partial(method, ctx))

    # Answers and timers ----------------------------------------------------------------------

    def reply(self, call: Call, payload: bytes, value: object) -> None:
        """Answer a message; see `Context.reply`."""
        own, given = local(self.endpoint.key), cast(object, payload)
        if not isinstance(given, bytes):
            raise _no_answer(given)
        if call.question is not None:
            if not call.question.answer(Answer((own,), payload, value)):
                self.hosting.dropped("answered")
        elif call.sender is not None:
            self.system.post(call.sender, payload if value is None else value, self.address)
        elif call.message.return_route:
            self.hosting.answer(call, own, payload, value)
        call.answered = True

    def tick_after(self, seconds: float, value: object, every: bool) -> TimerHandle:
        """Set a timer; see `Context.after`."""
        if arguments.seconds("seconds", seconds) < EVERY_SECONDS_MIN and every:
            raise arguments.refused(
                "seconds", f"is at least {EVERY_SECONDS_MIN} with every=True", seconds
            )
        tick = Tick(value, seconds if every else None)
        tick.timer = self.wake_after(seconds, tick)
        return tick


def _no_answer(result: object) -> TypeError:
    return TypeError(f"an answer is bytes, and None if there is none, not {result!r:.80}")


def _nobody(_: RillnodeError) -> None:
    """Nobody waits for what an instance tidies up."""


class _Crew:
    """The threads of one instance of a blocking actor.

    Its threads are started when there is work, and end with it. One that never returns is left
    alone: it keeps neither the node nor the process.
    """

    def __init__(self, hosting: Houses, name: str, count: int) -> None:
        self._loop = hosting.loop
        self._threads = hosting.threads
        self._name = name
        self._count = count
        self._started = 0
        self._busy = 0
        self._jobs: Queue[Any] = hosting.threads.queue()

    def run(self, do: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Do something on one of the threads."""
        done: asyncio.Future[Any] = self._loop.create_future()
        self._busy += 1
        if self._started < min(self._busy, self._count):
            self._started += 1
            self._threads.start(self._work, f"rillnode-app {self._name}")
        self._jobs.put((do, done))
        return done

    def end(self) -> None:
        """Let the threads end after what they have."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            do, done = job
            result: Any = None
            error: BaseException | None = None
            try:
                result = do()
            except BaseException as raised:
                error = raised
            try:
                self._loop.call_soon_threadsafe(self._settle, done, result, error)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return

    def _settle(
        self, done: "asyncio.Future[Any]", result: object, error: BaseException | None
    ) -> None:
        self._busy -= 1
        if done.done():
            return
        if isinstance(error, StopIteration):  # which a future does not take
            error = RuntimeError("StopIteration")
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)
