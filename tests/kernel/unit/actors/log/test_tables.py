"""Writes that RocksDB puts off: repeated whole, but not for ever."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rillnode.actors.log.rocks import tables as module
from rillnode.actors.log.rocks.tables import Changes, Tables
from store_support import SMALL


class Stalling:
    """A database that puts off a number of writes."""

    def __init__(self, database: Any, stalls: int) -> None:
        self._database = database
        self.stalls = stalls

    def write(self, *arguments: Any) -> None:
        if self.stalls:
            self.stalls -= 1
            raise RuntimeError("Result incomplete: Write stall")
        self._database.write(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Tables]:
    opened = Tables(tmp_path, SMALL)
    yield opened
    opened.close()


def stall(tables: Tables, monkeypatch: pytest.MonkeyPatch, stalls: int) -> Changes:
    database = tables._records  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(tables, "_records", Stalling(database, stalls))
    return Changes(
        ranges=[(b"a", b"c", tables.records)],
        puts=[(b"b", b"1", tables.records), (b"c", None, tables.records)],
    )


def test_a_write_put_off_is_repeated(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = stall(tables, monkeypatch, 3)
    tables.write(changes)
    tables.sync()
    assert tables.record(b"b") == b"1"


def test_a_write_put_off_for_too_long_fails(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STALL_SECONDS_MAX", -1.0)
    changes = stall(tables, monkeypatch, 3)
    with pytest.raises(RuntimeError, match="Write stall"):
        tables.write(changes)
    assert tables.record(b"b") is None
