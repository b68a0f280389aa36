"""A large store moved from RocksDB to JetStream and back by `rillnode store copy`.

    python -m benchmarks.store_copy [--entries N] [--dir DIR]

Each way is killed once in the middle, with SIGKILL, and gone on with. At the end every entry of the
store that came back is compared, by a checksum of each partition, with what was written first.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.nats_servers import NatsServers, start_nats_servers
from benchmarks.processes import disk_bytes
from benchmarks.store import Counter
from rillnode.actors.log import Append, FindStream, PutStream, Read, StreamRecord, log_id
from rillnode.actors.log.rocks.store import RocksLogStore
from rillnode.codecs.entries import items_of, pack_body

_ENTRY_BYTES: Final = 100
_TOGETHER: Final = 1_000
_PARTITIONS: Final = 8
_WINDOW: Final = 32
_READ_BYTES: Final = 4_194_304
_STREAM: Final = StreamRecord(name="copied", partitions=_PARTITIONS)


def _entries(partition: int) -> Iterator[bytes]:
    """Numbered entries, of which no two are alike."""
    tail = os.urandom(_ENTRY_BYTES - 16)
    return (b"%4d%12d" % (partition, number) + tail for number in count())


def _fill(path: Path, entries: int) -> list[str]:
    """Write a store; returns the checksum of each partition."""
    done = Counter()
    store = RocksLogStore(path, complete=done, on_health=lambda _: None)
    store.open()
    made = PutStream(record=_STREAM)
    store.submit(made)
    done.wait(1)
    digests = [hashlib.sha256() for _ in range(_PARTITIONS)]
    sources = [_entries(partition) for partition in range(_PARTITIONS)]
    submitted = 0
    for _ in range(entries // (_PARTITIONS * _TOGETHER)):
        for partition, (digest, source) in enumerate(zip(digests, sources, strict=True)):
            items = list(islice(source, _TOGETHER))
            digest.update(b"".join(items))
            log = log_id(made.record.id, partition)
            store.submit(Append(log=log, count=len(items), body=pack_body(items)))
            submitted += 1
            done.wait(1 + submitted - _WINDOW)
    done.wait(1 + submitted)
    store.close()
    return [digest.hexdigest() for digest in digests]


def _checksums(path: Path) -> list[str]:
    """The same of a store that is there."""
    done = Counter()
    store = RocksLogStore(path, complete=done, on_health=lambda _: None)
    store.open()
    digests: list[str] = []
    find = FindStream(name=_STREAM.name)
    store.read(find)
    done.wait(1)
    assert find.record is not None
    asked = 1
    for partition in range(_PARTITIONS):
        digest, index = hashlib.sha256(), 0
        while True:
            read = Read(log=log_id(find.record.id, partition), index=index, bytes_max=_READ_BYTES)
            if not store.read(read):
                asked += 1
                done.wait(asked)
            if not read.blocks:
                break
            for block in read.blocks:
                digest.update(b"".join(items_of(block.value)))
            index = read.blocks[-1].next_index
        digests.append(digest.hexdigest())
    store.close()
    return digests


def _configured(home: Path, servers: NatsServers) -> Path:
    """A node's configuration as `rillnode init` writes it, but with its store in JetStream."""
    command = [sys.executable, "-m", "rillnode", "init", str(home)]
    subprocess.run(command, check=True, capture_output=True)
    lines = (
        '[store]\nengine = "jetstream"\nreplicas = 1\n'
        f"monitors = {json.dumps(servers.monitors)}\nservers = {json.dumps(servers.urls)}\n"
    )
    text = (home / "node.toml").read_text()
    file = home / "three.toml"
    file.write_text(text.replace("[store]\n", lines))
    return file


def _copy(config: Path, source: str, target: str) -> subprocess.Popen[bytes]:
    command = ["store", "copy", "--from", source, "--to", target, "-c", str(config), "--final"]
    return subprocess.Popen([sys.executable, "-m", "rillnode", *command], stdout=subprocess.DEVNULL)


def _copied(
    config: Path, source: str, target: str, grows: Path, kill_at_bytes: float
) -> tuple[float, float]:
    """Copy, killed once when the target has so much; returns the seconds of both runs.

    Raises:
        RuntimeError: the second run has failed, or the first one was through too early.
    """
    begun = time.perf_counter()
    running = _copy(config, source, target)
    while running.poll() is None and disk_bytes(grows) < kill_at_bytes:
        time.sleep(0.2)
    if running.poll() is not None:
        raise RuntimeError("the copy was through before it was to be killed: take more entries")
    running.kill()
    running.wait()
    killed = time.perf_counter()
    if _copy(config, source, target).wait():
        raise RuntimeError("the copy has failed when it was gone on with")
    return killed - begun, time.perf_counter() - killed


def _measure(directory: Path, entries: int, table: Table) -> None:
    with start_nats_servers(directory, 1) as servers:
        first, back = directory / "first", directory / "back"
        there = _configured(first, servers)
        begun = time.perf_counter()
        written = _fill(first / "data" / "store", entries)
        megabytes = entries * _ENTRY_BYTES / 1e6

        def show(what: str, seconds: float) -> None:
            rate = f"{entries / seconds:,.0f}", f"{megabytes / seconds:.1f}"
            table.add_row(what, f"{seconds:.0f}", *rate)

        show("written to RocksDB", time.perf_counter() - begun)
        held = disk_bytes(first / "data" / "store")
        data = directory / "nats-0"
        runs = _copied(there, "rocksdb", "jetstream", data, held / 3)
        show(f"to JetStream, compared ({runs[0]:.0f} s, killed, {runs[1]:.0f} s)", sum(runs))
        back_config = _configured(back, servers)
        store = back / "data" / "store"
        runs = _copied(back_config, "jetstream", "rocksdb", store, held / 3)
        show(f"back to RocksDB, compared ({runs[0]:.0f} s, killed, {runs[1]:.0f} s)", sum(runs))
        begun = time.perf_counter()
        if _checksums(store) != written:
            raise RuntimeError("what came back is not what was written")
        show("read, and equal to what was written", time.perf_counter() - begun)


def main() -> None:
    """Write, move there and back, and print how long it took."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store_copy")
    parser.add_argument("--entries", type=int, default=10_000_000, help="of 100 bytes")
    parser.add_argument("--dir", type=Path, help="on the disk to be measured")
    arguments = parser.parse_args()
    entries = arguments.entries // (_PARTITIONS * _TOGETHER) * _PARTITIONS * _TOGETHER
    table = Table("step", "seconds", "entries/s", "MB/s", title=f"{entries:,} entries of 100 B")
    with tempfile.TemporaryDirectory(prefix="copy-", dir=arguments.dir) as directory:
        _measure(Path(directory), entries, table)
    Console().print(table)


if __name__ == "__main__":
    main()
