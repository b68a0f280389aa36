"""Follows what other nodes do with streams, where the store is shared with them."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, assert_never

from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.storage import FindStream, StreamRecord
from rillnode.actors.storage.watch import SharedStore, Watch, WatchRecords
from rillnode.actors.streams.context import StreamContext, StreamRemoved, tell_removed

logger = logging.getLogger("rillnode.actors.streams.following")

RETRY_SECONDS: Final = 1.0

COUNT_SECONDS: Final = 30.0
"""So long, roughly, does a quota not know of bytes that were appended at other nodes."""


class _Again:
    """Time to follow again."""


class _Count:
    """Time to count the bytes of streams."""


@dataclass(frozen=True, slots=True)
class _Followed:
    """A log has followers now."""

    log: int


Message = WatchRecords | Watch | FindStream | _Followed | _Again | _Count


class StoreFollower(Worker):
    """One per node: what is done at other nodes holds here, too.

    `changed` is told of every record that was changed, and of each stream that is no more; who
    follows a log is told of what is appended to it. Quotas count the streams that were made
    elsewhere at once, and what was appended to them now and then.
    """

    on_failure = "restart"
    essential = True

    def __init__(
        self, context: StreamContext, changed: Callable[[StreamRecord | StreamRemoved], None]
    ) -> None:
        self._context = context
        self._changed = changed
        self._to_count: list[str] = []
        self._watched: set[int] = set()

    def started(self) -> None:
        """Follow from now on; nothing is to be followed in a store of this node alone."""
        if not isinstance(self._context.store, SharedStore):
            return
        self._follow()
        self.wake_after(COUNT_SECONDS, _Count())
        followers = self._context.followers
        followers.begun = lambda log: self.system.post(self.address, _Followed(log))
        for log in followers.logs:
            followers.begun(log)

    def handle(self, message: Message, sender: Cell | None) -> None:
        """Take what has changed."""
        match message:
            case WatchRecords():
                self._heard(message)
            case Watch():
                self._grown(message)
            case _Followed(log=log):
                if log not in self._watched:
                    self._watch(log, 0)
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

    def _watch(self, log: int, index: int) -> None:
        store = self._context.store
        if isinstance(store, SharedStore):
            self._watched.add(log)
            store.watch(Watch(reply_to=self.address, log=log, index=index))

    def _grown(self, news: Watch) -> None:
        followers = self._context.followers
        self._watched.discard(news.log)
        if news.error is None and news.log in followers.logs:
            followers.grown(news.log, news.next_index)
            self._watch(news.log, news.next_index)

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
        self._changed(tell_removed(self._context, record))
