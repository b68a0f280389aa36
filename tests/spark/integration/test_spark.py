"""The source and the sink inside Spark, from a fake node into a Delta table."""

import shutil
import threading
from collections.abc import Generator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from fake_sink import FakeSink
from pipeline_samples import make_block
from rillnode.codecs.entries import EntryKind
from rillnode.codecs.keyed import encode_headers
from rillnode.node.spark.explaining import explain
from rillnode.node.spark.export import Export
from rillnode.node.spark.job_config import ExportConfig
from rillnode.node.spark.ranges import ClientOptions
from rillnode.node.spark.reports import read_delta

pytestmark = pytest.mark.spark


@pytest.fixture
def sink() -> Generator[FakeSink]:
    sink = FakeSink()
    yield sink
    sink.close()


def fill(sink: FakeSink, first: int, count: int, *, partition: int = 0) -> None:
    sink.append("s", [b"%d" % i for i in range(first, first + count)], partition=partition)


class Landing:
    """The job's query, run until the present end."""

    def __init__(self, spark: SparkSession, options: ClientOptions, directory: Path) -> None:
        self.spark = spark
        self.options = options
        self.table = directory / "table"
        self.checkpoint = directory / "checkpoint"
        self.formats: tuple[str, str] = ("rillnode-landing", "rillnode-landing")

    def run(self, **options: str) -> None:
        source, sink = self.formats
        rows = self.spark.readStream.format(source).options(**self.options.to_options(), **options)
        query = (
            rows.load(str(self.table))
            .writeStream.format(sink)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start(str(self.table))
        )
        query.awaitTermination()

    def indexes(self, partition: int = 0) -> list[int]:
        return sorted(
            row["index"]
            for name in DeltaTable(self.table).file_uris()
            for row in pq.read_table(name, columns=["partition", "index"]).to_pylist()
            if row["partition"] == partition
        )

    def versions(self) -> int:
        return DeltaTable(self.table).version()

    def forget_last_commit(self) -> None:
        """What a crash between the table's commit and Spark's leaves behind."""
        commits = self.checkpoint / "commits"
        last = max((path for path in commits.iterdir() if path.name.isdecimal()), key=_number)
        last.unlink()
        (commits / f".{last.name}.crc").unlink(missing_ok=True)


@pytest.fixture
def landing(spark: SparkSession, sink: FakeSink, tmp_path: Path) -> Landing:
    return Landing(spark, sink.serve(), tmp_path)


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
    landing.formats = ("rillnode", "rillnode-delta")  # the rows go through Java
    landing.run()
    landing.formats = ("rillnode-landing", "rillnode-landing")
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


@pytest.mark.long
def test_a_query_goes_on_from_its_checkpoint(landing: Landing, sink: FakeSink) -> None:
    landing.formats = ("rillnode", "rillnode-delta")
    for first in range(0, 3000, 100):
        fill(sink, first, 100)
    landing.run(maxOffsetsPerTrigger="1100")
    assert landing.indexes() == list(range(3000))
    assert landing.versions() == 3
    # What lands the same entries as files shares the checkpoint's meaning.
    landing.formats = ("rillnode-landing", "rillnode-landing")
    fill(sink, 3000, 10)
    fill(sink, 0, 5, partition=1)  # a partition that did not exist before
    landing.run()
    assert landing.indexes() == list(range(3010))
    assert landing.indexes(partition=1) == list(range(5))
    # Spark tells the source of a batch when it plans the next one; the job tells the rest.
    assert sink.positions[("s", 0)] >= 2200
    landing.run()
    assert landing.versions() == 4


def test_a_crash_between_the_two_commits_repeats_nothing(landing: Landing, sink: FakeSink) -> None:
    for at in range(3):
        fill(sink, 100 * at, 100)
        landing.run()
    assert landing.versions() == 3
    landing.forget_last_commit()
    fill(sink, 300, 7)
    landing.run()
    assert landing.indexes() == list(range(307))
    assert landing.versions() == 4


@pytest.mark.long
def test_a_new_checkpoint_reads_everything_again(landing: Landing, sink: FakeSink) -> None:
    """Under a fixed application id its batch 0 would be taken for the old one and be skipped."""
    fill(sink, 0, 50)
    landing.run()
    fill(sink, 50, 50)
    landing.run()
    shutil.rmtree(landing.checkpoint)
    landing.run()
    assert landing.indexes() == sorted([*range(100), *range(100)])


def test_lost_entries_fail_the_query_or_leave_a_row(landing: Landing, sink: FakeSink) -> None:
    fill(sink, 0, 10)
    landing.run()
    for first in range(10, 40, 10):
        fill(sink, first, 10)
    sink.trim("s", 25)
    with pytest.raises(StreamingQueryException) as caught:
        landing.run()
    text, code = explain(caught.value)
    assert text.startswith("stream 's' partition 0: entries 10 to 24 were trimmed")
    assert code == 1
    landing.run(failOnDataLoss="false")
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
    with pytest.raises(StreamingQueryException) as caught:
        landing.run()
    assert explain(caught.value)[0].startswith("stream 's' was removed and made anew")
    landing.run(failOnDataLoss="false")
    rows = read_delta(landing.spark, str(landing.table)).orderBy("index").collect()
    assert [row["gap_until"] for row in rows if row["kind"] == "gap"] == [None]
    assert sorted(int(row["data"]) for row in rows if row["kind"] == "bytes") == [
        *range(10),
        *range(100, 130),
    ]
    assert not sink.positions  # those of the old stream are not saved for the new one


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
    landing.run(failOnDataLoss="false")
    assert landing.indexes() == [*range(101), *range(120, 150)]
    # The first batch's files went when the second was planned.
    assert len(list(files.glob("*/*/*"))) == 2


@pytest.mark.long
def test_an_error_of_the_client_comes_through_spark(landing: Landing) -> None:
    options = {**landing.options.to_options(), "client": "fake_sink:refuse"}
    frame = landing.spark.read.format("rillnode").options(**options)
    with pytest.raises(Exception, match="HandshakeError") as caught:
        frame.load().collect()
    assert explain(caught.value) == ("the node refuses this key [noise.refused]", 3)


def _number(path: Path) -> int:
    return int(path.name)
