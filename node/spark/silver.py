"""The query that makes silver of bronze: the Spark format `rillnode-silver`, for both its ends.

    start_silver(session, bronze="data/tables", table="data/silver", ...)

The reader follows bronze's log; its tasks read the files that were added, decode them and write
rows of silver to files of its table, so that Spark gets no rows but their keys (`silver_files.py`).
Spark removes duplicates, with what it remembers of each event in RocksDB for `duplicate_seconds`.
The writer commits a batch in one transaction that also says how far it has come in bronze: a query
without a checkpoint goes on from there, so that a deleted checkpoint neither skips nor repeats
rows. It only forgets which events it has seen.

Duplicates are looked for by the time at which rows were committed to bronze. It never goes back,
so that no row ever comes too late and is dropped: neither those of a stream that is read from its
beginning beside others that are read at their end, nor those of a publisher whose clock is wrong.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import pyarrow as pa
from deltalake import DeltaTable, Transaction
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from rillnode.codecs.errors import ConfigError
from rillnode.node.entries import Readers
from rillnode.node.spark.bronze_files import read_file, read_rest, share_files
from rillnode.node.spark.checkpoint import batch_offset
from rillnode.node.spark.decoding import decode_rows
from rillnode.node.spark.delta_log import (
    Position,
    TableLog,
    open_table,
    saved_position,
)
from rillnode.node.spark.delta_sink import DeltaStreamWriter, writer_locations
from rillnode.node.spark.erasure import Erasures
from rillnode.node.spark.frames import SILVER_STRUCT
from rillnode.node.spark.parquet import TableFile
from rillnode.node.spark.silver_files import (
    EVENT,
    KEY_STRUCT,
    KeptRows,
    kept_rows,
    settle,
    write_candidates,
)

FORMAT: Final = "rillnode-silver"
SETTINGS: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # It would look every event up a second time, to count what it remembers.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # Every partition of a shuffle has a store of its own, whose commit each batch waits for: with
    # Spark's 200 a small batch takes minutes. A checkpoint keeps the number it was begun with.
    "spark.sql.shuffle.partitions": "2",
}
"""What remembers events lies on disk, and a batch saves only what it has changed."""


class SilverOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the reader, checked.

    Attributes:
        bronze: the table that is read.
        target: the table that is written, which says where to go on from.
        rows_max: rows per micro-batch, about.
        tasks_max: tasks per micro-batch that is large enough for them.
        drain_file: while this file exists no new micro-batch begins.
        key_files: paths of files with keys for encrypted entries, by kind of entries, as JSON.
    """

    bronze: str = msgspec.field(name="path")
    target: str
    rows_max: int = msgspec.field(name="maxRowsPerTrigger")
    tasks_max: int = msgspec.field(name="minPartitions")
    drain_file: str = msgspec.field(name="drainFile")
    key_files: str = msgspec.field(name="keyFiles")

    def readers(self) -> Readers:
        """The readers of entries, with the keys that there are now.

        Raises:
            ConfigError: a file of keys cannot be read here.
        """
        return Readers(msgspec.json.decode(self.key_files, type=dict[str, str]))

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "SilverOptions":
        """Read a data source's options.

        Raises:
            ConfigError: one is missing.
        """
        # The names of Spark's options have no upper case when they are asked for them all.
        names = [one.encode_name for one in msgspec.structs.fields(cls)]
        given = {name: options[name] for name in names if name in options}
        try:
            return msgspec.convert(given, cls, strict=False)
        except msgspec.ValidationError as error:
            text = f"format {FORMAT}: option missing or wrong: {error}"
            raise ConfigError("spark.option", text) from None


@dataclass(frozen=True)
class FilesPartition(InputPartition):
    """One task's work.

    Attributes:
        files: files of bronze, as URIs.
        landed_at_ms: when their batch counts as committed.
        gone: those of the files that bronze no longer has.
        holders: the files that have what is left of their rows.
    """

    files: tuple[str, ...]
    landed_at_ms: int
    gone: frozenset[str]
    holders: tuple[str, ...]


class Silver(DataSource):
    """Format `rillnode-silver`."""

    @classmethod
    def name(cls) -> str:
        """Name for `format(...)`."""
        return FORMAT

    def schema(self) -> StructType:
        """The keys of rows."""
        return KEY_STRUCT

    def streamReader(self, schema: StructType) -> "SilverReader":
        """A reader that decodes what is added to bronze."""
        return SilverReader(SilverOptions.from_options(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> "SilverWriter":
        """The writer of the silver table."""
        if schema.names != KEY_STRUCT.names:
            raise ConfigError("spark.option", f"format {FORMAT} only writes what it has read")
        table, checkpoint = writer_locations(FORMAT, self.options, overwrite=overwrite)
        return SilverWriter(table, checkpoint, SILVER_STRUCT.json(), self.options["bronze"])


class SilverReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches along bronze's log; tasks read and decode its files."""

    def __init__(self, options: SilverOptions) -> None:
        self._options = options
        self._log: TableLog | None = None
        self._version_max: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint starts: where the silver table says it ends."""
        bronze = self._bronze().open()
        table = "" if bronze is None else str(bronze.metadata().id)
        return saved_position(open_table(self._options.target), table).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """As many rows as the options say."""
        return ReadMaxRows(self._options.rows_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """Take what bronze has now as the query's end."""
        bronze = self._bronze().open()
        self._version_max = -1 if bronze is None else bronze.version()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends; `start` where there is nothing for one."""
        begin = Position.from_json(start)
        if Path(self._options.drain_file).exists():
            return start
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._bronze().plan(begin, rows_max, self._version_max).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of one micro-batch."""
        self._options.readers()  # what is wrong with a key is told better here than by a task
        until = Position.from_json(end)
        bronze = self._bronze()
        files = bronze.files_between(Position.from_json(start), until)
        gone, holders = (bronze.uris(some) for some in bronze.files_left(files))
        return [
            FilesPartition(tuple(bronze.uris(task)), until.time_ms, frozenset(gone), tuple(holders))
            for task in share_files(files, self._options.tasks_max)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Decode and write one task's rows; gives their keys."""
        task = cast("FilesPartition", partition)
        readers = self._options.readers()
        decoded = (
            decode_rows(rows, task.landed_at_ms, readers)
            for uri in task.files
            for rows in (read_file(uri) if uri not in task.gone else read_rest(uri, task.holders))
        )
        yield from write_candidates(self._options.target, decoded)

    def _bronze(self) -> TableLog:
        if self._log is None:
            self._log = TableLog(self._options.bronze)
        return self._log


class SilverWriter(DeltaStreamWriter):
    """Commits the rows whose keys come back; its transactions tell the position in bronze."""

    notes_position = True

    def __init__(self, table: str, checkpoint: str, schema_json: str, bronze: str) -> None:
        super().__init__(table, checkpoint, schema_json)
        self._bronze = bronze

    # PySpark's own Arrow writer narrows the type of `iterator` in the same way, and its type says
    # nothing of what a writer hands on to its commit.
    def write(  # type: ignore[override]
        self, iterator: Iterator[pa.RecordBatch]
    ) -> KeptRows:
        """Collect one task's keys."""
        return kept_rows(batch for batch in iterator if batch.num_rows)

    def files(self, messages: Sequence[WriterCommitMessage | None]) -> list[TableFile]:
        """The files that hold the rows that are kept, and no others."""
        return list(settle(self._table, messages))

    def file_names(self, messages: Sequence[WriterCommitMessage | None]) -> list[str]:
        """The files that the keys name."""
        names = {name for one in messages if isinstance(one, KeptRows) for name in one.rows}
        return sorted(names)

    def allowed(self, files: list[TableFile]) -> list[TableFile]:
        """The files without entries that were erased after they were read of bronze."""
        return Erasures(self._bronze).keep_out(self._table, files)

    def positions(
        self, batch_id: int, table: DeltaTable, files: Sequence[TableFile]
    ) -> list[Transaction]:
        """The position in bronze that the batch ends at."""
        return Position.from_json(batch_offset(self._checkpoint, batch_id)).transactions()


def start_silver(
    session: SparkSession,
    *,
    bronze: str,
    table: str,
    checkpoint: str,
    drain_file: Path,
    rows_max: int,
    duplicate_seconds: float,
    key_files: Mapping[str, str],
    trigger: Mapping[str, Any],
) -> StreamingQuery:
    """Start the query.

    Args:
        session: a session with this format and SETTINGS.
        bronze: the bronze table.
        table: the silver table.
        checkpoint: the query's checkpoint.
        drain_file: while this file exists no new micro-batch begins.
        rows_max: rows per micro-batch, about; at least one file of bronze.
        duplicate_seconds: how long an event is remembered; one that comes again is left out.
        key_files: paths of files with keys for encrypted entries, by kind of entries.
        trigger: arguments of `DataStreamWriter.trigger`.
    """
    rows = (
        session.readStream.format(FORMAT)
        .option("target", table)
        .option("maxRowsPerTrigger", rows_max)
        .option("minPartitions", session.sparkContext.defaultParallelism)
        .option("drainFile", str(drain_file))
        .option("keyFiles", msgspec.json.encode(key_files).decode())
        .load(bronze)
    )
    remembered = f"{round(1_000 * duplicate_seconds)} milliseconds"
    once = rows.withWatermark("landed_at", remembered).dropDuplicatesWithinWatermark(list(EVENT))
    writer = once.writeStream.format(FORMAT).option("bronze", bronze)
    return writer.option("checkpointLocation", checkpoint).trigger(**trigger).start(table)
