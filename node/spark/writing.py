"""The Spark data source `rillnode` as a writer: rows into streams, at least once.

    frame.select("data").writeStream.format("rillnode").options(**options)
        .option("stream", "alerts").option("checkpointLocation", c).start()

Columns: `data`, text or bytes; `stream` and `partition`, if rows go to several. Options beside the
connection's (`ranges.ClientOptions`, without `sink` and `streams`):

    stream      where rows go that have no column `stream`
    partitions  a stream is created with so many (default 1); without a column `partition`, rows
                are spread by task
    envelope    json (default): data lies in an envelope with the row's name, by which consumers
                drop repeats (`codecs/spark/row_envelope.py`); none: data as it is

A task's rows are stored in their order. When a batch is done, all of its rows are durable; when
one is run again, rows of its first run are stored twice.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from rillnode.codecs.errors import ConfigError, RequestError
from rillnode.codecs.spark.row_envelope import RowId, encode_row
from rillnode.node.spark.ranges import ClientOptions, PushClient, ask_push

BATCH_PROPERTY: Final = "streaming.sql.batchId"
"""Where Spark tells a task of the batch that it belongs to (MicroBatchExecution.BATCH_ID_KEY)."""
QUERY_PROPERTY: Final = "sql.streaming.queryId"
"""Likewise of the query (StreamExecution.QUERY_ID_KEY)."""

_COLUMNS: Final = {
    "data": (StringType, BinaryType),
    "stream": (StringType,),
    "partition": (IntegerType,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """A writer's options, checked against the columns that it gets.

    Attributes:
        stream: where rows go that do not tell; "": all tell.
        partitions: number of partitions that streams are created with.
        wrapped: whether rows are put into envelopes.
    """

    client: ClientOptions
    stream: str
    partitions: int
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
        envelope = options.get("envelope", "json")
        if envelope not in ("json", "none"):
            raise _wrong(f"option `envelope` must be json or none, not {envelope!r}")
        return cls(
            client=ClientOptions.from_options({**options, "streams": "*"}),
            stream=stream,
            partitions=int(partitions),
            wrapped=envelope == "json",
        )


class RowWriter:
    """A task's writer of rows."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        # Of a write that is no streaming query's: the same in all of its tasks.
        self._write_id = str(uuid.uuid4())

    def write(self, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Push the rows of the present Spark task; all are durable when it returns.

        Raises:
            RequestError: the node refuses a row, or its data is null.
            TransportError: the node cannot be reached.
        """
        context = cast("TaskContext", TaskContext.get())
        query = context.getLocalProperty(QUERY_PROPERTY) or self._write_id
        batch = int(context.getLocalProperty(BATCH_PROPERTY) or 0)
        self.push_rows(batches, query, batch, context.partitionId())
        return WriterCommitMessage()

    def push_rows(
        self, batches: Iterator[pa.RecordBatch], query: str, batch: int, task: int
    ) -> None:
        """Push the rows of one task of one batch, in order within each stream partition."""
        numbers = count()
        opened: set[str] = set()
        for rows in batches:
            for (stream, partition), items in self._groups(rows, query, batch, task, numbers):
                if stream not in opened:
                    self._ask_open(stream)
                    opened.add(stream)
                self._ask_push(stream, partition, items)

    def _groups(
        self, rows: pa.RecordBatch, query: str, batch: int, task: int, numbers: "count[int]"
    ) -> Sequence[tuple[tuple[str, int], list[bytes]]]:
        names = rows.schema.names
        spread = task % self._options.partitions
        height = rows.num_rows
        streams: list[str | None] = [self._options.stream] * height
        partitions: list[int | None] = [spread] * height
        if "stream" in names:
            streams = rows.column("stream").to_pylist()
        if "partition" in names:
            partitions = rows.column("partition").to_pylist()
        groups: dict[tuple[str, int], list[bytes]] = {}
        items: list[str | bytes | None] = rows.column("data").to_pylist()
        for stream, partition, data in zip(streams, partitions, items, strict=True):
            number = next(numbers)
            if data is None:
                raise RequestError("spark.row", "a row's `data` is null; leave such rows out")
            place = (stream or self._options.stream, spread if partition is None else partition)
            if not place[0] or place[1] < 0:
                raise RequestError("spark.row", f"a row goes to no stream's partition: {place}")
            row_id = RowId(query, batch, task, number)
            groups.setdefault(place, []).append(self._wrap(row_id, data))
        return list(groups.items())

    def _wrap(self, row_id: RowId, data: str | bytes) -> bytes:
        if self._options.wrapped:
            return encode_row(row_id, data)
        return data.encode() if isinstance(data, str) else data

    def _ask_open(self, stream: str) -> None:
        def question(client: PushClient) -> None:
            client.open(stream, self._options.partitions)

        ask_push(self._options.client, question)

    def _ask_push(self, stream: str, partition: int, items: list[bytes]) -> None:
        def question(client: PushClient) -> None:
            client.push(stream, partition, items)

        ask_push(self._options.client, question)


class RowStreamWriter(DataSourceStreamArrowWriter):
    """Writes a streaming query's micro-batches."""

    def __init__(self, options: WriteOptions) -> None:
        self._rows = RowWriter(options)

    # PySpark's own Arrow writer narrows the type of `iterator` in the same way.
    def write(  # type: ignore[override]
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Push one task's rows."""
        return self._rows.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing is left to do: rows are durable when their task ends."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing can be taken back; the batch is run again."""


class RowBatchWriter(DataSourceArrowWriter):
    """Writes a frame once."""

    def __init__(self, options: WriteOptions) -> None:
        self._rows = RowWriter(options)

    # PySpark's own Arrow writer narrows the type of `iterator` in the same way.
    def write(  # type: ignore[override]
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Push one task's rows."""
        return self._rows.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing is left to do: rows are durable when their task ends."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing can be taken back."""


def _check_columns(schema: StructType, *, has_stream: bool) -> None:
    found: dict[str, Any] = {field.name: field.dataType for field in schema.fields}
    for name, kind in found.items():
        if name not in _COLUMNS:
            raise _wrong(f"column `{name}`: a writer has {', '.join(_COLUMNS)}; select these")
        if not isinstance(kind, _COLUMNS[name]):
            raise _wrong(f"column `{name}` has type {kind.simpleString()}")
    if "data" not in found:
        raise _wrong("column `data` is missing")
    if "stream" not in found and not has_stream:
        raise _wrong("format rillnode needs the option `stream` or a column of this name")


def _wrong(text: str) -> ConfigError:
    return ConfigError("spark.option", text)
