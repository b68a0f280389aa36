"""Simulated nodes for the tests of applications; see `MemoryNetwork`."""

from rillnode.node.testing import MemoryNetwork

__all__ = ["MemoryNetwork"]
