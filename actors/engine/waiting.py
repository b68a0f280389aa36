"""Waiting: what goes on with a completed operation, and handlers that wait.

A handler that is `async def` runs as long as it need not wait. Where it does it becomes a `Work`:
a task as asyncio has them, so that it may await anything of asyncio, but one whose every step is a
turn of its actor, so that no other code of the actor runs beside it.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from contextvars import Context
from types import coroutine
from typing import Any, ClassVar, Final, NamedTuple

from msgspec import Struct

from rillnode.actors.engine.cell import FAILURES, Cell
from rillnode.codecs.errors import ActorError, RillnodeError

# What `asyncio.current_task` looks at: until 3.12 that is a function of Python.
_current_task: Final[Callable[[asyncio.AbstractEventLoop], Any]] = (
    asyncio.current_task
    if sys.version_info >= (3, 12)
    else vars(asyncio.tasks)["_current_tasks"].get
)

# What a task of asyncio's own calls around each of its steps.
_enter_task: Final[Any] = asyncio.tasks._enter_task
_leave_task: Final[Any] = asyncio.tasks._leave_task

LINGER_SECONDS: Final = 5.0
"""How long cancelled work may still wait for what it tidies up. Own choice."""


def last_of(operation: Any) -> bool:
    """Whether what goes on with a completed operation is to be told of it now."""
    then = operation.then
    return then.__class__ is not Together or not next(then.left, True)


def nobody_waits(_: object) -> None:
    """What follows from an operation of an instance that is gone: nothing."""


class Continuation:
    """Goes on with a completed operation, in a turn of the actor that asked for it.

    Attributes:
        instance: which of the actor's asked. What completes for one that is gone is not given to
            another.
        run: called with the operation.
        late: called instead when the instance is gone, and after a failure of `run`. Whoever gives
            the outcome takes the operation's token, so that only one does.
        counts: whether the instance counts it in `operations_due`.
    """

    __slots__ = ()

    counts: ClassVar[bool] = False

    instance: Any
    run: Callable[[Any], object]
    late: Callable[[Any], object]


class Then(Struct, Continuation, eq=False):
    """Goes on with functions."""

    instance: Any
    run: Callable[[Any], object]
    late: Callable[[Any], object] = nobody_waits


class Due(Then, eq=False):
    """A continuation of `Worker.then`."""

    counts: ClassVar[bool] = True


class Together(Struct, Continuation, eq=False):
    """Goes on once with several operations, when the last of them is complete.

    Attributes:
        operations: all of them, in the order in which they were submitted.
        done, missed: what `run` and `late` are of one operation.
        left: counts down; an iterator, as operations are completed on any thread.
    """

    counts: ClassVar[bool] = True

    instance: Any
    operations: Sequence[Any]
    done: Callable[[Sequence[Any]], object]
    missed: Callable[[Sequence[Any]], object]
    left: Iterator[int]

    def run(self, _: object) -> None:
        """Go on with all."""
        self.done(self.operations)

    def late(self, _: object) -> None:
        """Give all their outcome, though the instance is gone."""
        self.missed(self.operations)


class Signal(Struct, eq=False):
    """Something that one handler waits for: set once, on the loop's thread.

    Attributes:
        is_set: whether it was.
        error: raised then where it is waited for.
        work: who waits, once he does.
    """

    is_set: bool = False
    error: BaseException | None = None
    work: "Work | None" = None

    def set(self) -> None:
        """Let the handler go on, in a turn of its own; harmless when repeated."""
        if not self.is_set:
            self.is_set = True
            if self.work is not None:
                self.work.wake()

    def __await__(self) -> Any:
        if not self.is_set:
            return iter((self,))  # an iterator of Python's own would take more time and memory
        if self.error is not None:
            raise self.error
        return iter(())


class Role(NamedTuple):
    """The role of one kind of work in one system.

    Attributes:
        loop: what it waits on.
        tell: tells who waits for it that nothing comes of it.
        over: called when it has ended after it has waited, with what it has raised.
    """

    loop: asyncio.AbstractEventLoop
    tell: Callable[["Work", RillnodeError], object]
    over: Callable[["Work", BaseException | None], object]


class Work(Struct, Continuation, eq=False, weakref=True):
    """A coroutine of an actor; asyncio takes it for the current task within a step.

    As a continuation it goes on with itself, if what it waits for is there.

    Attributes:
        role: what it is for.
        cell: whose it is.
        instance: which of the actor's instances began it; it is cancelled when that goes.
        coroutine: None when it has ended.
        context: of its steps.
        message: what it handles; None where it was begun beside the handlers.
        asker: who waits for it.
        holds: whether the actor takes no other message while it waits.
        dropped: it was cancelled because its instance goes, and who waits was told.
    """

    role: Role
    cell: Cell
    instance: Any
    coroutine: Coroutine[Any, Any, Any] | None
    context: Context
    message: Any = None
    asker: Any = None
    holds: bool = False
    dropped: bool = False
    _waits_for: "Signal | asyncio.Future[Any] | None" = None
    _must_cancel: bool = False
    _cancelling: int = 0

    # What asyncio asks of a task -------------------------------------------------------------

    def get_coro(self) -> Coroutine[Any, Any, Any] | None:
        """The coroutine; None when it has ended."""
        return self.coroutine

    def get_name(self) -> str:
        """A name for people."""
        return f"{self.cell.name}: {type(self.message).__name__}"

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop that it waits on."""
        return self.role.loop

    def done(self) -> bool:
        """Whether it has ended."""
        return self.coroutine is None

    def cancel(self, msg: Any = None) -> bool:
        """Have CancelledError raised where it waits; False when it has ended."""
        if self.coroutine is None:
            return False
        self._cancelling += 1
        waited = self._waits_for
        if isinstance(waited, Signal):
            self.wake()
        elif waited is not None and waited.cancel(msg):
            return True
        self._must_cancel = True
        return True

    def cancelling(self) -> int:
        """How often it was asked to cancel, without those taken back."""
        return self._cancelling

    def uncancel(self) -> int:
        """Take one request to cancel back."""
        if self._cancelling:
            self._cancelling -= 1
            if not self._cancelling:
                self._must_cancel = False
        return self._cancelling

    # Steps -----------------------------------------------------------------------------------

    def wake(self, _: object = None) -> None:
        """Go on in a turn of the actor, soon."""
        self.cell.base.post(self.cell, None, self)

    def go_on(self, _: object = None) -> None:
        """Go on, if what it waits for is there."""
        # It may have been woken twice for one wait, and wait for something else by now, or nothing.
        waited = self._waits_for
        if isinstance(waited, Signal):
            if waited.is_set or self._must_cancel:
                self._step(waited.error)
        elif waited is not None and waited.done():
            self._step(None)

    run = late = go_on

    def begin(self) -> bool:
        """Run until it waits for the first time (True), or ends; raises what it raises."""
        if not self._advance(None):
            return False
        self.cell.own(self)
        return True

    def _step(self, thrown: BaseException | None) -> None:
        """Go on until it waits again, or ends; then `over` is told, with what it has raised."""
        try:
            if self._advance(thrown):
                return
        except BaseException as error:
            self.cell.disown(self)
            self.role.over(self, error)
        else:
            self.cell.disown(self)
            self.role.over(self, None)

    def _advance(self, thrown: BaseException | None) -> bool:
        coroutine = self.coroutine
        assert coroutine is not None
        self._waits_for = None
        if self._must_cancel:
            self._must_cancel = False
            thrown = asyncio.CancelledError()
        loop = self.role.loop  # to ask for the running one takes a call of the operating system
        outer = _current_task(loop)
        if outer is not None:
            _leave_task(loop, outer)
        _enter_task(loop, self)
        try:
            if thrown is None:
                waited = self.context.run(coroutine.send, None)
            else:
                waited = self.context.run(coroutine.throw, thrown)
        except StopIteration:
            self.coroutine = None
            return False
        except BaseException:
            self.coroutine = None
            raise
        finally:
            _leave_task(loop, self)
            if outer is not None:
                _enter_task(loop, outer)
        if isinstance(waited, Signal):
            self._waits_for, waited.work = waited, self
            if self._must_cancel:
                self.wake()
        elif waited is None:  # a bare yield, as `asyncio.sleep(0)` has it
            self._waits_for = signal = Signal()
            signal.work = self
            loop.call_soon(signal.set)
        elif getattr(waited, "_asyncio_future_blocking", None):
            waited._asyncio_future_blocking = False
            self._waits_for = waited
            waited.add_done_callback(self.wake, context=self.context)
            if self._must_cancel and waited.cancel():
                self._must_cancel = False
        else:
            return self._advance(RuntimeError(f"{waited!r} cannot be awaited by an actor"))
        return True

    # Its end from outside --------------------------------------------------------------------

    def tell(self, error: RillnodeError) -> None:
        """Tell who waits for it that nothing comes of it."""
        self.role.tell(self, error)

    def drop(self, error: ActorError) -> None:
        """The instance goes: whoever waits is told, and the coroutine is cancelled now.

        One that waits for tasks is cancelled when they have ended. As long as it tidies up its cell
        still owns it.
        """
        if self.coroutine is None or self.dropped:
            return
        self.dropped = True
        try:
            self.role.tell(self, error)
        except FAILURES as failure:
            self.cell.failed(self.get_name(), failure)
        self._cancelling += 1
        waited = self._waits_for
        if waited is not None and not isinstance(waited, Signal):
            if waited.cancel() and not waited.done():
                self._must_cancel = True
                return
            waited.remove_done_callback(self.wake)
        self._must_cancel = False
        self._step(asyncio.CancelledError())

    def abandon(self) -> None:
        """It does not end: let go of it."""
        coroutine, self.coroutine, self._waits_for = self.coroutine, None, None
        if coroutine is None:
            return
        try:
            coroutine.close()
        finally:
            self.cell.disown(self)
            self.role.over(self, None)


def current_work() -> Work:
    """What is being run."""
    work = _current_task(asyncio.get_running_loop())
    assert isinstance(work, Work), "only handlers of actors can wait so"
    return work


def waits_for_itself(cell: Cell) -> bool:
    """Whether what is being run is a handler until whose end an actor takes no other message."""
    work = _current_task(asyncio.get_running_loop())
    return isinstance(work, Work) and work.cell is cell and work.holds


@coroutine
def next_turn() -> Generator[Signal, None, None]:
    """Let others have their turns before the handler goes on."""
    work = current_work()
    turn = Signal()
    turn.set()
    work.wake()
    yield turn
