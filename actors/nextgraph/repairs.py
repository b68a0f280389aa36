"""Reloads cached state after a store repair.

Of writes that failed before, some may be there after all. Who was told that one failed has looked
at once, perhaps, and then has seen nothing of it.
"""

from typing import Final

from thespian.actors import ActorAddress

from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import StoreHealth
from rillnode.actors.nextgraph.context import BrokerContext


class Repaired:
    """A notice that cached state may be out of date."""

    def merged(self, later: "Repaired") -> "Repaired":
        """One is enough."""
        return later


REPAIRED: Final = Repaired()


class RepairsActor(Worker):
    """Tells those who keep what the store has of its repairs; one per broker."""

    essential = True

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def started(self) -> None:
        """Tell all: an instance before this one may have failed at it."""
        self._tell_all()

    def handle(self, message: StoreHealth, sender: ActorAddress | None) -> None:
        """Take the store's health."""
        if message.writable:
            self._tell_all()

    def _tell_all(self) -> None:
        context = self._context
        for table in (context.outers, context.overlays, context.blocks, context.topics):
            for cell in table.awake:
                self.system.post(cell, REPAIRED)
