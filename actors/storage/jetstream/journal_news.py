"""What other stores have changed in the journal, for whoever follows that."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from rillnode.actors.storage import StreamRecord
from rillnode.actors.storage.jetstream.catalog import Catalog
from rillnode.actors.storage.jetstream.frames import JournalFrame
from rillnode.actors.storage.layout import (
    RECORD_PREFIX,
    STREAM_PREFIX,
    Change,
    decode_record,
    record_key,
)
from rillnode.actors.storage.watch import WatchRecords, WatchValues
from rillnode.codecs.errors import StoreError

News = TypeVar("News", WatchRecords, WatchValues)
AnyNews = WatchRecords | WatchValues


class JournalNews:
    """Gathers changes between one watch and the next; of a key, the last one.

    `done` takes operations that are complete.
    """

    def __init__(self, done: Callable[[AnyNews], None]) -> None:
        self._done = done
        self._catalog: Catalog | None = None
        self._records = _Records(done)
        self._values: dict[str, _Values] = {}

    def begin(self, catalog: Catalog) -> None:
        """Gather from now on: what a catalog has already is asked for by who needs it."""
        self._catalog = catalog

    def learn(self, frame: JournalFrame) -> None:
        """Take what another store has written, before the catalog has it."""
        if self._catalog is None:
            return
        for change in frame.changes:
            key = change[0]
            if key.startswith(STREAM_PREFIX):
                self._records.take(change, self._catalog.value(key))
            elif key.startswith(RECORD_PREFIX):
                for values in self._values.values():
                    values.take(change, self._catalog.value(key))
        self._records.tell()
        for values in self._values.values():
            values.tell()

    def watch(self, operation: AnyNews) -> None:
        """Complete an operation as soon as there is anything to tell."""
        if isinstance(operation, WatchRecords):
            self._records.watch(operation)
            return
        values = self._values.get(operation.prefix)
        if values is None:
            values = self._values[operation.prefix] = _Values(self._done, operation.prefix)
        values.watch(operation)

    def end(self, error: StoreError) -> None:
        """There will be nothing more."""
        self._records.end(error)
        for values in self._values.values():
            values.end(error)


class _Gathering(ABC, Generic[News]):
    """What was changed under one prefix since the last watch was completed."""

    def __init__(self, done: Callable[[AnyNews], None]) -> None:
        self._done = done
        self._waiting: News | None = None

    def watch(self, operation: News) -> None:
        self._waiting = operation
        self.tell()

    def end(self, error: StoreError) -> None:
        operation, self._waiting = self._waiting, None
        if operation is not None:
            operation.error = error
            self._done(operation)

    def tell(self) -> None:
        operation = self._waiting
        if operation is not None and self.fill(operation):
            self._waiting = None
            self._done(operation)

    @abstractmethod
    def fill(self, operation: News) -> bool:
        """Set the results, where there are any."""


class _Records(_Gathering[WatchRecords]):
    """Changes of streams' records."""

    def __init__(self, done: Callable[[AnyNews], None]) -> None:
        super().__init__(done)
        self._changed: dict[int, StreamRecord] = {}
        self._removed: dict[int, StreamRecord] = {}

    def take(self, change: Change, known: bytes | None) -> None:
        """A row has another value than the one known."""
        value = change[1]
        if value is not None:
            if value != known:
                record = decode_record(value)
                self._changed[record.id] = record
        elif known is not None:
            record = decode_record(known)
            self._changed.pop(record.id, None)
            self._removed[record.id] = record

    def fill(self, operation: WatchRecords) -> bool:
        operation.removed, self._removed = list(self._removed.values()), {}
        operation.changed, self._changed = list(self._changed.values()), {}
        return bool(operation.removed or operation.changed)


class _Values(_Gathering[WatchValues]):
    """Changes of the named values whose names have one prefix."""

    def __init__(self, done: Callable[[AnyNews], None], prefix: str) -> None:
        super().__init__(done)
        self._prefix = record_key(prefix)
        self._changed: dict[str, bytes | None] = {}

    def take(self, change: Change, known: bytes | None) -> None:
        """A row has another value than the one known, which is None if it is not in memory."""
        key, value = change
        if key.startswith(self._prefix) and (value is None or value != known):
            self._changed[key[len(RECORD_PREFIX) :].decode()] = value

    def fill(self, operation: WatchValues) -> bool:
        operation.changed, self._changed = list(self._changed.items()), {}
        return bool(operation.changed)
