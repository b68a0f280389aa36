"""Follows what others do with the streams of the store."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, assert_never

from rillnode.actors.core.streams.context import (
    STREAM_CHANGES_MAX,
    StreamContext,
    StreamRemoved,
    tell_removed,
)
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import StreamRecord, Watch, WatchRecords
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.core.streams.following")


@dataclass(frozen=True, slots=True)
class _Followed:
    """A log has followers now."""

    log: int

    def merged(self, later: "_Followed") -> "_Followed | None":
        """Of the same log one is enough."""
        return later if later == self else None


@dataclass(frozen=True, slots=True)
class _Changed:
    """Others have changed a stream's record, or made the stream."""

    record: StreamRecord


@dataclass(frozen=True, slots=True)
class _Removed:
    """Others have removed a stream."""

    record: StreamRecord


@dataclass(frozen=True, slots=True)
class _Told:
    """What one watch of records has brought is taken."""


Message = _Changed | _Removed | _Told | _Followed


class StoreFollower(Worker):
    """A node's follower of what other nodes do with the store; one per node.

    `changed` is told of every record that was changed, and of each stream that is no more; who
    follows a log is told of what is appended to it. Quotas count the streams that were made.
    """

    on_failure = "restart"
    # What one watch has brought is taken before the next one ends.
    spare: ClassVar = {_Changed: STREAM_CHANGES_MAX, _Removed: STREAM_CHANGES_MAX, _Told: 2}
    essential = True

    def __init__(
        self, context: StreamContext, changed: Callable[[StreamRecord | StreamRemoved], None]
    ) -> None:
        self._context = context
        self._changed = changed
        # How much of what is heard of records is not taken yet, and logs that have grown meanwhile:
        # who was to lose a right before that must not be told first.
        self._untold = 0
        self._held: list[Watch] = []

    def started(self) -> None:
        """Follow from now on."""
        self._watch_records()
        followers, me = self._context.followers, self.address
        followers.begun = lambda log: me.base.post(me, _Followed(log))
        for log in followers.logs:
            self._watch(log, 0)

    def stopped(self) -> None:
        """Nobody hears of logs that get followers, until there is another instance."""
        self._context.followers.begun = None

    def handle(self, message: Message, sender: Cell | None) -> None:
        """Take what has changed, and what is followed."""
        match message:
            case _Changed(record=record):
                if self._context.quotas.enabled:
                    self._context.quotas.found(record, ())
                self._changed(record)
            case _Removed(record=record):
                logger.info("stream_removed_elsewhere", extra={"stream": record.name})
                self._context.quotas.removed(record)
                self._changed(tell_removed(self._context, record))
            case _Told():
                self._untold = max(0, self._untold - 1)
                held, self._held = self._held, []
                for news in held:
                    self._grown(news)
            case _Followed(log=log):
                self._watch(log, 0)
            case _:
                assert_never(message)

    # Records ---------------------------------------------------------------------------------

    def _watch_records(self) -> None:
        self._context.store.watch(self.then(WatchRecords(), self._heard, _tell))

    def _heard(self, news: WatchRecords) -> None:
        _tell(news)
        self._untold += 1
        self.system.post(self.address, _Told())
        self._watch_records()

    # Logs ------------------------------------------------------------------------------------

    def _watch(self, log: int, index: int) -> None:
        self._context.store.watch(self.then(Watch(log=log, index=index), self._grown))

    def _grown(self, news: Watch) -> None:
        if self._untold:
            self._held.append(news)
            return
        followers = self._context.followers
        if news.log in followers.logs:
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
