"""Watching a link: whoever works with what came over it is told of its end."""

from dataclasses import dataclass
from functools import partial

from rillnode.actors.delivery import Origin
from rillnode.actors.system import AsyncioSystemBase, Cell
from rillnode.actors.worker import Worker


@dataclass(frozen=True, slots=True)
class LinkLost:
    """The link of `origin` is gone."""

    origin: Origin


class LinkWatch(Worker):
    """Ends with the link that it is attached to, and says so."""

    on_failure = "stop"

    def __init__(self, origin: Origin, told: Cell) -> None:
        self._origin = origin
        self._told = told

    def handle(self, message: object, sender: Cell | None) -> None:
        """There is nothing to handle."""

    def stopped(self) -> None:
        """Tell of the end."""
        self._origin.attached.discard(self.address)
        self.system.post(self._told, LinkLost(self._origin))


def watch(system: AsyncioSystemBase, origin: Origin, told: Cell) -> Cell:
    """Send `told` a LinkLost once the link of `origin` is gone, or the cell returned exits."""
    cell = system.spawn(partial(LinkWatch, origin, told))
    origin.attached.add(cell)
    return cell
