"""Small groups are committed on the submitter's thread, while that is quick; all others are not."""

import threading
import time
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path

import pytest

from rillnode.actors.log import Append, Operation
from rillnode.actors.log.rocks import writer
from rillnode.actors.log.rocks.tables import Tables, Tuning
from rillnode.node.testing.contract.stores.driver import ANSWER_SECONDS, append, wait_until
from store_support import SMALL, RocksDriver


class Clock:
    """Moved by the test, and by each sync."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sync_seconds = 0.0


class Driver(RocksDriver):
    """Notes on which thread what was completed."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.here: list[bool] = []
        self.clock = clock

        class Timed(Tables):
            def sync(self) -> None:
                clock.now += clock.sync_seconds
                super().sync()

        def opened(path: Path, tuning: Tuning) -> Tables:
            return Timed(path, tuning)

        super().__init__(path, SMALL, opened, has_turns=True)

    def take(self, operations: Sequence[Operation]) -> None:
        self.here += [threading.current_thread() is threading.main_thread()] * len(operations)
        super().take(operations)

    def push(self, count: int = 1, data: bytes = b"x", pause: float = 0.01) -> bool:
        """Append so often in one turn, after a pause; whether that was committed at its end."""
        writer = self.store._writer  # pyright: ignore[reportPrivateUsage]
        deadline = time.monotonic() + ANSWER_SECONDS
        while not writer._idle:  # pyright: ignore[reportPrivateUsage]
            assert time.monotonic() < deadline
            time.sleep(0.000_1)  # its thread is on its way back
        self.clock.now += pause
        self.here.clear()
        operations = [append(data) for _ in range(count)]
        self.write_all(operations)
        assert {operation.error for operation in operations} == {None}
        assert len(set(self.here)) == 1
        return self.here[0]


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    clock = Clock()
    monkeypatch.setattr(writer, "monotonic", lambda: clock.now)
    monkeypatch.setattr(writer, "thread_time", lambda: 0.0)  # not by another clock
    opened = Driver(tmp_path / "store", clock)
    assert not opened.push()  # the thread makes what commits
    clock.now += 1.0
    yield opened
    opened.store.close()


def test_a_small_group_is_committed_where_it_was_submitted(driver: Driver) -> None:
    assert [driver.push() for _ in range(3)] == [True] * 3
    assert driver.push(writer.HERE_OPERATIONS_MAX)
    assert [entry.index for entry in driver.entries()] == list(range(68))


def test_the_thread_makes_one_group_now_and_then(driver: Driver) -> None:
    round_of = [True] * writer.HERE_GROUPS + [False]
    assert [driver.push() for _ in range(2 * len(round_of))] == round_of * 2


def test_a_large_group_goes_to_the_thread(driver: Driver) -> None:
    assert not driver.push(writer.HERE_OPERATIONS_MAX + 1)
    driver.store._writer._overlaps = 0  # pyright: ignore[reportPrivateUsage]
    assert not driver.push(data=b"x" * writer.HERE_BYTES_MAX)
    assert len(driver.entries()) == writer.HERE_OPERATIONS_MAX + 3


@pytest.mark.parametrize(("seconds", "spared"), [(0.003, 0.3), (0.5, writer.SPARED_SECONDS)])
def test_a_long_sync_spares_the_submitter_for_a_while(
    driver: Driver, seconds: float, spared: float
) -> None:
    driver.clock.sync_seconds = seconds
    assert driver.push()
    driver.clock.sync_seconds = 0.0
    assert not driver.push()
    driver.clock.now += spared - 0.1
    assert not driver.push()
    driver.clock.now += 0.2
    assert driver.push()


def test_a_submitter_that_is_busy_leaves_commits_to_the_thread(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = 0.95
    monkeypatch.setattr(writer, "thread_time", lambda: driver.clock.now * share)
    assert [driver.push() for _ in range(9)][-8:] == [False] * 8
    share = 0.5
    driver.clock.now += 100.0
    assert [driver.push() for _ in range(9)][-8:].count(True) >= 7


def test_waiting_for_the_disk_keeps_no_submitter_busy(driver: Driver) -> None:
    sync = driver.clock.sync_seconds = writer.HERE_SECONDS_MAX * 0.9
    pushes = writer.HERE_GROUPS * 3
    assert [driver.push(pause=sync / 10) for _ in range(pushes)].count(False) <= 3


def test_a_slow_disk_is_left_to_the_thread_until_it_is_quick_again(driver: Driver) -> None:
    driver.clock.sync_seconds = writer.STALL_SECONDS * 0.9
    assert [driver.push() for _ in range(30)][-10:] == [False] * 10
    driver.clock.sync_seconds = writer.HERE_SECONDS_MAX * 0.5
    assert [driver.push() for _ in range(30)][-10:].count(True) >= 9


def test_what_comes_in_streams_is_left_to_the_thread(driver: Driver) -> None:
    """While one group is under way the next comes: the submitter has more to do than to wait."""
    store = driver.store
    driver.clock.sync_seconds = 0.0
    made = store._writer._commit  # pyright: ignore[reportPrivateUsage]
    assert made is not None
    run, later = made.run, [append(b"meanwhile")]

    def busy(group: Sequence[Operation]) -> None:
        run(group)
        if later:
            store.submit(later.pop())

    made.run = busy  # type: ignore[method-assign]
    store._writer._spared_until = inf  # pyright: ignore[reportPrivateUsage]
    store.submit(append(b"first"))
    driver.settle(2)
    store._writer._spared_until = 0.0  # pyright: ignore[reportPrivateUsage]
    found = [driver.push() for _ in range(writer.OVERLAPS + 2)]
    assert (found[0], found[-1]) == (False, True)


def test_ctrl_c_in_a_commit_is_a_failure_and_still_ctrl_c(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = driver.store._writer._commit  # pyright: ignore[reportPrivateUsage]

    def interrupted(group: Sequence[Operation]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(made, "run", interrupted)
    operation = append(b"x")
    driver.store.submit(operation)
    with pytest.raises(KeyboardInterrupt):
        driver.end_turn()
    driver.settle(1)
    assert operation.error is not None
    assert operation.error.code == "store.failed"
    wait_until(lambda: driver.store.health.writable)
    driver.write(append(b"after"))
    assert driver.entries()[-1].data == b"after"


def test_what_was_left_to_a_turn_that_does_not_end_is_done_at_the_stores_end(
    driver: Driver,
) -> None:
    operation: Append = append(b"left")
    driver.store.submit(operation)
    driver.store.close()
    assert (operation.error, operation.first_index) == (None, 1)
    driver.settle(1)
    driver.reopen()
    assert driver.entries()[-1].data == b"left"


@pytest.mark.parametrize("fails", [False, True])
def test_a_store_that_another_thread_closes_waits_for_a_commit_here(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    made = driver.store._writer._commit  # pyright: ignore[reportPrivateUsage]
    assert made is not None
    run, closing = made.run, threading.Thread(target=driver.store.close)

    def meanwhile(group: Sequence[Operation]) -> None:
        closing.start()
        time.sleep(0.1)  # the writer's thread is at its end
        if fails:
            raise OSError("no disk")
        run(group)

    monkeypatch.setattr(made, "run", meanwhile)
    operation = append(b"last")
    driver.store.submit(operation)
    driver.end_turn()
    closing.join(ANSWER_SECONDS)
    driver.settle(1)
    driver.reopen()
    if fails:
        assert operation.error is not None
        assert operation.error.code == "store.failed"
    else:
        assert operation.error is None
        assert driver.entries()[-1].data == b"last"
