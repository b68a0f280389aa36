"""Suites of stores: what every LogStore promises (`actors/log`), and what shared ones do."""

from pathlib import Path

import pytest

from rillnode.node.stores import places
from rillnode.node.testing.contract.shared_logs import OnServers, SharedLogSite
from rillnode.node.testing.contract.stores.changes import ChangesContract
from rillnode.node.testing.contract.stores.crashes import CrashesContract
from rillnode.node.testing.contract.stores.doubles import DoublesContract
from rillnode.node.testing.contract.stores.driver import StoreDriver
from rillnode.node.testing.contract.stores.log import LogContract
from rillnode.node.testing.contract.stores.on_engine import EngineDriver
from rillnode.node.testing.contract.stores.others import OthersContract
from rillnode.node.testing.contract.stores.records import RecordsContract
from rillnode.node.testing.contract.stores.removal import RemovalContract
from rillnode.node.testing.contract.stores.streams import StreamsContract


class StoreContract(
    LogContract,
    StreamsContract,
    RecordsContract,
    RemovalContract,
    DoublesContract,
    ChangesContract,
    CrashesContract,
):
    """The promises of every LogStore; if others also write to its logs, see `SharedStoreContract`.

    A subclass says by `open_store` how one is made. Stores are taken to remember producers as
    `actors/log/producers.py` does, whose bounds some tests make small.
    """


class SharedStoreContract(OthersContract, StoreContract):
    """The promises of LogStores that nodes have of the same logs: drivers open more by `other`."""


class StoreOnEngineContract(OnServers, SharedStoreContract):
    """The same of nodes' shared stores on an engine, as `SharedLogContract` is given one."""

    @pytest.fixture(autouse=True)
    def _on_servers(self, site: SharedLogSite) -> None:
        self._site = site

    def open_store(self, directory: Path) -> StoreDriver:
        """Drives a store of one shard on new logs; its views are in the directory."""
        self._site.make()
        return EngineDriver(self._site.again, directory, places=places(), shards=1)
