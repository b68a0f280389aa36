"""Clocks: what a transport or an actor knows of time."""

import time
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from functools import partial
from typing import Protocol


def _clock_of_sleepers() -> Callable[[], float]:
    """The monotonic clock that goes on while the machine sleeps: on Linux that is another one."""
    which: int | None = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
    return time.monotonic if which is None else partial(time.clock_gettime, which)


elapsed = _clock_of_sleepers()
"""Seconds that never go back, and that pass while the machine sleeps, too."""


class Timer(Protocol):
    """A timer that has not fired yet."""

    def cancel(self) -> None:
        """Drop the timer; harmless after it has fired."""
        ...


class Clock(Protocol):
    """Monotonic time and timers, as transports need them; a simulation gives its own."""

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` on the loop's thread after `seconds`."""
        ...


class SystemClock:
    """The machine's clock and the timers of an event loop."""

    __slots__ = ("_loop",)

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds that never go back; they pass inside a callback too, unlike some loops' time."""
        return time.monotonic()

    def elapsed(self) -> float:
        """Seconds that never go back, and that pass while the machine sleeps, too."""
        return elapsed()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> TimerHandle:
        """Call `callback` on the loop's thread after `seconds`."""
        return self._loop.call_later(seconds, callback)
