"""The base class of rillnode's actors: Thespian's Actor with typed shortcuts and life hooks."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from thespian.actors import Actor, ActorAddress

from rillnode.actors.engine.cell import Cell, Period
from rillnode.actors.engine.described import SERVICE, Described
from rillnode.actors.engine.kinds import OnFailure, Policy
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.actors.engine.waiting import Due, Signal, Together, nobody_waits, waits_for_itself
from rillnode.actors.ports import TimerHandle
from rillnode.codecs.errors import ActorError, RillnodeError

Op = TypeVar("Op")


class Worker(Actor, Policy, ABC):
    """An actor; subclasses handle messages in `handle`.

    One message at a time, on the loop's thread, in the order in which each sender sent them. A
    handler must not block; one that waits is `async def`, and may await anything of asyncio. It
    declares what it takes by the annotation of its `message`, a class or a union: of other messages
    those of the system are ignored, and all others refused. The constructor knows neither address
    nor system yet; `started` does. The end comes as `stopped`; an ActorExitRequest is not handed to
    `handle`.

    A handler that raises costs its own message: whoever waits for it is told, once. Messages that
    wait stay, in order.

    Attributes:
        mailbox_messages_max: messages that may wait; what somebody waits for is refused above it.
        mailbox_bytes_max: likewise their bytes, as far as their size is known.
        spare: messages that nobody waits for and that are taken although the mailbox is full, and
            how many of each class there can be then: whoever sends them bounds their number. Others
            that nobody waits for are dropped and counted, unless their class has a method
            `merged(later)`, which returns what stands for both, or None.
        attempts: how often a message is tried; more than once only where handling it may be
            repeated.
        interleaves: whether other messages are handled while an `async def` handler waits. What was
            read before an `await` may be outdated after it then.
        handlers_max: how many handlers may wait at a time where they interleave; None: any number.
        essential: the node is not what it should be without it: its end by failure is told to
            `on_fatal` of the system.
        on_failure: what follows when a handler raises. `resume`: the instance goes on. `restart`:
            a new instance from the same factory goes on; work and timers of the old one end, and
            whoever waits for that work is told. `stop`: the actor exits.
        restarts_max: restarts within `restart_window_seconds` after which a failure ends it.
        stands_for: the class that it is counted as; None: itself.
        batches: methods each call of which does something for one batch, and what a tracer calls
            what is read there; see `batch_of`.
        idle_seconds: how long without a message before the instance is given up, while its
            address stays; None for never. It goes after one to two such periods.
        stops_when_idle: whether `stopped` is called then, too.
        ends_when_idle: with it: the actor ends then, unless a message has come meanwhile.
        has_parts: whether it answers for more addresses than those that it has registered.
        operations_due: operations under way that `then` was told of.
    """

    is_worker: ClassVar[bool] = True
    has_parts: ClassVar[bool] = False
    attempts: ClassVar[int] = 1
    on_failure: ClassVar[OnFailure] = "restart"
    batches: ClassVar[Mapping[str, str]] = {}

    operations_due: int = 0
    _myRef: Cell

    @property
    def system(self) -> AsyncioSystemBase:
        """The actor system that it lives in."""
        base: AsyncioSystemBase = self._myRef.base
        return base

    @property
    def address(self) -> Cell:
        """Its own address."""
        return self._myRef

    def started(self) -> Coroutine[Any, Any, None] | None:
        """A new instance is in place: called before its first message, which waits if this waits.

        That is in the first turn after `spawn`, after a restart, and after a passivation.
        """

    @abstractmethod
    def handle(self, message: Any, sender: Any) -> Coroutine[Any, Any, None] | None:
        """Handle one message.

        Args:
            message: what was sent.
            sender: address for the answer, or None where nobody waits for one.
        """

    def finish(self) -> None:
        """Do what turns have gathered: called once at the end of a pump after `finish_later`."""

    def stopped(self) -> None:
        """The instance is given up for good: at the actor's exit, or before a restart.

        Work that it begins is cancelled at once, and may tidy up then as other work may.
        """

    def batch_of(self) -> tuple[str, int | None] | None:
        """For what the next batch is, as a tracer is told: a stream and partition, or an address.

        None: nothing is told. Asked only on a node with a tracer, before each call of a method of
        `batches`; one that returns two numbers has sent so many messages, and bytes, and one that
        returns nothing has sent none beside what it reads.
        """
        return None

    def may_passivate(self) -> bool:
        """Whether the instance may go now that it is idle and has no timer pending."""
        return True

    def owes(self) -> bool:
        """Whether somebody waits for what the instance has under way beside handlers that wait.

        Asked while the system is to stop: so long is waited, within a bound.
        """
        return False

    def described(self, address: bytes) -> Described | None:
        """What is at one of its addresses, for who looks that up; None: nothing to be told of.

        Called between turns, and while an instance is there; it changes nothing.
        """
        return SERVICE

    def parts(self) -> Iterable[bytes]:
        """The addresses of what it answers for, as that has no actor of its own.

        Each begins with an address of its own and a slash, and `described` knows it. They are gone
        through in several turns, while they come and go.
        """
        return ()

    def wake_after(self, seconds: float, message: object) -> TimerHandle:
        """Send `message` to itself after `seconds`, unless cancelled; the timer keeps it awake."""
        return self.system.wake_after(self._myRef, seconds, message)

    def begin(
        self,
        work: Coroutine[Any, Any, object],
        failed: Callable[[RillnodeError], object] = nobody_waits,
    ) -> None:
        """Begin work beside the handlers, with an outcome of its own; no message waits for it.

        Args:
            work: runs at once until it waits.
            failed: called once with why nothing comes of it: the RillnodeError that it raised, or
                `actor.failed`, also where the instance is replaced, or `actor.stopped`. What it
                raises that is no RillnodeError is a failure of the actor too. Without it the
                system does not wait for the work when it is to stop.
        """
        cell = self._myRef
        cell.base.begin(cell, work, failed)

    def then(
        self,
        operation: Op,
        run: Callable[[Op], object],
        late: Callable[[Op], object] = nobody_waits,
    ) -> Op:
        """Have a store's operation go on, once complete, in a turn of this instance.

        Args:
            operation: about to be submitted.
            run: called with it. It keeps no other message waiting.
            late: called instead when the instance is gone by then, and after `run` has failed:
                whoever asked is to have an outcome all the same, once (see `Then`).
        """
        self.operations_due += 1
        completed: Any = operation
        completed.reply_to = self._myRef
        completed.then = Due(self, run, late)
        return operation

    def then_all(
        self,
        operations: Sequence[Op],
        run: Callable[[Sequence[Op]], object],
        late: Callable[[Sequence[Op]], object] = nobody_waits,
    ) -> None:
        """Have several of a store's operations go on together, once all are complete; see `then`.

        A turn for each would cost more than what is done in it.
        """
        self.operations_due += 1
        countdown = iter(range(len(operations) - 1, -1, -1))
        together = Together(self, operations, run, late, countdown)
        completed: Any
        for completed in operations:
            completed.reply_to, completed.then = self._myRef, together

    async def ask(self, target: ActorAddress, message: Any, timeout_seconds: Period = None) -> Any:
        """Send a message and wait for its answer.

        Raises:
            ActorError: `actor.failed`, `actor.busy` or `actor.stopped`, whoever was asked did not
                answer; `message.timeout`; `actor.would_block`, it asks itself and takes no other
                message meanwhile. Actors that ask each other in a circle wait until one of them
                gives up: give such questions a time.
        """
        if target is self._myRef and waits_for_itself(self._myRef):
            raise ActorError("actor.would_block", f"{target} would wait for itself")
        return await self.system.ask(target, message, timeout_seconds)

    async def sleep(self, seconds: float) -> None:
        """Wait, by the system's clock."""
        over = Signal()
        timer = self.system.timing.call_later(seconds, over.set)
        try:
            await over
        finally:
            timer.cancel()

    def finish_later(self) -> None:
        """Have `finish` called when the actors that have something to do had their turns."""
        cell = self._myRef
        cell.base.finish_later(cell)

    def send(self, targetAddr: ActorAddress, msg: Any) -> None:
        """Send a message from this actor."""
        cell = self._myRef
        cell.base.post(targetAddr, msg, cell)

    def receiveMessage(self, msg: Any, sender: Any) -> Coroutine[Any, Any, None] | None:
        """Thespian's entry to `handle`."""
        return self.handle(msg, sender)


Variant = Callable[[type[Worker]], Callable[..., Worker]]
"""Which actors to make for a class: from the same arguments, ones that do what its own do."""


def plain(actor: type[Worker]) -> Callable[..., Worker]:
    """The actors of the class itself."""
    return actor
