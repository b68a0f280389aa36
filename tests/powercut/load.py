"""A process to be recorded: writes of every kind under load, each confirm marked in the trace.

Usage: load.py DIRECTORY OPERATIONS SEED [FAILING_SYNCS]. A mark is one JSON array: what happened,
("submit" or "confirm"), and what is needed to check it.
"""

import ctypes
import json
import random
import sys
import threading
import zlib
from collections.abc import Sequence
from pathlib import Path

from rillnode.actors.log import (
    Append,
    Operation,
    PutStream,
    SavedIndexKey,
    SaveIndex,
    StoreHealth,
    StreamRecord,
    Trim,
    log_id,
)
from rillnode.actors.log.rocks.store import RocksLogStore
from rillnode.actors.log.rocks.tables import Tuning
from rillnode.codecs.entries import pack_body

TUNING = Tuning(
    group_bytes_max=131_072,
    slice_bytes_max=16_384,
    memtable_bytes=262_144,
    wal_bytes_max=1_048_576,
    cache_bytes=1_048_576,
    tail_bytes_max=1_048_576,
    logs_max=8,
    packed_bytes_max=1_000,
    readers=1,
    repair_seconds_min=0.01,
)
# The load makes none of these streams: a log that was written to before its stream was made would
# be taken for an empty one.
LOGS = [log_id(stream, 0) for stream in range(1_000_001, 1_000_013)]
WINDOW = 16


class Load:
    """Keeps a number of operations on their way."""

    def __init__(self, directory: Path, operations: int, seed: int, failing_syncs: int) -> None:
        self._library = ctypes.CDLL(None)
        self._chance = random.Random(seed)
        self._operations = operations
        self._failing_syncs = failing_syncs
        self._room = threading.Semaphore(WINDOW)
        self._writable = threading.Event()
        self._saved = 0
        self._ends = dict.fromkeys(LOGS, 0)
        self._store = RocksLogStore(
            directory, complete=self._complete, on_health=self._hear, tuning=TUNING
        )

    def run(self) -> None:
        """Submit everything, wait for all, and close."""
        self._store.open()
        for number in range(self._operations):
            if self._failing_syncs and number % 500 == 250:
                self._library.recorder_fail_syncs(self._failing_syncs)
            self._room.acquire()
            self._writable.wait()
            operation, submitted = self._next(number)
            self._mark("submit", *submitted)
            self._store.submit(operation)
        for _ in range(WINDOW):
            self._room.acquire()
        self._store.close()

    def _next(self, number: int) -> tuple[Append | Trim | SaveIndex | PutStream, list[object]]:
        chance = self._chance
        draw = chance.random()
        # Few logs are busy, as in life; the others are found again after they were forgotten.
        log = LOGS[min(int(chance.expovariate(0.5)), len(LOGS) - 1)]
        if draw < 0.90:
            count = chance.choice((1, 1, 3, 20))
            body = pack_body([chance.randbytes(chance.choice((0, 10, 300))) for _ in range(count)])
            return Append(log=log, count=count, body=body), ["append", log]
        if draw < 0.95:
            self._saved += 1
            key = SavedIndexKey("s", 0, "c")
            return SaveIndex(key=key, index=self._saved), ["save", self._saved]
        if draw < 0.98:
            before = max(0, self._ends[log] - 300)
            return Trim(log=log, before=before), ["trim", log, before]
        name = f"stream-{number}"
        return PutStream(record=StreamRecord(name=name)), ["stream", name]

    def _complete(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            if operation.error is None:
                self._confirm(operation)
            self._room.release()

    def _confirm(self, operation: Operation) -> None:
        match operation:
            case Append():
                end = operation.first_index + operation.count
                self._ends[operation.log] = max(end, self._ends[operation.log])
                check = zlib.crc32(operation.body)
                self._mark("append", operation.log, operation.first_index, operation.count, check)
            case SaveIndex():
                self._mark("save", operation.index)
            case Trim():
                self._mark("trim", operation.log, operation.extent.first_index)
            case PutStream():
                self._mark("stream", operation.record.name, operation.record.id)
            case _:
                raise AssertionError(operation)

    def _hear(self, health: StoreHealth) -> None:
        if health.writable:
            self._writable.set()
        else:
            self._writable.clear()

    def _mark(self, *values: object) -> None:
        text = json.dumps(values).encode()
        self._library.recorder_mark(text, ctypes.c_size_t(len(text)))


if __name__ == "__main__":
    Load(
        Path(sys.argv[1]),
        int(sys.argv[2]),
        int(sys.argv[3]),
        int(sys.argv[4]) if len(sys.argv) > 4 else 0,
    ).run()
