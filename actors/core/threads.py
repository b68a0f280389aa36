"""Makes threads: the operating system's, or a simulation's.

A thread that is asked to end returns. One that raises was not asked, whatever it raises: whoever
starts threads says which one it was, so that none ends silently.
"""

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, Final, Protocol, TypeVar

from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.core.threads")

T = TypeVar("T")

OnEnd = Callable[[str, BaseException], object]
"""Told the name of a thread that has ended without being asked, and what it has raised; called on
that very thread."""


class ThreadKilled(BaseException):
    """Ends a thread of a simulated process that was killed, where it waits: it does nothing more.

    All else that a thread may meet is a failure, SystemExit and what native code raises too.
    """


class Running(Protocol):
    """A thread that runs."""

    def join(self, timeout: float | None = None) -> object:
        """Wait until it has ended, but not longer than so many seconds."""
        ...


class Flag(Protocol):
    """Something that one thread tells others once."""

    def set(self) -> None:
        """Tell it."""
        ...

    def clear(self) -> None:
        """Take it back."""
        ...

    def is_set(self) -> bool:
        """Whether it was told."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is told, but not longer than so many seconds; whether it was told."""
        ...


class Queue(Protocol[T]):
    """A queue between threads, in order."""

    def put(self, item: T) -> None:
        """Add an item."""
        ...

    def get(self) -> T:
        """Wait for an item and take it."""
        ...

    def get_nowait(self) -> T:
        """Take an item.

        Raises:
            queue.Empty: there is none.
        """
        ...

    def qsize(self) -> int:
        """How many items wait."""
        ...


class Threads(Protocol):
    """Makes threads, and what they wait for."""

    def start(self, run: Callable[[], object], name: str) -> Running:
        """Run something in a thread of its own, which does not keep the process alive."""
        ...

    def flag(self) -> Flag:
        """A flag that is not set."""
        ...

    def queue(self) -> Queue[Any]:
        """An empty queue."""
        ...


class SystemThreads:
    """Those of the operating system; satisfies `Threads`.

    Args:
        on_end: told of each thread that ends without being asked; it is logged in any case.
    """

    def __init__(self, on_end: OnEnd | None = None) -> None:
        self._on_end = on_end

    def start(self, run: Callable[[], object], name: str) -> Running:
        """Run something in a thread of its own, which does not keep the process alive."""
        thread = Thread(target=self._live, args=(run, name), name=name, daemon=True)
        thread.start()
        return thread

    def flag(self) -> Flag:
        """A flag that is not set."""
        return Event()

    def queue(self) -> Queue[Any]:
        """An empty queue."""
        return SimpleQueue[Any]()

    def _live(self, run: Callable[[], object], name: str) -> None:
        try:
            run()
        except BaseException as error:
            logger.critical("thread_ended", exc_info=error, extra={"which": name})
            if self._on_end is not None:
                self._on_end(name, error)


SYSTEM_THREADS: Final[Threads] = SystemThreads()


def run_loop(loop: asyncio.AbstractEventLoop, is_over: Callable[[], bool]) -> None:
    """Run a loop in this thread until it is stopped and `is_over` says so.

    A loop hands SystemExit and KeyboardInterrupt of any callback to whoever runs it, and then runs
    no more, though others wait for it. Here it goes on: who waits for that callback is told by it.
    """
    while not is_over():
        try:
            loop.run_forever()
        except BaseException:
            logger.critical("loop_interrupted", exc_info=True)
