"""Tells when rights have ended, so that what goes on by them ends too, and when there are new ones.

A subscription, a resend or a neighbour's part in a stream goes on without asking again. The actor
that lets it go on watches what its right depends on, and is sent a RightsChanged when somebody has
lost something there: it then asks the same question as at the beginning, and ends what may not go
on. Whatever takes a right away (a permission, a stream's end, a grant, a session, an API key) is
told here, so that nothing else has to know who goes on by it.

Who would go on with more, if it had the right, is told of grants (RightsGained): a watch for
streams of a pattern is.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from rillnode.actors.engine.cell import Cell

SLICE_CELLS: Final = 256
"""Actors told in one turn when a change may concern them all."""

Key = str | bytes
"""What a right depends on: a stream, by its name; a session, by its id."""


class RightsChanged(Struct, frozen=True):
    """Somebody has lost a right that depends on `key`; None: it may be any right."""

    key: Key | None = None

    def merged(self, later: "RightsChanged") -> "RightsChanged":
        """Of two keys it may be any right."""
        return self if self == later else RightsChanged()


class RightsGained(Struct, frozen=True):
    """Somebody has got a right to the stream `name`; None: it may be to any stream."""

    name: str | None = None

    def merged(self, later: "RightsGained") -> "RightsGained":
        """Of two names it may be any stream."""
        return self if self == later else RightsGained()


class Rights:
    """A register of who watches which rights. All calls are for the loop's thread.

    Attributes:
        links: gives the actors of all open links, which live by a right that names no stream:
            that some grant names their peer.
    """

    def __init__(self) -> None:
        self._watchers: dict[Key, dict[Cell, int]] = {}
        self._hopeful: dict[Cell, None] = {}
        self.links: Callable[[], Iterable[Cell]] = tuple

    def watch(self, key: Key, cell: "Cell") -> None:
        """Have an actor told when rights that depend on `key` end; undone as often as done."""
        watchers = self._watchers.setdefault(key, {})
        watchers[cell] = watchers.get(cell, 0) + 1

    def unwatch(self, key: Key, cell: "Cell") -> None:
        """Undo one `watch`; harmless where there was none."""
        watchers = self._watchers.get(key, {})
        count = watchers.pop(cell, 0)
        if count > 1:
            watchers[cell] = count - 1
        elif not watchers:
            self._watchers.pop(key, None)

    def hope(self, cell: "Cell") -> None:
        """Have an actor told when there are new rights."""
        self._hopeful[cell] = None

    def give_up(self, cell: "Cell") -> None:
        """Undo `hope`; harmless when repeated."""
        self._hopeful.pop(cell, None)

    def gained(self, name: str | None = None) -> None:
        """Somebody has got a right to a stream; None: it may be to any stream."""
        _tell(self._hopeful, RightsGained(name))

    def changed(self, key: Key) -> None:
        """Rights have ended that depend on `key`."""
        _tell(self._watchers.get(key, ()), RightsChanged(key))

    def principal_gone(self) -> None:
        """No grant names some principal any more: its links may have to end."""
        _tell(self.links(), RightsChanged())

    def all_changed(self) -> None:
        """Any right may have ended: a grant for a pattern of streams was taken back, say."""
        watchers = {cell: None for cells in self._watchers.values() for cell in cells}
        _tell(watchers | dict.fromkeys(self.links()), RightsChanged())


def _tell(cells: Iterable["Cell"], change: RightsChanged | RightsGained) -> None:
    """Tell actors at once where they are few, else a slice in each turn of the loop."""
    told = list(cells)
    for cell in told[:SLICE_CELLS]:
        cell.base.post(cell, change)
    rest = told[SLICE_CELLS:]
    if rest:
        rest[0].base.timing.call_later(0.0, partial(_tell, rest, change))
