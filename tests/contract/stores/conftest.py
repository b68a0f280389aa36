"""Runs the tests of this folder, the contract of stores, on each store."""

from collections.abc import Iterator
from itertools import count
from math import inf
from pathlib import Path
from typing import Final

import pytest

from memory_site import MemorySite
from nats_support import NatsServer, needs_nats, running_nats
from rillnode.actors.log.rocks import writer
from rillnode.node.testing.contract.stores.driver import StoreDriver
from rillnode.node.testing.contract.stores.on_engine import EngineDriver, rocks_view
from shared_support import JetStreamDriver, memory_view
from store_support import MemoryDriver, RocksDriver

_prefixes = (f"t{number}" for number in count())


@pytest.fixture(scope="session")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A NATS server for tests that leave it running."""
    with running_nats(tmp_path_factory.mktemp("nats")) as server:
        yield server


OWN: Final = ("memory", "rocks", "rocks, committed at the end of turns")
"""Stores whose logs nobody else writes to."""

SHARED: Final = (
    "shared, views on disk",
    "shared, views in memory",
    pytest.param("shared, on JetStream", marks=needs_nats),
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test on every kind of store, and on those that are shared where it takes another."""
    own = any(mark.args[0] == "driver" for mark in metafunc.definition.iter_markers("parametrize"))
    if "driver" in metafunc.fixturenames and not own:
        kinds = SHARED if "other" in metafunc.fixturenames else (*OWN, *SHARED)
        metafunc.parametrize("driver", kinds, indirect=True)


@pytest.fixture
def driver(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StoreDriver]:
    """An open store of each kind in turn."""
    opened: StoreDriver
    if request.param == "memory":
        opened = MemoryDriver()
    elif request.param.startswith("rocks"):
        # However slow the disk of the tests is.
        monkeypatch.setattr(writer, "HERE_SECONDS_MAX", inf)
        monkeypatch.setattr(writer, "STALL_SECONDS", inf)
        opened = RocksDriver(tmp_path / "store", has_turns=request.param != "rocks")
    else:
        opened = _shared(request, tmp_path / "views")
    yield opened
    opened.end()


@pytest.fixture
def other(driver: StoreDriver, tmp_path: Path) -> Iterator[StoreDriver]:
    """Another one that is open on the same logs."""
    opened = driver.other(tmp_path / "other")
    assert opened is not None
    yield opened
    opened.end()


def _shared(request: pytest.FixtureRequest, views: Path) -> EngineDriver:
    if request.param.endswith("JetStream"):
        return JetStreamDriver(request.getfixturevalue("nats"), next(_prefixes), views, shards=1)
    view = rocks_view if request.param.endswith("disk") else memory_view
    site = MemorySite()
    site.make()
    return EngineDriver(site.again, views, view=view, shards=1)
