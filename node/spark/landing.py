"""The way into the bronze table: tasks write the table's files themselves.

    spark.readStream.format("rillnode-landing").options(**options).option("path", table_dir).load()
        .writeStream.format("rillnode-landing").option("checkpointLocation", c).start(table_dir)

The rows of the plain source go from the Python process that fetches them to Java and on to the
Python process that writes them. Here the first of these writes a file in the table's directory and
gives Spark one row, which names the file; the writer adds the files that a micro-batch names in
one transaction. So an entry costs no more than its way from the socket into Parquet.

The transaction also carries the pair (id of the query, id of the batch). A batch that Spark repeats
finds its pair in the table and is skipped, so that each row is in the table exactly once. The id of
the query comes from the checkpoint: under a fixed one, a new checkpoint, which counts its batches
from 0 again, would have them all skipped. It says, too, how far it has come in each partition: a
query without a checkpoint goes on from there. A file that a failed task has written is in no
transaction; readers do not see it, and the table's maintenance removes it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, Schema, Transaction
from deltalake.exceptions import TableNotFoundError
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from rillnode.codecs.errors import ConfigError
from rillnode.node.spark import bronze
from rillnode.node.spark.bronze import landed_until
from rillnode.node.spark.delta import add_actions, commit, committing, holds, open_to_write, summary
from rillnode.node.spark.delta_log import open_table
from rillnode.node.spark.erasure import Erasures
from rillnode.node.spark.files import batch_offset, forget, query_id, remove_files, sync_batch
from rillnode.node.spark.frames import BRONZE_STRUCT
from rillnode.node.spark.offsets import Offset
from rillnode.node.spark.parquet import TableFile, write_files
from rillnode.node.spark.planning import SourceOptions
from rillnode.node.spark.source import RangeStreamReader
from rillnode.node.spark.tables import schema_of


@dataclass(frozen=True)
class FilesWritten(WriterCommitMessage):
    """The files that one task wrote."""

    files: tuple[TableFile, ...]


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


FORMAT: Final = "rillnode-landing"
_TABLE: Final = "the checkpoint of a landing"

_FILE_SCHEMA: Final = schema_of(
    name="text", size="long", rows="long", data_bytes="long", entries_lost="long", stats="text"
)
FILE_STRUCT: Final = from_arrow_schema(_FILE_SCHEMA)
"""A `TableFile` as a row; its statistics tell which streams and indexes it holds."""


class Landing(DataSource):
    """Format `rillnode-landing`, for both ends of the query that writes a bronze table."""

    @classmethod
    def name(cls) -> str:
        """Name for `format(...)`."""
        return FORMAT

    def schema(self) -> StructType:
        """One row per written file."""
        return FILE_STRUCT

    def streamReader(self, schema: StructType) -> "LandingReader":
        """A reader that writes what it reads to the table's directory.

        Raises:
            ConfigError: an option is missing or wrong.
        """
        path = self.options.get("path")
        if not path:
            raise ConfigError("spark.option", f"option `path` of format {FORMAT} is missing")
        return LandingReader(SourceOptions.from_options(self.options), path)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "LandingWriter":
        """The writer that commits the files.

        Raises:
            ConfigError: an option is missing, the output mode is not append, or the rows are not
                those of this format's reader.
        """
        if schema.names != FILE_STRUCT.names:
            raise ConfigError("spark.option", f"format {FORMAT} only writes what it has read")
        table, checkpoint = writer_locations(FORMAT, self.options, overwrite=overwrite)
        return LandingWriter(table, checkpoint, BRONZE_STRUCT.json())


def leave_overtaken(location: str, checkpoint: str) -> str | None:
    """Leave a checkpoint that the table has gone past without it, for a query to begin anew.

    Returns:
        What was done, for the log; None where nothing was to do.
    """
    table = open_table(location)
    try:
        query = query_id(checkpoint)
    except ConfigError:
        return None
    if table is None or not bronze.is_behind(table, query):
        return None
    forget(checkpoint)
    return f"{location} has entries of a sink without Spark: the checkpoint begins anew behind them"


class LandingReader(RangeStreamReader):
    """Plans as the plain source does; a task's rows are the files that it has written."""

    def __init__(self, options: SourceOptions, table: str) -> None:
        super().__init__(options)
        self._table = table

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint starts: where the table says that it ends.

        A partition of which it says nothing is read from the first entry that is kept.
        """
        first = super().initialOffset()
        table = open_table(self._table)
        return (
            first
            if table is None
            else landed_until(table, Offset.from_json(first, _TABLE)).to_json()
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Write one task's range; each file is durable when its row is given."""
        for file in write_files(self._table, super().read(partition)):
            yield pa.RecordBatch.from_pylist([asdict(file)], schema=_FILE_SCHEMA)


class LandingWriter(DeltaStreamWriter):
    """Commits files that are written already; its transactions tell how far they reach."""

    def positions(
        self, batch_id: int, table: DeltaTable, files: Sequence[TableFile]
    ) -> list[Transaction]:
        """The end of the batch in each partition that it has come further in, and what was lost."""
        until = Offset.from_json(batch_offset(self._checkpoint, batch_id), _TABLE)
        before = Offset({}, {})
        if batch_id:
            before = Offset.from_json(batch_offset(self._checkpoint, batch_id - 1), _TABLE)
        query = query_id(self._checkpoint)
        if batch_id and bronze.is_behind(table, query):
            raise bronze.overtaken(self._table)
        return [
            *bronze.transactions(table, before, until, files),
            *bronze.of_query(table, query),
        ]

    def allowed(self, files: list[TableFile]) -> list[TableFile]:
        """The files without entries that were erased, which the node's log may still have."""
        return Erasures(self._table).keep_out(self._table, files)

    # PySpark's own Arrow writer narrows the type of `iterator` in the same way.
    def write(  # type: ignore[override]
        self, iterator: Iterator[pa.RecordBatch]
    ) -> FilesWritten:
        """Hand one task's files on to the commit."""
        return FilesWritten(
            tuple(TableFile(**row) for batch in iterator for row in batch.to_pylist())
        )
