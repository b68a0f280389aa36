from collections.abc import Iterator
from pathlib import Path

import pytest

from store_support import MemoryDriver, RocksDriver, StoreDriver


@pytest.fixture(params=["memory", "rocks"])
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreDriver]:
    """An open store of each kind in turn."""
    opened = MemoryDriver() if request.param == "memory" else RocksDriver(tmp_path / "store")
    yield opened
    opened.store.close()


@pytest.fixture
def rocks(tmp_path: Path) -> Iterator[RocksDriver]:
    """An open store on RocksDB."""
    opened = RocksDriver(tmp_path / "store")
    yield opened
    opened.store.close()
