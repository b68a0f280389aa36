"""Any sequence of operations, restarts and faults leaves a store as a plain list would be."""

import shutil
import tempfile
from dataclasses import dataclass, field
from itertools import count
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

from nats_support import NatsServer, needs_nats
from rillnode.actors.log import (
    Append,
    GetRecord,
    LoadIndex,
    LogExtent,
    PutRecord,
    Read,
    Retention,
    SavedIndexKey,
    SaveIndex,
    Trim,
    WriteOperation,
    log_id,
)
from rillnode.codecs.entries import entries_of
from rillnode.node.testing.contract.stores.driver import StoreDriver, append
from shared_support import JetStreamDriver
from store_support import MemoryDriver, RocksDriver

LOGS = [log_id(1, 0), log_id(1, 1), log_id(2, 0)]
KEYS = [SavedIndexKey("s", partition, "c") for partition in range(2)]

bodies = st.lists(st.integers(0, 40).map(lambda size: b"." * size), min_size=1, max_size=5)
limits = st.none() | st.integers(0, 200)
retentions = st.builds(
    Retention,
    seconds=st.none() | st.integers(0, 20).map(float),
    entries_max=limits,
    bytes_max=limits,
)


@dataclass
class ModelLog:
    """A log as a list: (received_at, data) of every entry there ever was."""

    rows: list[tuple[int, bytes]] = field(default_factory=list[tuple[int, bytes]])
    first: int = 0

    def trim(self, operation: Trim) -> None:
        kept = self.rows[self.first :]
        retention = operation.retention
        first = max(self.first, min(operation.before, len(self.rows)))
        if retention.entries_max is not None:
            first = max(first, len(self.rows) - retention.entries_max)
        if retention.bytes_max is not None:
            over = sum(len(data) for _, data in kept) - retention.bytes_max
            cut = self.first
            while over > 0:
                over -= len(self.rows[cut][1])
                cut += 1
            first = max(first, cut)
        if retention.seconds is not None:
            oldest = operation.now_ms - 1_000 * retention.seconds
            while first < len(self.rows) and self.rows[first][0] < oldest:
                first += 1
        if operation.hold is not None:
            first = min(first, max(operation.hold, self.first))
        self.first = first

    def extent(self) -> LogExtent:
        return LogExtent(
            self.first, len(self.rows), sum(len(data) for _, data in self.rows[self.first :])
        )


class StoreMachine(RuleBasedStateMachine):
    """Submits writes, settles them sooner or later, and compares what can be read."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = self.make_driver()
        self.model = {log: ModelLog() for log in LOGS}
        self.indexes: dict[SavedIndexKey, int] = {}
        self.saved: dict[SavedIndexKey, int] = {}
        self.records: dict[str, bytes] = {}
        self.waiting: list[WriteOperation] = []
        self.now_ms = 0

    def make_driver(self) -> StoreDriver:
        return MemoryDriver()

    def submit(self, operation: WriteOperation) -> None:
        self.driver.store.submit(operation)
        self.waiting.append(operation)

    def apply(self, operations: list[WriteOperation], *, confirmed: bool) -> None:
        """Do in the model what the store did."""
        for operation in operations:
            match operation:
                case Append():
                    log = self.model[operation.log]
                    if confirmed:
                        assert operation.first_index == len(log.rows)
                    size = len(operation.body) - 4 * operation.count
                    lengths = memoryview(operation.body)[: 4 * operation.count].cast("I")
                    assert sum(lengths) == size
                    log.rows += [(operation.received_at, b"." * length) for length in lengths]
                case Trim():
                    self.model[operation.log].trim(operation)
                    if confirmed:
                        assert operation.extent == self.model[operation.log].extent()
                case SaveIndex():
                    self.indexes[operation.key] = operation.index
                case PutRecord():
                    if operation.value is None:
                        self.records.pop(operation.key, None)
                    else:
                        self.records[operation.key] = operation.value
                case _:
                    raise AssertionError(operation)

    @rule(log=st.sampled_from(LOGS), items=bodies, later_ms=st.integers(0, 5_000))
    def append(self, log: int, items: list[bytes], later_ms: int) -> None:
        self.now_ms += later_ms
        self.submit(append(*items, log=log, at=self.now_ms))

    @rule(
        log=st.sampled_from(LOGS),
        before=st.integers(0, 60),
        retention=retentions,
        hold=st.none() | st.integers(0, 60),
    )
    def trim(self, log: int, before: int, retention: Retention, hold: int | None) -> None:
        self.submit(
            Trim(log=log, before=before, retention=retention, hold=hold, now_ms=self.now_ms)
        )

    @rule(key=st.sampled_from(KEYS), more=st.integers(0, 2**60))
    def save_index(self, key: SavedIndexKey, more: int) -> None:
        # As every caller does: never backwards.
        self.saved[key] = self.saved.get(key, 0) + more
        self.submit(SaveIndex(key=key, index=self.saved[key]))

    @rule(key=st.sampled_from(["a", "b"]), value=st.none() | st.binary(max_size=3))
    def put_record(self, key: str, value: bytes | None) -> None:
        self.submit(PutRecord(key=key, value=value))

    @rule()
    def settle(self) -> None:
        self.driver.settle(len(self.waiting))
        waiting, self.waiting = self.waiting, []
        assert [operation.error for operation in waiting] == [None] * len(waiting)
        self.apply(waiting, confirmed=True)

    @precondition(lambda self: not self.waiting)
    @rule()
    def reopen(self) -> None:
        self.driver.reopen()

    @precondition(lambda self: not self.waiting)
    @rule(
        log=st.sampled_from(LOGS),
        index=st.integers(0, 80),
        until=st.integers(0, 80),
        entries_max=st.integers(1, 20),
        bytes_max=st.integers(1, 500),
    )
    def read_a_range(
        self, log: int, index: int, until: int, entries_max: int, bytes_max: int
    ) -> None:
        model = self.model[log]
        operation = self.driver.read(
            Read(log=log, index=index, until=until, entries_max=entries_max, bytes_max=bytes_max)
        )
        assert operation.extent == model.extent()
        start, end = max(index, model.first), min(until, len(model.rows))
        assert bool(operation.blocks) == (start < end)
        at = start
        for block in operation.blocks:
            assert block.first_index <= at < block.next_index
            for entry in entries_of(block, first=at):
                assert (entry.received_at, entry.data) == model.rows[entry.index]
            at = block.next_index
        assert sum(len(block.value) for block in operation.blocks[1:]) < bytes_max

    @precondition(lambda self: not self.waiting)
    @invariant()
    def everything_can_be_read(self) -> None:
        for log, model in self.model.items():
            found = [(entry.received_at, entry.data) for entry in self.driver.entries(log)]
            assert found == model.rows[model.first :]
        for key in KEYS:
            assert self.driver.read(LoadIndex(key=key)).index == self.indexes.get(key)
        for name in "ab":
            assert self.driver.read(GetRecord(key=name)).value == self.records.get(name)

    def teardown(self) -> None:
        self.driver.store.close()


class MemoryStoreMachine(StoreMachine):
    """With the faults that a MemoryLogStore has."""

    def __init__(self) -> None:
        super().__init__()
        assert isinstance(self.driver, MemoryDriver)
        self.memory = self.driver.store

    @rule(surviving=st.integers(0, 5))
    def crash(self, surviving: int) -> None:
        self.memory.crash(surviving=surviving)
        survivors, self.waiting = self.waiting[:surviving], []
        self.memory.open()
        self.apply(survivors, confirmed=False)

    @rule(surviving=st.integers(0, 5))
    def fail(self, surviving: int) -> None:
        self.memory.faults.failing_syncs = 1
        self.memory.faults.surviving = surviving
        self.memory.flush()
        self.memory.faults.failing_syncs = 0
        failed, self.waiting = self.waiting, []
        assert all(operation.error is not None for operation in failed)
        self.memory.flush()
        assert self.memory.health.writable
        self.apply(failed[:surviving], confirmed=False)


class RocksStoreMachine(StoreMachine):
    """On RocksDB; faults and crashes have tests of their own."""

    def make_driver(self) -> StoreDriver:
        self.directory = Path(tempfile.mkdtemp(prefix="rillnode-test-"))
        return RocksDriver(self.directory / "store")

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.directory)


@needs_nats
@pytest.mark.long
def test_the_jetstream_store(tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "nats")
    prefixes = (f"t{number}" for number in count())

    class JetStreamStoreMachine(StoreMachine):
        """On JetStream; faults have tests of their own."""

        def make_driver(self) -> StoreDriver:
            prefix = next(prefixes)
            self.opened = JetStreamDriver(server, prefix, tmp_path / prefix, shards=1)
            return self.opened

        def teardown(self) -> None:
            self.opened.end()

    server.start()
    try:
        run_state_machine_as_test(
            JetStreamStoreMachine,
            settings=settings(max_examples=100, stateful_step_count=25),
        )
    finally:
        server.kill()


@pytest.mark.hypothesis
def test_the_memory_store() -> None:
    run_state_machine_as_test(MemoryStoreMachine, settings=settings(stateful_step_count=30))


@pytest.mark.parametrize("examples", [6, pytest.param(150, marks=pytest.mark.long)])
def test_the_rocks_store(examples: int) -> None:
    run_state_machine_as_test(
        RocksStoreMachine,
        settings=settings(max_examples=examples, stateful_step_count=25),
    )
