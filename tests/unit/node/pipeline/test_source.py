from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from fake_sink import FakeSink
from rillnode.codecs.errors import ConfigError, RequestError
from rillnode.node.pipeline.source import (
    RangesPartition,
    RangeStreamReader,
    RillnodeSource,
    SourceOptions,
)

EVERYTHING: ReadLimit = ReadAllAvailable()


def stream_reader(sink: FakeSink, **options: str) -> RangeStreamReader:
    source = RillnodeSource({**sink.local_options.to_options(), **options})
    return source.streamReader(StructType())


def batch_rows(sink: FakeSink, **options: str) -> list[tuple[object, ...]]:
    reader = RillnodeSource({**sink.local_options.to_options(), **options}).reader(StructType())
    return [
        (row["stream"], row["partition"], row["index"])
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def ten_entries() -> FakeSink:
    sink = FakeSink()
    for _ in range(5):
        sink.append("s", [b"a", b"b"])
    return sink


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("maxOffsetsPerTrigger", "0"),
        ("maxOffsetsPerTrigger", "many"),
        ("minPartitions", "-1"),
        ("failOnDataLoss", "maybe"),
        ("startingOffsets", "yesterday"),
        ("endingOffsets", "{}}"),
        ("url", ""),
        ("sink", ""),
        ("key_file", ""),
        ("node_identity", ""),
    ],
)
def test_a_wrong_option_is_named(option: str, value: str) -> None:
    options = {**FakeSink().local_options.to_options(), option: value}
    with pytest.raises(ConfigError, match=f"`{option}`"):
        SourceOptions.from_options(options)


def test_a_client_that_does_not_exist_is_a_configuration_error() -> None:
    for name in ("no_such_module:open", "fake_sink:nothing", "fake_sink", ""):
        reader = stream_reader(FakeSink(), client=name or ":")
        with pytest.raises(ConfigError, match="`client`"):
            reader.initialOffset()


def test_options_never_hold_the_key() -> None:
    options = FakeSink().local_options.to_options()
    assert set(options) == {"url", "node_identity", "key_file", "sink", "client"}
    assert SourceOptions.from_options(options).client.to_options() == options


def test_a_stream_is_planned_batch_by_batch() -> None:
    sink = ten_entries()
    reader = stream_reader(sink, maxOffsetsPerTrigger="4")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(4)
    offset = reader.initialOffset()
    assert offset == {"s": {"0": 0}}
    seen: list[int] = []
    while (end := reader.latestOffset(offset, limit)) != offset:
        for partition in reader.partitions(offset, end):
            for batch in reader.read(partition):
                seen += [row["index"] for row in batch.to_pylist()]
        reader.commit(end)
        offset = end
    assert seen == list(range(10))
    assert sink.positions == {("s", 0): 10}
    assert reader.partitions(offset, offset) == []


def test_the_engine_may_ask_for_everything_in_spite_of_the_limit() -> None:
    reader = stream_reader(ten_entries(), maxOffsetsPerTrigger="4")
    assert reader.latestOffset({"s": {"0": 3}}, EVERYTHING) == {"s": {"0": 10}}
    assert reader.reportLatestOffset() == {"s": {"0": 10}}


def test_without_a_limit_everything_is_read() -> None:
    assert stream_reader(ten_entries()).getDefaultReadLimit() == EVERYTHING


def test_latest_starts_at_the_ends_but_new_partitions_at_zero() -> None:
    sink = ten_entries()
    reader = stream_reader(sink, startingOffsets="latest")
    start = reader.initialOffset()
    assert start == {"s": {"0": 10}}
    sink.append("s", [b"x"] * 3, partition=1)
    end = reader.latestOffset(start, EVERYTHING)
    assert end == {"s": {"0": 10, "1": 3}}
    (task,) = reader.partitions(start, end)
    assert cast("RangesPartition", task).ranges == (("s", 1, 0, 3, False),)


def test_a_partition_that_disappears_keeps_its_position() -> None:
    reader = stream_reader(ten_entries())
    start = {"gone": {"0": 77}, "s": {"0": 4}}
    assert reader.latestOffset(start, EVERYTHING) == {"gone": {"0": 77}, "s": {"0": 10}}


def test_trimmed_entries_stop_the_plan() -> None:
    sink = ten_entries()
    sink.trim("s", 6)
    with pytest.raises(RequestError, match="'s' partition 0: entries 2 to 5"):
        stream_reader(sink).latestOffset({"s": {"0": 2}}, EVERYTHING)


def test_trimmed_entries_do_not_use_up_the_limit() -> None:
    sink = ten_entries()
    sink.trim("s", 6)
    reader = stream_reader(sink, failOnDataLoss="false")
    end = reader.latestOffset({"s": {"0": 2}}, ReadMaxRows(3))
    assert end == {"s": {"0": 9}}
    rows = [
        (row["index"], row["kind"])
        for partition in reader.partitions({"s": {"0": 2}}, end)
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]
    assert rows == [(2, "gap"), (6, "bytes"), (7, "bytes"), (8, "bytes")]


def test_a_stream_that_was_made_anew_stops_the_plan_either_way() -> None:
    for lenient in ("true", "false"):
        reader = stream_reader(ten_entries(), failOnDataLoss=lenient)
        with pytest.raises(RequestError, match="made anew"):
            reader.latestOffset({"s": {"0": 11}}, EVERYTHING)


def test_available_now_ends_at_the_ends_of_its_start() -> None:
    sink = ten_entries()
    reader = stream_reader(sink)
    reader.prepareForTriggerAvailableNow()
    sink.append("s", [b"late"])
    sink.append("t", [b"late"])
    end = reader.latestOffset({"s": {"0": 0}}, EVERYTHING)
    assert end == {"s": {"0": 10}, "t": {"0": 0}}
    assert reader.latestOffset(end, EVERYTHING) == end


def test_no_batch_begins_while_the_drain_file_exists(tmp_path: Path) -> None:
    drain = tmp_path / "drain"
    reader = stream_reader(ten_entries(), drainFile=str(drain))
    start = {"s": {"0": 3}}
    drain.touch()
    assert reader.latestOffset(start, EVERYTHING) == start
    drain.unlink()
    assert reader.latestOffset(start, EVERYTHING) != start


def test_a_batch_read_is_bounded_by_its_offsets() -> None:
    sink = ten_entries()
    sink.append("t", [b"x", b"y"], partition=1)
    everything = [("s", 0, i) for i in range(10)] + [("t", 1, 0), ("t", 1, 1)]
    assert batch_rows(sink) == everything
    bounds = {"startingOffsets": '{"s": {"0": 8}}', "endingOffsets": '{"t": {"1": 1}}'}
    assert batch_rows(sink, **bounds) == [("s", 0, 8), ("s", 0, 9), ("t", 1, 0)]
    assert batch_rows(sink, startingOffsets='{"s": {"0": 10}, "t": {"1": 2}}') == []


@pytest.mark.parametrize("options", [{"startingOffsets": "latest"}, {"endingOffsets": "earliest"}])
def test_a_batch_read_without_rows_by_its_very_options_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="batch read"):
        batch_rows(ten_entries(), **options)
