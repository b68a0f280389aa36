"""Tells actors of record changes made by other nodes."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

from rillnode.actors.engine.cell import Cell
from rillnode.actors.log import WatchValues
from rillnode.actors.nextgraph.actor import BrokerActor
from rillnode.actors.nextgraph.records import name_of
from rillnode.codecs.limits import MAILBOX_MESSAGES_MAX

FULL_SECONDS: Final = 0.1
"""How often who has too much waiting looks whether there is room for more news. Own choice."""


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

    # What one watch has brought: the next begins when there is room.
    spare: ClassVar = {News: MAILBOX_MESSAGES_MAX}

    followed: ClassVar[str]

    def listen(self) -> None:
        """Be sent News from now on, whichever instance there is."""
        watch = WatchValues(prefix=name_of(self.followed, ""))
        heard = self.then(watch, self._heard, partial(_tell, self.address))
        self._context.streams.store.watch(heard)

    def _heard(self, watch: WatchValues) -> None:
        _tell(self.address, watch)
        if self.address.is_full:
            self.begin(self._listen_later())
        else:
            self.listen()

    async def _listen_later(self) -> None:
        while self.address.is_full:
            await self.sleep(FULL_SECONDS)
        self.listen()


def _tell(actor: Cell, watch: WatchValues) -> None:
    """Tell an actor, whatever instance it has by now: nobody else is told of the same."""
    for name, value in watch.changed:
        actor.base.post(actor, News(name.removeprefix(watch.prefix), value))
