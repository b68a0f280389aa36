"""The Spark data source `rillnode`: streams of a node as rows; `writing.py` is the other way.

    spark.readStream.format("rillnode").options(**client.to_options()).load()

`planning.OPTIONS` says what its options mean. The offset of a batch is the next index of every
partition (`offsets.py`). Ranges are immutable, so a repeated batch has the same rows. Rows are in
index order within a task.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.arrow import read_ranges
from rillnode.node.spark.frames import BRONZE_STRUCT
from rillnode.node.spark.offsets import (
    Created,
    Offset,
    Range,
    check_streams,
    of_streams,
    ranges_between,
    resolve_bound,
    split_ranges,
)
from rillnode.node.spark.planning import (
    BatchPlanner,
    SourceOptions,
    block_prober,
    look,
    positions_at,
    save,
    start_of,
)
from rillnode.node.spark.writing import RowBatchWriter, RowStreamWriter, WriteOptions

FORMAT = "rillnode"
_CHECKPOINT: Final = "the checkpoint's offset"


@dataclass(frozen=True)
class RangesPartition(InputPartition):
    """One task's work.

    Attributes:
        number: of the task; which node it asks first follows from it.
    """

    ranges: tuple[Range, ...]
    number: int = 0


class RillnodeSource(DataSource):
    """Format `rillnode`, for `spark.read` and `spark.readStream`."""

    @classmethod
    def name(cls) -> str:
        """Name for `format(...)`."""
        return FORMAT

    def schema(self) -> StructType:
        """The bronze schema; it is fixed."""
        return BRONZE_STRUCT

    def reader(self, schema: StructType) -> "RangeReader":
        """A reader of a bounded range of every stream."""
        options = SourceOptions.from_options(self.options)
        if options.starting == "latest":
            raise ConfigError("spark.option", "option `startingOffsets` of a batch read is latest")
        if options.ending == "earliest":
            raise ConfigError("spark.option", "option `endingOffsets` of a batch read is earliest")
        return RangeReader(options)

    def streamReader(self, schema: StructType) -> "RangeStreamReader":
        """A reader of every stream from a position on."""
        return RangeStreamReader(SourceOptions.from_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> RowBatchWriter:
        """A writer of a frame's rows into streams."""
        _only_append(overwrite=overwrite)
        return RowBatchWriter(WriteOptions.from_options(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> RowStreamWriter:
        """A writer of a streaming query's rows into streams."""
        _only_append(overwrite=overwrite)
        return RowStreamWriter(WriteOptions.from_options(self.options, schema))


class RangeReader(DataSourceReader):
    """Reads a bounded range once."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """The tasks of the read; the ends of the streams are those of now."""
        ends, created = look(self._options)
        check_streams(self._options.client.patterns, ends)
        start = start_of(self._options, ends, created)
        if self._options.ending_ms is not None:
            end = positions_at(block_prober(self._options.client), ends, self._options.ending_ms)
        else:
            end = resolve_bound(self._options.ending, ends, created, "endingOffsets")
        tasks = _tasks(self._options, ranges_between(start, end, ends), created)
        return tasks or [RangesPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of one task."""
        return _read(self._options, partition)


class RangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in one process of the driver and reads them in tasks."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._planner = BatchPlanner(options)

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint starts."""
        return self._planner.first().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """`maxOffsetsPerTrigger` or `maxBytesPerTrigger`, if given; with both, both hold."""
        if self._options.rows_max is not None:
            return ReadMaxRows(self._options.rows_max)
        if self._options.bytes_max is not None:
            return ReadMaxBytes(self._options.bytes_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Take the present ends as the query's last."""
        self._planner.end_at_present()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends; `start` where there is nothing for one.

        Raises:
            RequestError: entries were trimmed unread, or a stream was made anew, and
                `failOnDataLoss` is set.
        """
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        bytes_max = None if isinstance(limit, ReadAllAvailable) else self._options.bytes_max
        before = Offset.from_json(start, _CHECKPOINT)
        return self._planner.after(before, rows_max, bytes_max).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends as the last plan saw them; what is behind them is the query's lag."""
        latest = self._planner.latest
        return None if latest is None else latest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of one micro-batch."""
        until = Offset.from_json(end, _CHECKPOINT)
        ranges = self._planner.ranges(Offset.from_json(start, _CHECKPOINT), until)
        return _tasks(self._options, ranges, until.created)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of one task."""
        return _read(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Save the position at the node, which may then trim what is before it."""
        save(self._options.client, Offset.from_json(end, _CHECKPOINT))


def _tasks(options: SourceOptions, ranges: list[Range], created: Created) -> list[InputPartition]:
    tasks = split_ranges(of_streams(ranges, created), options.tasks_max)
    return [RangesPartition(task, number) for number, task in enumerate(tasks)]


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    task = cast("RangesPartition", partition)
    client = options.client.beginning_at(task.number)
    return read_ranges(client, task.ranges, fail_on_data_loss=options.fail_on_data_loss)


def _only_append(*, overwrite: bool) -> None:
    if overwrite:
        raise ConfigError("spark.option", f"format {FORMAT} only appends")
