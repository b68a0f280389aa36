"""Streams created, filled and removed in any order, with faults: each is whole or gone."""

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rillnode.actors.log import (
    Append,
    FindStream,
    ListIndexes,
    ListKeys,
    ListStreams,
    LogExtent,
    PutStream,
    Read,
    RemoveStream,
    SavedIndexKey,
    SaveIndex,
    StreamRecord,
    WriteOperation,
    log_id,
)
from rillnode.node.testing.contract.stores.driver import StoreDriver, append
from store_support import MemoryDriver, RocksDriver

NAMES = st.sampled_from(["a", "b", "a\0"])
PARTITIONS = 2


@dataclass
class ModelStream:
    """A stream of the model."""

    id: int
    logs: list[list[bytes]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])


class RemovalMachine(RuleBasedStateMachine):
    """Submits writes, settles them together, and compares what can be read."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = self.make_driver()
        self.streams: dict[str, ModelStream] = {}
        self.ids: list[int] = [0]
        self.indexes: dict[SavedIndexKey, int] = {}
        self.waiting: list[WriteOperation] = []
        self.number = 0

    def make_driver(self) -> StoreDriver:
        return MemoryDriver()

    def submit(self, operation: WriteOperation) -> None:
        self.driver.store.submit(operation)
        self.waiting.append(operation)

    def apply(self, operation: WriteOperation, *, confirmed: bool) -> None:
        """Do in the model what the store did, and compare the results of a confirmed write."""
        code = None
        match operation:
            case PutStream(record=record):
                if record.name in self.streams:
                    code = "store.exists"
                else:
                    self.ids.append(self.ids[-1] + 1)
                    self.streams[record.name] = ModelStream(self.ids[-1])
            case RemoveStream(name=name):
                if self.streams.pop(name, None) is None:
                    code = "store.unknown"
                else:
                    self.indexes = {k: i for k, i in self.indexes.items() if k.stream != name}
            case Append(log=log):
                stream = next((s for s in self.streams.values() if s.id == log >> 32), None)
                if stream is not None:
                    stream.logs[log & 1].append(operation.keys[0][0])
                elif 0 < log >> 32 <= self.ids[-1]:
                    code = "stream.removed"
            case SaveIndex(key=key, index=index):
                self.indexes[key] = index
            case _:
                raise AssertionError(operation)
        if confirmed:
            assert (operation.error and operation.error.code) == code

    @rule(name=NAMES)
    def create(self, name: str) -> None:
        self.submit(PutStream(record=StreamRecord(name=name, partitions=PARTITIONS)))

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        self.submit(RemoveStream(name=name))

    @precondition(lambda self: len(self.ids) > 1)
    @rule(data=st.data(), partition=st.integers(0, PARTITIONS - 1))
    def append(self, data: st.DataObject, partition: int) -> None:
        self.number += 1
        text = b"%06d" % self.number
        stream_id = data.draw(st.sampled_from(self.ids[1:]))
        operation = append(text, log=log_id(stream_id, partition))
        operation.keys = [(text, 0)]
        self.submit(operation)

    @rule(name=NAMES, partition=st.integers(0, PARTITIONS - 1), index=st.integers(0, 9))
    def save_index(self, name: str, partition: int, index: int) -> None:
        self.submit(SaveIndex(key=SavedIndexKey(name, partition, "c"), index=index))

    @rule()
    def settle(self) -> None:
        self.driver.settle(len(self.waiting))
        waiting, self.waiting = self.waiting, []
        for operation in waiting:
            self.apply(operation, confirmed=True)

    @precondition(lambda self: not self.waiting)
    @rule()
    def reopen(self) -> None:
        self.driver.reopen()

    @precondition(lambda self: not self.waiting)
    @invariant()
    def every_stream_is_whole_or_gone(self) -> None:
        records = self.driver.read(ListStreams()).records
        assert {one.name: one.id for one in records} == {
            name: stream.id for name, stream in self.streams.items()
        }
        kept = {stream.id: stream for stream in self.streams.values()}
        for stream_id in self.ids[1:]:
            found = self.driver.read(FindStream(id=stream_id))
            assert (found.record is not None) == (stream_id in kept)
            for partition in range(PARTITIONS):
                log = log_id(stream_id, partition)
                rows = kept[stream_id].logs[partition] if stream_id in kept else []
                assert [entry.data for entry in self.driver.entries(log)] == rows
                assert [key for key, _ in self.driver.read(ListKeys(log=log)).pairs] == rows
                extent = self.driver.read(Read(log=log, index=len(rows))).extent
                assert extent == LogExtent(0, len(rows), 6 * len(rows))
        assert dict(self.driver.read(ListIndexes()).indexes) == self.indexes

    def teardown(self) -> None:
        self.driver.store.close()


class MemoryRemovalMachine(RemovalMachine):
    """With power cuts."""

    @rule(surviving=st.integers(0, 5))
    def crash(self, surviving: int) -> None:
        assert isinstance(self.driver, MemoryDriver)
        self.driver.store.crash(surviving=surviving)
        survivors, self.waiting = self.waiting[:surviving], []
        self.driver.store.open()
        for operation in survivors:
            self.apply(operation, confirmed=False)


class RocksRemovalMachine(RemovalMachine):
    """On RocksDB."""

    def make_driver(self) -> StoreDriver:
        self.directory = Path(tempfile.mkdtemp(prefix="rillnode-test-"))
        return RocksDriver(self.directory / "store")

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.directory)


@pytest.mark.hypothesis
def test_the_memory_store() -> None:
    run_state_machine_as_test(MemoryRemovalMachine, settings=settings(stateful_step_count=25))


@pytest.mark.parametrize("examples", [2, pytest.param(150, marks=pytest.mark.long)])
def test_the_rocks_store(examples: int) -> None:
    run_state_machine_as_test(
        RocksRemovalMachine,
        settings=settings(max_examples=examples, stateful_step_count=20),
    )
