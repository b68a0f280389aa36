"""Tests what only the store on RocksDB has: a directory, a format, threads and caches."""

import contextlib
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from rillnode.actors.log import (
    FORMAT_VERSION,
    FindStream,
    LoadIndex,
    LogExtent,
    Operation,
    PutRecord,
    PutStream,
    Read,
    RemoveStream,
    Retention,
    SavedIndexKey,
    SaveIndex,
    StreamRecord,
    Trim,
    log_id,
)
from rillnode.actors.log.rocks.commit import REST_BYTES_MIN
from rillnode.actors.log.rocks.format import settle_format
from rillnode.actors.log.rocks.layout import FORMAT_KEY, NUMBER, record_key
from rillnode.actors.log.rocks.store import RocksLogStore
from rillnode.actors.log.rocks.tables import Changes, Cursors, Tables, Tuning
from rillnode.codecs.errors import StoreError
from rillnode.node.testing.contract.stores.driver import ANSWER_SECONDS, LOG, append, wait_until
from rillnode.node.testing.contract.stores.removal import assert_gone, filled
from store_support import SMALL, RocksDriver


def ignore(_: object) -> None:
    """Takes completions and healths that a test does not look at."""


def new_store(path: Path) -> RocksLogStore:
    return RocksLogStore(path, complete=ignore, on_health=ignore, tuning=SMALL)


def stamp(path: Path, version: int) -> None:
    """Give a closed store another format version."""
    tables = Tables(path, SMALL)
    tables.write(Changes(puts=[(FORMAT_KEY, NUMBER.pack(version), tables.records)]))
    tables.sync()
    tables.close()


# The directory -------------------------------------------------------------------------------


def test_missing_directories_are_made(tmp_path: Path) -> None:
    store = new_store(tmp_path / "a" / "b")
    store.open()
    assert store.health.writable
    store.close()


def test_a_store_in_use_is_refused_with_the_next_step(rocks: RocksDriver) -> None:
    with pytest.raises(StoreError, match="is in use: stop the node that has it") as caught:
        new_store(rocks.path).open()
    assert (caught.value.code, caught.value.retryable) == ("store.locked", False)
    assert rocks.write(append(b"still fine")).error is None


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError) as caught:
        new_store(tmp_path / "file" / "store").open()
    assert caught.value.code == "store.unreadable"


@pytest.mark.parametrize("damage", ["CURRENT", "MANIFEST"])
def test_a_damaged_store_is_refused(rocks: RocksDriver, damage: str) -> None:
    rocks.write(append(b"entry"))
    rocks.store.close()
    for file in rocks.path.glob(f"{damage}*"):
        file.write_bytes(b"garbage")
    with pytest.raises(StoreError, match="restore it from a backup") as caught:
        new_store(rocks.path).open()
    assert caught.value.code == "store.unreadable"


def test_closing_twice_or_unopened_is_harmless(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    store.close()
    store.open()
    store.close()
    store.close()
    assert not store.health.writable


# The format ----------------------------------------------------------------------------------


def test_a_new_store_is_stamped(rocks: RocksDriver) -> None:
    rocks.store.close()
    tables = Tables(rocks.path, SMALL)
    assert tables.record(FORMAT_KEY) == NUMBER.pack(FORMAT_VERSION)
    tables.close()


def test_a_newer_store_is_refused_and_left_alone(rocks: RocksDriver) -> None:
    rocks.write(append(b"entry"))
    rocks.store.close()
    stamp(rocks.path, FORMAT_VERSION + 1)
    for _ in range(2):
        with pytest.raises(StoreError, match=f"format {FORMAT_VERSION + 1}") as caught:
            new_store(rocks.path).open()
        assert (caught.value.code, caught.value.retryable) == ("store.format", False)
    stamp(rocks.path, FORMAT_VERSION)
    rocks.store.open()
    assert [entry.data for entry in rocks.entries()] == [b"entry"]


def test_an_older_store_is_migrated_step_by_step(rocks: RocksDriver) -> None:
    rocks.store.close()
    stamp(rocks.path, 1)
    steps: list[int] = []

    def migration(version: int, tables: Tables) -> Changes:
        steps.append(version)
        key = record_key(f"from {version}")
        return Changes(puts=[(key, b"done", tables.records)])

    tables = Tables(rocks.path, SMALL)
    migrations = {version: partial(migration, version) for version in (1, 2)}
    settle_format(tables, rocks.path, migrations, version=3)
    settle_format(tables, rocks.path, migrations, version=3)
    assert steps == [1, 2]
    assert tables.record(record_key("from 2")) == b"done"
    assert tables.record(FORMAT_KEY) == NUMBER.pack(3)
    tables.close()


def test_a_migration_that_fails_leaves_the_version(rocks: RocksDriver) -> None:
    rocks.store.close()

    def fail(_: Tables) -> Changes:
        raise StoreError("store.test", "no")

    tables = Tables(rocks.path, SMALL)
    with pytest.raises(StoreError, match="no"):
        settle_format(tables, rocks.path, {FORMAT_VERSION: fail}, version=FORMAT_VERSION + 1)
    assert tables.record(FORMAT_KEY) == NUMBER.pack(FORMAT_VERSION)
    tables.close()


def test_a_store_too_old_for_any_migration_is_refused(rocks: RocksDriver) -> None:
    rocks.store.close()
    stamp(rocks.path, 0)
    with pytest.raises(StoreError, match="too old") as caught:
        new_store(rocks.path).open()
    assert caught.value.code == "store.format"


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    tables = Tables(tmp_path, SMALL)
    tables.write(Changes(puts=[(b"foreign", b"data", tables.records)]))
    tables.close()
    with pytest.raises(StoreError, match="no store of rillnode"):
        new_store(tmp_path).open()


# Caches --------------------------------------------------------------------------------------


def test_the_tail_answers_at_once_and_as_the_disk_does(rocks: RocksDriver) -> None:
    rocks.read(Read(log=LOG))
    rocks.write_all([append(*[b"%d" % n] * (1 + n % 5)) for n in range(200)])
    rocks.write(Trim(log=LOG, before=33))
    asked = [
        Read(log=LOG, index=index, until=until, entries_max=entries, bytes_max=size)
        for index in (0, 33, 34, 77, 300, 599)
        for until in (80, 2**64 - 1)
        for entries in (1, 10, 1_000)
        for size in (1, 300, 100_000)
    ]
    cached: list[tuple[object, LogExtent]] = []
    for operation in asked:
        assert rocks.store.read(operation)
        cached.append((operation.blocks, operation.extent))
        operation.blocks = []
    rocks.reopen()
    for operation, (blocks, extent) in zip(asked, cached, strict=True):
        assert not rocks.store.read(operation)
        rocks.settle(1)
        assert (operation.blocks, operation.extent) == (blocks, extent)


def test_the_tail_is_bounded_and_what_fell_out_is_read_from_disk(rocks: RocksDriver) -> None:
    body = b"." * 50_000
    rocks.read(Read(log=LOG))
    rocks.write_all([append(b"%d" % n, body) for n in range(100)])
    tail = rocks.store._tail  # pyright: ignore[reportPrivateUsage]
    assert 0 < tail.size <= SMALL.tail_bytes_max
    assert not rocks.store.read(Read(log=LOG, index=0))
    rocks.settle(1)
    assert rocks.store.read(Read(log=LOG, index=198))
    assert [entry.data for entry in rocks.entries() if entry.index % 2 == 0] == [
        b"%d" % n for n in range(100)
    ]


def test_a_store_that_rests_lets_memory_go(tmp_path: Path) -> None:
    driver = RocksDriver(tmp_path, Tuning())
    data = [b"%d" % number * 10_000 for number in range(100)]
    driver.write_all([append(one) for one in data])
    commit = driver.store._writer._commit  # pyright: ignore[reportPrivateUsage]
    assert commit is not None
    tables = commit._tables  # pyright: ignore[reportPrivateUsage]

    def of_blocks(name: str) -> int:
        """What RocksDB says of the blocks that it has in memory."""
        blocks = tables._blocks  # pyright: ignore[reportPrivateUsage]
        found = blocks.property_int_value(f"rocksdb.{name}")
        assert found is not None
        return found

    assert of_blocks("size-all-mem-tables") > REST_BYTES_MIN
    driver.store.rest()
    driver.settle(1)
    assert of_blocks("num-entries-active-mem-table") == 0
    wait_until(lambda: of_blocks("size-all-mem-tables") < REST_BYTES_MIN)
    driver.write(append(b"a little more"))
    driver.store.rest()
    driver.settle(1)
    assert of_blocks("num-entries-active-mem-table") == 1
    assert [entry.data for entry in driver.entries()] == [*data, b"a little more"]
    driver.store.close()


def test_more_logs_than_fit_the_table_of_logs(rocks: RocksDriver) -> None:
    logs = [log_id(stream, 0) for stream in range(1, 5 * SMALL.logs_max)]
    for round_ in range(3):
        operations = [append(b"%d" % round_, log=log) for log in logs]
        rocks.write_all(operations)
        assert {operation.first_index for operation in operations} == {round_}


def test_large_groups_are_split(rocks: RocksDriver) -> None:
    rocks.write_all([append(b"." * 100_000) for _ in range(20)])
    # A group ends with the append that reaches the limit.
    assert max(rocks.groups) <= 1 + SMALL.group_bytes_max // 100_000


def test_reads_beyond_the_queue_are_refused(tmp_path: Path) -> None:
    class SlowToRead(Tables):
        gate: threading.Event | None = None

        def cursors(self) -> Cursors:
            if self.gate is not None:
                assert self.gate.wait(ANSWER_SECONDS)
            return super().cursors()

    driver = RocksDriver(tmp_path, Tuning(readers=1, reads_max=2), SlowToRead)
    SlowToRead.gate = threading.Event()
    reads = [FindStream(name="x") for _ in range(6)]
    for operation in reads:
        driver.store.read(operation)
    SlowToRead.gate.set()
    driver.settle(6)
    codes = [operation.error.code for operation in reads if operation.error]
    assert codes
    assert set(codes) == {"store.busy"}
    driver.store.close()


def test_a_completion_that_raises_does_not_end_the_store(tmp_path: Path) -> None:
    done: list[Operation] = []
    told = threading.Event()

    def complete(operations: Sequence[Operation]) -> None:
        done.extend(operations)
        if len(done) == 4:
            told.set()
        raise RuntimeError("the loop is closed")

    store = RocksLogStore(tmp_path, complete=complete, on_health=ignore, tuning=SMALL)
    store.open()
    for _ in range(2):
        store.submit(append(b"entry"))
        store.read(FindStream(name="x"))
    assert told.wait(ANSWER_SECONDS)
    assert {operation.error for operation in done} == {None}
    store.close()


def test_the_space_of_trimmed_entries_comes_back(rocks: RocksDriver) -> None:
    def bytes_on_disk() -> int:
        total = 0
        for table in rocks.path.glob("*.sst"):
            with contextlib.suppress(FileNotFoundError):  # freed since it was listed
                total += table.stat().st_size
        return total

    items = [bytes([number]) * 1_000 for number in range(50)]
    for _ in range(20):
        rocks.write_all([append(*items) for _ in range(10)])
    # Freed in the background; `never` is not set.
    never = threading.Event()
    while bytes_on_disk() < 5_000_000:
        never.wait(0.01)
    rocks.write(Trim(log=LOG, retention=Retention(entries_max=100)))
    deadline = time.monotonic() + 10 * ANSWER_SECONDS
    while bytes_on_disk() > 2_000_000:
        assert time.monotonic() < deadline
        never.wait(0.01)
    assert len(rocks.entries()) == 100


# What is not synced is not seen --------------------------------------------------------------


def test_readers_do_not_see_what_is_written_but_not_synced(tmp_path: Path) -> None:
    class Held(Tables):
        hold = False
        reached = threading.Event()
        go_on = threading.Event()

        def sync(self) -> None:
            if self.hold:
                self.reached.set()
                assert self.go_on.wait(ANSWER_SECONDS)
            super().sync()

    driver = RocksDriver(tmp_path, SMALL, Held)
    key = SavedIndexKey("s", 0, "c")
    driver.write_all([append(b"old"), SaveIndex(key=key, index=1), PutRecord(key="r", value=b"1")])
    driver.store._tail.clear()  # pyright: ignore[reportPrivateUsage]
    Held.hold = True
    driver.store.submit(append(b"new"))
    assert Held.reached.wait(ANSWER_SECONDS)
    for operation in (
        SaveIndex(key=key, index=2),
        PutStream(record=StreamRecord(name="fresh")),
        Trim(log=LOG, before=1),
    ):
        driver.store.submit(operation)
    for _ in range(2 * SMALL.readers):
        assert driver.read(Read(log=LOG)).extent == LogExtent(0, 1, 3)
        assert driver.read(LoadIndex(key=key)).index == 1
        assert driver.read(FindStream(name="fresh")).record is None
    Held.hold = False
    Held.go_on.set()
    driver.settle(4)
    assert driver.read(Read(log=LOG)).extent == LogExtent(1, 2, 3)
    assert driver.read(LoadIndex(key=key)).index == 2
    assert driver.read(FindStream(name="fresh")).record is not None
    driver.store.close()


def test_a_removal_is_one_write(tmp_path: Path) -> None:
    writes: list[Changes] = []

    class Recording(Tables):
        def write(self, changes: Changes) -> None:
            writes.append(changes)
            super().write(changes)

    driver = RocksDriver(tmp_path / "store", open_tables=Recording)
    record = filled(driver, "s")
    writes.clear()
    driver.write(RemoveStream(name="s"))
    assert len(writes) == 1
    # Those of the stream and of its groups, and what may be beside each of its two logs.
    assert (len(writes[0].ranges), len(writes[0].puts)) == (4 + 2, 2)
    assert_gone(driver, record)
    driver.store.close()
