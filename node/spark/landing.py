"""The way into the bronze table: tasks write the table's files themselves.

    spark.readStream.format("rillnode-landing").options(**options).option("path", table_dir).load()
        .writeStream.format("rillnode-landing").option("checkpointLocation", c).start(table_dir)

The rows of the plain source go from the Python process that fetches them to Java and on to the
Python process that writes them. Here the first of these writes a file in the table's directory and
gives Spark one row, which names the file; the writer adds the files that a micro-batch names in
one transaction. So an entry costs no more than its way from the socket into Parquet.

Offsets, tasks and the rule of the transaction are those of the formats `rillnode` and
`rillnode-delta`, whose checkpoints these queries share. The transaction also says how far it has
come in each partition: a query without a checkpoint goes on from there. A file that a failed task
has written is in no transaction; readers do not see it, and the table's maintenance removes it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, Transaction
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from rillnode.codecs.errors import ConfigError
from rillnode.node.spark import bronze
from rillnode.node.spark.bronze import landed_until
from rillnode.node.spark.checkpoint import batch_offset, forget, query_id
from rillnode.node.spark.delta_log import open_table
from rillnode.node.spark.delta_sink import DeltaStreamWriter, FilesWritten, writer_locations
from rillnode.node.spark.erasure import Erasures
from rillnode.node.spark.frames import BRONZE_STRUCT
from rillnode.node.spark.offsets import Offset
from rillnode.node.spark.parquet import TableFile, write_files
from rillnode.node.spark.planning import SourceOptions
from rillnode.node.spark.source import RangeStreamReader
from rillnode.node.spark.tables import schema_of

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
