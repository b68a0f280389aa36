"""What is new in the local log, for the neighbours: read from where the last announcement ended.

It follows the commit, and waits in the log while there is no neighbour. How far it has come is
kept beside the log, so that after a restart nothing is left out; what is announced again then is
known to the others as a duplicate.
"""

import logging
from collections.abc import Sequence
from typing import Final

from rillnode.actors.engine.system import Cell
from rillnode.actors.overlay.context import OverlayContext
from rillnode.actors.overlay.keeping import Records, cursor_record
from rillnode.actors.room import Room
from rillnode.actors.storage import LogStore, PutRecords, Read, StreamRecord, log_id
from rillnode.codecs.entries import Entry, entries_of

logger = logging.getLogger("rillnode.actors.overlay.announcing")

READ_BYTES: Final = 262_144
"""Bytes of blocks that are read at one time."""


class LogReader:
    """The reader of one partition's log.

    Attributes:
        next: index of the first entry that was not handed out.
        previous: index of the last own entry of bytes before that.
    """

    def __init__(
        self, context: OverlayContext, record: StreamRecord, partition: int, reader: Cell
    ) -> None:
        self._context = context
        self._partition = partition
        self._log = log_id(record.id, partition)
        self._reader = reader
        self._grown_to = 0
        self._reading = False
        self._saved = -1
        self._skipped: dict[int, int] = {}
        self.next = 0
        self.previous: int | None = None

    def follow(self) -> None:
        """Be told whenever the log has grown from now on."""
        self._context.streams.followers.add(self._log, self._reader)

    def unfollow(self) -> None:
        """Be told no more."""
        self._context.streams.followers.remove(self._log, self._reader)

    def skip(self, first_index: int, count: int) -> None:
        """Leave out entries that came from other nodes."""
        self._skipped[first_index] = count

    def grown(self, next_index: int) -> None:
        """The log holds entries up to there."""
        self._grown_to = max(self._grown_to, next_index)

    def pass_over(self) -> bool:
        """Leave behind what came from other nodes; whether there is anything more."""
        while (count := self._skipped.pop(self.next, 0)) > 0:
            self.next += count
        return self.next < self._grown_to

    def advance(self, reader: LogStore | Room) -> Read | None:
        """Read on, if there is anything; an answer that comes at once is returned."""
        if self._reading or not self.pass_over():
            return None
        until = min(self._skipped, default=self._grown_to)
        operation = Read(
            reply_to=self._reader,
            log=self._log,
            index=self.next,
            until=max(until, self.next + 1),
            bytes_max=READ_BYTES,
            token=reader,
        )
        self._reading = True
        read = reader.begin if isinstance(reader, Room) else reader.read
        return operation if read(operation) else None

    def entries(self, operation: Read) -> Sequence[Entry] | None:
        """What was read and is to be announced; None after an error."""
        self._reading = False
        if isinstance(operation.token, Room):
            operation.token.keep(operation, 0)  # it counts for each link as it is sent
        if operation.error is not None:
            logger.warning("not_read", extra={"code": operation.error.code})
            return None
        extent = operation.extent
        self.next = max(self.next, extent.first_index)
        self._skipped = {
            first: count for first, count in self._skipped.items() if first >= self.next
        }
        found: list[Entry] = []
        for block in operation.blocks:
            until = min(operation.until, block.next_index)
            found += entries_of(block, partition=self._partition, first=self.next, until=until)
            self.next = max(self.next, until)
        return found

    @property
    def behind(self) -> bool:
        """Whether there is something that was not handed out, after a failed read too."""
        return self.next < self._grown_to

    @property
    def unsaved(self) -> bool:
        """Whether it has come further than what is kept."""
        return self._saved != self.next

    def save(self, records: Records) -> None:
        """Keep how far it has come, in one with other records."""
        if self.unsaved or records:
            self._saved = self.next
            cursor = cursor_record(self._log, self.next, self.previous)
            kept = PutRecords(reply_to=self._reader, records=[*records, cursor])
            self._context.streams.store.submit(kept)
