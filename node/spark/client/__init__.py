"""Lets Spark's processes ask a node."""
