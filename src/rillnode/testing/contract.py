"""Suites of tests for parts of your own: subclass one, say how the part is made, and run pytest."""

from rillnode.node.testing.contract.base import Contract
from rillnode.node.testing.contract.shared_logs import SharedLogContract, SharedLogSite
from rillnode.node.testing.contract.stores import (
    SharedStoreContract,
    StoreContract,
    StoreOnEngineContract,
)
from rillnode.node.testing.contract.stores.driver import StoreDriver, ThreadedDriver

__all__ = [
    "Contract",
    "SharedLogContract",
    "SharedLogSite",
    "SharedStoreContract",
    "StoreContract",
    "StoreDriver",
    "StoreOnEngineContract",
    "ThreadedDriver",
]
