"""Suites of tests for parts of your own: subclass one, say how the part is made, and run pytest."""

from rillnode.node.testing.contract.base import Contract
from rillnode.node.testing.contract.engines import EngineContract, TimedEngineContract
from rillnode.node.testing.contract.engines.parts import Engine
from rillnode.node.testing.contract.links import LinkContract, SizedLinkContract
from rillnode.node.testing.contract.shared_logs import SharedLogContract, SharedLogSite
from rillnode.node.testing.contract.stores import (
    SharedStoreContract,
    StoreContract,
    StoreOnEngineContract,
)
from rillnode.node.testing.contract.stores.driver import StoreDriver, ThreadedDriver

__all__ = [
    "Contract",
    "Engine",
    "EngineContract",
    "LinkContract",
    "SharedLogContract",
    "SharedLogSite",
    "SharedStoreContract",
    "SizedLinkContract",
    "StoreContract",
    "StoreDriver",
    "StoreOnEngineContract",
    "ThreadedDriver",
    "TimedEngineContract",
]
