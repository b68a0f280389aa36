from pathlib import Path

from rillnode.actors.log import Checkpoint, Checkpointing, PutStream
from rillnode.actors.log.records import StreamRecord
from rillnode.node.testing.contract.stores.driver import append
from store_support import MemoryDriver, RocksDriver


def checkpoint(rocks: RocksDriver, path: Path) -> Checkpoint:
    operation = Checkpoint(path=path)
    rocks.store.checkpoint(operation)
    rocks.settle(1)
    return operation


def test_a_checkpoint_holds_what_was_submitted_before_and_nothing_after(
    rocks: RocksDriver, tmp_path: Path
) -> None:
    rocks.write(PutStream(record=StreamRecord(name="s")))
    operation = Checkpoint(path=tmp_path / "copies" / "1")
    # Without waiting in between: all four may be one group.
    for item in (append(b"a" * 5_000), append(b"b")):
        rocks.store.submit(item)
    rocks.store.checkpoint(operation)
    rocks.store.submit(append(b"c"))
    rocks.settle(4)
    assert operation.error is None
    assert [entry.data for entry in rocks.entries()] == [b"a" * 5_000, b"b", b"c"]
    copy = RocksDriver(operation.path)
    assert [entry.data for entry in copy.entries()] == [b"a" * 5_000, b"b"]
    copy.write(append(b"other"))
    copy.store.close()
    assert rocks.entries()[2].data == b"c"


def test_a_copy_outlives_the_store(rocks: RocksDriver, tmp_path: Path) -> None:
    numbered = [append(b"%d" % number) for number in range(100)]
    for number, one in enumerate(numbered):
        one.producer, one.sequence = b"p", number
    rocks.write_all(numbered)
    operation = checkpoint(rocks, tmp_path / "copy")
    rocks.store.close()
    for file in rocks.path.iterdir():
        file.unlink()
    copy = RocksDriver(operation.path)
    assert len(copy.entries()) == 100
    again = append(b"50")
    again.producer, again.sequence = b"p", 50
    assert copy.write(again).first_index == 50
    assert again.is_double
    copy.store.close()


def test_a_checkpoint_that_fails_leaves_the_store_writable(
    rocks: RocksDriver, tmp_path: Path
) -> None:
    (tmp_path / "there").mkdir()
    operation = checkpoint(rocks, tmp_path / "there")
    assert operation.error is not None
    assert operation.error.code == "store.checkpoint"
    assert rocks.write(append(b"x")).error is None
    assert rocks.store.health.writable


def test_a_closed_store_refuses(rocks: RocksDriver, tmp_path: Path) -> None:
    rocks.store.close()
    operation = checkpoint(rocks, tmp_path / "copy")
    assert operation.error is not None
    assert operation.error.code == "store.closed"
    assert not operation.path.exists()


def test_only_a_store_that_can_says_so(rocks: RocksDriver) -> None:
    assert isinstance(rocks.store, Checkpointing)
    assert not isinstance(MemoryDriver().store, Checkpointing)
