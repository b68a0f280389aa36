"""The Spark sink `rillnode-delta`: every micro-batch is one transaction of a Delta table.

    frame.writeStream.format("rillnode-delta").option("checkpointLocation", c).start(table_dir)

Tasks write Parquet files; the commit adds them all in one transaction that also carries the pair
(id of the query, id of the batch). A batch that Spark repeats finds its pair in the table and is
skipped, so that each row is in the table exactly once. The id of the query comes from the
checkpoint: under a fixed one, a new checkpoint, which counts its batches from 0 again, would have
them all skipped.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, Schema, Transaction
from deltalake.exceptions import TableNotFoundError
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.checkpoint import query_id, sync_batch
from rillnode.node.spark.delta import (
    add_actions,
    commit,
    committing,
    holds,
    open_to_write,
    summary,
)
from rillnode.node.spark.parquet import TableFile, remove_files, write_files

FORMAT: Final = "rillnode-delta"


@dataclass(frozen=True)
class FilesWritten(WriterCommitMessage):
    """The files that one task wrote."""

    files: tuple[TableFile, ...]


class DeltaSink(DataSource):
    """Format `rillnode-delta`, for `writeStream` in output mode append."""

    @classmethod
    def name(cls) -> str:
        """Name for `format(...)`."""
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> "DeltaStreamWriter":
        """The writer of a query's micro-batches.

        Raises:
            ConfigError: no path or no checkpoint is given, or the output mode is not append.
        """
        table, checkpoint = writer_locations(FORMAT, self.options, overwrite=overwrite)
        return DeltaStreamWriter(table, checkpoint, schema.json())


class DeltaStreamWriter(DataSourceStreamArrowWriter):
    """Writes files in tasks and commits them in the driver.

    Attributes:
        notes_position: whether batches without rows are committed, too, to say how far they came.
    """

    notes_position = False

    def __init__(self, table: str, checkpoint: str, schema_json: str) -> None:
        self._table = table
        self._checkpoint = checkpoint
        self._schema_json = schema_json

    # PySpark's own Arrow writer narrows the type of `iterator` in the same way.
    def write(  # type: ignore[override]
        self, iterator: Iterator[pa.RecordBatch]
    ) -> FilesWritten:
        """Write one task's rows to files."""
        return FilesWritten(tuple(write_files(self._table, iterator)))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Add a batch's files to the table, once.

        Raises:
            ConfigError: the table has other columns.
        """
        files = self.files(messages)
        if not files and not self.notes_position:
            return
        with committing(self._table):
            self._commit(files, batchId)

    def files(self, messages: Sequence[WriterCommitMessage | None]) -> list[TableFile]:
        """The files that a batch adds."""
        return [
            file
            for message in messages
            if isinstance(message, FilesWritten)
            for file in message.files
        ]

    def file_names(self, messages: Sequence[WriterCommitMessage | None]) -> list[str]:
        """The files that a batch which failed leaves behind."""
        return [file.name for file in self.files(messages)]

    def positions(
        self, batch_id: int, table: DeltaTable, files: Sequence[TableFile]
    ) -> list[Transaction]:
        """How far a batch has come in what it was made of, for its transaction to say."""
        return []

    def allowed(self, files: list[TableFile]) -> list[TableFile]:
        """The files that a batch may add, of those that its tasks have written."""
        return files

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Remove what the tasks of a failed batch have written, unless the table has it.

        Spark also aborts a batch whose commit has failed, and a commit may fail, or its process
        die, after the transaction: then these files are the table's only copy of their rows.
        """
        with committing(self._table):
            try:
                done = holds(DeltaTable(self._table), query_id(self._checkpoint), batchId)
            except TableNotFoundError:
                done = False
            if not done:
                remove_files(self._table, self.file_names(messages))

    def _commit(self, files: list[TableFile], batch_id: int) -> None:
        app_id = query_id(self._checkpoint)
        table = self._open()
        if holds(table, app_id, batch_id):
            remove_files(self._table, [file.name for file in files])
            return
        files = self.allowed(files)
        sync_batch(self._checkpoint, batch_id)
        numbers = [Transaction(app_id, batch_id), *self.positions(batch_id, table, files)]
        told = {"batch": summary(app_id, batch_id, files)}
        commit(self._table, table, add_actions(files, data_change=True), numbers, told)

    def _open(self) -> DeltaTable:
        return open_to_write(self._table, Schema.from_json(self._schema_json))


def writer_locations(name: str, options: Mapping[str, str], *, overwrite: bool) -> tuple[str, str]:
    """The table's and the checkpoint's location in the options of a format's writer.

    Raises:
        ConfigError: one of them is missing, or the output mode is not append.
    """
    if overwrite:
        raise ConfigError("spark.option", f"format {name} only appends")
    found: list[str] = []
    for option in ("path", "checkpointLocation"):
        value = options.get(option)
        if not value:
            raise ConfigError("spark.option", f"option `{option}` of format {name} is missing")
        found.append(value)
    return found[0], found[1]
