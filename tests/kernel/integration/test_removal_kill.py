"""A process that is killed while it removes streams leaves each of them whole or gone."""

import os
from pathlib import Path
from random import Random

import pytest

from forked import PIPE, Forked
from rillnode.actors.log import (
    ListIndexes,
    ListKeys,
    ListStreams,
    PutStream,
    Read,
    RemoveStream,
    SavedIndexKey,
    SaveIndex,
    StreamRecord,
    WriteOperation,
    log_id,
)
from rillnode.node.testing.contract.stores.driver import append
from store_support import RocksDriver

PARTITIONS = 3
ENTRIES = 4
ROUNDS_MAX = 2_000

CHILD = """
import sys
from pathlib import Path
from test_removal_kill import churn
churn(Path(sys.argv[1]))
"""


def churn(path: Path) -> None:
    """Fill and remove one stream after the other, telling of each; is killed in the midst of it."""
    driver = RocksDriver(path)
    for number in range(ROUNDS_MAX):
        record = driver.write(
            PutStream(record=StreamRecord(name=f"s{number}", partitions=PARTITIONS))
        ).record
        fill: list[WriteOperation] = []
        for partition in range(PARTITIONS):
            operation = append(*[b"x" * 500] * ENTRIES, log=log_id(record.id, partition))
            operation.keys = [(b"key", 0)]
            key = SavedIndexKey(record.name, partition, "c")
            fill += [operation, SaveIndex(key=key, index=1)]
        driver.write_all(fill)
        print(record.id, flush=True)
        driver.write(RemoveStream(name=record.name))


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 20))]
)
def test_a_killed_removal_leaves_no_half(tmp_path: Path, seed: int) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    child = Forked("-c", CHILD, tmp_path / "store", env=environment, stdout=PIPE)
    assert child.stdout is not None
    filled = 0
    for _ in range(Random(seed).randrange(1, 60)):
        filled = int(child.stdout.readline())
    # The last stream is full and durable, and on its way out.
    child.kill()
    filled = max([filled, *map(int, child.stdout.read().split())])
    child.wait()
    driver = RocksDriver(tmp_path / "store")
    there = {record.id: record.name for record in driver.read(ListStreams()).records}
    assert len(there) <= 1
    indexed = {key.stream for key, _ in driver.read(ListIndexes()).indexes}
    for stream_id in range(1, filled + 1):
        whole = stream_id in there
        for partition in range(PARTITIONS):
            log = log_id(stream_id, partition)
            assert driver.read(Read(log=log)).extent.next_index == (ENTRIES if whole else 0)
            assert len(driver.read(ListKeys(log=log)).pairs) == whole
        assert (f"s{stream_id - 1}" in indexed) == whole
    driver.store.close()
