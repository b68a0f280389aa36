"""What threads are made of: the operating system's, or a simulation's instead."""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")


ENDS: Final = (SystemExit, KeyboardInterrupt, GeneratorExit)
"""What asks a thread to end, and is no failure of what it does."""


class Running(Protocol):
    """A thread that runs."""

    def join(self) -> object:
        """Wait until it has ended."""
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
    """What threads hand to each other, in order."""

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


class _SystemThreads:
    """Those of the operating system."""

    def start(self, run: Callable[[], object], name: str) -> Running:
        thread = Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def flag(self) -> Flag:
        return Event()

    def queue(self) -> Queue[Any]:
        return SimpleQueue[Any]()


SYSTEM_THREADS: Final[Threads] = _SystemThreads()
