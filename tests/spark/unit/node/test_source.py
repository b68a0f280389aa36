from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
)
from pyspark.sql.types import StructType

from fake_sink import FakeSink
from rillnode.codecs.errors import ConfigError, RequestError
from rillnode.node.spark.offsets import Range
from rillnode.node.spark.planning import SourceOptions
from rillnode.node.spark.ranges import STREAMS_CLIENT, ClientOptions
from rillnode.node.spark.source import (
    RangesPartition,
    RangeStreamReader,
    RillnodeSource,
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
        ("maxBytesPerTrigger", "1.5"),
        ("minPartitions", "-1"),
        ("failOnDataLoss", "maybe"),
        ("startingOffsets", "yesterday"),
        ("endingOffsets", "{}}"),
        ("startingTimestamp", "2026-11-21T12:00:00"),
        ("endingTimestamp", "yesterday"),
        ("key", "ab" * 32),
        ("streams", "s*"),
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


def test_a_key_comes_from_a_file_or_the_environment() -> None:
    options = {"url": "noise://h:1", "node_identity": "aa", "streams": "a, b*"}
    with pytest.raises(ConfigError, match="RILLNODE_KEY_FILE nor RILLNODE_KEY"):
        ClientOptions.from_options(options, {})
    found = ClientOptions.from_options(options, {"RILLNODE_KEY_FILE": "/secret/app.key"})
    assert (found.key_file, found.patterns) == ("/secret/app.key", ("a", "b*"))
    found = ClientOptions.from_options(options, {"RILLNODE_KEY": "ab" * 32})
    assert "ab" * 32 not in str(found.to_options())
    assert ClientOptions.from_options(found.to_options(), {"RILLNODE_KEY": "x"}) == found


@pytest.mark.parametrize("streams", ["", " , ", "[]", "[1]", "["])
def test_streams_are_names_or_a_list_of_them(streams: str) -> None:
    options = {"url": "noise://h:1", "node_identity": "aa", "key_file": "k", "streams": streams}
    with pytest.raises(ConfigError, match="`streams`"):
        ClientOptions.from_options(options)


def test_a_name_with_a_comma_is_given_in_a_list() -> None:
    options = {"url": "noise://h:1", "node_identity": "aa", "key_file": "k"}
    found = ClientOptions.from_options({**options, "streams": '["a,b", "c*"]'})
    assert found.patterns == ("a,b", "c*")
    assert found.factory == STREAMS_CLIENT


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
    assert cast("RangesPartition", task).ranges == (Range("s", 1, 0, 3),)


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


def rows_between(reader: RangeStreamReader, start: Any, end: Any) -> list[tuple[object, ...]]:
    return [
        (row["partition"], row["index"], row["kind"], row["gap_until"], row["data"])
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def test_an_offset_names_the_stream_that_it_is_of() -> None:
    sink = ten_entries()
    before = stream_reader(sink).latestOffset({"s": {"0": 4}}, EVERYTHING)
    assert before == {"s": {"0": 10}}
    sink.reset("s", created_at=5)
    sink.append("s", [b"x"] * 10)
    reader = stream_reader(sink)
    assert reader.initialOffset() == {"s": {"0": 0, "created_at": 5}}
    # A checkpoint that does not say which stream it is of: of the one that is there.
    assert reader.latestOffset(before, EVERYTHING) == {"s": {"0": 10, "created_at": 5}}
    assert reader.reportLatestOffset() == {"s": {"0": 10, "created_at": 5}}


def test_a_longer_stream_made_anew_is_read_from_its_beginning_behind_a_gap() -> None:
    sink = ten_entries()
    sink.reset("s", created_at=6)
    sink.append("s", [b"new"] * 3)
    sink.trim("s", 1)
    start = {"s": {"0": 2, "1": 7, "created_at": 5}}
    reader = stream_reader(sink, failOnDataLoss="false")
    end = reader.latestOffset(start, EVERYTHING)
    assert end == {"s": {"0": 3, "created_at": 6}}
    assert rows_between(reader, start, end) == [
        (0, 2, "gap", None, None),
        (1, 7, "gap", None, None),
        (0, 0, "gap", 1, None),
        (0, 1, "bytes", None, b"new"),
        (0, 2, "bytes", None, b"new"),
    ]
    assert reader.latestOffset(end, EVERYTHING) == end
    with pytest.raises(RequestError, match="'s' was removed and made anew"):
        stream_reader(sink).latestOffset(start, EVERYTHING)


def test_a_query_may_start_at_an_offset_of_another_but_in_no_later_stream() -> None:
    sink = FakeSink()
    sink.reset("s", created_at=6)
    sink.append("s", [b"x"] * 3)
    sink.append("t", [b"x"] * 3)
    here = '{"s": {"0": 2, "created_at": 6}, "t": {"0": 1}}'
    begun = stream_reader(sink, startingOffsets=here).initialOffset()
    assert begun == {"s": {"0": 2, "created_at": 6}, "t": {"0": 1}}
    before = here.replace("6", "5")
    with pytest.raises(RequestError, match="'s' was removed and made anew"):
        stream_reader(sink, startingOffsets=before).initialOffset()
    lenient = stream_reader(sink, startingOffsets=before, failOnDataLoss="false")
    assert lenient.initialOffset() == {"s": {"0": 0, "created_at": 6}, "t": {"0": 1}}


def test_what_a_batch_had_planned_of_a_stream_that_is_gone_is_a_gap() -> None:
    sink = ten_entries()
    sink.reset("s", created_at=6)
    sink.append("s", [b"new"] * 20)
    reader = stream_reader(sink, failOnDataLoss="false")
    start, end = {"s": {"0": 2, "created_at": 5}}, {"s": {"0": 8, "created_at": 5}}
    assert rows_between(reader, start, end) == [(0, 2, "gap", 8, None)]
    reader.commit(end)
    assert sink.positions == {}
    reader.commit({"s": {"0": 8, "created_at": 6}})
    assert sink.positions == {("s", 0): 8}


def test_a_stream_made_anew_between_a_batchs_plan_and_its_read_is_not_taken_for_it() -> None:
    sink = FakeSink()
    sink.reset("s", created_at=5)
    sink.append("s", [b"old"] * 8)
    strict, lenient = (stream_reader(sink, failOnDataLoss=fail) for fail in ("true", "false"))
    start, end = {"s": {"0": 2, "created_at": 5}}, {"s": {"0": 8, "created_at": 5}}
    (planned,) = strict.partitions(start, end)
    sink.reset("s", created_at=6)
    sink.append("s", [b"new"] * 20)
    with pytest.raises(RequestError, match="entries 2 to 7"):
        list(strict.read(planned))
    (rows,) = lenient.read(planned)
    assert [(row["index"], row["kind"], row["gap_until"]) for row in rows.to_pylist()] == [
        (2, "gap", 8)
    ]


def test_a_shorter_stream_of_unknown_age_stops_the_plan_either_way() -> None:
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


def test_a_read_starts_at_a_time() -> None:
    sink = FakeSink()
    for minute in range(6):
        sink.append("s", [b"a", b"b"], received_at=minute * 60_000)
    sink.append("t", [b"old"], received_at=0)
    options = {"startingTimestamp": "1970-01-01T00:03:00Z"}
    assert stream_reader(sink, **options).initialOffset() == {"s": {"0": 6}, "t": {"0": 1}}
    options |= {"endingTimestamp": "240001"}
    assert batch_rows(sink, **options) == [("s", 0, index) for index in range(6, 10)]
    with pytest.raises(ConfigError, match="exclude each other"):
        stream_reader(sink, startingOffsets="latest", **options)


def test_a_batch_is_limited_by_bytes_in_whole_blocks() -> None:
    sink = FakeSink()
    for _ in range(50):
        sink.append("s", [bytes(1_000)] * 4)
    sink.append("small", [b"x"])
    reader = stream_reader(sink, maxBytesPerTrigger="20000")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(20_000)
    offset = reader.initialOffset()
    ends: list[int] = []
    while (end := reader.latestOffset(offset, limit)) != offset:
        ends.append(end["s"]["0"])
        assert end["small"] == {"0": 1}
        offset = end
    assert ends[-1] == 200
    assert all(0 < until - start <= 24 for start, until in pairwise([0, *ends]))
    assert len(ends) < 20
    # Where the engine asks for everything, everything it gets.
    assert reader.latestOffset(reader.initialOffset(), EVERYTHING)["s"] == {"0": 200}


def test_a_large_batch_is_cut_into_as_many_tasks_as_are_asked_for() -> None:
    sink = FakeSink()
    for _ in range(10):
        sink.append("s", [b""] * 4_096)

    def tasks(**options: str) -> list[int]:
        reader = stream_reader(sink, **options)
        planned = reader.partitions({"s": {"0": 0}}, {"s": {"0": 40_960}})
        return [
            sum(one.until - one.start for one in cast("RangesPartition", task).ranges)
            for task in planned
        ]

    assert tasks() == [40_960]
    assert tasks(minPartitions="4") == [10_240] * 4
    assert tasks(minPartitions="100") == [4_096] * 10  # fewer rows are worth no task


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
