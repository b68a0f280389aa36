"""The MemoryLogStore's own: driven by callbacks and a clock, and its faults."""

from collections import deque
from collections.abc import Callable

import pytest

from link_support import ManualClock
from rillnode.actors.log import FindStream, Operation, Read, RemoveStream, StoreHealth, log_id
from rillnode.actors.log.memory import TAIL_BLOCKS, Faults, MemoryLogStore
from rillnode.node.testing.contract.stores.driver import LOG, append
from rillnode.node.testing.contract.stores.removal import assert_gone, assert_whole, filled
from store_support import MemoryDriver


class Clock(ManualClock):
    """The clock that the store's port asks for."""

    def now_ms(self) -> int:
        return int(self.now * 1000)


class Simulated:
    """A store whose callbacks are run by hand."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.clock = Clock()
        self.posted: deque[Callable[[], None]] = deque()
        self.completed: list[Operation] = []
        self.healths: list[StoreHealth] = []
        self.store = MemoryLogStore(
            complete=self.completed.extend,
            on_health=self.healths.append,
            post=self.posted.append,
            clock=self.clock,
            faults=faults,
        )
        self.store.open()

    def run(self) -> None:
        while self.posted:
            self.posted.popleft()()

    def data(self) -> list[int]:
        read = Read(log=LOG)
        self.store.read(read)
        self.run()
        return [block.first_index for block in read.blocks]


def test_nothing_happens_within_submit_and_what_comes_together_is_one_group() -> None:
    simulated = Simulated()
    operations = [append(b"%d" % number) for number in range(3)]
    for operation in operations:
        simulated.store.submit(operation)
    assert (simulated.completed, len(simulated.posted)) == ([], 1)
    assert simulated.store.pending_bytes == sum(len(op.body) for op in operations)
    simulated.run()
    assert simulated.completed == operations
    assert simulated.store.pending_bytes == 0


def test_a_slow_sync_confirms_when_its_time_has_passed() -> None:
    simulated = Simulated(Faults(sync_seconds=0.5))
    first, second = append(b"first"), append(b"second")
    simulated.store.submit(first)
    simulated.run()
    simulated.clock.advance(0.4)
    simulated.store.submit(second)
    simulated.run()
    assert simulated.completed == []
    assert simulated.data() == []
    simulated.clock.advance(0.2)
    assert simulated.completed[-1] is first
    simulated.run()
    simulated.clock.advance(0.5)
    assert simulated.completed[-1] is second
    assert simulated.data() == [0, 1]


def test_reads_beyond_the_tail_come_later() -> None:
    simulated = Simulated()
    for number in range(TAIL_BLOCKS + 1):
        simulated.store.submit(append(b"%d" % number))
    simulated.run()
    assert simulated.store.read(Read(log=LOG, index=1))
    cold: list[Read | FindStream] = [Read(log=LOG), FindStream(name="x"), Read(log=log_id(9, 9))]
    for operation in cold:
        assert not simulated.store.read(operation)
    simulated.run()
    assert simulated.completed[-3:] == cold


@pytest.mark.parametrize("surviving", [0, 1, 5])
def test_a_failed_sync_refuses_until_the_repair(surviving: int) -> None:
    simulated = Simulated(Faults(failing_syncs=1, surviving=surviving, repair_seconds=2.0))
    group = [append(b"%d" % number) for number in range(3)]
    for operation in group:
        simulated.store.submit(operation)
    simulated.run()
    assert {op.error and op.error.code for op in group} == {"store.failed"}
    refused = append(b"refused")
    simulated.store.submit(refused)
    assert refused.error is not None
    assert simulated.completed[-1] is refused
    assert simulated.data() == []
    simulated.clock.advance(2.0)
    assert [health.writable for health in simulated.healths] == [True, False, True]
    assert simulated.data() == list(range(min(surviving, 3)))
    after = append(b"after")
    simulated.store.submit(after)
    simulated.run()
    assert after.first_index == min(surviving, 3)
    assert {op.first_index for op in group} == {-1}


def test_a_full_disk_refuses_what_does_not_fit() -> None:
    simulated = Simulated(Faults(capacity_bytes=400))
    small, large, later = append(b"small"), append(b"." * 400), append(b"later")
    for operation in (small, large, later):
        simulated.store.submit(operation)
        simulated.run()
        simulated.clock.advance(1.0)
    assert [op.error and op.error.code for op in (small, large, later)] == [
        None,
        "store.full",
        None,
    ]
    assert simulated.data() == [0, 1]


@pytest.mark.parametrize("under_way", [False, True])
@pytest.mark.parametrize("surviving", [0, 2])
def test_a_crash_loses_what_was_not_confirmed(under_way: bool, surviving: int) -> None:
    simulated = Simulated()
    kept = append(b"kept")
    simulated.store.submit(kept)
    simulated.run()
    simulated.store.faults.sync_seconds = 1.0
    for number in range(3):
        simulated.store.submit(append(b"%d" % number))
    if under_way:
        simulated.run()
    simulated.store.crash(surviving=surviving)
    simulated.run()
    simulated.clock.advance(5.0)
    assert simulated.completed == [kept]
    assert not simulated.store.health.writable
    simulated.store.open()
    assert simulated.data() == list(range(1 + surviving))


def test_closing_completes_the_group_under_way() -> None:
    simulated = Simulated(Faults(sync_seconds=1.0))
    first, second = append(b"first"), append(b"second")
    simulated.store.submit(first)
    simulated.run()
    simulated.store.submit(second)
    simulated.store.close()
    assert simulated.completed == [first, second]
    assert simulated.clock.timers == 0


@pytest.mark.parametrize("survives", [False, True])
def test_a_power_cut_leaves_a_stream_whole_or_gone(survives: bool) -> None:
    driver = MemoryDriver()
    record = filled(driver, "s")
    driver.store.submit(RemoveStream(name="s"))
    driver.store.crash(surviving=int(survives))
    driver.store.open()
    (assert_gone if survives else assert_whole)(driver, record)
