"""The actor system: Thespian's API on an asyncio event loop.

    base = AsyncioSystemBase(clock=clock)
    system = ActorSystem(systemBase=base, transientUnique=True)

Handed over as an object, Thespian uses the base as it is, and with `transientUnique` another
system in the same process stays another.

Without a running loop the base has one of its own, in a thread, for Thespian's blocking API.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Container, Coroutine
from functools import cached_property
from itertools import count
from typing import Any, Final, TypeVar

from thespian.actors import (
    Actor,
    ActorAddress,
    ActorExitRequest,
    InvalidActorSourceHash,
)

from rillnode.actors.core.threads import SYSTEM_THREADS, run_loop
from rillnode.actors.engine.cell import FAILURES, GONE, Cell, Factory, Period, refuse, seconds_of
from rillnode.actors.engine.dead_letters import STOPPED, DeadLetters
from rillnode.actors.engine.inbox import Inbox
from rillnode.actors.engine.kinds import ActorKind, ActorStats
from rillnode.actors.engine.lifecycle import START, Lifecycle
from rillnode.actors.engine.mailboxes import Mailboxes
from rillnode.actors.engine.outside import Asker, Caller, Outside, Reply
from rillnode.actors.engine.settling import cells_below, is_awaited
from rillnode.actors.engine.supervision import OnFatal, Supervision, log_fatal
from rillnode.actors.engine.thespian_api import common_capabilities, factory_of
from rillnode.actors.engine.timers import Timer
from rillnode.actors.engine.turns import Turns
from rillnode.actors.ports import TimerHandle, Timing
from rillnode.codecs.errors import ActorError

__all__ = ["AsyncioSystemBase", "Cell"]

T = TypeVar("T")

SETTLE_SECONDS: Final = 0.005
"""How often it is looked whether somebody still waits for an actor."""


class _LoopTiming:
    """The machine's monotonic clock and a loop's timers.

    Not the loop's own time: uvloop's stands still while a callback runs.
    """

    monotonic = staticmethod(time.monotonic)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, seconds: float, callback: Callable[[], object]) -> TimerHandle:
        return self._loop.call_later(seconds, callback)


class _LoopThread:
    """Runs an event loop from construction until `stop`.

    Attributes:
        loop: the loop.
        ident: the thread's identity, as `threading.get_ident` has it.
    """

    def __init__(self, name: str) -> None:
        self.ident: int
        self.loop = asyncio.new_event_loop()
        self._stopping = False
        self._thread = SYSTEM_THREADS.start(self._run, name)
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self.loop).result()  # it runs

    def stop(self) -> None:
        """End the loop and wait for its thread; harmless when repeated."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._stop)
            self._thread.join()

    def _stop(self) -> None:
        self._stopping = True
        self.loop.stop()

    def _run(self) -> None:
        self.ident = threading.get_ident()
        asyncio.set_event_loop(self.loop)
        try:
            run_loop(self.loop, lambda: self._stopping)
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()


class AsyncioSystemBase:
    """An actor system on one event loop.

    All methods are for the loop's thread, except `post_threadsafe` and Thespian's own. `ask` and
    `shutdown` have the names of Thespian's: on the loop's thread they return awaitables, on any
    other they block.

    Args:
        clock: timers and the time that slices and restart windows are measured with; it must
            work on the loop. None: the loop's timers and the machine's time.
        loop: None: the running loop; where none runs, a loop of its own in a thread.
        name: of the thread, for people.
        capabilities: Thespian's, for actors that require some.

    Attributes:
        timing: clock of its timers.
        outcomes: how to tell who waits for a message, by its class, that nothing comes of it.
            Called, once, with an ActorError: `actor.failed`, the handler has raised; `actor.busy`,
            the mailbox was full; `actor.stopped`, the actor ended before it.
        handled: what is called with a message that was handled, by its class.
        sizes: how large messages are, by their class, for the bound of mailboxes.
        names: the actors that have a global name.
        ended: what is called, once, when an actor has exited; it must not raise.
        on_fatal: called when an essential actor was given up, with it and its last failure.
    """

    def __init__(
        self,
        *,
        clock: Timing | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        name: str = "rillnode-actors",
        capabilities: dict[str, Any] | None = None,
    ) -> None:
        self._thread: _LoopThread | None = None
        self._thread_ident: int | None = threading.get_ident()
        if loop is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                self._thread = _LoopThread(name)
                self._thread_ident = self._thread.ident
                loop = self._thread.loop
        self._loop = loop
        self.timing = clock or _LoopTiming(loop)
        self.address = Outside("system")
        self.dead_letters = DeadLetters()
        self.mailboxes = Mailboxes(self, self.dead_letters, loop)
        self.life = Lifecycle(self, self.mailboxes, self.timing)
        self.life.forgotten = self._forget
        self.on_fatal: OnFatal = log_fatal
        self._supervision = Supervision(
            self.life, self.dead_letters, self.mailboxes, self.timing,
            lambda cell, error: self.on_fatal(cell, error),
        )  # fmt: skip
        self._turns = Turns(
            self.mailboxes, self.dead_letters, self.life, self._supervision, self.timing,
            self._idle, loop,
        )  # fmt: skip
        # The parts' own, without a call in between: actors use some for every message.
        self.post = self.mailboxes.post
        self.finish_later = self._turns.finish_later
        self.at_turns_end = self._turns.at_end
        self.begin = self._turns.begin
        self.given_up = self._supervision.was_given_up
        self.handle_dead_letters = self._handleDeadLetters = self.dead_letters.handle
        self.outcomes = self.dead_letters.outcomes
        self.handled = self._turns.handled
        self.sizes = self.mailboxes.sizes
        self.names = self.life.names
        self.ended: dict[Cell, Callable[[], object]] = {}
        self._inbox = Inbox(self.mailboxes, loop, self.on_loop_thread)
        self.post_threadsafe = self._inbox.enter
        if capabilities is not None:
            self.capabilities = capabilities | common_capabilities()
        self.next_serial = count(1).__next__
        self._idle_waiters: list[asyncio.Future[None]] = []
        self._ended: asyncio.Future[None] | None = None
        self._caller = Caller(self, "caller")
        self.tell, self.listen = self._caller.tell, self._caller.listen

    @cached_property
    def capabilities(self) -> dict[str, Any]:
        """Thespian's, for actors that require some; made when one may."""
        return common_capabilities()

    # Actors ----------------------------------------------------------------------------------

    def spawn(
        self, factory: Factory, *, parent: Cell | None = None, name: str | None = None
    ) -> Cell:
        """Make an actor and return its address.

        The instance is made in the actor's first turn, soon after and before any message; there
        `factory` and `started` fail under the supervision of the class. The parent is sent
        ChildActorExited when the actor exits, and takes it with it when it exits itself.

        Args:
            factory: makes the instance; called again after a restart or a passivation.
            parent: None: ends with the system only.
            name: for people; need not be unique.

        Raises:
            ActorError: `actor.stopped`, the parent has exited; `actor.closed`, the system has.
        """
        cell = self._add(factory, parent, name)
        self.post(cell, START)
        self._exit_if_closing(cell)
        return cell

    def exit(self, target: ActorAddress) -> None:
        """Ask an actor to exit after the messages it already has; harmless when it has exited.

        One without an instance ends without getting one.
        """
        self.post(target, ActorExitRequest())

    def _add(self, factory: Factory, parent: Cell | None, name: str | None) -> Cell:
        if self._ended is not None and self._ended.done():
            raise ActorError("actor.closed", "The actor system has been shut down")
        return self.life.add(factory, parent, name)

    def _exit_if_closing(self, cell: Cell) -> None:
        if self._ended is not None:
            self.exit(cell)

    # Messages --------------------------------------------------------------------------------

    async def send(
        self, target: ActorAddress, message: Any, sender: ActorAddress | None = None
    ) -> None:
        """Post a message as soon as the mailbox is below its bound.

        Raises:
            ActorError: `actor.stopped`, the target has exited.
        """
        if isinstance(target, Cell):
            await self.mailboxes.room(target, message)
            if target.mailbox is GONE:
                raise ActorError(STOPPED, f"{target} has exited")
        self.post(target, message, sender)

    def forward(self, target: ActorAddress, message: Any, sender: ActorAddress | None) -> None:
        """Post a message that came to another actor, which has no more to do with its answer.

        Raises:
            ActorError: `actor.busy`, as `post`.
        """
        if isinstance(sender, Asker):
            sender.let_go()
        self.post(target, message, sender)

    def ask(
        self, target: ActorAddress, message: Any, timeout_seconds: Period = None
    ) -> Awaitable[Any]:
        """Post a message and wait for the first answer to it.

        Off the loop's thread this is Thespian's: it blocks, returns the answer itself, and None
        when there is none in time.

        Raises:
            ActorError: `message.timeout`; `actor.stopped`, the target has exited without an answer;
                `actor.failed`, it failed at the message, or was started anew while it had it;
                `actor.busy`, its mailbox is full; `actor.unsupported`, it is one of a system on
                another thread.
        """
        if self.on_loop_thread():
            return self._ask(target, message, seconds_of(timeout_seconds))
        answer: Awaitable[Any] = self._caller.ask(target, message, timeout_seconds)
        return answer

    async def _ask(self, target: ActorAddress, message: Any, seconds: float | None) -> Any:
        if (
            isinstance(target, Cell)
            and target.base is not self
            and not target.base.on_loop_thread()
        ):
            raise ActorError("actor.unsupported", f"{target} is to be asked on its own thread")
        answer: asyncio.Future[Any] = self._loop.create_future()
        reply = Reply(target, answer)
        timer = None if seconds is None else self.timing.call_later(seconds, reply.expire)
        try:
            self.post(target, message, reply)
            return await answer
        finally:
            reply.let_go()
            if timer is not None:
                timer.cancel()

    def wake_after(self, cell: Cell, seconds: float, message: object) -> TimerHandle:
        """Post `message` to an actor, from itself, after `seconds`, while its instance lives."""
        return Timer(cell, seconds, message, self.timing)

    # The system's own life -------------------------------------------------------------------

    async def drain(self) -> None:
        """Wait until no message waits, in mailboxes or from threads; timers are not waited for."""
        while self.mailboxes.ready or self._inbox:
            if self.mailboxes.ready:
                waiter: asyncio.Future[None] = self._loop.create_future()
                self._idle_waiters.append(waiter)
                await waiter
            else:
                await asyncio.sleep(0)

    def _idle(self) -> None:
        if not self._idle_waiters:
            return
        waiters, self._idle_waiters = self._idle_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def settle(self) -> None:
        """Wait until nobody waits for an actor: for what it handles, or what waits behind that.

        Timers, and work that nobody waits for, are not waited for. What never ends is the caller's
        to bound, see `end_unsettled`.
        """
        while True:
            await self.drain()
            if not self._unsettled():
                return
            await asyncio.sleep(SETTLE_SECONDS)

    async def end_unsettled(self, but: Container[ActorAddress]) -> list[str]:
        """End the actors that keep somebody waiting, and return their names.

        So whoever waits is told `actor.stopped`, by way of those actors that are spared. Work that
        is cancelled may tidy up for `LINGER_SECONDS`.
        """
        ended = [cell for cell in self._unsettled() if cell not in but]
        for cell in ended:
            self.exit(cell)
        while not all(cell.exited for cell in ended):
            await asyncio.sleep(SETTLE_SECONDS)
        await self.drain()
        return [cell.name for cell in ended]

    def _unsettled(self) -> list[Cell]:
        return [one for one in cells_below(self.life.roots) if is_awaited(one, self.outcomes)]

    def shutdown(self) -> Awaitable[None]:
        """Ask every actor to exit after the messages it has, and wait until all have.

        Off the loop's thread this blocks, and stops the loop if it is the system's own.
        """
        if self.on_loop_thread():
            return asyncio.shield(self.begin_shutdown())
        if not self._loop.is_closed():
            self._run_on_loop(self._shut_down())
        if self._thread is not None:
            self._thread.stop()
            self._inbox.flush()
        done = self._loop.create_future()
        done.set_result(None)
        return done

    def begin_shutdown(self) -> "asyncio.Future[None]":
        """Ask every actor to exit; the result is there when all have."""
        if self._ended is None:
            self._ended = self._loop.create_future()
            for cell in tuple(self.life.roots):
                self.exit(cell)
            self._end_if_empty()
        return self._ended

    async def _shut_down(self) -> None:
        await self.begin_shutdown()

    def _forget(self, cell: Cell) -> None:
        """An actor has exited; the last one ends a shutdown."""
        self._supervision.forget(cell)
        self.mailboxes.relieve(cell)
        self.dead_letters.handle(cell, enable=False)
        if (ended := self.ended.pop(cell, None)) is not None:
            ended()
        self._end_if_empty()

    def _end_if_empty(self) -> None:
        if self._ended is not None and not self.life.population and not self._ended.done():
            self._ended.set_result(None)

    def on_loop_thread(self) -> bool:
        """Whether the caller is on the loop's thread."""
        return threading.get_ident() == self._thread_ident

    def _run_on_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    # Thespian's API --------------------------------------------------------------------------

    def create_child(
        self,
        parent: Cell | None,
        actor_class: type[Actor] | str,
        requirements: dict[str, Any] | None = None,
        global_name: str | None = None,
        source_hash: str | None = None,
    ) -> Cell:
        """Make an actor, with its instance at once, or find the one that has the global name.

        A parent is told of a constructor that raises by ChildActorExited, as of any other end.

        Raises:
            InvalidActorSourceHash: always where one is given, for none is ever loaded.
            Exception: whatever the constructor of an actor without a parent raises, or the
                resolution of its class.
        """
        if global_name and global_name in self.names:
            return self.names[global_name]
        if source_hash is not None:
            raise InvalidActorSourceHash(source_hash)
        factory = factory_of(actor_class, self.capabilities, requirements)
        cell = self._add(factory, parent, global_name)
        try:
            self.life.instance_of(cell)
        except FAILURES as error:
            cell.failed("constructor", error)
            self.life.terminate(cell)
            if parent is None:
                raise
        else:
            if global_name:
                self.names[global_name] = cell
            self._exit_if_closing(cell)
        return cell

    def newPrimaryActor(self, *arguments: Any) -> Cell:
        """Make an actor without a parent, see `create_child`; any thread."""
        if self.on_loop_thread():
            return self.create_child(None, *arguments)

        async def create() -> Cell:
            return self.create_child(None, *arguments)

        return self._run_on_loop(create())

    def external_clone(self) -> Caller:
        """A caller of its own, for one more thread."""
        return Caller(self, "private caller")

    def updateCapability(self, name: str, value: Any = None) -> None:
        """Set a capability; None removes it."""
        if value is None:
            self.capabilities.pop(name, None)
        else:
            self.capabilities[name] = value

    loadActorSource = unloadActorSource = refuse

    # Seeing ----------------------------------------------------------------------------------

    def stats(self) -> dict[str, ActorStats]:
        """What the actors did, by the name of their class."""
        depths: dict[ActorKind, int] = {}
        for cell in dict.fromkeys((*self.mailboxes.ready, *self.mailboxes.held)):
            depths[cell.kind] = depths.get(cell.kind, 0) + len(cell.mailbox)
        return {
            kind.name: kind.stats(depths.get(kind, 0))
            for kind in self.life.kinds.values()
            if kind.cells or kind.handled or kind.failure_reasons
        }
