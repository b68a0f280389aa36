"""Threads of a simulated process: at each moment one of all runs, and which is decided by the seed.

Each is a thread of the interpreter that runs only while the scheduler waits for it, in a callback
of its process, and gives the turn back whenever it has to wait. So code with threads runs as it
is, in virtual time, and is paused and killed with its process.
"""

from collections import deque
from collections.abc import Callable
from queue import Empty
from threading import Lock, Thread
from typing import Any, Final, Generic, TypeVar

from rillnode.actors.core.threads import ThreadKilled
from rillnode.node.simulation.loop import ProcessLoop

T = TypeVar("T")

TURNS_MAX: Final = 100_000
"""Turns that a thread may need to end, once it was told to."""

_SIGNAL_SECONDS: Final = 1.0
"""How soon a signal is noticed while a thread has its turn."""


class ProcessThread(Thread):
    """A thread of the interpreter that stands for one of a process.

    Attributes:
        process: the event loop of that process.
    """

    process: ProcessLoop


class SimulatedThread:
    """One thread; all but `wait` is called by the process's own."""

    def __init__(self, threads: "SimulatedThreads", run: Callable[[], object], name: str) -> None:
        self._threads = threads
        self._run = run
        self._mine, self._theirs = Lock(), Lock()
        self._mine.acquire()
        self._theirs.acquire()
        self._killed = self._running = False
        self._error: BaseException | None = None
        self._waits = 0
        self.ended = False
        self._thread = ProcessThread(target=self._live, name=name, daemon=True)
        self._thread.process = threads.loop
        self._thread.start()

    def _live(self) -> None:
        self._mine.acquire()
        try:
            if not self._killed:
                self._run()
        except BaseException as error:
            if not self._killed:  # else it has ended as it was to
                self._error = error
        finally:
            self.ended = True
            self._theirs.release()

    def waker(self) -> Callable[[], None]:
        """What gives it a turn if it waits then as it does now, or will when its turn is over."""
        waits = self._waits + (self._threads.current is self)
        return lambda: self.turn() if self._waits == waits else None

    def turn(self) -> None:
        """Let it run until it has to wait, or has ended.

        Raises:
            BaseException: what it has ended with.
        """
        if self.ended:
            return
        before, self._threads.current = self._threads.current, self
        self._running = True
        self._mine.release()
        # A signal, as the watchdog's, may come to the other thread, and wakes nobody here.
        while not self._theirs.acquire(timeout=_SIGNAL_SECONDS):
            pass
        self._running = False
        self._threads.current = before
        error, self._error = self._error, None
        if error is not None:
            raise error

    def wait(self) -> None:
        """Give the turn back until the next; called by the thread itself."""
        if self._killed:  # what it does at its end waits for nothing
            raise ThreadKilled
        self._waits += 1
        self._theirs.release()
        self._mine.acquire()
        if self._killed:
            raise ThreadKilled

    def kill(self) -> None:
        """End it where it waits.

        One that has kept its turn for so long that the run was given up goes on until it waits.
        """
        self._killed = True
        if self._running:
            return
        self.turn()
        self._thread.join()

    def join(self, timeout: float | None = None) -> None:
        """Let it run to its end, at this very time: what it waits for comes at once."""
        for _ in range(TURNS_MAX):
            if self.ended:
                self._thread.join()
                return
            self.turn()
        raise RuntimeError(f"{self._thread.name} does not end")


class SimulatedThreads:
    """The threads of one process; satisfies `Threads`.

    Attributes:
        loop: the process's.
        current: the one that has its turn; None: the process's own thread has.
    """

    def __init__(self, loop: ProcessLoop) -> None:
        self.loop = loop
        self._all: list[SimulatedThread] = []
        self.current: SimulatedThread | None = None

    def start(self, run: Callable[[], object], name: str) -> SimulatedThread:
        """Have something run in a thread of its own, soon."""
        thread = SimulatedThread(self, run, name)
        self._all = [one for one in self._all if not one.ended]
        self._all.append(thread)
        self.wake(thread)
        return thread

    def flag(self) -> "SimulatedFlag":
        """A flag that is not set."""
        return SimulatedFlag(self)

    def queue(self) -> "SimulatedQueue[Any]":
        """An empty queue."""
        return SimulatedQueue(self)

    def wake(self, thread: SimulatedThread) -> None:
        """Give a thread its turn, soon."""
        self.loop.call_soon(thread.waker())

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass in the thread that calls; at once where its end is waited for."""
        thread = self.current
        if thread is not None and seconds > 0.0:
            self.loop.call_later(seconds, thread.waker())
            thread.wait()

    def kill(self) -> None:
        """End all where they wait: the process is dead."""
        threads, self._all = self._all, []
        for thread in threads:
            thread.kill()


class SimulatedFlag:
    """Something that one thread tells others once; satisfies `Flag`."""

    def __init__(self, threads: SimulatedThreads) -> None:
        self._threads = threads
        self._set = False
        self._waiting: list[SimulatedThread] = []

    def set(self) -> None:
        """Tell it."""
        self._set = True
        waiting, self._waiting = self._waiting, []
        for thread in waiting:
            self._threads.wake(thread)

    def clear(self) -> None:
        """Take it back."""
        self._set = False

    def is_set(self) -> bool:
        """Whether it was told."""
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is told, but not longer than so many virtual seconds."""
        thread = self._threads.current
        assert thread is not None, "the process's own thread never waits"
        if not self._set:
            self._waiting.append(thread)
            if timeout is None:
                thread.wait()
            else:
                self._threads.sleep(timeout)
            if thread in self._waiting:
                self._waiting.remove(thread)
        return self._set


class SimulatedQueue(Generic[T]):
    """A queue between threads, in order; satisfies `Queue`."""

    def __init__(self, threads: SimulatedThreads) -> None:
        self._threads = threads
        self._items: deque[T] = deque()
        self._waiting: deque[SimulatedThread] = deque()

    def put(self, item: T) -> None:
        """Add an item, and give a thread that waits for one its turn, soon."""
        self._items.append(item)
        if self._waiting:
            self._threads.wake(self._waiting.popleft())

    def get(self) -> T:
        """Wait for an item and take it."""
        thread = self._threads.current
        assert thread is not None, "the process's own thread never waits"
        while not self._items:
            self._waiting.append(thread)
            thread.wait()
            if thread in self._waiting:  # its end is waited for
                self._waiting.remove(thread)
        return self._items.popleft()

    def get_nowait(self) -> T:
        """Take an item.

        Raises:
            queue.Empty: there is none.
        """
        if not self._items:
            raise Empty
        return self._items.popleft()

    def qsize(self) -> int:
        """How many items wait."""
        return len(self._items)
