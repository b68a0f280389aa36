"""Suites of tests for parts of your own: subclass one, say how the part is made, and run pytest."""

from rillnode.node.testing.contract.base import Contract
from rillnode.node.testing.contract.plug_ins import PlugInContract, Used

__all__ = ["Contract", "PlugInContract", "Used"]
