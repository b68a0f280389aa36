"""Follows what other nodes change of streams' records, where the store is shared with them."""

import logging
from collections.abc import Callable

from rillnode.actors.storage import StreamRecord
from rillnode.actors.storage.watch import SharedStore, WatchRecords
from rillnode.actors.streams.context import StreamContext, StreamRemoved, stream_address
from rillnode.actors.system import Cell
from rillnode.actors.worker import Worker

logger = logging.getLogger("rillnode.actors.streams.following")

RETRY_SECONDS = 1.0


class _Again:
    """Time to follow again."""


class RecordFollower(Worker):
    """One per node: what a client has changed at another node holds here, too.

    `changed` is told of every such record, and of each stream that is no more.
    """

    on_failure = "restart"

    def __init__(
        self, context: StreamContext, changed: Callable[[StreamRecord | StreamRemoved], None]
    ) -> None:
        self._context = context
        self._changed = changed

    def started(self) -> None:
        """Follow from now on; nothing is to be followed in a store of this node alone."""
        self._follow()

    def handle(self, message: object, sender: Cell | None) -> None:
        """Take what has changed."""
        match message:
            case WatchRecords(error=None):
                for record in message.removed:
                    self._remove(record)
                for record in message.changed:
                    self._changed(record)
                self._follow()
            case WatchRecords(error=error) if error is not None and error.code != "store.closed":
                logger.warning("records_not_followed", extra={"code": error.code})
                self.wake_after(RETRY_SECONDS, _Again())
            case _Again():
                self._follow()
            case _:
                pass

    def _follow(self) -> None:
        store = self._context.store
        if isinstance(store, SharedStore):
            store.watch(WatchRecords(reply_to=self.address))

    def _remove(self, record: StreamRecord) -> None:
        logger.info("stream_removed_elsewhere", extra={"stream": record.name})
        self._context.quotas.removed(record)
        removed = StreamRemoved(record)
        for partition in range(record.partitions):
            cell = self._context.router.lookup(stream_address(record.name, partition))
            if cell is not None:
                self.system.post(cell, removed)
        self._changed(removed)
