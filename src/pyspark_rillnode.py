"""Lets Spark find the format `rillnode` by itself, in a module named `pyspark_*`."""

from rillnode.node.spark.source import RillnodeSource as DefaultSource

__all__ = ["DefaultSource"]
