"""The Spark data source `rillnode` as a writer: rows into streams, once.

    frame.select("data").writeStream.format("rillnode").options(**options)
        .option("stream", "alerts").option("checkpointLocation", c).start()

Columns: `data`, text or bytes; `stream` and `partition`, if rows go to several; `key`, text or
bytes, and `headers`, a map of texts to texts or bytes. `OPTIONS` says what its options mean, beside
those of a connection.

A task's rows are stored in their order. When a batch is done, all of its rows are durable. Each
task is a named producer of the partitions that it writes to, and a row's number is made of its
batch and its place in the task: when a batch is run again, what its first run has stored is not
stored twice. That holds for rows which come in the same order again, as they do unless a shuffle
lies before them; sort within partitions where one does.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, IntegerType, MapType, StringType, StructType

from rillnode.codecs.entries import NewEntry
from rillnode.codecs.errors import ConfigError, RequestError
from rillnode.codecs.keyed import Headers, partition_of
from rillnode.codecs.spark.row_envelope import RowId, encode_row
from rillnode.node.client.producer import new_entry
from rillnode.node.spark.ranges import ClientOptions, RangeClient, ask

if TYPE_CHECKING:
    from rillnode.node.spark.clients import StreamsClient

OPTIONS: Final = {
    "stream": "the stream for rows that have no column `stream`",
    "partitions": "the number of partitions of a new stream; default 1. Rows without `partition` "
    "go to the partition of their `key`; without a key they are spread by task",
    "producer": "the name of this write among several of a query's batch into one stream, in "
    "`foreachBatch`; without names the second counts as the first, run again, and stores nothing",
    "envelope": "`none` (default): an entry is the row's `data` as it is; `json`: it is in an "
    "envelope with the row's name",
}
"""The options of the Spark format as a sink, beside those of a connection."""

BATCH_PROPERTY: Final = "streaming.sql.batchId"
"""Where Spark tells a task of the batch that it belongs to (MicroBatchExecution.BATCH_ID_KEY)."""
QUERY_PROPERTY: Final = "sql.streaming.queryId"
"""Likewise of the query (StreamExecution.QUERY_ID_KEY)."""

Pairs = Sequence[tuple[str, str | bytes | None]]
"""A map as Arrow gives it."""

NAME_BYTES_MAX: Final = 64
"""Bytes of a write's name: the producer's has the query's id, the task and more beside it."""
BATCH_ROWS_MAX: Final = 2**32
"""Rows of one batch that a task may write to one partition: what a batch's numbers leave room for.
"""

_COLUMNS: Final = {
    "data": (StringType, BinaryType),
    "stream": (StringType,),
    "partition": (IntegerType,),
    "key": (StringType, BinaryType),
    "headers": (MapType,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """A writer's options, checked against the columns that it gets.

    Attributes:
        stream: where rows go that do not tell; "": all tell.
        partitions: number of partitions that streams are created with.
        producer: what tells this write from others of the same batch; "": it is the only one.
        wrapped: whether rows are put into envelopes.
    """

    client: ClientOptions
    stream: str
    partitions: int
    producer: str
    wrapped: bool

    @classmethod
    def from_options(cls, options: Mapping[str, str], schema: StructType) -> "WriteOptions":
        """Check a writer's options and columns.

        Raises:
            ConfigError: one is missing or wrong.
        """
        for name in ("sink", "streams"):
            if options.get(name):
                raise _wrong(f"option `{name}` is for reading; a writer has `stream`")
        stream = options.get("stream") or ""
        _check_columns(schema, has_stream=bool(stream))
        partitions = options.get("partitions", "1")
        if not (partitions.isdecimal() and partitions.isascii() and int(partitions) > 0):
            raise _wrong(f"option `partitions` must be a number above 0, not {partitions!r}")
        envelope = options.get("envelope", "none")
        if envelope not in ("json", "none"):
            raise _wrong(f"option `envelope` must be json or none, not {envelope!r}")
        producer = options.get("producer") or ""
        if len(producer.encode()) > NAME_BYTES_MAX:
            raise _wrong(f"option `producer` has more than {NAME_BYTES_MAX} bytes: {producer!r}")
        return cls(
            client=ClientOptions.from_options({**options, "streams": "*"}),
            stream=stream,
            partitions=int(partitions),
            producer=producer,
            wrapped=envelope == "json",
        )


class RowWriter:
    """A task's writer of rows."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        # Of a write that is no streaming query's: the same in all of its tasks.
        self._write_id = str(uuid.uuid4())
        self._opened: dict[str, int] = {}  # partitions of the streams that are open

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Push the rows of the present Spark task; all are durable when it returns.

        Raises:
            RequestError: the node refuses a row, or its data is null.
            TransportError: the node cannot be reached.
        """
        context = cast("TaskContext", TaskContext.get())
        query = context.getLocalProperty(QUERY_PROPERTY) or self._write_id
        if self._options.producer:
            query = f"{query}/{self._options.producer}"
        batch = int(context.getLocalProperty(BATCH_PROPERTY) or 0)
        self.push_rows(iterator, query, batch, context.partitionId())
        return WriterCommitMessage()

    def push_rows(
        self, batches: Iterator[pa.RecordBatch], query: str, batch: int, task: int
    ) -> None:
        """Push the rows of one task of one batch, in order within each stream partition."""
        numbers = count()
        self._opened = {}
        written: dict[tuple[str, int], int] = {}
        for rows in batches:
            for place, entries in self._groups(rows, query, batch, task, numbers):
                before = written.get(place, 0)
                written[place] = before + len(entries)
                # Where partitions have been added, keys may lie in others: other numbers, then.
                producer = f"spark/{query}/{task}/{self._opened[place[0]]}"
                self._push(*place, entries, producer, batch * BATCH_ROWS_MAX + before)

    def _groups(
        self, rows: pa.RecordBatch, query: str, batch: int, task: int, numbers: "count[int]"
    ) -> Sequence[tuple[tuple[str, int], list[NewEntry]]]:
        names = rows.schema.names
        spread = task % self._options.partitions
        height = rows.num_rows
        streams: list[str | None] = [self._options.stream] * height
        partitions: list[int | None] = [None] * height
        if "stream" in names:
            streams = rows.column("stream").to_pylist()
        if "partition" in names:
            partitions = rows.column("partition").to_pylist()
        keys: Iterable[str | bytes | None] = repeat(None, height)
        headers: Iterable[Pairs | None] = repeat(None, height)
        if "key" in names:
            keys = rows.column("key").to_pylist()
        if "headers" in names:
            headers = rows.column("headers").to_pylist()
        groups: dict[tuple[str, int], list[NewEntry]] = {}
        items: list[str | bytes | None] = rows.column("data").to_pylist()
        columns = zip(streams, partitions, items, keys, headers, strict=True)
        for stream, partition, data, key, pairs in columns:
            number = next(numbers)
            if data is None:
                raise RequestError("spark.row", "a row's `data` is null; leave such rows out")
            wrapped = self._wrap(RowId(query, batch, task, number), data)
            entry = new_entry(wrapped, key, None if pairs is None else _filled(pairs))
            name = stream or self._options.stream
            if not name or (partition is not None and partition < 0):
                place = name, partition
                raise RequestError("spark.row", f"a row goes to no stream's partition: {place}")
            there = self._opened.get(name) or self._ask_open(name)
            if partition is None:
                partition = spread if entry.key is None else partition_of(entry.key, there)
            groups.setdefault((name, partition), []).append(entry)
        return list(groups.items())

    def _wrap(self, row_id: RowId, data: str | bytes) -> bytes:
        if self._options.wrapped:
            return encode_row(row_id, data)
        return data.encode() if isinstance(data, str) else data

    def _ask_open(self, stream: str) -> int:
        def question(client: RangeClient) -> int:
            return cast("StreamsClient", client).open(stream, self._options.partitions)

        there = self._opened[stream] = ask(self._options.client, question)
        return there

    def _push(
        self, stream: str, partition: int, entries: list[NewEntry], producer: str, first: int
    ) -> None:
        def question(client: RangeClient) -> None:
            cast("StreamsClient", client).push(stream, partition, entries, producer, first)

        ask(self._options.client, question)


# PySpark's own Arrow writers narrow the type of `iterator` in the same way.
class RowStreamWriter(RowWriter, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writes a streaming query's micro-batches."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing is left to do."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing can be taken back; the batch is run again."""


class RowBatchWriter(RowWriter, DataSourceArrowWriter):  # type: ignore[misc]
    """Writes a frame once."""

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing is left to do."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing can be taken back."""


def _filled(pairs: Pairs) -> Headers:
    """A map's pairs but those whose value is null."""
    return {name: value for name, value in pairs if value is not None}


def _check_columns(schema: StructType, *, has_stream: bool) -> None:
    found: dict[str, Any] = {field.name: field.dataType for field in schema.fields}
    for name, kind in found.items():
        if name not in _COLUMNS:
            raise _wrong(f"column `{name}`: a writer has {', '.join(_COLUMNS)}; select these")
        if not isinstance(kind, _COLUMNS[name]):
            raise _wrong(f"column `{name}` has type {kind.simpleString()}")
        if isinstance(kind, MapType) and not (
            isinstance(kind.keyType, StringType)
            and isinstance(kind.valueType, StringType | BinaryType)
        ):
            raise _wrong(f"column `{name}` has type {kind.simpleString()}")
    if "data" not in found:
        raise _wrong("column `data` is missing")
    if "stream" not in found and not has_stream:
        raise _wrong("format rillnode needs the option `stream` or a column of this name")


def _wrong(text: str) -> ConfigError:
    return ConfigError("spark.option", text)
