"""Spark applications that read and write a real node's streams, without a sink on the node."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Generator
from itertools import repeat
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from nodes import CLIENT, node_config
from rillnode.node.client import BlockingClient, connect_blocking
from rillnode.node.keys.files import write_key
from rillnode.node.runtime import Node

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[3]


class RunningNode:
    """A node on a loop of its own, and a blocking client of it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        assert self._ready.wait(60)
        self.key_file = directory / "app.key"
        write_key(self.key_file, CLIENT)
        self.client: BlockingClient = connect_blocking(
            self.url, identity=CLIENT, node_identity=self.identity
        )

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with Node(node_config(self._directory / "data")) as node:
            self.url = f"noise://{node.addresses()['noise']}"
            self.identity = node.identity
            self._ready.set()
            await self._stop.wait()

    @property
    def options(self) -> dict[str, str]:
        return {"url": self.url, "node_identity": self.identity, "key_file": str(self.key_file)}

    def rows(self, stream: str) -> list[bytes]:
        handle = self.client.stream(stream)
        return [entry.data for entry in handle.pull(0, 10_000)]

    def close(self) -> None:
        self.client.close()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


@pytest.fixture
def node(tmp_path: Path) -> Generator[RunningNode]:
    node = RunningNode(tmp_path)
    yield node
    node.close()


@pytest.mark.long
def test_rows_go_through_a_query_from_stream_to_stream(
    spark: SparkSession, node: RunningNode, tmp_path: Path
) -> None:
    numbers = spark.range(0, 500, 1, 2).selectExpr("CAST(id AS STRING) AS data", "'in' AS stream")
    numbers.write.format("rillnode").mode("append").options(**node.options).save()
    assert sorted(map(int, node.rows("in"))) == list(range(500))

    def copy() -> None:
        rows = spark.readStream.format("rillnode").options(**node.options)
        rows = rows.option("streams", "i*").option("consumer", "copy")
        query = (
            rows.option("maxBytesPerTrigger", "10000")
            .load()
            .selectExpr("data")
            .writeStream.format("rillnode")
            .options(**node.options)
            .option("stream", "out")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    copy()
    commits = tmp_path / "checkpoint" / "commits"
    last = max((path for path in commits.iterdir() if path.name.isdecimal()), key=_number)
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)
    copy()
    assert node.rows("out") == node.rows("in")
    rows = spark.read.format("rillnode").options(**node.options).option("streams", "in").load()
    assert rows.count() == 500


@pytest.mark.long
def test_a_batch_of_a_query_has_several_writes_into_one_stream(
    spark: SparkSession, node: RunningNode, tmp_path: Path
) -> None:
    node.client.stream("in").push_many([b"1", b"2"])

    def write(rows: DataFrame, _: int) -> None:
        for name in ("low", "high", "high"):  # the last one is the second, run again
            named = rows.selectExpr(f"concat('{name} ', CAST(data AS STRING)) AS data")
            writer = named.write.format("rillnode").mode("append").options(**node.options)
            writer.option("stream", "out").option("producer", name).save()

    rows = spark.readStream.format("rillnode").options(**node.options).option("streams", "in")
    writer = rows.load().writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert node.rows("out") == [b"low 1", b"low 2", b"high 1", b"high 2"]


@pytest.mark.long
def test_rows_with_keys_and_headers_go_from_stream_to_stream(
    spark: SparkSession, node: RunningNode
) -> None:
    start = node.client.stream("keyed", partitions=3)
    start.push_many(
        [b"%d" % number for number in range(50)],
        keys=[f"device-{number % 7}" for number in range(50)],
        headers=repeat({"sender": "hall"}),
    )
    rows = spark.read.format("rillnode").options(**node.options).option("streams", "keyed").load()
    copied = rows.select("data", "key", "headers").write.format("rillnode").mode("append")
    copied = copied.options(**node.options).option("partitions", "3")
    copied.option("stream", "copy").save()
    end = node.client.stream("copy", partitions=3)
    for partition in range(3):
        found = [
            sorted(
                (entry.data, entry.key, tuple(entry.headers.items()))
                for entry in stream.pull(partition=partition)
            )
            for stream in (start, end)
        ]
        assert found[0] == found[1]
        assert all(headers == (("sender", b"hall"),) for _, _, headers in found[1])


@pytest.mark.long
def test_a_new_pipeline_runs_as_it_stands(node: RunningNode, tmp_path: Path) -> None:
    """As the command says it that the verb has printed."""
    for name, items in (("sensors/1", 3), ("sensors/2", 5), ("other", 7)):
        node.client.stream(name).push_many([b"x"] * items)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_DIRS"):
        environment.pop(name, None)
    made = subprocess.run(
        [
            *(sys.executable, "-m", "rillnode", "pipeline", "new", tmp_path / "it's"),
            *("--streams", "sensors/*", "--node", node.url),
            *("--node-identity", node.identity, "--key", node.key_file),
        ],
        check=True, timeout=60, capture_output=True, text=True, env=environment,
    )  # fmt: skip
    for expected in (8, 10):
        done = subprocess.run(
            made.stdout, shell=True, check=False, timeout=600, capture_output=True, text=True,
            env={**environment, "SPARK_LOCAL_IP": "127.0.0.1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + done.stdout
        tables = tmp_path / "it's" / "spark-warehouse"
        rows = pq.read_table(str(tables / "events")).to_pylist()
        assert len({(row["stream"], row["index"]) for row in rows}) == len(rows) == expected
        counts = pq.read_table(str(tables / "per_minute")).column("messages").to_pylist()
        assert sum(counts) == expected
        node.client.stream("sensors/1").push_many([b"x"] * 2)


@pytest.mark.long
def test_the_example_runs_under_spark_submit(
    spark: SparkSession, node: RunningNode, tmp_path: Path
) -> None:
    """It finds Java and the interpreter where the session of the tests has put them."""
    for name, items in (("readings-1", 3), ("readings-2", 5)):
        node.client.stream(name).push_many([b"x"] * items)
    command: list[str | Path] = [
        Path(sys.executable).with_name("spark-submit"),
        ROOT / "examples" / "spark_streams.py",
        *("--url", node.url, "--node-identity", node.identity, "--key-file", node.key_file),
        *("--streams", "readings*", "--into", "counts", "--checkpoint", tmp_path / "checkpoint"),
    ]
    done = subprocess.run(command, check=False, timeout=600, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    documents = [json.loads(payload) for payload in node.rows("counts")]
    counts = {document["stream"]: document["count"] for document in documents}
    assert counts == {"readings-1": 3, "readings-2": 5}


def _number(path: Path) -> int:
    return int(path.name)
