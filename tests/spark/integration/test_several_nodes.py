"""Spark over two nodes with the same streams, which are killed in the middle of its work."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import count, cycle
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import DataFrame, SparkSession

from landed_rows import log_entries, table_entries
from nats_support import needs_nats, running_nats
from node_processes import NodeProcess
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.keys import Identity
from rillnode.node.client import connect, connect_blocking
from rillnode.node.keys.files import write_key
from rillnode.node.spark import source
from rillnode.node.spark.job_config import JobConfig, save_job_config
from rillnode.node.spark.planning import SourceOptions
from rillnode.node.spark.process import session_members
from rillnode.node.spark.ranges import ClientOptions
from rillnode.node.spark.source import RangeReader
from rillnode.node.testing.contract.ports import free_port

pytestmark = needs_nats

ENTRIES = 6_000
PARTITIONS = 4
ENTRY_BYTES = 1_000


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[NodeProcess]]:
    with running_nats(tmp_path / "nats") as server, ExitStack() as stack:
        nodes = [NodeProcess(tmp_path / name, [server]) for name in "ab"]
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


def fill(node: NodeProcess, first: int = 0, count: int = ENTRIES) -> None:
    """Numbered entries in every partition."""
    with connect_blocking(node.url, key_file=node.key_file, node_identity=node.identity) as client:
        stream = client.stream("s", partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            numbers = range(first, first + count)
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
    fill(nodes[0], count=500)
    planner = source.RangeStreamReader(options)
    start = planner.initialOffset()
    end = planner.latestOffset(start, planner.getDefaultReadLimit())
    nodes[0].kill()
    found: list[tuple[int, int]] = []
    for task in planner.partitions(start, end):
        found += found_in(list(planner.read(task)))
    assert found == whole(0, 500)
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


# A sink's job that reads from both nodes -----------------------------------------------------

SINK = """
[[sink.spark]]
name = "bronze"
streams = ["s*"]
table_dir = "{directory}/table"
key_file = "{directory}/bronze.key"
external = true
"""


SECONDS_MAX = 900.0
"""For each step, on a machine that does other things, too."""


class Job:
    """The job of the sink `bronze` of both nodes, as a person starts it; may be killed."""

    def __init__(self, directory: Path, nodes: list[NodeProcess], python_path: str) -> None:
        self.table = directory / "table"
        self._environment = {**os.environ, "PYTHONPATH": python_path}
        self._config = directory / "job.json"
        self._log = directory / "job.log"
        self._process: subprocess.Popen[bytes] | None = None
        job = JobConfig(
            sink="bronze",
            url=",".join(node.url for node in nodes),
            node_identity=",".join(node.identity for node in nodes),
            key_file=str(directory / "bronze.key"),
            table_dir=str(self.table),
            checkpoint_dir=str(directory / "checkpoint"),
            work_dir=str(directory / "work"),
            trigger_seconds=0.1,
            batch_rows_max=4_000,
        )
        save_job_config(job, self._config)

    @property
    def log(self) -> str:
        return self._log.read_text()[-5_000:] if self._log.exists() else ""

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rillnode.node.spark.job", str(self._config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )

    def end(self, number: signal.Signals) -> None:
        """End it with all processes that it has started; harmless when repeated."""
        process, self._process = self._process, None
        if process is None:
            return
        if number == signal.SIGKILL:
            for member in session_members(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(member, number)
        process.send_signal(number)
        process.wait(120.0)

    def version(self) -> int:
        """Number of the table's last version; -1 where there is none."""
        with suppress(TableNotFoundError):
            return DeltaTable(self.table).version()
        return -1

    def advance(self) -> None:
        """Wait until it has committed another batch, begun and ended since."""
        wanted, deadline = self.version() + 2, time.monotonic() + SECONDS_MAX
        while self.version() < wanted:
            assert self._process is not None
            assert self._process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.1)


class Pushing:
    """Pushes numbered entries at whichever node answers, and knows what was confirmed."""

    def __init__(self, nodes: list[NodeProcess]) -> None:
        self._nodes = cycle(nodes)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.confirmed: set[bytes] = set()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        numbers = count()
        while not self._stopping.is_set():
            node = next(self._nodes)
            with suppress(RillnodeError, OSError):
                asyncio.run(self._push(node, numbers))
            time.sleep(0.2)

    async def _push(self, node: NodeProcess, numbers: Iterator[int]) -> None:
        async with await connect(
            node.url, key_file=node.key_file, node_identity=node.identity, reconnect=False
        ) as client:
            stream = await client.stream("s", partitions=PARTITIONS)
            while not self._stopping.is_set():
                for partition in range(PARTITIONS):
                    items = [b"%0100d" % next(numbers) for _ in range(20)]
                    await stream.push_many(items, partition=partition)
                    self.confirmed.update(items)
                await asyncio.sleep(0.5)


async def entries_of(node: NodeProcess) -> dict[tuple[int, int], bytes]:
    """All entries, as a node has them, once the sink has saved positions behind them."""
    deadline = time.monotonic() + SECONDS_MAX
    async with await connect(
        node.url, key_file=node.key_file, node_identity=node.identity
    ) as client:
        while True:
            ends = [one.next_index for one in (await client.describe("s")).partitions]
            saved = [
                await client.get_index("sink/bronze", "s", partition=partition) or 0
                for partition in range(PARTITIONS)
            ]
            if saved == ends:
                return await log_entries(client)
            assert time.monotonic() < deadline, (saved, ends)
            await asyncio.sleep(0.2)


@pytest.mark.spark
@pytest.mark.long
def test_a_job_over_two_nodes_lands_every_entry_once_whatever_is_killed(
    tmp_path: Path, worker_path: str
) -> None:
    """The job, each node, and a node with the job, killed while entries come in at both nodes."""
    write_key(tmp_path / "bronze.key", Identity.from_seed(b"the job's key".ljust(32, b".")))
    with running_nats(tmp_path / "nats") as server, ExitStack() as stack:
        sink = SINK.format(directory=tmp_path)
        nodes = [
            NodeProcess(tmp_path / name, [server], listen=f"127.0.0.1:{free_port()}", more=sink)
            for name in "ab"
        ]
        for node in nodes:
            stack.callback(node.kill)
            node.start()
        pushing = Pushing(nodes)
        stack.callback(pushing.stop)
        job = Job(tmp_path, nodes, worker_path)
        stack.callback(job.end, signal.SIGKILL)
        job.start()
        job.advance()
        killed: list[list[Job | NodeProcess]] = [
            [job], [nodes[1]], [nodes[0]], [nodes[0], job], [nodes[1], job],
        ]  # fmt: skip
        for victims in killed:
            for victim in victims:
                if isinstance(victim, Job):
                    victim.end(signal.SIGKILL)
                else:
                    victim.kill()
            # It goes on with the node that is left, and when the other one is back.
            if job in victims:
                job.start()
            job.advance()
            for victim in victims:
                if isinstance(victim, NodeProcess):
                    victim.start()
            job.advance()
        pushing.stop()
        entries = asyncio.run(entries_of(nodes[0]))
        assert asyncio.run(entries_of(nodes[1])) == entries
        job.end(signal.SIGTERM)
        landed = table_entries(job.table)
    assert set(Counter(key for key, _ in landed).values()) == {1}
    assert dict(landed) == entries
    assert pushing.confirmed
    assert pushing.confirmed <= set(entries.values())
