"""A database whose CURRENT survived a power cut, and what it names did not."""

import logging
from pathlib import Path

import pytest

from rillnode.actors.log import Read
from rillnode.actors.log.rocks.current import CURRENT, use_earlier_manifest
from rillnode.codecs.errors import StoreError
from rillnode.node.testing.contract.stores.driver import LOG, append
from store_support import RocksDriver


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """The directory of a closed store with two entries, opened twice."""
    driver = RocksDriver(tmp_path / "store")
    driver.write(append(b"first"))
    driver.reopen()
    driver.write(append(b"second"))
    driver.store.close()
    return driver.path


def test_a_manifest_that_is_missing_is_replaced_by_the_one_before(
    written: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = (written / CURRENT).read_text()
    (written / CURRENT).write_text("MANIFEST-999999\n")
    with caplog.at_level(logging.WARNING):
        driver = RocksDriver(written)
    assert [entry.data for entry in driver.entries(LOG)] == [b"first", b"second"]
    assert "store_opened_by_earlier_manifest" in [record.msg for record in caplog.records]
    driver.store.close()
    assert (written / CURRENT).read_text() != "MANIFEST-999999\n" != before


def test_the_newest_of_the_manifests_before_is_taken(tmp_path: Path) -> None:
    for name in ("MANIFEST-000004", "MANIFEST-000010", "MANIFEST-000012", "MANIFEST-other"):
        (tmp_path / name).touch()
    (tmp_path / CURRENT).write_text("MANIFEST-000012\n")
    assert use_earlier_manifest(tmp_path)
    assert (tmp_path / CURRENT).read_text() == "MANIFEST-000010\n"
    assert use_earlier_manifest(tmp_path)
    assert (tmp_path / CURRENT).read_text() == "MANIFEST-000004\n"


def test_a_database_that_was_being_created_is_created_anew(tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.mkdir()
    (path / CURRENT).write_text("MANIFEST-000001\n")
    driver = RocksDriver(path)
    assert driver.read(Read(log=LOG)).extent.next_index == 0
    driver.store.close()


def test_data_without_any_manifest_is_refused_and_left_alone(written: Path) -> None:
    for manifest in written.glob("MANIFEST-*"):
        manifest.unlink()
    data = {file.name: file.read_bytes() for file in written.glob("*.[sl][so][tg]")}
    assert data
    with pytest.raises(StoreError, match="restore it from a backup") as caught:
        RocksDriver(written)
    assert caught.value.code == "store.unreadable"
    assert data == {file.name: file.read_bytes() for file in written.glob("*.[sl][so][tg]")}
