"""How Spark's processes ask a node."""
