"""The Spark sink: has a job land a node's streams in tables."""
