"""Looking at a world from another thread, without changing what happens in it.

The world's own thread does the looking, between two moments of virtual time: nothing runs then, and
nothing that is looked at needs the time or the callbacks of the world.
"""

import queue
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

T = TypeVar("T")

NEVER: Final = float("inf")


class Watch:
    """Takes from other threads what is to be looked at.

    Args:
        speed: virtual seconds that pass in a second at most; None: as many as there can be.
        on_moment: called with each new time before the world goes on.
    """

    def __init__(
        self, speed: float | None = None, on_moment: Callable[[float], object] | None = None
    ) -> None:
        self._speed = speed
        self._on_moment = on_moment
        self._asked: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._started: tuple[float, float] | None = None

    def ask(self, look: Callable[[], T]) -> "Future[T]":
        """Have the world's thread call `look` soon; from any thread."""
        future: Future[T] = Future()
        self._asked.put((look, future))
        return future

    def jump(self, then: float) -> None:
        """The world goes on at `then`: do what was asked, and wait where it goes too fast."""
        if self._on_moment is not None:
            self._on_moment(then)
        until = 0.0
        if self._speed is not None:
            now = time.monotonic()
            begun, first = self._started = self._started or (now, then)
            until = begun + (then - first) / self._speed
        self.answer(until)

    def answer(self, until: float) -> None:
        """Do what is asked until a monotonic time, and what has been asked already in any case."""
        while True:
            left = until - time.monotonic()
            try:
                look, future = (
                    self._asked.get(timeout=min(max(left, 0.0), 1.0))
                    if left > 0
                    else (self._asked.get_nowait())
                )
            except queue.Empty:
                if left <= 0:
                    return
                continue
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(look())
            except Exception as error:  # whatever it is, it is for who asked
                future.set_exception(error)
