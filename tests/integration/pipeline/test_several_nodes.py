"""Spark over two nodes with the same streams, one of which is killed in the middle of a read."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from nats_support import needs_nats, running_nats
from node_processes import NodeProcess
from rillnode.node.client import connect_blocking
from rillnode.node.pipeline import source
from rillnode.node.pipeline.ranges import ClientOptions
from rillnode.node.pipeline.source import RangeReader, SourceOptions

pytestmark = needs_nats

ENTRIES = 12_000
PARTITIONS = 4
ENTRY_BYTES = 1_000


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[NodeProcess]]:
    with running_nats(tmp_path / "nats") as server, ExitStack() as stack:
        nodes = [NodeProcess(tmp_path / name, [server.url]) for name in "ab"]
        for node in nodes:
            stack.callback(node.kill)
            node.start(wait=False)
        for node in nodes:
            node.wait()
        yield nodes


def options_of(nodes: list[NodeProcess]) -> ClientOptions:
    return ClientOptions(
        url=",".join(node.url for node in nodes),
        node_identity=",".join(node.identity for node in nodes),
        key_file=str(nodes[0].key_file),
        streams="s",
    )


def fill(node: NodeProcess, first: int = 0) -> None:
    """Numbered entries in every partition."""
    with connect_blocking(node.url, key_file=node.key_file, node_identity=node.identity) as client:
        stream = client.stream("s", partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            numbers = range(first, first + ENTRIES)
            items = [b"%d %d".ljust(ENTRY_BYTES) % (partition, number) for number in numbers]
            stream.push_many(items, partition=partition)


def whole(first: int, until: int) -> list[tuple[int, int]]:
    return [(part, number) for part in range(PARTITIONS) for number in range(first, until)]


def found_in(batches: list[pa.RecordBatch]) -> list[tuple[int, int]]:
    rows = pa.Table.from_batches(batches).select(["partition", "index"]).to_pylist()
    return [(row["partition"], row["index"]) for row in rows]


def test_the_tasks_of_a_read_are_spread_and_outlive_a_node(nodes: list[NodeProcess]) -> None:
    fill(nodes[0])
    options = SourceOptions(client=options_of(nodes), tasks_max=PARTITIONS)
    reader = RangeReader(options)
    tasks = reader.partitions()
    assert len(tasks) == PARTITIONS
    firsts = [options.client.beginning_at(number).nodes[0].url for number in range(PARTITIONS)]
    assert firsts == [nodes[0].url, nodes[1].url] * 2
    found: list[tuple[int, int]] = []
    for number, task in enumerate(tasks):
        batches: list[pa.RecordBatch] = []
        for batch in reader.read(task):
            if number == 1 and not batches:
                # The second node, in the middle of its first range.
                assert batch.num_rows < ENTRIES
                nodes[1].kill()
            batches.append(batch)
        found += found_in(batches)
    assert found == whole(0, ENTRIES)


def test_a_plan_goes_on_at_a_node_that_has_heard_of_the_last_one(nodes: list[NodeProcess]) -> None:
    options = SourceOptions(client=options_of(nodes))
    fill(nodes[0])
    planner = source.RangeStreamReader(options)
    start = planner.initialOffset()
    end = planner.latestOffset(start, planner.getDefaultReadLimit())
    nodes[0].kill()
    found: list[tuple[int, int]] = []
    for task in planner.partitions(start, end):
        found += found_in(list(planner.read(task)))
    assert found == whole(0, ENTRIES)
    assert planner.latestOffset(end, planner.getDefaultReadLimit()) == end


@pytest.mark.spark
@pytest.mark.long
def test_a_query_outlives_each_of_its_nodes(
    nodes: list[NodeProcess], spark: SparkSession, tmp_path: Path
) -> None:
    """Every row once and in order, while nodes are killed and started under a running query."""
    fill(nodes[0])
    spark.dataSource.register(source.RillnodeSource)
    rows: dict[int, list[tuple[int, int]]] = {}

    def take(batch: DataFrame, number: int) -> None:
        rows[number] = [(row["partition"], row["index"]) for row in batch.collect()]

    query = (
        spark.readStream.format(source.FORMAT)
        .options(**options_of(nodes).to_options(), maxOffsetsPerTrigger=4_000, minPartitions=4)
        .load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )

    def wait(count: int) -> None:
        deadline = time.monotonic() + 180.0
        while sum(map(len, rows.values())) < count:
            assert query.exception() is None
            assert time.monotonic() < deadline, query.lastProgress
            time.sleep(0.1)

    total = ENTRIES * PARTITIONS
    try:
        wait(total // 4)
        nodes[1].kill()
        wait(total // 2)
        filling = threading.Thread(target=fill, args=(nodes[0], ENTRIES))
        filling.start()
        wait(total)
        filling.join()
        wait(2 * total)
    finally:
        query.stop()
    taken = [row for number in sorted(rows) for row in rows[number]]
    assert sorted(taken) == whole(0, 2 * ENTRIES)
    for partition in range(PARTITIONS):
        indexes = [index for part, index in taken if part == partition]
        assert indexes == sorted(indexes)
