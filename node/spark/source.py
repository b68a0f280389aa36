"""The Spark data source `rillnode`: streams of a node as rows; `writing.py` is the other way.

    spark.readStream.format("rillnode").options(**client.to_options()).load()

Options beside the connection's (`ranges.ClientOptions`), named and meant as those of Spark's
Kafka source:

    startingOffsets     earliest (default), latest, or JSON; a stream's checkpoint goes before it
    startingTimestamp   instead: ms since 1970, or ISO 8601 with a zone; from the first entry that
                        the node received then or later
    endingOffsets       batch reads only: latest (default) or JSON
    endingTimestamp     batch reads only, instead: up to the last entry received before then
    maxOffsetsPerTrigger  entries per micro-batch, shared out by what each partition has waiting
    maxBytesPerTrigger  bytes per micro-batch, likewise, to within a block of each partition
    minPartitions       tasks per micro-batch that is large enough for them
    failOnDataLoss      true (default): fail on entries that were trimmed before they were read,
                        and on a stream that was removed and made anew; false: go on behind them,
                        or at the new stream's beginning, and write a row of kind `gap`
    drainFile           while this file exists no new micro-batch begins

The offset of a batch is the next index of every partition (`offset.py`). Ranges are immutable, so a
repeated batch has the same rows. Rows are in index order within a task.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
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
from rillnode.node.spark.offset import Created, Offset, made_anew, of_streams, ranges_of
from rillnode.node.spark.offsets import (
    Bound,
    Ends,
    Key,
    Positions,
    Range,
    behind,
    check_ends,
    check_streams,
    data_loss,
    limit_positions,
    parse_bound,
    ranges_between,
    resolve_bound,
    split_ranges,
)
from rillnode.node.spark.probing import block_prober, limit_bytes, positions_at
from rillnode.node.spark.ranges import ClientOptions, RangeClient, ask
from rillnode.node.spark.reading import read_ranges
from rillnode.node.spark.tables import BRONZE_STRUCT
from rillnode.node.spark.writing import RowBatchWriter, RowStreamWriter, WriteOptions

FORMAT = "rillnode"
_CHECKPOINT: Final = "the checkpoint's offset"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """A source's options, checked."""

    client: ClientOptions
    starting: Bound = "earliest"
    starting_ms: int | None = None
    ending: Bound = "latest"
    ending_ms: int | None = None
    rows_max: int | None = None
    bytes_max: int | None = None
    tasks_max: int | None = None
    fail_on_data_loss: bool = True
    drain_file: Path | None = None

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "SourceOptions":
        """Check a data source's options.

        Raises:
            ConfigError: one is missing or wrong.
        """
        drain_file = options.get("drainFile")
        return cls(
            client=ClientOptions.from_options(options),
            starting=parse_bound(options.get("startingOffsets", "earliest"), "startingOffsets"),
            starting_ms=_instant(options, "startingTimestamp", instead_of="startingOffsets"),
            ending=parse_bound(options.get("endingOffsets", "latest"), "endingOffsets"),
            ending_ms=_instant(options, "endingTimestamp", instead_of="endingOffsets"),
            rows_max=_positive(options, "maxOffsetsPerTrigger"),
            bytes_max=_positive(options, "maxBytesPerTrigger"),
            tasks_max=_positive(options, "minPartitions"),
            fail_on_data_loss=_boolean(options, "failOnDataLoss", default=True),
            drain_file=Path(drain_file) if drain_file else None,
        )


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
        ends, created = _look(self._options)
        check_streams(self._options.client.patterns, ends)
        start = _start(self._options, ends)
        if self._options.ending_ms is not None:
            end = positions_at(block_prober(self._options.client), ends, self._options.ending_ms)
        else:
            end = resolve_bound(self._options.ending, ends, "endingOffsets")
        check_ends(end, ends)
        tasks = _tasks(self._options, ranges_between(start, end, ends), created)
        return tasks or [RangesPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of one task."""
        return _read(self._options, partition)


class RangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in one process of the driver and reads them in tasks.

    Only the planning process keeps state between calls: what it last saw of the ends, and the
    target of a query that runs until the present end only.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._latest: Offset | None = None
        self._target: Positions | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint starts."""
        ends, created = _look(self._options)
        return Offset(_start(self._options, ends), created).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """`maxOffsetsPerTrigger` or `maxBytesPerTrigger`, if given; with both, both hold."""
        if self._options.rows_max is not None:
            return ReadMaxRows(self._options.rows_max)
        if self._options.bytes_max is not None:
            return ReadMaxBytes(self._options.bytes_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Take the present ends as the query's last."""
        self._target = {key: until for key, (_, until) in _look(self._options)[0].items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends; `start` where there is nothing for one.

        A partition that disappears, because the sink's pattern no longer includes it, keeps its
        position, so that it goes on there if it comes back. A stream that was made anew is read
        from its beginning.

        Raises:
            RequestError: entries were trimmed unread, or a stream was made anew, and
                `failOnDataLoss` is set.
        """
        before = Offset.from_json(start, _CHECKPOINT)
        ends, created = _look(self._options, before)
        anew = before.made_anew(created)
        begin = before.without(anew)
        known = {**before.created, **created}
        self._latest = Offset(begin | {key: until for key, (_, until) in ends.items()}, known)
        if self._options.drain_file is not None and self._options.drain_file.exists():
            return before.to_json()
        if anew and self._options.fail_on_data_loss:
            raise made_anew(anew)
        check_ends(begin, ends)
        # What is trimmed costs one row however long it is; it must not use up the limit.
        reachable = {key: max(begin.get(key, 0), first) for key, (first, _) in ends.items()}
        end = {key: self._bounded(key, until) for key, (_, until) in ends.items()}
        end = {key: max(until, begin.get(key, 0)) for key, until in end.items()}
        if isinstance(limit, ReadMaxRows):
            end = limit_positions(reachable, end, limit.max_rows)
        if self._options.bytes_max is not None and not isinstance(limit, ReadAllAvailable):
            probe = block_prober(self._options.client)
            end = limit_bytes(probe, reachable, end, self._options.bytes_max)
        self._refuse_loss(begin, end, ends)
        return Offset(begin | end, known).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends as the last plan saw them; what is behind them is the query's lag."""
        return None if self._latest is None else self._latest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of one micro-batch."""
        begin = Offset.from_json(start, _CHECKPOINT)
        until = Offset.from_json(end, _CHECKPOINT)
        ranges = ranges_of(begin, until, *_look(self._options, until))
        return _tasks(self._options, ranges, until.created)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of one task."""
        return _read(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Save the position at the node, which may then trim what is before it."""
        save(self._options.client, Offset.from_json(end, _CHECKPOINT))

    def _bounded(self, key: Key, until: int) -> int:
        return until if self._target is None else min(until, self._target.get(key, 0))

    def _refuse_loss(self, begin: Positions, end: Positions, ends: Ends) -> None:
        if self._options.fail_on_data_loss:
            for item in ranges_between(begin, end, ends):
                if item.gap:
                    raise data_loss(item)


def save(options: ClientOptions, offset: Offset) -> None:
    """Save an offset at the node; positions in streams that were made anew mean nothing there."""
    ask(options, lambda client: client.commit(offset.still(_extents(client)[1])))


def _look(options: SourceOptions, known: Offset | None = None) -> tuple[Ends, Created]:
    """The ends of all partitions; of several nodes, those of one that has heard of `known`."""
    several = len(options.client.nodes) > 1

    def question(client: RangeClient) -> tuple[Ends, Created]:
        ends, created = _extents(client)
        if several and known is not None and known.is_past(ends, created):
            raise behind()
        return ends, created

    return ask(options.client, question)


def _extents(client: RangeClient) -> tuple[Ends, Created]:
    return client.ends(), client.created()


def _start(options: SourceOptions, ends: Ends) -> Positions:
    """Where a read without a checkpoint starts."""
    if options.starting_ms is not None:
        return positions_at(block_prober(options.client), ends, options.starting_ms)
    start = resolve_bound(options.starting, ends, "startingOffsets")
    check_ends(start, ends)
    return start


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


def _positive(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not (text.isdecimal() and text.isascii() and int(text) > 0):
        raise ConfigError("spark.option", f"option `{name}` must be a number above 0, not {text!r}")
    return int(text)


def _instant(options: Mapping[str, str], name: str, *, instead_of: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if options.get(instead_of) is not None:
        raise ConfigError("spark.option", f"options `{name}` and `{instead_of}` exclude each other")
    if text.isdecimal() and text.isascii():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ConfigError(
            "spark.option",
            f"option `{name}` must be milliseconds since 1970, or a time with a zone like "
            f"2026-11-21T12:00:00Z, not {text!r}",
        )
    return round(moment.timestamp() * 1000)


def _boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise ConfigError("spark.option", f"option `{name}` must be true or false, not {text!r}")
    return text == "true"
