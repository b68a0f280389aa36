"""Ends a run in which one callback goes on for ever, which virtual time cannot notice."""

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final

STUCK_SECONDS: Final = 60.0
"""Processor time without a step of virtual time. The callbacks of one moment take far less."""


class CallbackStuck(BaseException):
    """A callback does not end. No handler of failures in the code under test must catch it."""


@contextmanager
def watchdog(now: Callable[[], float], seconds: float = STUCK_SECONDS) -> Generator[None]:
    """Raise CallbackStuck in what runs when virtual time stands still for long.

    It works in the main thread only, as signals do; elsewhere, and where there are no such signals,
    it does nothing.

    Args:
        now: virtual time.
        seconds: of processor time; it may take twice as long.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(
        signal, "setitimer"
    ):
        yield
        return
    last = [-1.0]

    def look(_: int, frame: FrameType | None) -> None:
        if now() == last[0]:
            where = "" if frame is None else f" in {frame.f_code.co_name}"
            raise CallbackStuck(f"virtual time stands still: a callback does not end{where}")
        last[0] = now()

    before = signal.signal(signal.SIGVTALRM, look)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)
