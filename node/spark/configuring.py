"""Makes the configurations of sinks' jobs from the node's; `job_config.py` says what they are."""

from pathlib import Path
from typing import Any

from rillnode.node.config import Config
from rillnode.node.spark.config import FilesSink, Sink, SparkSink, TableSink
from rillnode.node.spark.files import absolute
from rillnode.node.spark.job_config import (
    AnyJobConfig,
    ApplicationConfig,
    CatalogConfig,
    DerivedConfig,
    ExportConfig,
    JobConfig,
    PythonJobConfig,
    TypedConfig,
    ViewConfig,
)
from rillnode.node.spark.table_config import TypedTable, tables_of
from rillnode.node.spark.view_config import ViewTable, views_of
from rillnode.node.spark.views import SILVER


def job_config(
    config: Config, table: Sink, identity: str, address: str, key_file: Path, work_dir: Path
) -> AnyJobConfig:
    """The configuration of a sink's job, from the node's.

    Args:
        config: the node's.
        table: the sink.
        identity: the node's Ed25519 identity, hex.
        address: `host:port` of its Noise listener.
        key_file: the job's key.
        work_dir: where its files go.
    """
    host, _, port = address.rpartition(":")
    # A listener on all addresses is reached on this machine's own.
    host = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)
    told: dict[str, Any] = {
        "sink": table.name,
        "url": f"noise://{host}:{port}",
        "node_identity": identity,
        "key_file": str(key_file.absolute()),
        "work_dir": str(work_dir.absolute()),
        "trigger_seconds": table.trigger_seconds,
    }
    if isinstance(table, FilesSink):
        return ExportConfig(
            **told, directory=str(table.directory.absolute()), bytes_max=table.bytes_max
        )
    told |= {
        "table_dir": absolute(table.table_dir),
        "batch_rows_max": table.batch_rows_max,
        "typed": typed_configs(config, table),
        "views": view_configs(config, table),
    }
    if not isinstance(table, SparkSink):
        return PythonJobConfig(**told)
    return JobConfig(
        **told,
        checkpoint_dir=str(table.checkpoint_path.absolute()),
        master=table.master,
        driver_memory=table.driver_memory,
        derived=derived_config(config, table),
        modules=table.modules,
    )


def application_config(job: JobConfig, name: str, work_dir: Path) -> ApplicationConfig:
    """The configuration of the application that runs a job, and others with the same settings."""
    return ApplicationConfig(
        name=name,
        work_dir=str(work_dir.absolute()),
        master=str(job.master),
        driver_memory=job.driver_memory,
    )


def derived_config(config: Config, table: TableSink) -> DerivedConfig | None:
    """What is made of a sink's table but typed tables and their views; None for nothing."""
    if not isinstance(table, SparkSink):
        return None
    checkpoint = table.silver_checkpoint_path
    if table.silver_dir is None or checkpoint is None:
        return None
    views = (one for one in views_of(config, table.name) if one.of == SILVER)
    return DerivedConfig(
        bronze_dir=absolute(table.table_dir),
        silver_dir=absolute(table.silver_dir),
        gold_dir=None if table.gold_dir is None else absolute(table.gold_dir),
        checkpoint_dir=str(checkpoint.absolute()),
        consumer=f"sink/{table.name}",
        duplicate_seconds=table.duplicate_seconds,
        key_files=table.key_files,
        trigger_seconds=table.trigger_seconds,
        batch_rows_max=table.batch_rows_max,
        views=tuple(map(view_config, views)),
    )


def view_config(view: ViewTable) -> ViewConfig:
    """A view for its sink's job, from the node's configuration."""
    return ViewConfig(
        name=view.called,
        sql=view.sql,
        slot=view.slot,
        dir=absolute(view.dir),
        of="" if view.of == SILVER else view.of,
    )


def view_configs(config: Config, table: TableSink) -> tuple[ViewConfig, ...]:
    """The views of typed tables that a sink's job makes."""
    return tuple(view_config(one) for one in views_of(config, table.name) if one.of != SILVER)


def typed_configs(config: Config, sink: TableSink) -> tuple[TypedConfig, ...]:
    """The typed tables of a sink's job, from the node's configuration."""
    return tuple(typed_config(one, sink) for one in tables_of(config, sink.name))


def typed_config(table: TypedTable, sink: TableSink) -> TypedConfig:
    """A typed table of a sink's job, from the node's configuration."""
    catalog = table.catalog
    return TypedConfig(
        name=table.called,
        streams=table.streams,
        dir="" if table.dir is None else absolute(table.dir),
        table="" if catalog is None else catalog.table,
        catalog=None
        if catalog is None
        else CatalogConfig(
            name=catalog.name,
            type=catalog.type,
            uri=catalog.url,
            warehouse=catalog.warehouse or "",
        ),
        source=table.source,
        evolve=table.evolve,
        reject=table.reject,
        expect=table.expectations,
        layout=table.layout,
        key_files=sink.key_files,
        batch_rows_max=sink.batch_rows_max,
    )
