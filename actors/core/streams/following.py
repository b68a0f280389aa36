"""Follows what others do with the streams of the store."""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Final, assert_never

from rillnode.actors.core.groups.registry import GroupNews
from rillnode.actors.core.groups.state import NODES
from rillnode.actors.core.streams.context import (
    STREAM_CHANGES_MAX,
    StreamContext,
    StreamRemoved,
    tell_removed,
)
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import PutRecord, StreamRecord, Watch, WatchRecords, WatchValues
from rillnode.actors.log.records import GROUPS
from rillnode.actors.log.waiting import write
from rillnode.codecs.errors import StoreError

logger = logging.getLogger("rillnode.actors.core.streams.following")

BEAT_SECONDS: Final = 0.7
"""How often a node that has groups tells others that it is well."""

VOUCHED_SECONDS: Final = 1.4
"""How long what it has told holds: less than others wait, so that its members stop before."""

FORGET_SECONDS: Final = 60.0
"""How long a node is remembered that is not heard of."""


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


@dataclass(frozen=True, slots=True)
class _Beat:
    """There are groups that other nodes may share: tell these that this one is well."""

    def merged(self, _: "_Beat") -> "_Beat":
        """Twice is once."""
        return self


@dataclass(frozen=True, slots=True)
class _Overdue:
    """Other nodes may have heard nothing of this one for too long."""


Message = _Changed | _Removed | _Told | _Followed | _Beat | _Overdue


class StoreFollower(Worker):
    """A node's follower of what other nodes do with the store; one per node.

    `changed` is told of every record that was changed, and of each stream that is no more; who
    follows a log is told of what is appended to it, and a group's actor of what becomes of the
    group. Quotas count the streams that were made.
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
        self._beating = False
        # How much of what is heard of records is not taken yet, and logs that have grown meanwhile:
        # who was to lose a right before that must not be told first.
        self._untold = 0
        self._held: list[Watch] = []

    def started(self) -> None:
        """Follow from now on."""
        self._watch_records()
        self._watch_groups()
        followers, me = self._context.followers, self.address
        followers.begun = lambda log: me.base.post(me, _Followed(log))
        for log in followers.logs:
            self._watch(log, 0)
        groups = self._context.groups
        groups.begun = lambda: me.base.post(me, _Beat())
        if groups.shared:
            groups.begun()

    def stopped(self) -> None:
        """Nobody hears of logs that get followers, until there is another instance."""
        self._context.followers.begun = None
        self._context.groups.begun = None

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
            case _Beat():
                if not self._beating:
                    self._beating = True
                    self.begin(self._beat())
            case _Overdue():
                self._overdue()
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

    # Groups ----------------------------------------------------------------------------------

    def _watch_groups(self) -> None:
        self._context.store.watch(self.then(WatchValues(prefix=GROUPS), self._regrouped))

    def _regrouped(self, news: WatchValues) -> None:
        groups, now = self._context.groups, self._now()
        heard = [
            name.removeprefix(NODES)
            for name, value in news.changed
            if value is not None and name.startswith(NODES)
        ]
        groups.heard |= dict.fromkeys(heard, now)
        for node in [one for one, at in groups.heard.items() if at < now - FORGET_SECONDS]:
            del groups.heard[node]
        groups.others_changed(name for name, _ in news.changed)
        self._watch_groups()

    def _now(self) -> float:
        return self.system.timing.monotonic()

    def _elapsed(self) -> float:
        return self._context.clock.elapsed()

    async def _beat(self) -> None:
        """Tell other nodes that this one is well, as long as it has groups."""
        groups, store = self._context.groups, self._context.store
        name = f"{NODES}{groups.node}"
        groups.vouched_at = self._elapsed()
        self._overdue()
        try:
            while groups.shared:
                begun = self._elapsed()
                try:
                    await write(store, PutRecord(key=name, value=b"%.1f" % begun))
                except StoreError as error:
                    logger.info("node_not_vouched_for", extra={"code": error.code})
                else:
                    self._vouch(begun)
                await self.sleep(max(0.0, begun + BEAT_SECONDS - self._elapsed()))
        finally:
            self._beating = groups.suspended = False
        with suppress(StoreError):
            await write(store, PutRecord(key=name))

    def _vouch(self, begun: float) -> None:
        """Others have heard, from that time on."""
        groups = self._context.groups
        groups.vouched_at = begun
        if groups.suspended and self._elapsed() - begun < VOUCHED_SECONDS:
            groups.suspended = False
            groups.heard.clear()  # as little as this one could be heard
            groups.tell(GroupNews(anew=True))

    def _overdue(self) -> None:
        """See whether others may take this node for dead soon."""
        groups = self._context.groups
        left = groups.vouched_at + VOUCHED_SECONDS - self._elapsed()
        if left <= 0.0 and not groups.suspended:
            logger.warning("groups_suspended")
            groups.suspended = True
            groups.tell(GroupNews())
        if self._beating:
            self.wake_after(left if left > 0.0 else BEAT_SECONDS, _Overdue())

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
