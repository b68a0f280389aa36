"""Actors that hear which of the broker's records other nodes have changed."""

import logging
from abc import ABC, abstractmethod
from typing import ClassVar, Final

from rillnode.actors.nextgraph.errands import ErrandActor
from rillnode.actors.nextgraph.records import name_of
from rillnode.actors.storage import LogStore, Operation
from rillnode.actors.storage.watch import SharedStore, WatchValues

logger = logging.getLogger("rillnode.actors.nextgraph")

RETRY_SECONDS: Final = 1.0


class NewsActor(ErrandActor, ABC):
    """Is told of the records of one family, where the store is shared; else it is as any other.

    Attributes:
        followed: the family.
    """

    followed: ClassVar[str]

    def __init__(self, store: LogStore) -> None:
        super().__init__(store)
        self._prefix = name_of(self.followed, "")

    def started(self) -> None:
        """Hear from now on."""
        self._listen()

    def _listen(self) -> None:
        if isinstance(self._store, SharedStore):
            self._store.watch(WatchValues(reply_to=self.address, prefix=self._prefix))

    def complete(self, operation: Operation) -> None:
        """Take operations back, and what is new."""
        if not isinstance(operation, WatchValues):
            super().complete(operation)
        elif operation.error is None:
            for name, value in operation.changed:
                self.heard(name.removeprefix(self._prefix), value)
            self._listen()
        elif operation.error.code != "store.closed":
            logger.warning("records_not_followed", extra={"code": operation.error.code})
            # Comes back as one that tells of nothing.
            self.wake_after(RETRY_SECONDS, WatchValues(prefix=self._prefix))

    @abstractmethod
    def heard(self, name: str, value: bytes | None) -> None:
        """Another node has changed a record, or removed it; `name` is what follows the family."""
