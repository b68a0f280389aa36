"""The store alone: durable appends beside a busy main thread, range reads, times, idle logs.

    python -m benchmarks.store [--dir DIR] [--mebibytes N] [--entries N] [--logs N]

Each figure stands beside what the disk itself gives at the same moment: one file, written in
groups of the same size and synced after each.
"""

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from rillnode.actors.log import Append, Locate, Operation, Read
from rillnode.actors.log.rocks.store import RocksLogStore
from rillnode.codecs.entries import pack_body
from rillnode.node.cli import process

_ENTRY_BYTES: Final = 1_024


class Counter:
    """Takes completions and lets a thread wait for a number of them."""

    def __init__(self) -> None:
        self.count = 0
        self.groups = 0
        self._changed = threading.Event()

    def __call__(self, operations: Sequence[Operation]) -> None:
        """Count one group."""
        for operation in operations:
            if operation.error is not None:
                raise operation.error
        self.count += len(operations)
        self.groups += 1
        self._changed.set()

    def wait(self, count: int) -> None:
        """Sleep until so many operations are complete."""
        while self.count < count:
            self._changed.wait()
            self._changed.clear()


def open_store(directory: Path, counter: Counter) -> RocksLogStore:
    """A store in an own directory."""
    path = Path(tempfile.mkdtemp(dir=directory))
    store = RocksLogStore(path, complete=counter, on_health=lambda _: None)
    store.open()
    return store


def appends(
    directory: Path, per_append: int, logs: int, total_bytes: int, window: int, *, busy: bool
) -> tuple[float, float, int]:
    """Entries per second, the main thread's longest gap in seconds, and groups.

    With `busy` the main thread computes as fast as it can between two submissions.
    """
    counter = Counter()
    store = open_store(directory, counter)
    body = pack_body([os.urandom(_ENTRY_BYTES) for _ in range(per_append)])
    count = max(1, total_bytes // len(body))
    room = max(1, window // per_append)
    gap, submitted, spins = 0.0, 0, 0
    begun = last = time.perf_counter()
    while counter.count < count:
        if submitted < count and submitted - counter.count < room:
            store.submit(Append(log=1 + submitted % logs, count=per_append, body=body))
            submitted += 1
        elif busy:
            for _ in range(50):
                spins += 1
        else:
            counter.wait(min(count, counter.count + 1))
        now = time.perf_counter()
        gap, last = max(gap, now - last), now
    seconds = time.perf_counter() - begun
    store.close()
    return count * per_append / seconds, gap, counter.groups


def disk_rate(directory: Path, group_bytes: int, total_bytes: int) -> float:
    """Entries per second of a plain file with a sync after each group."""
    group = os.urandom(group_bytes)
    count = max(1, total_bytes // group_bytes)
    with tempfile.NamedTemporaryFile(dir=directory, buffering=0) as file:
        begun = time.perf_counter()
        for _ in range(count):
            file.write(group)
            os.fdatasync(file.fileno())
        seconds = time.perf_counter() - begun
    return count * group_bytes / _ENTRY_BYTES / seconds


def reads(directory: Path, per_append: int, total_bytes: int) -> tuple[float, float]:
    """Entries per second read in whole blocks from a log reopened, and from the tail."""
    counter = Counter()
    store = open_store(directory, counter)
    body = pack_body([os.urandom(_ENTRY_BYTES) for _ in range(per_append)])
    count = max(1, total_bytes // len(body))
    for number in range(count):
        store.submit(Append(log=1, count=per_append, body=body))
        counter.wait(number - 200)
    counter.wait(count)
    last = count * per_append
    kept = min(last, 8 * 1024)
    begun, index = time.perf_counter(), last - kept
    while index < last:
        tail = Read(log=1, index=index)
        assert store.read(tail)
        index = tail.blocks[-1].next_index
    tail_rate = kept / (time.perf_counter() - begun)
    store.close()
    store.open()
    begun, index, asked = time.perf_counter(), 0, counter.count
    while index < last:
        read = Read(log=1, index=index)
        if not store.read(read):
            asked += 1
            counter.wait(asked)
        index = read.blocks[-1].next_index
    disk = last / (time.perf_counter() - begun)
    store.close()
    return disk, tail_rate


def times(directory: Path, entries: int, per_append: int = 100) -> tuple[float, float]:
    """Seconds that it takes to find a time in a log reopened: the median of 200, and the longest.

    The entries are of 8 bytes, and an append came each millisecond.
    """
    counter = Counter()
    store = open_store(directory, counter)
    body, count = pack_body([b"12345678"] * per_append), entries // per_append
    for number in range(count):
        store.submit(Append(log=1, count=per_append, body=body, received_at=number))
        counter.wait(number - 10_000)
    counter.wait(count)
    store.close()
    store.open()
    seconds: list[float] = []
    for number in range(200):
        at_ms = number * 7_919 * count // 200 % count
        locate, asked = Locate(log=1, at_ms=at_ms), counter.count
        begun = time.perf_counter()
        if not store.read(locate):
            counter.wait(asked + 1)
        seconds.append(time.perf_counter() - begun)
        assert locate.index == at_ms * per_append
    store.close()
    return sorted(seconds)[len(seconds) // 2], max(seconds)


def resident_bytes() -> int:
    """Memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def idle_logs(directory: Path, logs: int) -> tuple[float, float, float]:
    """Bytes of memory per log after one append each, the same reopened, and appends per second."""
    counter = Counter()
    body = pack_body([b"x" * 100])
    before = resident_bytes()
    store = open_store(directory, counter)
    begun = time.perf_counter()
    for log in range(logs):
        store.submit(Append(log=log, count=1, body=body))
        counter.wait(log - 10_000)
    counter.wait(logs)
    rate = logs / (time.perf_counter() - begun)
    used = resident_bytes() - before
    store.close()
    closed = resident_bytes()
    store.open()
    reopened = resident_bytes() - closed
    store.close()
    return used / logs, reopened / logs, rate


def show_appends(console: Console, directory: Path, total_bytes: int) -> None:
    """Print the table of appends."""
    table = Table(title=f"durable appends of {_ENTRY_BYTES} bytes, entries per second")
    for heading in ("entries per append", "logs", "window", "main idle", "main busy"):
        table.add_column(heading, justify="right")
    for heading in ("longest gap, busy", "groups", "plain file"):
        table.add_column(heading, justify="right")
    cases = [
        (1, 1, 1),
        (1, 1, 64),
        (1, 1, 1_024),
        (1, 1_000, 1_024),
        (16, 1, 4_096),
        (64, 1, 16_384),
        (64, 100, 16_384),
        (256, 1, 16_384),
    ]
    for per_append, logs, window in cases:
        some = min(total_bytes, max(1, per_append * window // 16) * 2_000_000)
        idle, _, _ = appends(directory, per_append, logs, some, window, busy=False)
        busy, gap, groups = appends(directory, per_append, logs, some, window, busy=True)
        group_bytes = some // max(1, groups)
        plain = disk_rate(directory, max(_ENTRY_BYTES, group_bytes), some)
        table.add_row(
            f"{per_append}",
            f"{logs:,}",
            f"{window:,}",
            f"{idle:,.0f}",
            f"{busy:,.0f}",
            f"{gap * 1e3:.1f} ms",
            f"{groups:,}",
            f"{plain:,.0f}",
        )
    console.print(table)


def main() -> None:
    """Run everything and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store", description=__doc__)
    parser.add_argument("--dir", type=Path, help="on the disk to be measured; default: build/")
    parser.add_argument("--mebibytes", type=int, default=256, help="written by each case")
    parser.add_argument("--entries", type=int, default=10_000_000, help="of which a time is found")
    parser.add_argument("--logs", type=int, default=100_000, help="for the memory of idle logs")
    arguments = parser.parse_args()
    base: Path = arguments.dir or Path(__file__).parent.parent / "build"
    base.mkdir(parents=True, exist_ok=True)
    total_bytes = arguments.mebibytes * 1_048_576
    console = Console()
    process.prepare()
    with tempfile.TemporaryDirectory(dir=base, prefix="store-") as name:
        directory = Path(name)
        show_appends(console, directory, total_bytes)
        table = Table(title="reads in whole blocks, entries per second")
        for heading in ("entries per block", "from RocksDB", "from the tail cache"):
            table.add_column(heading, justify="right")
        for per_append in (16, 64, 256):
            disk, tail = reads(directory, per_append, total_bytes)
            table.add_row(f"{per_append}", f"{disk:,.0f}", f"{tail:,.0f}")
        console.print(table)
        median, longest = times(directory, arguments.entries)
        table = Table(title=f"finding a time among {arguments.entries:,} entries")
        for heading in ("median", "longest"):
            table.add_column(heading, justify="right")
        table.add_row(f"{median * 1e3:.2f} ms", f"{longest * 1e3:.2f} ms")
        console.print(table)
        used, reopened, rate = idle_logs(directory, arguments.logs)
        table = Table(title=f"{arguments.logs:,} logs with one entry of 100 bytes each")
        for heading in ("bytes of memory per log", "after reopening", "appends per second"):
            table.add_column(heading, justify="right")
        table.add_row(f"{used:,.0f}", f"{reopened:,.0f}", f"{rate:,.0f}")
        console.print(table)


if __name__ == "__main__":
    main()
