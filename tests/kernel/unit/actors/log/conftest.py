from collections.abc import Iterator
from pathlib import Path

import pytest

from store_support import RocksDriver


@pytest.fixture
def rocks(tmp_path: Path) -> Iterator[RocksDriver]:
    """An open store on RocksDB."""
    opened = RocksDriver(tmp_path / "store")
    yield opened
    opened.store.close()
