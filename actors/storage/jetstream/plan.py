"""One group of writes to the journal, planned into the changes of one frame."""

from collections.abc import Sequence
from typing import Final

from rillnode.actors.storage import (
    PutRecord,
    PutRecords,
    PutStream,
    RemoveStream,
    SaveIndex,
    StreamRecord,
    removed_error,
)
from rillnode.actors.storage.jetstream.catalog import Catalog
from rillnode.actors.storage.jetstream.failures import fenced_error
from rillnode.actors.storage.jetstream.frames import (
    APPLIED_PREFIX,
    LOG_START_PREFIX,
    JournalFrame,
    LogStart,
    decode,
    dropped_key,
    rows_of_stream,
)
from rillnode.actors.storage.layout import (
    INDEX,
    NEXT_STREAM_KEY,
    NUMBER,
    Change,
    decode_record,
    encode_record,
    record_key,
    saved_index_key,
    saved_index_range,
    stream_id_key,
    stream_key,
    utf8,
)
from rillnode.actors.storage.stream_table import settled_record, unknown_stream

JournalOperation = PutStream | RemoveStream | SaveIndex | PutRecord | PutRecords

_BESIDE_BYTES: Final = 256
"""What an operation counts for beside values: keys, MessagePack, what a stream has three of."""


class Plan:
    """Changes to a catalog; later operations see what earlier ones have planned.

    A removal stands alone in its plan: its ranges apply before all changes.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._planned: dict[bytes, bytes | None] = {}
        self._ranges: list[tuple[bytes, bytes]] = []
        self._changes: list[Change] = []

    def frame(self, token: bytes) -> JournalFrame | None:
        """What is to be written, if anything is."""
        if not self._changes:
            return None
        return JournalFrame(token, self._ranges, self._changes)

    def run(self, operation: JournalOperation) -> StreamRecord | None:
        """Plan an operation; returns the record of the stream it is about, if it is about one.

        Raises:
            StoreError: as the operation says; nothing of it is planned.
        """
        match operation:
            case PutStream():
                return self._put_stream(operation.record)
            case RemoveStream():
                return self._remove_stream(operation.name)
            case SaveIndex():
                self._save_index(operation)
            case PutRecord():
                self.put(record_key(operation.key), operation.value)
            case PutRecords():
                self._check_seen(operation)
                # Every name first: a wrong one must leave nothing of the others.
                for key, value in [(record_key(key), value) for key, value in operation.records]:
                    self.put(key, value)
        return None

    def change(self, changes: Sequence[Change]) -> None:
        """Plan changes, or none of them where another store has gone beyond them."""
        if not any(self._is_behind(key, value) for key, value in changes):
            for key, value in changes:
                self.put(key, value)

    def _is_behind(self, key: bytes, value: bytes | None) -> bool:
        """Whether a row says that more was trimmed, or copied to the journal, than this one."""
        stored = self._value(key)
        if stored is None or value is None:
            return False
        if key.startswith(APPLIED_PREFIX):
            return stored >= value
        if key.startswith(LOG_START_PREFIX):
            there, here = (decode(LogStart, row, "the journal") for row in (stored, value))
            return there.first_index >= here.first_index
        return False

    def put(self, key: bytes, value: bytes | None) -> None:
        """Plan one change."""
        self._planned[key] = value
        self._changes.append((key, value))

    def _check_seen(self, operation: PutRecords) -> None:
        for name, version in operation.seen:
            key = record_key(name)
            row = self._catalog.row(key)
            if key in self._planned or version != (0 if row is None else row.sequence):
                raise fenced_error(f"changed {name}")

    def _save_index(self, operation: SaveIndex) -> None:
        key = saved_index_key(operation.key)
        stored = self._value(key)
        if stored is not None and INDEX.unpack(stored)[0] > operation.index:
            # The caller never goes back: another node has saved what it does not know of.
            raise fenced_error("saved this position")
        self.put(key, INDEX.pack(operation.index))

    def _put_stream(self, record: StreamRecord) -> StreamRecord:
        key = stream_key(record.name)
        known = self._stream(record.name)
        record, is_new = settled_record(record, known, self._next_stream_id())
        stored = encode_record(record)
        if is_new:
            self.put(NEXT_STREAM_KEY, NUMBER.pack(record.id + 1))
            self.put(stream_id_key(record.id), utf8(record.name))
        self.put(key, stored)
        return record

    def _remove_stream(self, name: str) -> StreamRecord:
        record = self._stream(name)
        if record is None:
            raise unknown_stream(name)
        self._ranges += [saved_index_range(name), *rows_of_stream(record.id)]
        self.put(stream_key(name), None)
        self.put(stream_id_key(record.id), None)
        self.put(dropped_key(record.id), NUMBER.pack(record.partitions))
        return record

    def _next_stream_id(self) -> int:
        stored = self._value(NEXT_STREAM_KEY)
        return NUMBER.unpack(stored)[0] if stored else 1

    def _stream(self, name: str) -> StreamRecord | None:
        stored = self._value(stream_key(name))
        return None if stored is None else decode_record(stored)

    def _value(self, key: bytes) -> bytes | None:
        if key in self._planned:
            return self._planned[key]
        return self._catalog.value(key)


def size_of_operation(operation: JournalOperation) -> int:
    """What an operation counts for in its message, at least as much as it takes.

    Raises:
        StoreError: a name is no text.
    """
    match operation:
        case PutStream(record=record):
            utf8(record.name + record.owner)
            return len(encode_record(record)) + 12 * len(record.name) + _BESIDE_BYTES
        case SaveIndex(key=key):
            return 4 * (len(key.stream) + len(key.client_id)) + _BESIDE_BYTES
        case PutRecord(key=name, value=value):
            return 4 * len(name) + len(value or b"") + _BESIDE_BYTES
        case PutRecords(records=records):
            return sum(4 * len(name) + len(value or b"") + _BESIDE_BYTES for name, value in records)
        case RemoveStream(name=name):
            return 16 * len(name) + _BESIDE_BYTES


def is_removed(catalog: Catalog, log: int) -> bool:
    """Whether a log's stream was removed; one that was never created may have logs."""
    stream_id = log >> 32
    stored = catalog.value(NEXT_STREAM_KEY)
    given = stored is not None and 0 < stream_id < NUMBER.unpack(stored)[0]
    return given and catalog.row(stream_id_key(stream_id)) is None


def check_not_removed(catalog: Catalog, log: int) -> None:
    """Check that a log's stream was not removed.

    Raises:
        StoreError: `stream.removed`.
    """
    if is_removed(catalog, log):
        raise removed_error(log >> 32)
