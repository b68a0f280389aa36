"""Tells followers that a log has grown; the node knows them, the appending actor does not.

That one may be replaced, be given up or leave an idle partition; who follows misses nothing of it.
"""

from collections.abc import Callable, Collection

from msgspec import Struct

from rillnode.actors.core.delivery import Origin
from rillnode.actors.engine.cell import GONE, Cell, Cells


class Grown(Struct, frozen=True):
    """The log holds committed entries up to `next_index`."""

    next_index: int

    def merged(self, later: "Grown") -> "Grown":
        """The later one is all that counts."""
        return later


class Removed(Struct, frozen=True):
    """Tells followers of a log that its stream is no more."""

    log: int


Asker = tuple[Origin, int]
"""The connection that has asked for a subscription, and the id of its request."""


class Followers:
    """The followers of all logs of one node. All calls are for the loop's thread.

    Attributes:
        begun: called with each log that has followers and had none.
    """

    def __init__(self) -> None:
        self._of: dict[int, Cells] = {}
        self._firsts: dict[int, int] = {}  # of those that were trimmed meanwhile
        self._asked: dict[tuple[int, Asker], Cell] = {}
        self.begun: Callable[[int], object] | None = None

    @property
    def logs(self) -> Collection[int]:
        """The logs that have followers."""
        return self._of.keys()

    def add(self, log: int, cell: Cell, asker: Asker | None = None) -> None:
        """Have an actor sent a Grown for all that becomes durable in a log from now on.

        What is in the log already it must read itself, after this. Harmless when repeated.

        Args:
            log: what it follows.
            cell: who follows.
            asker: who `asked` finds it by.
        """
        if asker is not None:
            self._asked[log, asker] = cell
        cells = self._of.get(log)
        if cells is not None:
            cells.add(cell)
            return
        cells = self._of[log] = Cells()
        cells.add(cell)
        if self.begun is not None:
            self.begun(log)

    def remove(self, log: int, cell: Cell, asker: Asker | None = None) -> None:
        """Undo `add`; harmless when repeated."""
        if asker is not None and self._asked.get((log, asker)) is cell:
            del self._asked[log, asker]
        cells = self._of.get(log)
        if cells is not None:
            cells.discard(cell)
            if not cells:
                del self._of[log]
                self._firsts.pop(log, None)

    def asked(self, log: int, asker: Asker) -> Cell | None:
        """The actor that follows a log for who has asked for that."""
        return self._asked.get((log, asker))

    def grown(self, log: int, next_index: int) -> None:
        """Tell who follows a log that it is durable up to `next_index`."""
        cells = self._of.get(log)
        if cells is None:
            return
        news, gone = Grown(next_index), None
        for cell in cells:
            if cell.mailbox is GONE:
                gone = cell
            else:
                cell.base.post(cell, news)
        if gone is not None:  # it has failed before it could say so
            self.remove(log, gone)

    def trimmed(self, log: int, first_index: int) -> None:
        """Note where a log begins that this node has trimmed, for who follows it to ask."""
        if log in self._of:
            self._firsts[log] = first_index

    def first_index(self, log: int) -> int:
        """Where a followed log begins at least; other nodes of a shared log may have trimmed it."""
        return self._firsts.get(log, 0)

    def removed(self, log: int) -> None:
        """Tell who follows a log that its stream is no more, and forget them."""
        self._firsts.pop(log, None)
        for cell in self._of.pop(log, ()):
            cell.base.post(cell, Removed(log))
