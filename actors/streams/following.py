"""Follows what other nodes do with streams, where the store is shared with them."""

import logging
from collections.abc import Callable
from typing import Final, assert_never

from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.storage import FindStream, StreamRecord
from rillnode.actors.storage.watch import SharedStore, WatchRecords
from rillnode.actors.streams.context import StreamContext, StreamRemoved, stream_address

logger = logging.getLogger("rillnode.actors.streams.following")

RETRY_SECONDS: Final = 1.0

COUNT_SECONDS: Final = 30.0
"""So long, roughly, does a quota not know of bytes that were appended at other nodes."""


class _Again:
    """Time to follow again."""


class _Count:
    """Time to count the bytes of streams."""


Message = WatchRecords | FindStream | _Again | _Count


class RecordFollower(Worker):
    """One per node: what a client has changed at another node holds here, too.

    `changed` is told of every such record, and of each stream that is no more. Quotas count the
    streams that were made elsewhere at once, and what was appended to them now and then.
    """

    on_failure = "restart"
    essential = True

    def __init__(
        self, context: StreamContext, changed: Callable[[StreamRecord | StreamRemoved], None]
    ) -> None:
        self._context = context
        self._changed = changed
        self._to_count: list[str] = []

    def started(self) -> None:
        """Follow from now on; nothing is to be followed in a store of this node alone."""
        self._follow()
        if isinstance(self._context.store, SharedStore):
            self.wake_after(COUNT_SECONDS, _Count())

    def handle(self, message: Message, sender: Cell | None) -> None:
        """Take what has changed."""
        match message:
            case WatchRecords():
                self._heard(message)
            case _Again():
                self._follow()
            case _Count():
                self._to_count = self._context.quotas.measured()
                self._count_next()
            case FindStream():
                self._counted(message)
            case _:
                assert_never(message)

    def _heard(self, news: WatchRecords) -> None:
        if news.error is not None:
            if news.error.code != "store.closed":
                logger.warning("records_not_followed", extra={"code": news.error.code})
                self.wake_after(RETRY_SECONDS, _Again())
            return
        for record in news.removed:
            self._remove(record)
        for record in news.changed:
            if self._context.quotas.enabled:
                self._context.quotas.found(record, ())
            self._changed(record)
        self._follow()

    def _follow(self) -> None:
        store = self._context.store
        if isinstance(store, SharedStore):
            store.watch(WatchRecords(reply_to=self.address))

    def _count_next(self) -> None:
        """Ask what one stream after the other keeps."""
        if not self._to_count:
            self.wake_after(COUNT_SECONDS, _Count())
            return
        find = FindStream(reply_to=self.address, name=self._to_count.pop())
        if self._context.store.read(find):
            self._counted(find)

    def _counted(self, find: FindStream) -> None:
        if find.record is not None:
            self._context.quotas.counted(find.record, find.extents)
        self._count_next()

    def _remove(self, record: StreamRecord) -> None:
        logger.info("stream_removed_elsewhere", extra={"stream": record.name})
        self._context.quotas.removed(record)
        removed = StreamRemoved(record)
        for partition in range(record.partitions):
            cell = self._context.router.lookup(stream_address(record.name, partition))
            if cell is not None:
                self.system.post(cell, removed)
        self._changed(removed)
