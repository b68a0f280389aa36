"""An actor's timer: a message to itself, later."""

from collections.abc import Callable
from typing import Protocol

from rillnode.actors.engine.cell import Cell
from rillnode.actors.ports import TimerHandle


class Timing(Protocol):
    """The part of a Clock that the actor system needs: it never asks for wall time."""

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> TimerHandle:
        """Call `callback` on the loop's thread after `seconds`."""
        ...


class Timer:
    """Posts a message to its cell once, with the cell itself as sender.

    Attributes:
        due: when it fires, on the monotonic clock.
    """

    __slots__ = ("_cell", "_handle", "_message", "due")

    def __init__(self, cell: Cell, seconds: float, message: object, timing: Timing) -> None:
        self._cell = cell
        self._message = message
        self.due = timing.monotonic() + seconds
        # Let go of at the end: the handle leads back to this timer.
        self._handle: TimerHandle | None = timing.call_later(seconds, self._fire)
        if cell.timers is None:
            cell.timers = {}
        cell.timers[self] = None

    def cancel(self) -> None:
        """Drop it; harmless after it has fired."""
        if self._handle is not None:
            self._handle.cancel()
        self._forget()

    def _fire(self) -> None:
        self._forget()
        self._cell.base.post(self._cell, self._message, self._cell)

    def _forget(self) -> None:
        self._handle = None
        timers = self._cell.timers
        if timers is not None:
            timers.pop(self, None)
            if not timers:
                self._cell.timers = None


def cancel_timers(cell: Cell) -> None:
    """Drop all timers of a cell."""
    for timer in tuple(cell.timers or ()):
        timer.cancel()
