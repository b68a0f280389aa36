"""Passivation: instances of idle actors go, their cells stay."""

from collections.abc import Callable
from typing import Final

from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.failures import FAILURES, record_failure
from rillnode.actors.engine.kinds import ActorKind
from rillnode.actors.engine.worker import Worker
from rillnode.actors.ports import Timing

LOOK_CELLS_MAX: Final = 500
"""Cells looked at before the loop gets its turn."""


class Passivation:
    """Looks through the instances of each class with an idle time, once in that time.

    What had no turn between two looks is idle; so an instance goes after one to two idle times.
    Nothing is scheduled while there is nothing to look at.
    """

    def __init__(self, timing: Timing, drop_instance: Callable[[Cell], None]) -> None:
        self._timing = timing
        self._drop_instance = drop_instance
        # Of each class the cells to look at, while a look is scheduled.
        self.awake: dict[ActorKind, list[Cell]] = {}

    def watch(self, cell: Cell) -> None:
        """Look at a cell from now on; called with each instance it gets."""
        kind = cell.kind
        if kind.policy.idle_seconds is None or cell.active is not None:
            return
        cell.active = True
        awake = self.awake.get(kind)
        if awake is None:
            awake = self.awake[kind] = []
            self._look_later(kind, kind.policy.idle_seconds, None)
        awake.append(cell)

    def _look_later(self, kind: ActorKind, seconds: float, left: int | None) -> None:
        self._timing.call_later(seconds, lambda: self._look(kind, left))

    def _look(self, kind: ActorKind, left: int | None) -> None:
        awake = self.awake[kind]
        if left is None:
            left = len(awake)
        looked_at = awake[: min(left, LOOK_CELLS_MAX)]
        del awake[: len(looked_at)]
        for cell in looked_at:
            if cell.instance is None:
                cell.active = None
            elif cell.active or not self._is_idle(cell, cell.instance):
                cell.active = False
                awake.append(cell)
            else:
                cell.active = None
                self._drop_instance(cell)
        left -= LOOK_CELLS_MAX
        if left > 0:
            self._look_later(kind, 0.0, left)
        elif awake and kind.policy.idle_seconds is not None:
            self._look_later(kind, kind.policy.idle_seconds, None)
        else:
            del self.awake[kind]

    def _is_idle(self, cell: Cell, instance: object) -> bool:
        if cell.mailbox or cell.owned:
            return False
        try:
            return not isinstance(instance, Worker) or (
                not instance.operations_due and instance.may_passivate()
            )
        except FAILURES as error:
            record_failure(cell, "may_passivate", error)
            return False
