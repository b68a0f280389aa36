"""What every store promises: the tests of this folder run on each of them."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from nats_support import JetStreamDriver, NatsServer, needs_nats, running_nats
from store_support import MemoryDriver, RocksDriver, StoreDriver

_prefixes = (f"t{number}" for number in count())


@pytest.fixture(scope="session")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A NATS server for tests that leave it running."""
    with running_nats(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture(params=["memory", "rocks", pytest.param("jetstream", marks=needs_nats)])
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreDriver]:
    """An open store of each kind in turn."""
    opened: StoreDriver
    if request.param == "memory":
        opened = MemoryDriver()
    elif request.param == "rocks":
        opened = RocksDriver(tmp_path / "store")
    else:
        opened = JetStreamDriver(request.getfixturevalue("nats").url, next(_prefixes))
    yield opened
    opened.store.close()
