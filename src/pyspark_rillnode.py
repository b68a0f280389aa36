"""Where Spark finds the format `rillnode` by itself: it looks into modules named `pyspark_*`."""

from rillnode.node.spark.source import RillnodeSource as DefaultSource

__all__ = ["DefaultSource"]
