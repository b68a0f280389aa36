"""What every store promises: the tests of this folder run on each of them."""

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from nats_support import JetStreamDriver, NatsServer, needs_nats, running_nats
from rillnode.actors.storage.jetstream.membership import Member, owner_of
from rillnode.actors.storage.shared.memory_log import MemoryServers
from shared_support import SharedDriver
from store_support import LOG, MemoryDriver, RocksDriver, StoreDriver, wait_until

_prefixes = (f"t{number}" for number in count())


@pytest.fixture(scope="session")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A NATS server for tests that leave it running."""
    with running_nats(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
def other_owner(nats: NatsServer) -> Iterator[JetStreamDriver]:
    """A store of a node that owns the log of the tests, whoever else is there."""
    members = [Member(f"{number:064x}", "", b"") for number in range(2)]
    owner = owner_of(LOG, members).identity
    driver = JetStreamDriver(nats, next(_prefixes), identity=owner)
    yield driver
    driver.store.close()


def follower_of(owner: JetStreamDriver) -> JetStreamDriver:
    """A store of another node on the same logs, which knows the owner."""
    number = 1 - int(owner.identity)
    driver = JetStreamDriver(owner.server, owner.options.prefix, identity=f"{number:064x}")

    def met() -> bool:
        sharing = driver.store.sharing()
        return sharing is not None and len(sharing.nodes) == 2

    wait_until(met)
    return driver


@pytest.fixture(
    params=[
        "memory",
        "rocks",
        "shared, views on disk",
        "shared, views in memory",
        pytest.param("jetstream", marks=needs_nats),
        pytest.param("jetstream, another node is the owner", marks=needs_nats),
    ]
)
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreDriver]:
    """An open store of each kind in turn."""
    opened: StoreDriver
    if request.param == "memory":
        opened = MemoryDriver()
    elif request.param == "rocks":
        opened = RocksDriver(tmp_path / "store")
    elif request.param.startswith("shared"):
        view = "rocks" if request.param.endswith("disk") else "memory"
        shared = SharedDriver(
            MemoryServers(os.urandom(16)), tmp_path / "views", view=view, shards=1
        )
        yield shared
        shared.end()
        return
    elif request.param != "jetstream":
        opened = follower_of(request.getfixturevalue("other_owner"))
    else:
        opened = JetStreamDriver(request.getfixturevalue("nats"), next(_prefixes))
    yield opened
    opened.store.close()
