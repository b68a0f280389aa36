"""Addresses that are no actors: whoever asks from a task (`Reply`), a thread (`Caller`) or afar."""

import asyncio
import queue
from typing import Any, ClassVar

from thespian.actors import ActorAddress, PoisonMessage
from thespian.system import isInternalActorSystemMessage

from rillnode.actors.engine.cell import Cell, Period, seconds_of
from rillnode.codecs.errors import ActorError, RillnodeError


class Outside(ActorAddress):
    """An address that is no actor; nothing sent to this class itself is taken.

    Attributes:
        base: always None, where a cell has its system.
    """

    base: ClassVar[None] = None

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def deliver(self, message: Any) -> bool:
        """Take a message; False when nobody wants it any more."""
        del message
        return False


class Nobody(Outside):
    """Stands for the sender of what the system itself has sent, where actors answer everything."""

    def deliver(self, message: Any) -> bool:
        """Drop it: that is no dead letter."""
        del message
        return True


class Asker(Outside):
    """Somebody who waits for an answer, and is told if there is none."""

    def handed_to(self, cell: Cell) -> None:
        """An actor's instance is given the question now, and nobody else has it any more."""
        del cell

    def let_go(self) -> None:
        """No actor has the question: it is on its way to another, or the asker waits no more."""

    def fail(self, error: RillnodeError) -> None:
        """Nothing comes of the question; no-op once it is answered."""
        del error


class Reply(Asker):
    """The receiver of one awaited answer: the first message settles the future.

    An actor that has been handed the question owns it until it is answered, or handed on: when its
    instance goes the asker is told.
    """

    _aaddr = "reply"

    def __init__(self, target: ActorAddress, future: "asyncio.Future[Any]") -> None:
        self._target = target
        self._future = future
        self._holder: Cell | None = None

    def handed_to(self, cell: Cell) -> None:
        """An actor's instance is given the question now, and nobody else has it any more."""
        if not self._future.done():
            self.let_go()
            self._holder = cell
            cell.own(self)

    def let_go(self) -> None:
        """No actor has the question: it is on its way to another, or the asker waits no more."""
        holder = self._holder
        if holder is not None:
            self._holder = None
            holder.disown(self)

    def deliver(self, message: Any) -> bool:
        """Settle the future; a PoisonMessage is the failure of the one who was asked."""
        if self._future.done():
            return False
        if isinstance(message, PoisonMessage):
            details = str(message.details).strip().rpartition("\n")[2]
            self.fail(ActorError("actor.failed", f"{self._target} failed to answer: {details}"))
        else:
            self.let_go()
            self._future.set_result(message)
        return True

    def expire(self) -> None:
        """Nobody answered in time."""
        self.fail(ActorError("message.timeout", f"{self._target} did not answer in time"))

    def fail(self, error: RillnodeError) -> None:
        """Nothing comes of the question; no-op once it is answered."""
        self.let_go()
        if not self._future.done():
            self._future.set_exception(error)

    drop = fail


class Caller(Outside):
    """An address at which a thread waits for messages; the methods are Thespian's.

    Args:
        base: the `AsyncioSystemBase` whose actors it speaks with.
        name: for people.
    """

    def __init__(self, base: Any, name: str) -> None:
        super().__init__(name)
        self._system = base
        self._arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._open = True

    def deliver(self, message: Any) -> bool:
        """Keep a message for `listen`; the system's own are taken, but not shown, as ever."""
        if self._open and not isInternalActorSystemMessage(message):
            self._arrived.put(message)
        return self._open

    def tell(self, target: ActorAddress, message: Any) -> None:
        """Send a message; never waits."""
        self._system.post_threadsafe([(target, message, self)])

    def ask(self, target: ActorAddress, message: Any, timeout: Period = None) -> Any:
        """Send a message and return the next that arrives, or None after `timeout`."""
        self.tell(target, message)
        return self.listen(timeout)

    def listen(self, timeout: Period = None) -> Any:
        """Return the next message that arrives, or None after `timeout`.

        Raises:
            ActorError: `actor.would_block`, called on the loop's own thread.
        """
        if self._system.on_loop_thread():
            raise ActorError("actor.would_block", "The loop's thread cannot wait: `await base.ask`")
        seconds = seconds_of(timeout)
        try:
            return self._arrived.get(timeout=None if seconds is None else max(0.0, seconds))
        except queue.Empty:
            return None

    def newPrimaryActor(self, *arguments: Any) -> Cell:
        """Make an actor, see `AsyncioSystemBase.newPrimaryActor`."""
        made: Cell = self._system.newPrimaryActor(*arguments)
        return made

    def exit_context(self) -> None:
        """Take no more messages."""
        self._open = False
