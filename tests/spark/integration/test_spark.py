"""The source and the sink inside Spark, from a fake node into a Delta table."""

import threading
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from msgspec.structs import replace
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from fake_sink import FakeSink
from pipeline_samples import make_block
from rillnode.codecs.entries import Block, EntryKind
from rillnode.codecs.errors import RequestError
from rillnode.codecs.keyed import encode_headers
from rillnode.node.spark.explaining import explain
from rillnode.node.spark.export import Export
from rillnode.node.spark.frames import read_delta
from rillnode.node.spark.job_config import ExportConfig, JobConfig
from rillnode.node.spark.landing import Landing as JobLanding, fetch
from rillnode.node.spark.offsets import Range
from rillnode.node.spark.ranges import ClientOptions
from rillnode.node.spark.session import SPARK_FAILURES, on_spark

pytestmark = pytest.mark.spark

CONNECTION = ("sink", "url", "node_identity", "key_file", "client")


def fill(sink: FakeSink, first: int, count: int, *, partition: int = 0) -> None:
    sink.append("s", [b"%d" % i for i in range(first, first + count)], partition=partition)


def lose(part: Range, bytes_max: int) -> tuple[int, list[Block]]:
    """Answer as a node does that has lost entries in the middle."""
    return part.start, []


class Landing:
    """What a job lands, until the present end."""

    def __init__(self, spark: SparkSession, options: ClientOptions, directory: Path) -> None:
        self.spark = spark
        self.options = options
        self.table = directory / "table"
        self._directory = directory

    def run(self, **changes: Any) -> None:
        config = JobConfig(
            sink="",
            url="",
            table_dir=str(self.table),
            checkpoint_dir=str(self._directory / "checkpoint"),
            work_dir=str(self._directory / "work"),
        )
        told = {name: getattr(self.options, name) for name in CONNECTION}
        config = replace(config, **{"fail_on_data_loss": True, **told, **changes})
        landing = JobLanding(config, on_spark(self.spark, fetch), tasks_max=2)
        landing.end_at_present()
        while landing.step():
            continue

    def indexes(self, partition: int = 0) -> list[int]:
        return sorted(
            row["index"]
            for name in DeltaTable(self.table).file_uris()
            for row in pq.read_table(name, columns=["partition", "index"]).to_pylist()
            if row["partition"] == partition
        )

    def batches(self) -> list[dict[str, Any]]:
        return [one["batch"] for one in DeltaTable(self.table).history() if "batch" in one]


@pytest.fixture
def landing(spark: SparkSession, sink: FakeSink, tmp_path: Path) -> Landing:
    return Landing(spark, sink.serve(), tmp_path)


@pytest.mark.needs("nextgraph")
def test_a_batch_read_has_every_column(spark: SparkSession, sink: FakeSink) -> None:
    sink.append("a", [b"one", b"two"], received_at=1_700_000_000_123)
    sink.append("b", [b"three"], partition=2, kind=EntryKind.NEXTGRAPH)
    options = sink.serve().to_options()
    frame = spark.read.format("rillnode").options(**options).load()
    rows = [row.asDict() for row in frame.orderBy("stream", "index").collect()]
    assert [(r["stream"], r["partition"], r["index"], r["kind"], r["data"]) for r in rows] == [
        ("a", 0, 0, "bytes", b"one"),
        ("a", 0, 1, "bytes", b"two"),
        ("b", 2, 0, "nextgraph", b"three"),
    ]
    seconds = frame.where("stream = 'a'").select(col("received_at").cast("double")).first()
    assert seconds is not None
    assert seconds[0] == 1_700_000_000.123
    assert all(row["gap_until"] is None and row["publisher"] is None for row in rows)
    assert all(row["key"] is None and row["headers"] is None for row in rows)


def test_keys_and_headers_are_columns_of_the_source_and_of_bronze(
    spark: SparkSession, landing: Landing, sink: FakeSink
) -> None:
    headers = encode_headers({"sender": b"hall"})
    keyed = make_block(0, [b"x", b"y"], keys=[b"lamp", None], headers=[headers, b""])
    sink.append_value("s", keyed.value)
    options = sink.serve().to_options()
    landing.run()
    sink.append_value("s", keyed.value)
    landing.run()
    frame = spark.read.format("rillnode").options(**options).load()
    rows = [row.asDict() for row in frame.orderBy("index").collect()]
    assert [(row["key"], row["headers"]) for row in rows] == [
        (b"lamp", {"sender": b"hall"}),
        (None, None),
    ] * 2
    (found,) = frame.where("CAST(key AS STRING) = 'lamp' AND index = 2").collect()
    assert found["headers"]["sender"] == b"hall"
    reader: Any = DeltaTable(landing.table)
    landed = sorted(pa.table(reader.to_pyarrow_table()).to_pylist(), key=itemgetter("index"))
    assert [(row["key"], row["headers"]) for row in landed] == [
        (b"lamp", [("sender", b"hall")]),
        (None, None),
    ] * 2


def test_a_batch_is_landed_by_tasks_of_sparks(landing: Landing, sink: FakeSink) -> None:
    for first in range(0, 12_000, 1_000):
        fill(sink, first, 1_000)
    landing.run(batch_rows_max=9_000)
    assert landing.indexes() == list(range(12_000))
    # What is worth no task of its own is landed by the job's process itself.
    assert [(one["rows"], one["files"]) for one in landing.batches()] == [(3_000, 1), (9_000, 2)]
    fill(sink, 12_000, 10)
    fill(sink, 0, 5, partition=1)  # a partition that did not exist before
    landing.run()
    assert landing.indexes() == list(range(12_010))
    assert landing.indexes(partition=1) == list(range(5))
    assert sink.positions == {("s", 0): 12_010, ("s", 1): 5}
    landing.run()
    assert len(landing.batches()) == 3


def test_what_a_task_of_sparks_fails_with_is_told(landing: Landing, sink: FakeSink) -> None:
    for first in range(0, 12_000, 1_000):
        fill(sink, first, 1_000)
    landing.run(batch_rows_max=2_000)
    fill(sink, 12_000, 9_000)
    sink.read = lose  # type: ignore[method-assign]
    with pytest.raises(SPARK_FAILURES) as caught:
        landing.run()
    assert explain(caught.value)[0].startswith("asked for stream 's' partition 0 from index")
    del sink.read
    known = {Path(name).name for name in DeltaTable(landing.table).file_uris()}
    assert {path.name for path in landing.table.glob("*.parquet")} == known
    landing.run()
    assert landing.indexes() == list(range(21_000))


def test_lost_entries_fail_the_query_or_leave_a_row(landing: Landing, sink: FakeSink) -> None:
    fill(sink, 0, 10)
    landing.run()
    for first in range(10, 40, 10):
        fill(sink, first, 10)
    sink.trim("s", 25)
    with pytest.raises(RequestError) as caught:
        landing.run()
    text, code = explain(caught.value)
    assert text.startswith("stream 's' partition 0: entries 10 to 24 were trimmed")
    assert code == 1
    landing.run(fail_on_data_loss=False)
    assert landing.indexes() == [*range(11), *range(25, 40)]
    gaps = read_delta(landing.spark, str(landing.table)).where("kind = 'gap'").collect()
    assert [(row["index"], row["gap_until"]) for row in gaps] == [(10, 25)]


@pytest.mark.long
def test_a_stream_made_anew_is_landed_from_its_beginning(landing: Landing, sink: FakeSink) -> None:
    sink.reset("s", created_at=1)
    fill(sink, 0, 10)
    landing.run()
    sink.reset("s", created_at=2)
    fill(sink, 100, 30)  # longer than the one before
    with pytest.raises(RequestError) as caught:
        landing.run()
    assert explain(caught.value)[0].startswith("stream 's' was removed and made anew")
    landing.run(fail_on_data_loss=False)
    rows = read_delta(landing.spark, str(landing.table)).orderBy("index").collect()
    assert [row["gap_until"] for row in rows if row["kind"] == "gap"] == [None]
    assert sorted(int(row["data"]) for row in rows if row["kind"] == "bytes") == [
        *range(10),
        *range(100, 130),
    ]
    assert sink.positions == {("s", 0): 30}


@pytest.mark.long
def test_files_are_landed_as_a_nodes_ranges_are(landing: Landing, sink: FakeSink) -> None:
    files = landing.table.with_name("files")
    given = landing.options
    export = Export(
        ExportConfig(
            sink=given.sink,
            url=given.url,
            node_identity=given.node_identity,
            key_file=given.key_file,
            client=given.client,
            directory=str(files),
            bytes_max=1_000_000,
            work_dir=str(files.parent),
        )
    )
    landing.options = ClientOptions(url=files.as_uri(), node_identity="", key_file="", sink="any")
    fill(sink, 0, 100)
    export.step(threading.Event())
    landing.run()
    fill(sink, 100, 50)
    sink.trim("s", 120)
    export.step(threading.Event())
    landing.run(fail_on_data_loss=False)
    assert landing.indexes() == [*range(101), *range(120, 150)]
    assert not list(files.glob("*/*/*"))


@pytest.mark.long
def test_an_error_of_the_client_comes_through_spark(landing: Landing) -> None:
    options = {**landing.options.to_options(), "client": "fake_sink:refuse"}
    frame = landing.spark.read.format("rillnode").options(**options)
    with pytest.raises(Exception, match="HandshakeError") as caught:
        frame.load().collect()
    assert explain(caught.value) == ("the node refuses this key [noise.refused]", 3)
