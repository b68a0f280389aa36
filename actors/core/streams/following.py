"""Follows what other nodes do with streams, where the store is shared with them."""

import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar, Final, assert_never

from rillnode.actors.core.streams.context import (
    STREAM_CHANGES_MAX,
    StreamContext,
    StreamRemoved,
    tell_removed,
)
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import FindStream, StreamRecord
from rillnode.actors.log.waiting import read
from rillnode.actors.log.watch import SharedStore, Watch, WatchRecords
from rillnode.codecs.errors import StoreError

logger = logging.getLogger("rillnode.actors.core.streams.following")

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

    def merged(self, later: "_Followed") -> "_Followed | None":
        """Of the same log one is enough."""
        return later if later == self else None


@dataclass(frozen=True, slots=True)
class _Changed:
    """Another node has changed a stream's record, or made the stream."""

    record: StreamRecord


@dataclass(frozen=True, slots=True)
class _Removed:
    """Another node has removed a stream."""

    record: StreamRecord


Message = _Changed | _Removed | _Followed | _Again | _Count


class StoreFollower(Worker):
    """One per node: what is done at other nodes holds here, too.

    `changed` is told of every record that was changed, and of each stream that is no more; who
    follows a log is told of what is appended to it. Quotas count the streams that were made
    elsewhere at once, and what was appended to them now and then.
    """

    on_failure = "restart"
    # What one watch has brought is taken before the next one ends.
    spare: ClassVar = {_Changed: STREAM_CHANGES_MAX, _Removed: STREAM_CHANGES_MAX}
    essential = True
    interleaves = True

    def __init__(
        self, context: StreamContext, changed: Callable[[StreamRecord | StreamRemoved], None]
    ) -> None:
        self._context = context
        self._changed = changed
        self._watched: set[int] = set()

    def started(self) -> None:
        """Follow from now on; nothing is to be followed in a store of this node alone."""
        if not isinstance(self._context.store, SharedStore):
            return
        self._watch_records()
        self.wake_after(COUNT_SECONDS, _Count())
        followers, me = self._context.followers, self.address
        followers.begun = lambda log: me.base.post(me, _Followed(log))
        for log in followers.logs:
            self._watch(log, 0)

    def stopped(self) -> None:
        """Nobody hears of logs that get followers, until there is another instance."""
        self._context.followers.begun = None

    def handle(self, message: Message, sender: Cell | None) -> Coroutine[Any, Any, None] | None:
        """Take what has changed, and the times to look."""
        match message:
            case _Changed(record=record):
                if self._context.quotas.enabled:
                    self._context.quotas.found(record, ())
                self._changed(record)
            case _Removed(record=record):
                logger.info("stream_removed_elsewhere", extra={"stream": record.name})
                self._context.quotas.removed(record)
                self._changed(tell_removed(self._context, record))
            case _Followed(log=log):
                if log not in self._watched:
                    self._watch(log, 0)
            case _Again():
                self._watch_records()
            case _Count():
                return self._count()
            case _:
                assert_never(message)
        return None

    # Records ---------------------------------------------------------------------------------

    def _watch_records(self) -> None:
        store = self._context.store
        if isinstance(store, SharedStore):
            store.watch(self.then(WatchRecords(), self._heard, _tell))

    def _heard(self, news: WatchRecords) -> None:
        error = news.error
        if error is None:
            _tell(news)
            self._watch_records()
        elif error.code != "store.closed":
            logger.warning("records_not_followed", extra={"code": error.code})
            self.wake_after(RETRY_SECONDS, _Again())

    async def _count(self) -> None:
        """Ask what one stream after the other keeps."""
        context = self._context
        for name in context.quotas.measured():
            find = FindStream(name=name)
            with context.removals as removed:
                try:
                    await read(context.store, find)
                except StoreError:
                    continue  # until the next time
                if find.record is not None and find.record.id not in removed:
                    context.quotas.counted(find.record, find.extents)
        self.wake_after(COUNT_SECONDS, _Count())

    # Logs ------------------------------------------------------------------------------------

    def _watch(self, log: int, index: int) -> None:
        store = self._context.store
        if isinstance(store, SharedStore):
            self._watched.add(log)
            store.watch(self.then(Watch(log=log, index=index), self._grown))

    def _grown(self, news: Watch) -> None:
        followers = self._context.followers
        self._watched.discard(news.log)
        if news.error is None and news.log in followers.logs:
            followers.grown(news.log, news.next_index)
            self._watch(news.log, news.next_index)


def _tell(news: WatchRecords) -> None:
    """Tell the follower what has changed, one by one, whichever of its instances asked for it."""
    follower: Cell = news.reply_to
    removed, news.removed = news.removed, []
    changed, news.changed = news.changed, []
    for record in removed:
        follower.base.post(follower, _Removed(record))
    for record in changed:
        follower.base.post(follower, _Changed(record))
