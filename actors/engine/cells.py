"""A set of cells whose order is that of adding, the same in every run of a simulation."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rillnode.actors.engine.cell import Cell


class Cells(dict["Cell", None]):
    """Cells, each once, oldest first; a plain set's order would depend on memory addresses."""

    __slots__ = ()

    def add(self, cell: "Cell") -> None:
        """Add a cell; harmless when it is there."""
        self[cell] = None

    def discard(self, cell: "Cell") -> None:
        """Remove a cell; harmless when it is not there."""
        self.pop(cell, None)
