"""The retention actor: trims what streams need no longer keep, never what a sink holds."""

import logging
from collections import deque
from dataclasses import dataclass
from typing import Final, assert_never

from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.storage import ListStreams, StreamRecord, Trim, log_id
from rillnode.actors.streams.context import StreamContext, StreamRemoved
from rillnode.actors.streams.holds import Holds

logger = logging.getLogger("rillnode.actors.streams.retention")

SWEEP_SECONDS: Final = 5.0

SLICE_TRIMS: Final = 100
"""Trims submitted in one turn: all would keep everybody waiting."""


@dataclass(frozen=True, slots=True)
class _Sweep:
    """Time to trim."""


@dataclass(slots=True, eq=False)
class _Round:
    """A sweep under way; what an earlier instance of the actor has submitted is of no round.

    Attributes:
        streams: ids of those that are still to be looked at.
        partition: the first of that stream that is to be.
        in_flight: trims that the store has not completed.
    """

    streams: deque[int]
    partition: int = 0
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class Recount:
    """Look at every stream again: other quotas hold."""


@dataclass(frozen=True, slots=True)
class _List:
    """Time to ask again for the streams after a name."""

    after: str


Message = StreamRecord | StreamRemoved | Recount | ListStreams | Trim | _List | _Sweep


class RetentionActor(Worker):
    """One per node. Streams without limits cost it nothing.

    At its start it looks at every stream once, and counts for the quotas what it finds.
    """

    on_failure = "restart"
    essential = True

    def __init__(self, context: StreamContext, holds: Holds) -> None:
        self._context = context
        self._holds = holds
        self._limited: dict[int, StreamRecord] = {}
        self._round: _Round | None = None
        self._waiting = False  # for the time to sweep

    def started(self) -> None:
        """Find the streams that have limits; while there are any, it sweeps."""
        self._list(after="")

    def handle(self, message: Message, sender: Cell | None) -> None:
        """Take stream records, the time to sweep and completed operations."""
        match message:
            case StreamRecord():
                self._note(message)
            case StreamRemoved(record=record):
                self._limited.pop(record.id, None)
            case ListStreams():
                self._listed(message)
            case Trim():
                self._trimmed(message)
            case Recount():
                self._list(after="")
            case _List(after=after):
                self._list(after)
            case _Sweep():
                self._waiting = False
                self._sweep()
                self._sweep_later()
            case _:
                assert_never(message)

    def _list(self, after: str) -> None:
        operation = ListStreams(reply_to=self.address, after=after)
        if self._context.store.read(operation):
            self._listed(operation)

    def _listed(self, operation: ListStreams) -> None:
        if operation.error is not None:
            logger.warning("streams_not_listed", extra={"code": operation.error.code})
            self.wake_after(SWEEP_SECONDS, _List(operation.after))
            return
        quotas = self._context.quotas
        for record, extents in zip(operation.records, operation.extents, strict=True):
            self._note(record)
            if quotas.enabled:
                quotas.found(record, extents)
        if operation.more:
            self._list(operation.records[-1].name)

    def _note(self, record: StreamRecord) -> None:
        limits = record.retention
        if limits.seconds is None and limits.entries_max is None and limits.bytes_max is None:
            self._limited.pop(record.id, None)
        else:
            self._limited[record.id] = record
            self._sweep_later()

    def _sweep_later(self) -> None:
        if self._limited and not self._waiting:
            self._waiting = True
            self.wake_after(SWEEP_SECONDS, _Sweep())

    def _sweep(self) -> None:
        # A sweep that the store has not finished is not overtaken by the next.
        if self._round is None:
            self._round = _Round(deque(self._limited))
            self._go_on(self._round)

    def _go_on(self, sweep: _Round) -> None:
        """Trim the next streams, now that those before them are done."""
        now_ms = self._context.clock.now_ms()
        while sweep.streams and sweep.in_flight < SLICE_TRIMS:
            record = self._limited.get(sweep.streams[0])
            # It may be removed, or without limits, by now.
            if record is None or sweep.partition >= record.partitions:
                sweep.streams.popleft()
                sweep.partition = 0
                continue
            log = log_id(record.id, sweep.partition)
            self._context.store.submit(
                Trim(
                    reply_to=self.address,
                    token=(sweep, record, sweep.partition),
                    log=log,
                    retention=record.retention,
                    now_ms=now_ms,
                    hold=self._holds.lowest(log),
                )
            )
            sweep.partition += 1
            sweep.in_flight += 1
        if not sweep.in_flight:
            self._round = None

    def _trimmed(self, operation: Trim) -> None:
        sweep: _Round
        sweep, record, partition = operation.token
        sweep.in_flight -= 1
        if not sweep.in_flight and sweep is self._round:
            self._go_on(sweep)
        if operation.error is None and operation.trimmed:
            if self._context.quotas.enabled:
                self._context.quotas.keeps(record.owner, operation.log, operation.extent)
            logger.info(
                "trimmed",
                extra={
                    "stream": record.name,
                    "partition": partition,
                    "entries": operation.trimmed,
                    "first_index": operation.extent.first_index,
                },
            )
