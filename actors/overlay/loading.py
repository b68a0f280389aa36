"""What a neighbours actor must know before it begins: what was taken, what was announced."""

from dataclasses import dataclass
from typing import Final

from rillnode.actors.engine.system import Cell
from rillnode.actors.overlay.announcing import LogReader
from rillnode.actors.overlay.context import OverlayContext
from rillnode.actors.overlay.intake import Intake
from rillnode.actors.overlay.keeping import read_chain_record, read_cursor, records_prefix
from rillnode.actors.overlay.rendering import CHAIN
from rillnode.actors.storage import (
    FindStream,
    ListRecords,
    Operation,
    Read,
    ReadOperation,
    StreamRecord,
    log_id,
)
from rillnode.codecs.entries import decode_header

PAGE_RECORDS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Loaded:
    """Everything is known.

    Attributes:
        next_index: the end of the log.
        last_received_at: when its last entry came; None where there is none.
    """

    next_index: int
    last_received_at: int | None


class Loading:
    """Reads records, page after page, then follows the log and looks at its end.

    Attributes:
        failed: the store could not be read: `begin` again, later.
    """

    def __init__(
        self,
        context: OverlayContext,
        record: StreamRecord,
        partition: int,
        intake: Intake,
        reader: LogReader,
        asker: Cell,
    ) -> None:
        self._context = context
        self._record = record
        self._partition = partition
        self._log = log_id(record.id, partition)
        self._intake = intake
        self._reader = reader
        self._asker = asker
        self._next_index = 0
        self.failed = False

    def begin(self) -> None:
        """Read the first page."""
        self._list("")

    def take(self, message: object) -> Loaded | None:
        """Take a completed step and begin the next; the end of all is returned."""
        if isinstance(message, Operation) and message.error is not None:
            self.failed = True
            return None
        match message:
            case ListRecords(records=records):
                for name, value in records:
                    self._restore(name, value)
                if len(records) == PAGE_RECORDS:
                    self._list(records[-1][0])
                else:
                    self._reader.follow()
                    self._submit(FindStream(name=self._record.name))
            case FindStream(record=record, extents=extents):
                if record is not None and record.id == self._record.id:
                    self._next_index = extents[self._partition].next_index
                if not self._next_index:
                    return Loaded(0, None)
                last = self._next_index - 1
                self._submit(Read(log=self._log, index=last, entries_max=1, bytes_max=1))
            case Read(blocks=blocks):
                received_at = decode_header(blocks[-1].value).received_at if blocks else None
                return Loaded(self._next_index, received_at)
            case _:
                pass
        return None

    def _list(self, after: str) -> None:
        prefix = records_prefix(self._log)
        self._submit(ListRecords(prefix=prefix, after=after, limit=PAGE_RECORDS))

    def _submit(self, operation: ReadOperation) -> None:
        operation.reply_to = self._asker
        if self._context.streams.store.read(operation):
            self._asker.base.post(self._asker, operation)

    def _restore(self, name: str, value: bytes) -> None:
        if name.endswith("~"):
            self._reader.next, self._reader.previous = read_cursor(value)
            if self._reader.previous is not None:
                own = (self._context.settings.identity, CHAIN)
                self._intake.restore(own, (self._record.created_at, self._reader.previous))
        else:
            self._intake.restore(*read_chain_record(self._log, name, value))
