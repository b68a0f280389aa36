"""Settling: who still waits for an actor while the system is to stop."""

from collections.abc import Iterator, MutableMapping
from typing import Any

from rillnode.actors.engine.cell import FAILURES, Cell
from rillnode.actors.engine.mailboxes import Held
from rillnode.actors.engine.outside import Reply
from rillnode.actors.engine.waiting import Work, nobody_waits


def cells_below(cells: MutableMapping[Cell, None]) -> Iterator[Cell]:
    """All of some actors, and of those that live under them."""
    pending = [*cells]
    while pending:
        cell = pending.pop()
        yield cell
        pending.extend(cell.children or ())


def is_awaited(cell: Cell, outcomes: MutableMapping[type, Any]) -> bool:
    """Whether somebody waits for what an actor has under way, or for what waits behind it.

    What is in a mailbox and waits for nothing but a turn is not looked at.
    """
    if isinstance(cell.mailbox, Held):
        return True
    for one in cell.owned or ():
        if isinstance(one, Reply) or (isinstance(one, Work) and _asked(one, outcomes)):
            return True
    instance: Any = cell.instance
    try:
        return instance is not None and cell.kind.is_worker and bool(instance.owes())
    except FAILURES as error:
        cell.failed("owes", error)
        return False


def _asked(work: Work, outcomes: MutableMapping[type, Any]) -> bool:
    if work.message is None:  # it was begun beside the handlers
        return work.asker is not nobody_waits
    return work.asker not in (None, work.cell) or type(work.message) in outcomes
