"""Chooses the format of a typed table and of its rejects."""

from rillnode.node.spark.job_config import TypedConfig
from rillnode.node.spark.typed.delta_store import DeltaStore
from rillnode.node.spark.typed.store import TableStore


def stores_of(config: TypedConfig) -> tuple[TableStore, TableStore]:
    """A table and its rejects, in the format that it is to have."""
    return (
        DeltaStore(config.dir, config.compact_commits, config.layout),
        DeltaStore(config.rejects, config.compact_commits, config.layout.of_rejects),
    )
