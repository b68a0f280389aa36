"""Virtual time: one scheduler, and an event loop for each simulated process.

Nothing waits: when no callback is ready, time jumps to the next timer. Callbacks run in the order
in which they became ready, timers in the order of their times and then of their making, so that a
run depends on nothing but its seed.

A process has an event loop of its own, which is what its code finds by
`asyncio.get_running_loop()`. Through it alone it reaches the network, and with it a process is
paused or killed: a dead process's callbacks never run again.
"""

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from enum import Enum
from functools import partial
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple

from rillnode.node.simulated.history import EPOCH_MS
from rillnode.node.simulation.interpreter import CallbackStuck

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_CLOSING_ROUNDS_MAX: Final = 100

MOMENT_EVENTS_MAX: Final = 10_000_000
"""Callbacks at one virtual time: what needs more keeps time from going on, for ever. Thousands of
nodes that all are reached at once need a tenth of it."""


class SimulationStuck(Exception):
    """Nothing is left to happen, and what is waited for has not happened."""


class Life(Enum):
    """A process' life: its callbacks are run, kept or dropped."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


if TYPE_CHECKING:
    _Handle = asyncio.TimerHandle
else:
    # asyncio asks for its methods only; to inherit would be ten more attributes that say nothing.
    _Handle = object


class Call(_Handle):
    """A callback that is to run once: asyncio's handle, as far as the scheduler needs it.

    There is one for each callback of a run, so it does nothing that can be left out, and the
    scheduler reads its attributes.

    Attributes:
        loop: of the process that it belongs to.
        dropped: whether it was cancelled.
    """

    __slots__ = ("args", "callback", "context", "dropped", "loop", "time")

    def __init__(
        self,
        loop: "ProcessLoop",
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
        time: float = 0.0,
    ) -> None:
        self.loop = loop
        self.callback = callback
        self.args = args
        self.context = contextvars.copy_context() if context is None else context
        self.time = time
        self.dropped = False

    def __repr__(self) -> str:
        return f"<Call {self.callback!r} of {self.loop!r}>"

    def when(self) -> float:
        """The time for which it was made."""
        return self.time

    def cancel(self) -> None:
        """Never run it; harmless after it has run."""
        self.dropped = True
        # It waits for its time all the same, and must not hold on to all that it was for.
        self.callback, self.args = _nothing, ()

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.dropped


def _nothing() -> None:
    """What a cancelled call would do."""


class Scheduler:
    """Virtual time and everything that is to happen.

    Attributes:
        now: seconds since the run began.
        handled: callbacks run so far, between two calls of `run_until`.
        ready: runs a call after those that are ready already.
        on_jump: called with the time that is next, before time jumps there; it may look at
            everything and must change nothing.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.handled = 0
        self._ready: deque[Call] = deque()
        self.ready = self._ready.append
        self._timers: list[tuple[float, int, Call]] = []
        self._order = count()
        self.on_jump: Callable[[float], object] | None = None

    def at(self, call: Call) -> None:
        """Run a call at its time, which may be past."""
        heapq.heappush(self._timers, (call.time, next(self._order), call))

    def run_until(self, done: "asyncio.Future[Any]") -> None:
        """Let things happen until `done` is.

        Raises:
            SimulationStuck: that never comes.
        """
        ready, alive, is_done = self._ready, Life.RUNNING, done.done
        running: ProcessLoop | None = None
        handled = self.handled
        moment, last = self.now, handled + MOMENT_EVENTS_MAX
        try:
            while not is_done():
                if ready:
                    call = ready.popleft()
                else:
                    call = self._advance()
                    if self.now > moment:
                        moment, last = self.now, handled + MOMENT_EVENTS_MAX
                if call.dropped:
                    continue
                loop = call.loop
                if loop.life is not alive:
                    loop.keep(call)
                    continue
                if loop is not running:
                    running = loop
                    asyncio._set_running_loop(loop)
                handled += 1
                try:
                    call.context.run(call.callback, *call.args)
                except (SystemExit, KeyboardInterrupt, CallbackStuck):
                    raise
                except BaseException as error:
                    message = f"Exception in callback {call.callback!r}"
                    loop.call_exception_handler({"message": message, "exception": error})
                if handled > last:
                    raise SimulationStuck(f"time stands still: {call.callback!r} and others go on")
        finally:
            self.handled = handled
            asyncio._set_running_loop(None)

    def _advance(self) -> Call:
        """Let time jump to the next timer, whose call is next; make ready all others due then."""
        timers, ready, pop = self._timers, self._ready, heapq.heappop
        while timers and timers[0][2].dropped:
            pop(timers)
        if not timers:
            raise SimulationStuck("nothing is left to happen")
        when = timers[0][0]
        if self.on_jump is not None:
            # Who looks is in no process, and has the machine's time.
            process = asyncio._get_running_loop()
            asyncio._set_running_loop(None)
            self.on_jump(when)
            asyncio._set_running_loop(process)
        if when > self.now:
            self.now = when
        now = self.now
        call = pop(timers)[2]
        while timers and timers[0][0] <= now:
            ready.append(pop(timers)[2])
        return call


class ProcessLoop(asyncio.BaseEventLoop):
    """The event loop of one simulated process.

    It has what nodes and clients use of a loop; the network's part is added by `network.py`.
    Executors work inline: what they are given is done when `run_in_executor` returns. It never
    runs by itself: the scheduler runs its callbacks.

    Attributes:
        scheduler: runs its callbacks.
        name: of the process, for people.
        life: whether its callbacks run.
        errors: what its callbacks have raised.
        sockets: its open connections.
        context: what arrives runs in it, as reads do in that of their socket.
    """

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.name = name
        self.sockets: dict[asyncio.Transport, None] = {}
        self.life = Life.RUNNING
        self.errors: list[dict[str, Any]] = []
        self.scheduler = scheduler
        self.context = contextvars.copy_context()
        self._kept: list[Call] = []
        # A task that is waited for by nobody must not be collected as garbage.
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._failed: list[asyncio.Task[Any]] = []

    def __repr__(self) -> str:
        return f"<ProcessLoop {self.name} {self.life.value}>"

    # A process's life ------------------------------------------------------------------------

    def keep(self, call: Call) -> None:
        """Take a call that cannot run now."""
        if self.life is Life.PAUSED:
            self._kept.append(call)

    def pause(self) -> None:
        """Stand still until `resume`, as a process that is stopped or collects garbage."""
        if self.life is Life.RUNNING:
            self.life = Life.PAUSED

    def resume(self) -> None:
        """Go on with all that has become ready meanwhile."""
        if self.life is Life.PAUSED:
            self.life = Life.RUNNING
            kept, self._kept = self._kept, []
            for call in kept:
                self.scheduler.ready(call)

    def kill(self) -> None:
        """Never run anything again."""
        self.life = Life.DEAD
        self._kept.clear()

    def close(self) -> None:
        """Take apart the tasks of a process that is dead, so that they leave no complaints."""
        self.life = Life.DEAD
        outside = asyncio._get_running_loop()
        # What a task does in a `finally` is done in its own process, and may begin other tasks.
        asyncio._set_running_loop(self)
        try:
            for _ in range(_CLOSING_ROUNDS_MAX):
                tasks, self._tasks = self._tasks, {}
                for task in tasks:
                    coroutine = task.get_coro()
                    assert isinstance(coroutine, Coroutine)
                    # It may await in each `finally` on its way out, or be running.
                    for _ in range(_CLOSING_ROUNDS_MAX):
                        with suppress(RuntimeError, ValueError):
                            coroutine.close()
                            break
                if not self._tasks:
                    return
        finally:
            asyncio._set_running_loop(outside)

    # Time and callbacks ----------------------------------------------------------------------

    def time(self) -> float:
        """Virtual seconds."""
        return self.scheduler.now

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Run a callback at this very time, after those that are ready already."""
        call = Call(self, callback, args, context)
        self.scheduler.ready(call)
        return call

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """`call_soon`: there are no other threads."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback after virtual seconds."""
        call = Call(self, callback, args, context, self.scheduler.now + delay)
        self.scheduler.at(call)
        return call

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback at a virtual time."""
        call = Call(self, callback, args, context, when)
        self.scheduler.at(call)
        return call

    # Futures and tasks -----------------------------------------------------------------------

    def create_future(self) -> "asyncio.Future[Any]":
        """Make a future of this process."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
        **_: object,
    ) -> "asyncio.Task[T]":
        """Run a coroutine in this process."""
        assert isinstance(coro, Coroutine)
        label = None if name is None else str(name)
        task = asyncio.Task(coro, loop=self, name=label, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.pop(task, None)
        if _unseen(task):
            self._failed.append(task)

    def unseen_failures(self) -> list[str]:
        """Why tasks have failed that nobody waited for."""
        return [repr(task.exception()) for task in self._failed if _unseen(task)]

    def run_in_executor(
        self, executor: object, func: Callable[[*Ts], T], *args: *Ts
    ) -> "asyncio.Future[T]":
        """Call a function now; the future has its result."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    # What asyncio asks of a loop ----------------------------------------------------------------

    def is_running(self) -> bool:
        """Whether the process lives."""
        return self.life is Life.RUNNING

    def is_closed(self) -> bool:
        """Whether the process is dead."""
        return self.life is Life.DEAD

    def get_debug(self) -> bool:
        """Never: it costs time and changes nothing."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Note what a callback has raised; a dead process raises nothing."""
        if self.life is not Life.DEAD:
            self.errors.append(context)


def _unseen(task: "asyncio.Task[Any]") -> bool:
    """Whether a task has failed and nobody has asked why; what asyncio itself goes by."""
    return bool(getattr(task, "_log_traceback", False))


_now: Final = attrgetter("now")


class MachineClock:
    """The clock of one host; satisfies `Clock`.

    Attributes:
        loop: that of the process that runs now.
        ahead_ms: how much its wall time is ahead of true time.
        monotonic: tells virtual seconds; a clock that is set does not change them.
    """

    def __init__(self, loop: ProcessLoop) -> None:
        self.loop = loop
        self.ahead_ms = 0
        self._scheduler = loop.scheduler
        # It is asked before and after each message of each actor: no function of Python's.
        self.monotonic: Callable[[], float] = partial(_now, loop.scheduler)
        self.elapsed = self.monotonic

    def now_ms(self) -> int:
        """Milliseconds since 1970, as this machine believes."""
        return EPOCH_MS + self.ahead_ms + int(self._scheduler.now * 1_000)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Call back in the process that runs now."""
        return self.loop.call_later(seconds, callback)
