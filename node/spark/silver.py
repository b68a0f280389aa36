"""The query that makes silver of bronze: the Spark format `rillnode-silver`, for both its ends.

    start_silver(session, bronze="data/tables", table="data/silver", ...)

The reader follows bronze's log; its tasks read the files that were added, decode them and write
rows of silver to files of its table. An entry never stops them: what cannot be decoded becomes a
row that has its bytes and the reason.

Spark gets no rows but their *keys*: the event, a digest of what it says, and where its row lies.
Through Java and a shuffle the rows would cost more than all the rest. Spark removes duplicates
among the keys, with what it remembers of each event in RocksDB for `duplicate_seconds`. A file all
of whose keys come back is added to the table as it is. Of another, the rows whose keys came back
are written anew: in the driver, because the keys of one file come back through several tasks. A key
that comes back from a task that Spark has run twice may name either one's file: each row is in
exactly one of them. A file that no key names is in no transaction; the table's maintenance removes
it. Entries of kind `bytes` have no name but their index, and bronze has each once. Those that
follow one another share a key, that of the first: it only tells that their file is not to be
forgotten.

The writer commits a batch in one transaction that also says how far it has come in bronze: a query
without a checkpoint goes on from there, so that a deleted checkpoint neither skips nor repeats
rows. It only forgets which events it has seen.

Duplicates are looked for by the time at which rows were committed to bronze. It never goes back,
so that no row ever comes too late and is dropped: neither those of a stream that is read from its
beginning beside others that are read at their end, nor those of a publisher whose clock is wrong.
"""

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema, Transaction
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from rillnode.codecs.errors import CodecError, ConfigError
from rillnode.node.entries import WITHOUT_KEYS, Decoded, Readers, Unreadable
from rillnode.node.spark.bronze import read_file, read_rest, share_files
from rillnode.node.spark.delta import add_actions, commit, committing, holds, open_to_write, summary
from rillnode.node.spark.delta_log import Position, TableLog, open_table, saved_position
from rillnode.node.spark.erasure import Erasures
from rillnode.node.spark.files import batch_offset, filesystem, query_id, remove_files, sync_batch
from rillnode.node.spark.parquet import TableFile, describe_file, write_files
from rillnode.node.spark.schema_upgrade import conform
from rillnode.node.spark.tables import BRONZE_SCHEMA, SILVER_SCHEMA, schema_of

_TIMES: Final = ("ts", "prev_ts", "landed_at")


def decode_rows(
    rows: pa.RecordBatch, landed_at_ms: int, readers: Readers = WITHOUT_KEYS
) -> pa.RecordBatch:
    """Decode rows of bronze, in order.

    Args:
        rows: rows of any version of the bronze schema.
        landed_at_ms: when they were committed, ms since 1970.
        readers: decode the entries.

    Returns:
        As many rows of the silver schema.
    """
    rows = conform(rows, BRONZE_SCHEMA)
    kinds: list[str] = rows.column("kind").to_pylist()
    items: list[bytes | None] = rows.column("data").to_pylist()
    decoded = [decode_entry(kind, data, readers) for kind, data in zip(kinds, items, strict=True)]
    values: dict[str, list[Any]] = {
        name: [row[at] for row in decoded] for at, name in enumerate(Decoded._fields)
    }
    indexes: list[int] = rows.column("index").to_pylist()
    values["event_id"] = [
        f"#{index}" if name is None else name
        for index, name in zip(indexes, values["event_id"], strict=True)
    ]
    values["landed_at"] = [landed_at_ms] * len(items)
    values["data_bytes"] = [len(data or b"") for data in items]
    for name in _TIMES:
        values[name] = [None if time is None else time * 1000 for time in values[name]]
    return pa.RecordBatch.from_arrays(
        [
            _array(values[column.name], column.type)
            if column.name in values
            else rows.column(column.name)
            for column in SILVER_SCHEMA
        ],
        schema=SILVER_SCHEMA,
    )


def decode_entry(kind: str, data: bytes | None, readers: Readers = WITHOUT_KEYS) -> Decoded:
    """Decode one entry's bytes as its kind says; what is wrong with them is in `error`."""
    if data is None:
        return Decoded(error="entries were trimmed or removed before they were landed")
    try:
        return readers.of(kind).decoded(data)
    except (CodecError, Unreadable) as error:
        return Decoded(data=data, error=str(error))


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """An array of a silver column; times are given as integers."""
    if isinstance(kind, pa.TimestampType):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


EVENT: Final = ("stream", "partition", "event_id", "_said")
"""The columns that tell two events apart."""
KEY_SCHEMA: Final = schema_of(
    stream="text", partition="int", event_id="text", _said="long", landed_at="time",
    # Where the rows lie: name of the file, number of the first in it, how many share the key.
    file="text", row="int", rows="int",
)  # fmt: skip
KEY_STRUCT: Final = from_arrow_schema(KEY_SCHEMA)
_READ_ROWS: Final = 4_096
_TIME: Final = struct.Struct("<q")
_DIGEST_BYTES: Final = 8

Rows = npt.NDArray[np.int32]


@dataclass(frozen=True)
class KeptRows(WriterCommitMessage):
    """The rows that one task has seen for the first time: numbers, by file."""

    rows: Mapping[str, Rows]


def write_candidates(table: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write rows of silver to files of the table; yields the keys of each file when it is durable.

    Args:
        table: the table's directory or URI.
        batches: rows of the silver schema.
    """
    held: list[_Keys] = []

    def noted() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                held.append(_keys(batch))
                yield batch

    for file in write_files(table, noted()):
        first = 0
        for events, starts, counts in held:
            names = pa.array([file.name] * len(starts), pa.string())
            where = [names, pa.array(first + starts), pa.array(counts)]
            yield pa.RecordBatch.from_arrays([*events, *where], schema=KEY_SCHEMA)
            first += int(counts.sum())
        held.clear()


def kept_rows(batches: Iterable[pa.RecordBatch]) -> KeptRows:
    """Keys that came back, as numbers of rows."""
    found: dict[str, list[int]] = defaultdict(list)
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("file", "row", "rows"))
        for name, first, count in zip(*columns, strict=True):
            found[name].extend(range(first, first + count))
    return KeptRows({name: np.array(rows, np.int32) for name, rows in found.items()})


def settle(table: str, messages: Sequence[WriterCommitMessage | None]) -> Iterator[TableFile]:
    """The files that hold exactly the rows that are kept; files with others are written anew."""
    kept: dict[str, list[Rows]] = {}
    for message in messages:
        if isinstance(message, KeptRows):
            for name, rows in message.rows.items():
                kept.setdefault(name, []).append(rows)
    system, root = filesystem(table)
    for name, parts in sorted(kept.items()):
        rows = np.concatenate(parts)
        with pq.ParquetFile(f"{root}/{name}", filesystem=system) as parquet:
            if len(rows) == parquet.metadata.num_rows:
                yield describe_file(table, name)
                continue
            mask = np.zeros(parquet.metadata.num_rows, np.bool_)
            mask[rows] = True
            yield from write_files(table, _masked(parquet, mask))
        remove_files(table, [name])


def _masked(parquet: pq.ParquetFile, mask: npt.NDArray[np.bool_]) -> Iterator[pa.RecordBatch]:
    first = 0
    for batch in parquet.iter_batches(batch_size=_READ_ROWS, use_threads=False):
        chosen = pa.array(mask[first : first + batch.num_rows])
        yield from pa.Table.from_batches([batch]).filter(chosen).to_batches()
        first += batch.num_rows


class _Keys(NamedTuple):
    """Keys of the rows of a batch: the events, and which rows share each."""

    events: list[pa.Array]
    starts: Rows
    counts: Rows


def _keys(rows: pa.RecordBatch) -> _Keys:
    """The keys of a batch: one of each row, but of rows that cannot repeat one of each run.

    They depend on nothing but the rows: a task that Spark runs again makes the same.
    """
    once = np.array([kind == "bytes" for kind in rows.column("kind").to_pylist()], np.bool_)
    begins = ~once
    begins[0] = True
    begins[1:] |= ~once[:-1]
    starts = np.flatnonzero(begins).astype(np.int32)
    counts = np.diff(starts, append=np.int32(rows.num_rows))
    return _Keys(_events(rows.take(pa.array(starts))), starts, counts)


def _events(rows: pa.RecordBatch) -> list[pa.Array]:
    """The columns of the keys that are known before the rows are in a file."""
    said = [
        _said(
            (data or b"") if content is None else content.encode(),
            received_at if kind == "bytes" else None,
        )
        for content, data, kind, received_at in zip(
            rows.column("content").to_pylist(),
            rows.column("data").to_pylist(),
            rows.column("kind").to_pylist(),
            rows.column("received_at").cast(pa.int64()).to_pylist(),
            strict=True,
        )
    ]
    stream, partition, event_id, landed_at = (
        rows.column(name) for name in ("stream", "partition", "event_id", "landed_at")
    )
    return [stream, partition, event_id, pa.array(said, pa.int64()), landed_at]


def _said(content: bytes, received_at: int | None) -> int:
    """A digest of what an event says.

    Two messages under one id are no duplicates if they say different things: both are kept. The id
    of what belongs to no protocol is its index, which a stream that was made anew has once more:
    such an entry only comes again as the node took it.
    """
    key = b"" if received_at is None else _TIME.pack(received_at)
    digest = blake2b(content, digest_size=_DIGEST_BYTES, key=key).digest()
    number: int = _TIME.unpack(digest)[0]
    return number


FORMAT: Final = "rillnode-silver"
_SCHEMA: Final = Schema.from_arrow(SILVER_SCHEMA)
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
        if overwrite:
            raise ConfigError("spark.option", f"format {FORMAT} only appends")
        for name in ("path", "checkpointLocation", "bronze"):
            if not self.options.get(name):
                raise ConfigError("spark.option", f"option `{name}` of format {FORMAT} is missing")
        table, checkpoint = self.options["path"], self.options["checkpointLocation"]
        return SilverWriter(table, checkpoint, _SCHEMA, self.options["bronze"])


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


class SilverWriter(DataSourceStreamArrowWriter):
    """Commits the rows whose keys come back; its transactions tell the position in bronze.

    Args:
        table: the table.
        checkpoint: the query's checkpoint.
        schema: the table's columns.
        bronze: the bronze table.
    """

    def __init__(self, table: str, checkpoint: str, schema: Schema, bronze: str) -> None:
        self._table = table
        self._checkpoint = checkpoint
        self._schema_json = schema.to_json()
        self._bronze = bronze

    # PySpark's own Arrow writer narrows the type of `iterator` in the same way, and its type says
    # nothing of what a writer hands on to its commit.
    def write(  # type: ignore[override]
        self, iterator: Iterator[pa.RecordBatch]
    ) -> KeptRows:
        """Collect one task's keys."""
        return kept_rows(batch for batch in iterator if batch.num_rows)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Add the files of a batch to the table, once.

        Raises:
            ConfigError: the table has other columns.
        """
        files = list(settle(self._table, messages))
        with committing(self._table):
            app_id = query_id(self._checkpoint)
            table = open_to_write(self._table, Schema.from_json(self._schema_json))
            if holds(table, app_id, batchId):
                remove_files(self._table, [file.name for file in files])
                return
            # Some may hold entries that were erased after they were read of bronze.
            files = Erasures(self._bronze).keep_out(self._table, files)
            sync_batch(self._checkpoint, batchId)
            numbers = [Transaction(app_id, batchId), *self.positions(batchId)]
            told = {"batch": summary(app_id, batchId, files)}
            commit(self._table, table, add_actions(files, data_change=True), numbers, told)

    def positions(self, batch_id: int) -> list[Transaction]:
        """The position in bronze that a batch ends at."""
        return Position.from_json(batch_offset(self._checkpoint, batch_id)).transactions()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Remove what the tasks of a failed batch have written, unless the table has it.

        Spark also aborts a batch whose commit has failed, and a commit may fail, or its process
        die, after the transaction: then these files are the table's only copy of their rows.
        """
        names = {name for one in messages if isinstance(one, KeptRows) for name in one.rows}
        with committing(self._table):
            try:
                done = holds(DeltaTable(self._table), query_id(self._checkpoint), batchId)
            except TableNotFoundError:
                done = False
            if not done:
                remove_files(self._table, sorted(names))


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
