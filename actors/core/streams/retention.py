"""The retention actor: trims what streams need no longer keep, never what a sink holds."""

import logging
from collections.abc import Coroutine, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Final, assert_never

from rillnode.actors.core.orders import Orders
from rillnode.actors.core.streams.context import STREAM_CHANGES_MAX, StreamContext, StreamRemoved
from rillnode.actors.core.streams.holds import Holds
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import ListStreams, StreamRecord, Trim, log_id
from rillnode.actors.log.waiting import read, write
from rillnode.actors.ports import TimerHandle
from rillnode.codecs.errors import StoreError

logger = logging.getLogger("rillnode.actors.core.streams.retention")

SWEEP_SECONDS: Final = 5.0
"""Pause between two sweeps, and after the streams could not be listed."""

RELIST_SECONDS: Final = 30.0
"""Pause before streams are listed again where others write, too: so long, roughly, does a quota not
know of what they have appended."""

SLICE_TRIMS: Final = 100
"""Trims submitted in one turn: all would keep everybody waiting."""


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

Task = tuple[StreamRecord, int]
"""A stream and the number of one of its partitions."""


class RetentionActor(Worker):
    """Trims streams to their limits; one per node. Streams without limits cost it nothing.

    At its start it looks at every stream once, and counts for the quotas what it finds; where that
    does not last, again and again: others append, and a stream comes to hand when it is used, of
    which nobody tells. While there are streams that have limits it sweeps: it trims them, slice
    after slice.
    """

    on_failure = "restart"
    spare: ClassVar = {StreamRecord: STREAM_CHANGES_MAX, StreamRemoved: STREAM_CHANGES_MAX}
    essential = True
    interleaves = True

    def __init__(self, context: StreamContext, holds: Holds) -> None:
        self._context = context
        self._holds = holds
        self._limited: dict[int, StreamRecord] = {}
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
        self._limited[record.id] = record
        if not self._sweeping:
            self._sweeping = True
            self.wake_after(SWEEP_SECONDS, _Sweep())

    # Trimming --------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        tasks = self._tasks()
        while part := list(islice(tasks, SLICE_TRIMS)):
            await self._trim(part)
        self._sweeping = bool(self._limited)
        if self._sweeping:
            self.wake_after(SWEEP_SECONDS, _Sweep())

    def _tasks(self) -> Iterator[Task]:
        """All partitions with limits, each as it is when its turn comes."""
        for stream in tuple(self._limited):
            record = self._limited.get(stream)
            if record is not None:
                for partition in range(record.partitions):
                    yield record, partition

    async def _trim(self, tasks: Sequence[Task]) -> None:
        now_ms, holds = self._context.clock.now_ms(), self._holds
        trims: list[Trim] = []
        for record, partition in tasks:
            log = log_id(record.id, partition)
            hold = holds.lowest(log)
            limits = record.retention
            trims.append(Trim(log=log, retention=limits, now_ms=now_ms, hold=hold, at_hand=True))
        try:
            await write(self._context.store, *trims)
        except StoreError as error:
            logger.debug("not_trimmed", extra={"code": error.code})  # until the next sweep
        for (record, partition), trim in zip(tasks, trims, strict=True):
            if trim.error is not None:
                if trim.error.code == "stream.removed":
                    self._limited.pop(record.id, None)
            elif trim.trimmed:
                self._trimmed(record, partition, trim)

    def _trimmed(self, record: StreamRecord, partition: int, trim: Trim) -> None:
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
