"""Suites of tests for parts of your own: subclass one, say how the part is made, and run pytest."""

from rillnode.node.testing.contract.base import Contract
from rillnode.node.testing.contract.engines import EngineContract, TimedEngineContract
from rillnode.node.testing.contract.engines.parts import Engine
from rillnode.node.testing.contract.links import LinkContract, SizedLinkContract

__all__ = [
    "Contract",
    "Engine",
    "EngineContract",
    "LinkContract",
    "SizedLinkContract",
    "TimedEngineContract",
]
