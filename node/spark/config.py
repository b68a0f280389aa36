"""The tables of `node.toml` that say where streams are landed."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from rillnode.node.config.kinds import Count, Memory, Name, Seconds, SparkMaster, TableLocation


class SparkSink(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A Spark job that writes streams into a Delta table, exactly once.

    Attributes:
        name: The sink's name; the job's principal is `sink/<name>`.
        streams: Patterns of stream names, as in a grant.
        table_dir: Directory of the table, or its URL in an object store, whose credentials come
            from the environment.
        checkpoint_dir: Directory of the query's checkpoint. Default: `_checkpoints/<name>` in
            `table_dir`, which must be a directory then.
        silver_dir: Directory of the silver table: every event once, decoded. Without it there is
            none.
        gold_dir: Directory of the gold tables: what happened per minute. It needs `silver_dir`.
        duplicate_seconds: How long silver remembers an event, to leave it out if it comes again.
        master: Spark's master URL.
        driver_memory: Heap of the job's Java virtual machine.
        trigger_seconds: Time between two micro-batches.
        batch_rows_max: Rows of one micro-batch.
        hold_bytes_max: Bytes kept for the sink beyond retention; beyond that, entries are trimmed
            and a gap row is recorded.
        key_file: Key of the job on a cluster. Default: a short-lived key that the node makes.
        external: Somebody else starts the job, with `key_file`; the node answers it, and keeps what
            it has not committed.
    """

    name: Annotated[Name, Meta(examples=["bronze"])]
    streams: Annotated[
        tuple[Name, ...],
        Meta(min_length=1, title="a list of at least one pattern", examples=[["sensors*"]]),
    ]
    table_dir: Annotated[TableLocation, Meta(examples=["data/tables"])]
    checkpoint_dir: Annotated[Path | None, Meta(examples=["data/checkpoints/bronze"])] = None
    silver_dir: Annotated[TableLocation | None, Meta(examples=["data/silver"])] = None
    gold_dir: Annotated[TableLocation | None, Meta(examples=["data/gold"])] = None
    duplicate_seconds: Seconds = 600.0
    master: SparkMaster = "local[2]"
    driver_memory: Memory = "1g"
    trigger_seconds: Seconds = 5.0
    batch_rows_max: Count = 100_000
    hold_bytes_max: Count = 5_000_000_000
    key_file: Annotated[Path | None, Meta(examples=["data/bronze.key"])] = None
    external: bool = False

    @property
    def checkpoint_path(self) -> Path:
        """Where the query's checkpoint lies."""
        return self.checkpoint_dir or Path(self.table_dir, "_checkpoints", self.name)

    @property
    def silver_checkpoint_path(self) -> Path | None:
        """Where the silver query's checkpoint lies; None without silver."""
        if self.silver_dir is None:
            return None
        if self.silver_dir.path is None:
            # Spark cannot write to an object store by itself.
            return self.checkpoint_path.with_name(f"{self.checkpoint_path.name}-silver")
        return self.silver_dir.path / "_checkpoints" / "silver"


class FilesSink(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A job that writes streams to files, for a Spark cluster that cannot reach the node.

    Attributes:
        name: The sink's name; the job's principal is `sink/<name>`.
        streams: Patterns of stream names, as in a grant.
        directory: Where the files go, to be carried to the cluster from there.
        bytes_max: Bytes of files that may lie there; no more are written until some are taken away.
        trigger_seconds: How often new entries are looked for.
        hold_bytes_max: The same as of a Spark sink, for what is not in files.
    """

    name: Annotated[Name, Meta(examples=["remote"])]
    streams: Annotated[
        tuple[Name, ...],
        Meta(min_length=1, title="a list of at least one pattern", examples=[["sensors*"]]),
    ]
    directory: Annotated[Path, Meta(examples=["data/outgoing"])]
    bytes_max: Count = 10_000_000_000
    trigger_seconds: Seconds = 5.0
    hold_bytes_max: Count = 5_000_000_000


class SinkTables(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sinks, by kind.

    Attributes:
        spark: Spark sinks.
        files: Sinks into files.
    """

    spark: tuple[SparkSink, ...] = ()
    files: tuple[FilesSink, ...] = ()

    @property
    def enabled(self) -> bool:
        """Whether there are any."""
        return bool(self.spark or self.files)

    @property
    def all(self) -> tuple[SparkSink | FilesSink, ...]:
        """The sinks of every kind."""
        return (*self.spark, *self.files)
