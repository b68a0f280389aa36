"""A process to be recorded: a view of a shared log carries out frames, each marked when it has.

Usage: view_load.py DIRECTORY FRAMES SEED. A mark is the frame's sequence, as text.
"""

import ctypes
import random
import sys
import threading
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from powercut.load import TUNING
from rillnode.actors.log import (
    Append,
    GetRecord,
    LoadIndex,
    Operation,
    PutRecords,
    Read,
    SavedIndexKey,
    SaveIndex,
    Trim,
    log_id,
)
from rillnode.actors.log.shared import rocks_view
from rillnode.actors.log.shared.applying import ApplyFrame, Progress, encode_identity
from rillnode.actors.log.shared.frames import (
    Contents,
    Session,
    SharedOperation,
    decode_frame,
    encode_frame,
)
from rillnode.codecs.entries import pack_body

SHARD, SHARDS = 1, 4
LOGS = [log_id(SHARDS * stream + SHARD, 0) for stream in range(1_000, 1_010)]
KEY = SavedIndexKey("s", 0, "c")
NAMES = [f"name {number}" for number in range(30)]
WINDOW = 16


def frames(count: int, seed: int) -> list[bytes]:
    """The log of the shard: frames of one writer."""
    chance = random.Random(seed)
    ends = dict.fromkeys(LOGS, 0)
    found: list[bytes] = []
    for number in range(count):
        operations: list[SharedOperation] = []
        for _ in range(chance.choice((1, 1, 2, 6))):
            draw = chance.random()
            log = LOGS[min(int(chance.expovariate(0.5)), len(LOGS) - 1)]
            if draw < 0.80:
                sizes = [chance.choice((0, 10, 300)) for _ in range(chance.choice((1, 1, 3, 20)))]
                body = pack_body([chance.randbytes(size) for size in sizes])
                operations.append(
                    Append(log=log, count=len(sizes), body=body, received_at=1_000 + number)
                )
                ends[log] += len(sizes)
            elif draw < 0.88:
                operations.append(SaveIndex(key=KEY, index=number))
            elif draw < 0.95:
                operations.append(PutRecords(records=[(chance.choice(NAMES), b"%d" % number)]))
            else:
                operations.append(Trim(log=log, before=max(0, ends[log] - 200)))
        session = Session(b"a writer", 1, number, 0)
        found.append(encode_frame(Contents(session, operations=operations)))
    return found


class ViewDriver:
    """A view, to which frames are given one after the other.

    Attributes:
        progress: how far it is.
    """

    def __init__(self, directory: Path, applied: Callable[[int], None] = lambda sequence: None):
        self._applied = applied
        self._complete = threading.Semaphore(0)
        self.view = rocks_view.RocksView(
            directory,
            encode_identity(bytes(16), SHARD, SHARDS),
            SHARD,
            SHARDS,
            complete=self._take,
            on_health=lambda health: None,
        )
        self.view.open()
        self.progress: Progress = self.view.progress

    def apply(self, log: Sequence[bytes]) -> None:
        """Give it all frames that it has not carried out."""
        first = self.progress.sequence + self.progress.is_whole
        under_way = 0
        for sequence in range(first, len(log) + 1):
            data = log[sequence - 1]
            contents = decode_frame(data)
            self.view.apply(
                ApplyFrame(
                    sequence=sequence,
                    checksum=zlib.crc32(data),
                    contents=contents,
                    operations=contents.operations,
                )
            )
            under_way += 1
            if under_way == WINDOW:
                self._complete.acquire()
                under_way -= 1
        for _ in range(under_way):
            self._complete.acquire()

    def contents(self) -> dict[object, object]:
        """All that it has."""
        found: dict[object, object] = {"position": self._read(LoadIndex(key=KEY)).index}
        for name in NAMES:
            found[name] = self._read(GetRecord(key=name)).value
        for log in LOGS:
            extent = self._read(Read(log=log)).extent
            index, check = extent.first_index, 0
            while index < extent.next_index:
                for block in self._read(Read(log=log, index=index, bytes_max=2**30)).blocks:
                    check, index = zlib.crc32(block.value, check), block.next_index
            found[log] = extent, check
        return found

    def close(self) -> None:
        """Close it."""
        self.view.close()

    def _read(self, operation: Any) -> Any:
        self.view.read(operation)
        self._complete.acquire()
        assert operation.error is None
        return operation

    def _take(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            if isinstance(operation, ApplyFrame):
                assert operation.progress is not None
                self.progress = operation.progress
                self._applied(operation.sequence)
            self._complete.release()


def main(directory: Path, count: int, seed: int) -> None:
    """Carry all frames out."""
    # Here, and not where the view is opened again, which may be a process of other tests.
    rocks_view.__dict__["VIEW_TUNING"] = TUNING
    library = ctypes.CDLL(None)

    def mark(sequence: int) -> None:
        text = b"%d" % sequence
        library.recorder_mark(text, ctypes.c_size_t(len(text)))

    driver = ViewDriver(directory, mark)
    driver.apply(frames(count, seed))
    driver.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
