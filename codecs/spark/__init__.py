"""Bytes that only Spark's jobs read and write."""
