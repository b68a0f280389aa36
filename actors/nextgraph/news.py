"""Actors that hear which of the broker's records other nodes have changed."""

import logging
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

from rillnode.actors.engine.cell import Cell
from rillnode.actors.log.watch import SharedStore, WatchValues
from rillnode.actors.nextgraph.actor import BrokerActor
from rillnode.actors.nextgraph.records import name_of
from rillnode.codecs.limits import MAILBOX_MESSAGES_MAX

logger = logging.getLogger("rillnode.actors.nextgraph")

RETRY_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class News:
    """Another node has changed a record, or removed it; `name` is what follows the family."""

    name: str
    value: bytes | None


class NewsActor(BrokerActor):
    """Is told of the records of one family, where the store is shared; else it is as any other.

    Subclasses `listen` when they start.

    Attributes:
        followed: the family.
    """

    # What one watch has brought: the next begins when there is room.
    spare: ClassVar = {News: MAILBOX_MESSAGES_MAX}

    followed: ClassVar[str]

    def listen(self) -> None:
        """Be sent News from now on, whichever instance there is."""
        store = self._context.streams.store
        if isinstance(store, SharedStore):
            tell = partial(_tell, self.address)
            watch = WatchValues(prefix=name_of(self.followed, ""))
            store.watch(self.then(watch, self._heard, tell))

    def _heard(self, watch: WatchValues) -> None:
        if watch.error is None:
            _tell(self.address, watch)
            if self.address.is_full:
                self.begin(self._listen_later())
            else:
                self.listen()
        elif watch.error.code != "store.closed":
            logger.warning("records_not_followed", extra={"code": watch.error.code})
            self.begin(self._listen_later())

    async def _listen_later(self) -> None:
        await self.sleep(RETRY_SECONDS)
        while self.address.is_full:
            await self.sleep(RETRY_SECONDS)
        self.listen()


def _tell(actor: Cell, watch: WatchValues) -> None:
    """Tell an actor, whatever instance it has by now: nobody else is told of the same."""
    for name, value in watch.changed:
        actor.base.post(actor, News(name.removeprefix(watch.prefix), value))
