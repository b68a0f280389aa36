"""The retention actor: trims what streams need no longer keep, never what a sink holds."""

from collections.abc import Coroutine, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Final, assert_never

from msgspec import Struct

from rillnode.actors.core.orders import Orders
from rillnode.actors.core.streams.context import STREAM_CHANGES_MAX, StreamContext, StreamRemoved
from rillnode.actors.core.streams.holds import Holds
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import ListStreams, StreamRecord, Trim, log_id
from rillnode.actors.log.waiting import read, write
from rillnode.actors.ports import TimerHandle
from rillnode.codecs.errors import StoreError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.core.streams.retention")

SWEEP_SECONDS: Final = 5.0
"""Pause between two sweeps, and after the streams could not be listed."""

RELIST_SECONDS: Final = 30.0
"""Pause before streams are listed again where others write, too: for about this long a quota does
not know of what they have appended."""

SLICE_TRIMS: Final = 100
"""Trims submitted in one turn: all would keep everybody waiting."""

SLICE_LOOKS: Final = 2_000
"""Partitions of which it is seen in one turn whether they are due."""


@dataclass(frozen=True, slots=True)
class _Sweep:
    """Time to trim."""


@dataclass(frozen=True, slots=True)
class Recount:
    """Look at every stream again: other quotas hold, or others may have done something."""

    def merged(self, later: "Recount") -> "Recount":
        """One is enough."""
        return later


Message = StreamRecord | StreamRemoved | Recount | _Sweep


class _Limited(Struct):
    """A stream that has limits.

    Attributes:
        due_ms: for each partition, before when there is nothing to trim.
    """

    record: StreamRecord
    due_ms: list[int]


Task = tuple[_Limited, int]
"""A stream and the number of one of its partitions."""


class RetentionActor(Worker):
    """Trims streams to their limits; one per node. Streams without limits cost it nothing.

    At its start it looks at every stream once, and counts for the quotas what it finds; where that
    does not last, again and again: others append, and a stream comes to hand when it is used, of
    which nobody tells. While there are streams that have limits it sweeps: it trims them, slice
    after slice; one with a limit of age alone only when its oldest entry may have reached it.
    """

    on_failure = "restart"
    spare: ClassVar = {StreamRecord: STREAM_CHANGES_MAX, StreamRemoved: STREAM_CHANGES_MAX}
    essential = True
    interleaves = True

    def __init__(self, context: StreamContext, holds: Holds) -> None:
        self._context = context
        self._holds = holds
        self._limited: dict[int, _Limited] = {}
        self._orders = Orders()
        # While streams are listed: those that something newer was heard of.
        self._heard: set[int] | None = None
        self._sweeping = False
        self._next_list: TimerHandle | None = None

    def started(self) -> None:
        """Find the streams that have limits."""
        self.send(self.address, Recount())

    def handle(self, message: Message, sender: Cell | None) -> Coroutine[Any, Any, None] | None:
        """Take what becomes of streams, and the times to look and to trim."""
        match message:
            case StreamRecord():
                self._hear(message.id)
                self._note(message)
            case StreamRemoved(record=record):
                self._hear(record.id)
                self._limited.pop(record.id, None)
            case Recount():
                return self._list()
            case _Sweep():
                return self._sweep()
            case _:
                assert_never(message)
        return None

    # What there is ---------------------------------------------------------------------------

    async def _list(self) -> None:
        after: str | None = ""
        async with self._orders.of(Recount):
            if self._next_list is not None:
                self._next_list.cancel()
            while after is not None:
                # What a quota counts is known of all, or of none.
                page = ListStreams(after=after, at_hand=not self._context.quotas.enabled)
                self._heard = set()
                try:
                    await read(self._context.store, page)
                except StoreError as error:
                    logger.warning("streams_not_listed", extra={"code": error.code})
                    await self.sleep(SWEEP_SECONDS)
                else:
                    self._listed(page, self._heard)
                    after = page.records[-1].name if page.more else None
                    if after is None and not page.lasts:
                        self._next_list = self.wake_after(RELIST_SECONDS, Recount())
            self._heard = None

    def _listed(self, page: ListStreams, heard: Set[int]) -> None:
        quotas = self._context.quotas
        for record, extents in zip(page.records, page.extents, strict=True):
            if record.id not in heard:
                self._note(record)
                if quotas.enabled:
                    quotas.found(record, extents, by_others=not page.lasts)

    def _hear(self, stream: int) -> None:
        """What is heard of while the store reads is newer than what it finds."""
        if self._heard is not None:
            self._heard.add(stream)

    def _note(self, record: StreamRecord) -> None:
        limits = record.retention
        if limits.seconds is None and limits.entries_max is None and limits.bytes_max is None:
            self._limited.pop(record.id, None)
            return
        self._limited[record.id] = _Limited(record, [0] * record.partitions)
        if not self._sweeping:
            self._sweeping = True
            self.wake_after(SWEEP_SECONDS, _Sweep())

    # Trimming --------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        looks = self._looks()
        while some := list(islice(looks, SLICE_LOOKS)):
            due = [task for task in some if task is not None]
            for start in range(0, len(due), SLICE_TRIMS):
                await self._trim(due[start : start + SLICE_TRIMS])
            if len(some) == SLICE_LOOKS:
                await self.sleep(0.0)
        self._sweeping = bool(self._limited)
        if self._sweeping:
            self.wake_after(SWEEP_SECONDS, _Sweep())

    def _looks(self) -> Iterator[Task | None]:
        """All partitions with limits; None for one that is not due."""
        for stream in tuple(self._limited):
            limited = self._limited.get(stream)
            if limited is not None:
                now_ms = self._context.clock.now_ms()
                for partition, due_ms in enumerate(limited.due_ms):
                    yield (limited, partition) if due_ms <= now_ms else None

    async def _trim(self, tasks: Sequence[Task]) -> None:
        now_ms, holds = self._context.clock.now_ms(), self._holds
        trims: list[Trim] = []
        # Limits may have been changed since the tasks were found.
        tasks = [task for task in tasks if self._limited.get(task[0].record.id) is task[0]]
        for limited, partition in tasks:
            record = limited.record
            log = log_id(record.id, partition)
            hold = holds.lowest(log)
            limits = record.retention
            trims.append(Trim(log=log, retention=limits, now_ms=now_ms, hold=hold, at_hand=True))
        try:
            await write(self._context.store, *trims)
        except StoreError as error:
            logger.debug("not_trimmed", extra={"code": error.code})  # until the next sweep
        for (limited, partition), trim in zip(tasks, trims, strict=True):
            record = limited.record
            if trim.error is None:
                limited.due_ms[partition] = _due_ms(trim)
                if trim.trimmed:
                    self._trimmed(record, partition, trim)
            elif trim.error.code == "stream.removed":
                self._limited.pop(record.id, None)

    def _trimmed(self, record: StreamRecord, partition: int, trim: Trim) -> None:
        self._context.followers.trimmed(trim.log, trim.extent.first_index)
        if self._context.quotas.enabled:
            self._context.quotas.keeps(record.owner, trim.log, trim.extent)
        logger.info(
            "trimmed",
            extra={
                "stream": record.name,
                "partition": partition,
                "entries": trim.trimmed,
                "first_index": trim.extent.first_index,
            },
        )


def _due_ms(trim: Trim) -> int:
    """Before when there is nothing to trim, if nothing else is asked for; 0: nobody can tell."""
    limits, oldest_ms = trim.retention, trim.oldest_ms
    if limits.seconds is None or oldest_ms is None:
        return 0
    if limits.entries_max is not None or limits.bytes_max is not None:
        return 0  # what is pushed counts, too
    return oldest_ms + int(limits.seconds * 1000)
