"""Knows who watches for streams of a pattern, and tells them of those that are made or removed."""

from dataclasses import dataclass

from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.patterns import Matches
from rillnode.actors.core.tally import Tally
from rillnode.actors.engine.cell import Cell
from rillnode.actors.log import StreamRecord


@dataclass(slots=True, eq=False)
class StreamWatch:
    """The streams that one watcher is to be told of.

    Attributes:
        told: the streams that it was told of, by name: id and number of partitions.
    """

    cell: Cell
    matches: Matches
    told: dict[str, tuple[int, int]]

    def concerns(self, record: StreamRecord) -> bool:
        """Whether a record says anything that it was not told, or may be told no more."""
        known = self.told.get(record.name)
        if known is not None:
            return known != (record.id, record.partitions)
        return bool(self.matches(record.name))


class StreamWatches:
    """The watchers for streams at a node. All calls are for the loop's thread.

    Attributes:
        links: how many watches each link has.
    """

    def __init__(self) -> None:
        self.links: Tally[Origin] = Tally()
        self._watches: dict[Cell, StreamWatch] = {}

    def add(self, watch: StreamWatch) -> None:
        """Have an actor told of the records of streams that come in question."""
        self._watches[watch.cell] = watch

    def remove(self, cell: Cell) -> None:
        """Undo `add`; harmless when repeated."""
        self._watches.pop(cell, None)

    def changed(self, record: StreamRecord) -> None:
        """A stream was made, changed, or only looked at, which is no news."""
        for watch in self._watches.values():
            if watch.concerns(record):
                watch.cell.base.post(watch.cell, Known(record))

    def removed(self, record: StreamRecord) -> None:
        """A stream is no more."""
        for watch in self._watches.values():
            if record.name in watch.told or watch.matches(record.name):
                watch.cell.base.post(watch.cell, Gone(record))


@dataclass(frozen=True, slots=True)
class Known:
    """A stream that matches, as it is now."""

    record: StreamRecord


@dataclass(frozen=True, slots=True)
class Gone:
    """A stream that matched is no more."""

    record: StreamRecord
