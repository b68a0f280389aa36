"""Which streams' records other stores have changed, for whoever follows that."""

from collections.abc import Callable

from rillnode.actors.storage import StreamRecord
from rillnode.actors.storage.jetstream.catalog import Catalog
from rillnode.actors.storage.jetstream.frames import JournalFrame
from rillnode.actors.storage.layout import STREAM_PREFIX, decode_record
from rillnode.actors.storage.watch import WatchRecords
from rillnode.codecs.errors import StoreError


class RecordNews:
    """Gathers changes between one WatchRecords and the next; of a stream, the last one.

    `done` takes operations that are complete.
    """

    def __init__(self, done: Callable[[WatchRecords], None]) -> None:
        self._done = done
        self._waiting: WatchRecords | None = None
        self._catalog: Catalog | None = None
        self._changed: dict[int, StreamRecord] = {}
        self._removed: dict[int, StreamRecord] = {}

    def begin(self, catalog: Catalog) -> None:
        """Gather from now on: what a catalog has already is asked for by who needs it."""
        self._catalog = catalog

    def learn(self, frame: JournalFrame) -> None:
        """Take what another store has written, before the catalog has it."""
        if self._catalog is None:
            return
        for key, value in frame.changes:
            if not key.startswith(STREAM_PREFIX):
                continue
            known = self._catalog.value(key)
            if value is not None:
                if value != known:
                    record = decode_record(value)
                    self._changed[record.id] = record
            elif known is not None:
                record = decode_record(known)
                self._changed.pop(record.id, None)
                self._removed[record.id] = record
        self._tell()

    def watch(self, operation: WatchRecords) -> None:
        """Complete the operation as soon as there is anything to tell."""
        self._waiting = operation
        self._tell()

    def end(self, error: StoreError) -> None:
        """There will be nothing more."""
        operation, self._waiting = self._waiting, None
        if operation is not None:
            operation.error = error
            self._done(operation)

    def _tell(self) -> None:
        operation = self._waiting
        if operation is None or not (self._changed or self._removed):
            return
        operation.removed, self._removed = list(self._removed.values()), {}
        operation.changed, self._changed = list(self._changed.values()), {}
        self._waiting = None
        self._done(operation)
