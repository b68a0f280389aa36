"""What a Streamr listener's keys add to an entry that others push, in the store alone.

    python -m benchmarks.store_keys [--dir DIR] [--entries N] [--rounds N]

Told is the processor time of all threads for an entry of 100 bytes, the best of the rounds: without
keys, with a key of its own for each entry, and with keys that a block's entries share, by turns.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.store import Counter, open_store
from rillnode.actors.log import EVERY_ENTRY, Append, PutStream, StreamRecord, log_id
from rillnode.codecs.entries import pack_body
from rillnode.codecs.streamr.sort_keys import pushed_keys

_PUBLISHER: Final = f"0x{'ab' * 20}"
_IN_FLIGHT: Final = 8
_BLOCKS: Final = (1, 64, 512)
_WAYS: Final = ("no keys", "a key for each entry", "keys for the block")


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store_keys")
    parser.add_argument("--dir", type=Path, help="where the stores are made, and removed")
    parser.add_argument("--entries", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    table = Table("entries of a block", *_WAYS, title="us of processor time for an entry")
    for size in _BLOCKS:
        entries = arguments.entries // 10 if size == 1 else arguments.entries
        found: dict[str, float] = {}
        for round_ in range(arguments.rounds):
            for way in _WAYS[:: -1 if round_ % 2 else 1]:
                with tempfile.TemporaryDirectory(dir=arguments.dir) as directory:
                    took = _appended(Path(directory), way, size, entries // size)
                found[way] = min(took, found.get(way, took))
        table.add_row(str(size), *(f"{found[way]:.2f}" for way in _WAYS))
    Console().print(table)


def _appended(directory: Path, way: str, size: int, blocks: int) -> float:
    """Microseconds for an entry, of so many blocks of that size."""
    counter = Counter()
    store = open_store(directory, counter)
    stream = PutStream(record=StreamRecord(name="s"))
    store.submit(stream)
    counter.wait(1)
    log, body = log_id(stream.record.id, 0), pack_body([os.urandom(100)] * size)
    begun = time.process_time()
    for number in range(blocks):
        keys = _keys(way, number, size)
        store.submit(
            Append(log=log, received_at=number, count=size, body=body, keys=keys, timed=len(keys))
        )
        counter.wait(2 + number - _IN_FLIGHT)
    counter.wait(1 + blocks)
    took = time.process_time() - begun
    store.close()
    return took / (blocks * size) * 1e6


def _keys(way: str, now: int, size: int) -> Sequence[tuple[bytes, int]]:
    if way == _WAYS[0]:
        return ()
    keys = pushed_keys(_PUBLISHER, now)
    if way == _WAYS[1]:
        return [(key, offset) for offset in range(size) for key in keys]
    return [(key, EVERY_ENTRY) for key in keys]


if __name__ == "__main__":
    main()
