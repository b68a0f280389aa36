"""Announces new entries of the local log to the neighbours, from where it last ended.

It follows the commit, and waits in the log while there is no neighbour. How far it has come is
kept beside the log, so that after a restart nothing is left out; what is announced again then is
known to the others as a duplicate.
"""

from collections.abc import Callable, Sequence
from typing import Final

from rillnode.actors.core.room import Room
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import LogStore, PutRecords, Read, StreamRecord, log_id
from rillnode.actors.overlay.context import OverlayContext
from rillnode.actors.overlay.keeping import Records, cursor_record
from rillnode.codecs.entries import Entry, entries_of
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.overlay.announcing")

READ_BYTES: Final = 262_144
"""Bytes of blocks that are read at one time."""

_NOTHING: Final = b"?"
"""No record has this value."""


class LogReader:
    """The reader of one partition's log.

    Args:
        context: the node's parts.
        record: the stream.
        partition: the partition.
        owner: whose operations these are.
        read: takes what `advance` reads.

    Attributes:
        next: index of the first entry that was not handed out.
        previous: index of the last own entry of bytes before that.
    """

    def __init__(
        self,
        context: OverlayContext,
        record: StreamRecord,
        partition: int,
        owner: Worker,
        read: Callable[[Read], object],
    ) -> None:
        self._context = context
        self._partition = partition
        self._log = log_id(record.id, partition)
        self._owner = owner
        self._read = read
        self._grown_to = 0
        self._reading = False
        self._saved = -1
        self._unsaved: dict[str, bytes | None] = {}
        self._skipped: dict[int, int] = {}
        self.next = 0
        self.previous: int | None = None

    def follow(self) -> None:
        """Be told whenever the log has grown from now on."""
        self._context.streams.followers.add(self._log, self._owner.address)

    def unfollow(self) -> None:
        """Be told no more."""
        self._context.streams.followers.remove(self._log, self._owner.address)

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

    def advance(self, reader: LogStore | Room) -> None:
        """Read on, if there is anything."""
        if self._reading or not self.pass_over():
            return
        until = min(self._skipped, default=self._grown_to)
        operation = Read(
            log=self._log,
            index=self.next,
            until=max(until, self.next + 1),
            bytes_max=READ_BYTES,
            token=reader,
        )
        self._reading = True
        begin = reader.begin if isinstance(reader, Room) else reader.read
        if begin(self._owner.then(operation, self._read, _give_back)):
            self._owner.operations_due -= 1
            self._read(operation)

    def entries(self, operation: Read) -> Sequence[Entry] | None:
        """What was read and is to be announced; None after an error."""
        self._reading = False
        _give_back(operation)  # it counts for each link as it is sent
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
        return self._saved != self.next or bool(self._unsaved)

    def save(self, records: Records) -> None:
        """Keep how far it has come, in one with other records; what failed, once more."""
        self._unsaved.update(records)
        if self.unsaved:
            self._saved = self.next
            cursor = cursor_record(self._log, self.next, self.previous)
            put = PutRecords(records=[*self._unsaved.items(), cursor])
            self._context.streams.store.submit(self._owner.then(put, self._kept))

    def _kept(self, put: PutRecords) -> None:
        if put.error is not None:
            logger.warning("not_saved", extra={"code": put.error.code})
            self._saved = -1
            return
        for name, value in put.records:
            if self._unsaved.get(name, _NOTHING) == value:
                del self._unsaved[name]


def _give_back(operation: Read) -> None:
    """What was read through a link's room is not kept for it; harmless when repeated."""
    reader, operation.token = operation.token, None
    if isinstance(reader, Room):
        reader.keep(operation, 0)
