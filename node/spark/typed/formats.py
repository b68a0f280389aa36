"""Chooses the table format of a typed table: Delta's, or Iceberg's where it has a catalog."""

from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.installed import require_iceberg
from rillnode.node.spark.job_config import TypedConfig
from rillnode.node.spark.typed.arrays import REJECTS
from rillnode.node.spark.typed.delta_store import DeltaStore
from rillnode.node.spark.typed.store import TableStore


def stores_of(config: TypedConfig) -> tuple[TableStore, TableStore]:
    """A table and its rejects, in the format that it is to have.

    Raises:
        ConfigError: `table.install`, what the format needs is not installed; `table.layout`, it
            cannot keep rows as they are to be kept.
    """
    commits = config.compact_commits
    if config.catalog is None:
        return (
            DeltaStore(config.dir, commits, config.layout),
            DeltaStore(config.rejects, commits, config.layout.of_rejects),
        )
    layout = config.layout
    if layout.key or layout.partition_by or layout.keep_days is not None:
        text = "key, partition_by and keep_days are of Delta tables: leave them out, or the catalog"
        raise ConfigError("table.layout", text)
    require_iceberg()
    # Few have what it needs.
    from rillnode.node.spark.typed.iceberg_store import IcebergStore

    catalog, rejects = config.catalog, f"{config.table}_rejects"
    return (
        IcebergStore(catalog, config.table, config.dir, None, commits),
        IcebergStore(catalog, rejects, config.rejects, REJECTS, commits),
    )
