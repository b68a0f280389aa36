"""Waiting: what goes on with a completed operation, and handlers that wait.

A handler that is `async def` runs as long as it need not wait. Where it does it becomes a `Work`:
a task as asyncio has them, so that it may await anything of asyncio, but one whose every step is a
turn of its actor, so that no other code of the actor runs beside it.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from types import coroutine
from typing import Any, Final, Self

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

    instance: Any
    run: Callable[[Any], object]
    late: Callable[[Any], object]
    counts: bool


class Then(Continuation):
    """Goes on with functions."""

    __slots__ = ("counts", "instance", "late", "run")

    def __init__(
        self,
        instance: object,
        run: Callable[[Any], object],
        late: Callable[[Any], object] = nobody_waits,
        *,
        counts: bool = False,
    ) -> None:
        self.instance = instance
        self.counts = counts
        self.run = run
        self.late = late


class Signal:
    """Something that one handler waits for: set once, on the loop's thread.

    Attributes:
        is_set: whether it was.
        work: who waits, once he does.
    """

    __slots__ = ("is_set", "work")

    def __init__(self) -> None:
        self.is_set = False
        self.work: Work | None = None

    def set(self) -> None:
        """Let the handler go on, in a turn of its own; harmless when repeated."""
        if not self.is_set:
            self.is_set = True
            if self.work is not None:
                self.work.wake()

    # Its own iterator, as a generator for each wait would take more time and memory.

    def __await__(self) -> Any:
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Self:
        """Wait; raises StopIteration when it is set."""
        if self.is_set:
            raise StopIteration
        return self


class Work:
    """A coroutine of an actor that waits; asyncio takes it for the current task within a step.

    Attributes:
        cell: whose it is.
        instance: which of the actor's instances began it; it is cancelled when that goes.
        message: what it handles; None where it was begun beside the handlers.
        sender: of the message.
        begun: whether its first step is over.
        holds: whether the actor takes no other message while it waits.
        ended: whether it has ended.
        dropped: it was cancelled because its instance goes, and who waits was told.
        error: what its first step has raised.
    """

    __slots__ = (
        "__weakref__", "_cancelling", "_context", "_coroutine", "_end", "_fut_waiter",
        "_must_cancel", "_signal", "_tell", "begun", "cell", "dropped", "ended", "error", "holds",
        "instance", "message", "sender",
    )  # fmt: skip

    def __init__(
        self,
        cell: Cell,
        coroutine: Coroutine[Any, Any, Any],
        message: Any,
        sender: Any,
        tell: Callable[["Work", RillnodeError], object],
        end: Callable[["Work", BaseException | None], None],
        holds: bool,
    ) -> None:
        self.cell = cell
        self.instance = cell.instance
        self.message = message
        self.sender = sender
        self.begun = False
        self.holds = holds
        self.error: BaseException | None = None
        self.ended = False
        self.dropped = False
        self._coroutine = coroutine
        self._tell = tell
        self._end = end
        self._context: Context = copy_context()
        self._fut_waiter: asyncio.Future[Any] | None = None
        self._signal: Signal | None = None
        self._must_cancel = False
        self._cancelling = 0

    # What asyncio asks of a task -------------------------------------------------------------

    def get_coro(self) -> Coroutine[Any, Any, Any]:
        """The coroutine."""
        return self._coroutine

    def get_context(self) -> Context:
        """The context of its steps."""
        return self._context

    def get_name(self) -> str:
        """A name for people."""
        return f"{self.cell.name}: {type(self.message).__name__}"

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop that it waits on."""
        return asyncio.get_running_loop()

    def done(self) -> bool:
        """Whether it has ended."""
        return self.ended

    def cancel(self, msg: Any = None) -> bool:
        """Have CancelledError raised where it waits; False when it has ended."""
        if self.ended:
            return False
        self._cancelling += 1
        if self._fut_waiter is not None and self._fut_waiter.cancel(msg):
            return True
        self._must_cancel = True
        if self._signal is not None:
            self.wake()
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
        then = Then(self.instance, self.go_on, self.go_on)
        self.cell.base.post(self.cell, None, then)

    def go_on(self, _: object = None) -> None:
        """Go on, if what it waits for is there."""
        # It may have been woken twice for one wait, and wait for something else by now.
        waited, signal = self._fut_waiter, self._signal
        if waited is not None:
            ready = waited.done()
        else:
            ready = signal is not None and (signal.is_set or self._must_cancel)
        if ready and not self.ended:
            self.step()

    def step(self, thrown: BaseException | None = None) -> None:
        """Run until it waits or ends; its end is told to `end`, with what it raised.

        Args:
            thrown: raised where it waits.
        """
        self._fut_waiter = self._signal = None
        if self._must_cancel:
            self._must_cancel = False
            thrown = asyncio.CancelledError()
        loop = asyncio.get_running_loop()
        before = _current_task(loop)
        if before is not None:
            _leave_task(loop, before)
        _enter_task(loop, self)
        try:
            if thrown is None:
                waited = self._context.run(self._coroutine.send, None)
            else:
                waited = self._context.run(self._coroutine.throw, thrown)
        except StopIteration:
            self._over(None)
        except BaseException as error:
            self._over(error)
        else:
            if isinstance(waited, Signal):
                self._signal, waited.work = waited, self
                if self._must_cancel:
                    self.wake()
            else:
                self._wait_for(waited)
        finally:
            _leave_task(loop, self)
            if before is not None:
                _enter_task(loop, before)

    def _wait_for(self, waited: Any) -> None:
        if waited is None:  # a bare yield, as `asyncio.sleep(0)` has it
            self._signal = signal = Signal()
            signal.work = self
            asyncio.get_running_loop().call_soon(signal.set)
        elif getattr(waited, "_asyncio_future_blocking", None):
            waited._asyncio_future_blocking = False
            self._fut_waiter = waited
            waited.add_done_callback(self.wake, context=self._context)
            if self._must_cancel and waited.cancel():
                self._must_cancel = False
        else:
            self.step(RuntimeError(f"{waited!r} cannot be awaited by an actor"))

    def _over(self, error: BaseException | None) -> None:
        self.ended = True
        self.cell.disown(self)
        self._end(self, error)

    # Its end from outside --------------------------------------------------------------------

    def drop(self, error: ActorError) -> None:
        """The instance goes: whoever waits is told, and the coroutine is cancelled now.

        One that waits for tasks is cancelled when they have ended. As long as it tidies up its cell
        still owns it.
        """
        if self.ended or self.dropped:
            return
        self.dropped = True
        try:
            self._tell(self, error)
        except FAILURES as failure:
            self.cell.failed(self.get_name(), failure)
        self._cancelling += 1
        waited = self._fut_waiter
        if waited is not None and waited.cancel() and not waited.done():
            self._must_cancel = True
            return
        if waited is not None:
            waited.remove_done_callback(self.wake)
        self._must_cancel = False
        self.step(asyncio.CancelledError())

    def tell(self, error: RillnodeError) -> None:
        """Tell who waits for it that nothing comes of it, unless that was done."""
        if not self.dropped:
            self.dropped = True
            self._tell(self, error)

    def abandon(self) -> None:
        """It does not end: let go of it."""
        self._fut_waiter = self._signal = None
        try:
            self._coroutine.close()
        finally:
            if not self.ended:
                self._over(None)


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
