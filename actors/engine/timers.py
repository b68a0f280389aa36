"""An actor's timer: a message to itself, later."""

from rillnode.actors.engine.cell import Cell
from rillnode.actors.ports import TimerHandle, Timing


class Timer:
    """Posts a message to its cell once, with the cell itself as sender.

    It goes with the instance that set it.

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
        cell.own(self)

    def cancel(self, _: object = None) -> None:
        """Drop it, at the instance's end too; harmless after it has fired."""
        if self._handle is not None:
            self._handle.cancel()
        self._forget()

    drop = cancel

    def _fire(self) -> None:
        self._forget()
        self._cell.base.post(self._cell, self._message, self._cell)

    def _forget(self) -> None:
        self._handle = None
        self._cell.disown(self)
