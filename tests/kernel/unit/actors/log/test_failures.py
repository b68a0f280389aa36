"""Failed writes and syncs: the store on RocksDB fences itself, goes on reading, and repairs."""

import queue
import threading
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path

import pytest

from rillnode.actors.log import (
    Checkpoint,
    FindStream,
    LoadIndex,
    Operation,
    Read,
    SavedIndexKey,
    SaveIndex,
    StoreHealth,
)
from rillnode.actors.log.rocks import writer
from rillnode.actors.log.rocks.readers import ReaderPool
from rillnode.actors.log.rocks.tables import Changes, Tables, Tuning
from rillnode.actors.log.rocks.writer import Writer
from rillnode.codecs.errors import StoreError
from rillnode.node.testing.contract.stores.driver import ANSWER_SECONDS, LOG, append, wait_until
from store_support import SMALL, RocksDriver

FULL = "IO error: No space left on device: While appending to file: 000012.log"
BROKEN = "IO error: While fdatasync: 000012.log: Input/output error"


class Panic(BaseException):
    """As a panic of the store's native code reaches Python."""


class Disk:
    """Makes tables whose writes, syncs and openings fail when told to."""

    def __init__(self) -> None:
        self.failing_writes: list[str] = []
        self.failing_syncs: list[str] = []
        self.failing_openings: list[str] = []
        self.error: type[BaseException] = RuntimeError
        self.opened = 0

    def open(self, path: Path, tuning: Tuning) -> Tables:
        if self.failing_openings:
            if self.error is Panic:
                raise Panic(self.failing_openings.pop())
            raise StoreError("store.unreadable", self.failing_openings.pop())
        self.opened += 1
        disk = self

        class Failing(Tables):
            def write(self, changes: Changes) -> None:
                if disk.failing_writes:
                    raise disk.error(disk.failing_writes.pop())
                super().write(changes)

            def sync(self) -> None:
                if disk.failing_syncs:
                    raise disk.error(disk.failing_syncs.pop())
                super().sync()

        return Failing(path, tuning)


class FailingDriver(RocksDriver):
    """A store on a failing disk, and a way to wait for its repair."""

    def __init__(self, path: Path, disk: Disk, *, has_turns: bool = False) -> None:
        self._writable: queue.SimpleQueue[bool] = queue.SimpleQueue()
        super().__init__(path, SMALL, disk.open, has_turns=has_turns)
        assert self._writable.get(timeout=ANSWER_SECONDS)

    def hear(self, health: StoreHealth) -> None:
        super().hear(health)
        self._writable.put(health.writable)

    def wait_writable(self) -> None:
        """Wait for the end of one failure."""
        assert not self._writable.get(timeout=ANSWER_SECONDS)
        assert self._writable.get(timeout=ANSWER_SECONDS)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture(params=[False, True], ids=["on its thread", "at the end of turns"])
def failing(
    request: pytest.FixtureRequest, tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FailingDriver]:
    monkeypatch.setattr(writer, "HERE_SECONDS_MAX", inf)
    monkeypatch.setattr(writer, "STALL_SECONDS", inf)
    driver = FailingDriver(tmp_path / "store", disk, has_turns=request.param)
    yield driver
    driver.store.close()


@pytest.mark.parametrize(("text", "code"), [(FULL, "store.full"), (BROKEN, "store.failed")])
@pytest.mark.parametrize("fails", ["failing_writes", "failing_syncs"])
def test_a_failed_group_is_answered_and_the_store_repairs_itself(
    failing: FailingDriver, disk: Disk, text: str, code: str, fails: str
) -> None:
    failing.write_all([append(b"%d" % number) for number in range(10)])
    setattr(disk, fails, [text])
    refused = failing.write(append(b"refused"))
    assert refused.error is not None
    assert (refused.error.code, refused.error.retryable) == (code, True)
    failing.wait_writable()
    assert disk.opened == 2
    assert [health.writable for health in failing.healths] == [True, False, True]
    assert failing.healths[1].reason == refused.error.text
    after = failing.write(append(b"after"))
    found = [entry.data for entry in failing.entries()]
    kept = [b"refused"] if len(found) == 12 else []
    assert found == [*(b"%d" % number for number in range(10)), *kept, b"after"]
    assert after.first_index == len(found) - 1


@pytest.mark.parametrize("fails", ["failing_writes", "failing_syncs"])
def test_a_panic_is_a_failure_like_any_other_and_ends_no_thread(
    failing: FailingDriver, disk: Disk, fails: str
) -> None:
    disk.error = Panic
    disk.failing_openings = ["again"]
    setattr(disk, fails, ["a panic"])
    refused = failing.write(append(b"refused"))
    assert refused.error is not None
    assert refused.error.code == "store.failed"
    failing.wait_writable()
    assert failing.write(append(b"after")).error is None
    assert failing.entries()[-1].data == b"after"


@pytest.mark.parametrize("error", [Panic, SystemExit, KeyboardInterrupt])
def test_what_native_code_raises_is_a_failure_of_the_store(
    failing: FailingDriver, disk: Disk, error: type[BaseException]
) -> None:
    disk.error = error
    disk.failing_syncs = ["raised"]
    assert failing.write(append(b"refused")).error is not None
    failing.wait_writable()
    assert failing.write(append(b"after")).error is None


def test_what_takes_completed_operations_may_raise_anything(tmp_path: Path) -> None:
    driver = Deaf(tmp_path / "store", SMALL, Disk().open)
    driver.deaf = True
    driver.store.submit(append(b"nobody hears of it"))
    driver.store.read(FindStream(name="x"))
    wait_until(lambda: driver.refused == 2)
    driver.deaf = False
    assert driver.write(append(b"after")).error is None
    assert driver.read(FindStream(name="x")).error is None
    driver.store.close()


class Deaf(RocksDriver):
    """Does not take what the store has completed."""

    deaf = False
    refused = 0

    def take(self, operations: Sequence[Operation]) -> None:
        if self.deaf:
            self.refused += 1
            raise Panic
        super().take(operations)


def test_the_end_of_the_thread_that_writes_is_told_and_whoever_waits_is_refused(
    failing: FailingDriver, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing.write(append(b"kept"))

    def ends(*_: object) -> None:
        raise Panic("the repair")

    monkeypatch.setattr(Writer, "_failure", ends)
    disk.failing_syncs = [BROKEN]
    operations = [append(b"%d" % number) for number in range(100)]
    failing.write_all(operations)
    assert {one.error and one.error.code for one in operations} == {"store.failed"}
    assert not failing.healths[-1].writable
    assert "the thread that writes has ended" in failing.healths[-1].reason
    wait_until(lambda: failing.ended == ["store-writer"])
    assert failing.write(append(b"late")).error is not None
    assert [entry.data for entry in failing.entries()][:1] == [b"kept"]
    assert failing.store.pending_bytes == 0


def test_a_store_whose_reader_has_ended_can_be_opened_again(
    failing: FailingDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing.write(append(b"kept"))
    with monkeypatch.context() as patch:
        patch.setattr(ReaderPool, "_answer", ends_here)
        for _ in range(SMALL.readers):
            failing.store.read(FindStream(name="x"))
        wait_until(lambda: len(failing.ended) == SMALL.readers)
    failing.store.close()
    failing.store.open()
    for _ in range(2 * SMALL.readers):
        assert failing.read(FindStream(name="x")).error is None


def ends_here(*_: object) -> None:
    raise Panic("a reader")


def test_a_sync_that_fails_before_a_checkpoint_is_repaired_as_any_other(
    failing: FailingDriver, disk: Disk, tmp_path: Path
) -> None:
    failing.write(append(b"kept"))
    disk.failing_syncs = [BROKEN]
    operation = Checkpoint(path=tmp_path / "copy")
    failing.store.checkpoint(operation)
    failing.settle(1)
    assert operation.error is not None
    assert operation.error.code == "store.failed"
    assert not operation.path.exists()
    failing.wait_writable()
    assert disk.opened == 2
    assert [entry.data for entry in failing.entries()] == [b"kept"]


def test_everything_waiting_is_refused_and_leaves_no_trace(
    failing: FailingDriver, disk: Disk
) -> None:
    disk.failing_writes = [FULL]
    disk.failing_openings = ["not yet", "not yet"]
    operations = [append(b"%d" % number, b"." * 300_000) for number in range(20)]
    failing.write_all(operations)
    codes = {operation.error and operation.error.code for operation in operations}
    assert codes <= {"store.full", None}
    failing.wait_writable()
    confirmed = [operation for operation in operations if operation.error is None]
    assert len(failing.entries()) == 2 * len(confirmed)
    assert failing.store.pending_bytes == 0


def test_while_fenced_writes_are_refused_at_once_and_reads_go_on(
    failing: FailingDriver, disk: Disk
) -> None:
    key = SavedIndexKey("s", 0, "c")
    failing.write_all([append(b"kept"), SaveIndex(key=key, index=7)])
    disk.failing_syncs = [FULL]
    # The store tries whether there is room with a file of this name.
    no_room = failing.path / "probe.tmp"
    no_room.mkdir()
    failing.write_all([append(b"refused"), SaveIndex(key=key, index=8)])
    for _ in range(3):
        refused = append(b"refused")
        failing.store.submit(refused)
        assert refused.error is not None
        assert refused.error.code == "store.full"
        failing.settle(1)
    failing.store._tail.clear()  # pyright: ignore[reportPrivateUsage]
    for _ in range(2 * SMALL.readers):
        assert failing.read(Read(log=LOG)).extent.next_index == 1
        assert failing.read(LoadIndex(key=key)).index == 7
    assert not failing.store.health.writable
    no_room.rmdir()
    failing.wait_writable()
    assert failing.entries()[0].data == b"kept"


def test_reads_between_closing_and_opening_again_are_answered_with_an_error(
    failing: FailingDriver, disk: Disk
) -> None:
    failing.write(append(b"kept"))
    gate = threading.Event()
    opening = threading.Event()

    class Gate(list[str]):
        def __bool__(self) -> bool:
            opening.set()
            assert gate.wait(ANSWER_SECONDS)
            return False

    disk.failing_openings = ["once"]
    disk.failing_syncs = [BROKEN]
    failing.write(append(b"refused"))
    failing.wait_writable()
    disk.failing_openings = Gate()
    disk.failing_syncs = [BROKEN]
    failing.write(append(b"refused"))
    assert opening.wait(ANSWER_SECONDS)
    # Readers wait while the tables are replaced, and then see the new ones.
    operation = FindStream(name="x")
    failing.store.read(operation)
    gate.set()
    failing.settle(1)
    assert operation.error is None


def test_closing_while_broken_refuses_what_waits(failing: FailingDriver, disk: Disk) -> None:
    failing.write(append(b"kept"))
    disk.failing_syncs = [BROKEN]
    disk.failing_openings = ["never"] * 10_000
    assert failing.write(append(b"refused")).error is not None
    failing.store.close()
    disk.failing_openings = []
    failing.store.open()
    assert failing.entries()[0].data == b"kept"


def test_repeated_failures_are_survived(failing: FailingDriver, disk: Disk) -> None:
    confirmed = 0
    for round_ in range(8):
        disk.failing_syncs = [BROKEN] if round_ % 2 else []
        operation = failing.write(append(b"%d" % round_))
        confirmed += operation.error is None
        if operation.error is not None:
            failing.wait_writable()
    found = {entry.data for entry in failing.entries()}
    assert confirmed == 4
    assert {b"0", b"2", b"4", b"6"} <= found
