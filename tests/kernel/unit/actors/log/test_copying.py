"""Copying stores: the rules, from one store on RocksDB into another."""

import asyncio
from pathlib import Path

import pytest

from rillnode.actors.log import (
    EVERY_ENTRY,
    Append,
    ListKeys,
    PutRecord,
    PutStream,
    RemoveStream,
    SavedIndexKey,
    SaveIndex,
    StreamRecord,
    Trim,
    log_id,
)
from rillnode.actors.log.copying import CopiedLog, OnBytes, bytes_to_copy, copy_store
from rillnode.actors.log.rocks.copy import RocksCopy
from rillnode.actors.log.rocks.tables import Changes, Tables, Tuning
from rillnode.actors.log.rocks.verify import verify_store
from rillnode.codecs.errors import StoreError
from rillnode.node.testing.contract.stores.driver import LOG, append
from store_support import CutError, RocksDriver, cut_after

KEY = SavedIndexKey("s", 0, "c")


def keyed(*items: bytes, log: int = LOG, at: int = 0) -> Append:
    operation = append(*items, log=log, at=at)
    each = [(b"k" + item, offset) for offset, item in enumerate(items)]
    operation.keys = [*each, (b"run", EVERY_ENTRY)]
    return operation


@pytest.fixture
def filled(rocks: RocksDriver) -> RocksDriver:
    rocks.write(PutStream(record=StreamRecord(name="gone")))
    rocks.write(RemoveStream(name="gone"))
    rocks.write(PutStream(record=StreamRecord(name="s", partitions=3, owner="o")))
    for number in range(30):
        rocks.write(keyed(b"%d" % number, b"%d." % number, log=log_id(2, 0), at=number))
    rocks.write_all([keyed(b"%d" % number * 60_000, log=log_id(2, 1)) for number in range(20)])
    rocks.write(SaveIndex(key=KEY, index=7))
    rocks.write(PutRecord(key="large", value=b"." * 1_000_000))
    rocks.write(PutRecord(key="small", value=b"1"))
    return rocks


def copied(
    filled: RocksDriver,
    path: Path,
    *,
    final: bool = True,
    on_bytes: OnBytes = lambda size: None,
) -> list[CopiedLog]:
    """Copy a store that is closed for it."""
    filled.store.close()
    source, target = RocksCopy.source(filled.path), RocksCopy.target(path)
    try:
        return asyncio.run(copy_store(source, target, final=final, on_bytes=on_bytes))
    finally:
        source.close()
        target.close()
        filled.store.open()


def contents(path: Path) -> tuple[list[tuple[bytes, bytes]], ...]:
    """Every row of every column family."""
    tables = Tables(path, Tuning(), read_only=True)
    try:
        families: list[list[tuple[bytes, bytes]]] = []
        for cursor in tables.cursors():
            cursor.seek_to_first()
            families.append([])
            while cursor.valid():
                families[-1].append((cursor.key(), cursor.value()))
                cursor.next()
        return tuple(families)
    finally:
        tables.close()


def assert_same(filled: RocksDriver, path: Path) -> None:
    filled.store.close()
    assert contents(path) == contents(filled.path)
    tables = Tables(path, Tuning(), read_only=True)
    verdict = verify_store(tables)
    tables.close()
    filled.store.open()
    assert verdict.problem_count == 0, verdict.problems


def test_a_copy_is_the_same_row_for_row(filled: RocksDriver, tmp_path: Path) -> None:
    logs = copied(filled, tmp_path / "copy")
    assert_same(filled, tmp_path / "copy")
    found = [(log.stream, log.partition, log.first_index, log.next_index) for log in logs]
    assert found == [("s", 0, 0, 60), ("s", 1, 0, 20), ("s", 2, 0, 0)]
    assert len({log.sha256 for log in logs}) == 3


def test_a_later_run_takes_over_only_what_has_changed(filled: RocksDriver, tmp_path: Path) -> None:
    copied(filled, tmp_path / "copy", final=False)
    filled.write(keyed(b"new", log=log_id(2, 0)))
    filled.write(Trim(log=log_id(2, 0), before=13))
    filled.write(Trim(log=log_id(2, 1), before=20))
    filled.write(PutRecord(key="small", value=None))
    filled.write(PutRecord(key="large", value=b"," * 1_000_000))
    sizes: list[int] = []
    logs = copied(filled, tmp_path / "copy", on_bytes=sizes.append)
    assert_same(filled, tmp_path / "copy")
    assert [(log.first_index, log.compared_from) for log in logs[:2]] == [(13, 60), (20, 20)]
    assert sum(sizes) < 1_000


def test_streams_removed_between_two_runs_leave_nothing(
    filled: RocksDriver, tmp_path: Path
) -> None:
    copied(filled, tmp_path / "copy", final=False)
    filled.write(RemoveStream(name="s"))
    assert copied(filled, tmp_path / "copy") == []
    filled.store.close()
    _, keys, _ = found = contents(tmp_path / "copy")
    assert not keys
    assert found == contents(filled.path)
    filled.store.open()


def test_entries_trimmed_before_they_were_copied_leave_no_hole(
    filled: RocksDriver, tmp_path: Path
) -> None:
    copied(filled, tmp_path / "copy", final=False)
    filled.write(append(b"never copied", log=log_id(2, 0)))
    filled.write(keyed(b"a", b"b", log=log_id(2, 0)))
    filled.write(Trim(log=log_id(2, 0), before=62))
    copied(filled, tmp_path / "copy")
    assert_same(filled, tmp_path / "copy")


@pytest.mark.parametrize("growth", [2.0, pytest.param(1.0, marks=pytest.mark.long)])
def test_an_interrupted_copy_is_gone_on_with(
    filled: RocksDriver, tmp_path: Path, growth: float
) -> None:
    """Cut off again and again, each time further: `growth` 1 cuts at every step."""
    cuts, steps = 0, 1
    while True:
        try:
            copied(filled, tmp_path / "copy", on_bytes=cut_after(steps))
            break
        except CutError:
            with pytest.raises(StoreError, match="not finished"):
                RocksCopy.source(tmp_path / "copy")
        cuts, steps = cuts + 1, max(steps + 1, int(steps * growth))
    assert cuts > 2
    assert_same(filled, tmp_path / "copy")


def test_no_node_starts_on_a_copy_that_is_not_finished(filled: RocksDriver, tmp_path: Path) -> None:
    copied(filled, tmp_path / "copy", final=False)
    with pytest.raises(StoreError, match="not finished") as caught:
        RocksDriver(tmp_path / "copy")
    assert caught.value.code == "store.copying"
    copied(filled, tmp_path / "copy")
    opened = RocksDriver(tmp_path / "copy")
    log = log_id(2, 0)
    assert opened.write(append(b"next", log=log)).first_index == 60
    assert opened.read(ListKeys(log=log, limit=1)).pairs == [(b"k0", 0)]
    opened.store.close()


def test_a_store_that_holds_something_is_no_target(filled: RocksDriver, tmp_path: Path) -> None:
    other = RocksDriver(tmp_path / "copy")
    other.write(PutRecord(key="a", value=b"1"))
    other.store.close()
    with pytest.raises(StoreError) as caught:
        copied(filled, tmp_path / "copy")
    assert caught.value.code == "copy.occupied"


def test_a_copy_of_another_store_is_no_target(filled: RocksDriver, tmp_path: Path) -> None:
    other = RocksDriver(tmp_path / "other")
    other.write_all([PutStream(record=StreamRecord(name=name)) for name in ("a", "b")])
    other.write(append(b"another", log=log_id(2, 0)))
    copied(other, tmp_path / "copy", final=False)
    other.store.close()
    with pytest.raises(StoreError) as caught:
        copied(filled, tmp_path / "copy")
    assert caught.value.code == "copy.diverged"


def test_a_harmed_copy_is_told(filled: RocksDriver, tmp_path: Path) -> None:
    with pytest.raises(CutError):
        copied(filled, tmp_path / "copy", on_bytes=cut_after(1))
    tables = Tables(tmp_path / "copy", Tuning())
    cursor = tables.blocks_cursor()
    cursor.seek_to_first()
    harmed = (cursor.key(), cursor.value()[:-1] + b"!", tables.blocks)
    tables.write(Changes(puts=[harmed]))
    tables.sync()
    # Cursors and handles keep the database open.
    del cursor, harmed
    tables.close()
    with pytest.raises(StoreError) as caught:
        copied(filled, tmp_path / "copy")
    assert caught.value.code == "copy.differs"


def test_what_is_to_copy_is_known_beforehand(filled: RocksDriver) -> None:
    filled.store.close()
    source = RocksCopy.source(filled.path)
    total = asyncio.run(bytes_to_copy(source))
    source.close()
    filled.store.open()
    entries = [*filled.entries(log_id(2, 0)), *filled.entries(log_id(2, 1))]
    assert total == sum(len(entry.data) for entry in entries)
