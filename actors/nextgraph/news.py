"""Actors that hear which of the broker's records others have changed."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from rillnode.actors.engine.cell import Cell
from rillnode.actors.log import WatchValues
from rillnode.actors.nextgraph.actor import BrokerActor
from rillnode.actors.nextgraph.records import name_of


@dataclass(frozen=True, slots=True)
class News:
    """Others have changed a record, or removed it; `name` is what follows the family."""

    name: str
    value: bytes | None


class NewsActor(BrokerActor):
    """Is told of the records of one family that others change.

    Subclasses `listen` when they start.

    Attributes:
        followed: the family.
    """

    followed: ClassVar[str]

    def listen(self) -> None:
        """Be sent News from now on, whichever instance there is."""
        watch = WatchValues(prefix=name_of(self.followed, ""))
        heard = self.then(watch, self._heard, partial(_tell, self.address))
        self._context.streams.store.watch(heard)

    def _heard(self, watch: WatchValues) -> None:
        _tell(self.address, watch)
        self.listen()


def _tell(actor: Cell, watch: WatchValues) -> None:
    """Tell an actor, whatever instance it has by now: nobody else is told of the same."""
    for name, value in watch.changed:
        actor.base.post(actor, News(name.removeprefix(watch.prefix), value))
