import shutil
from pathlib import Path

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import StructType

from fake_sink import FakeSink
from landing_query import LandingQuery
from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.bronze import entries_lost
from rillnode.node.spark.erasure import PLACES, Erasures, ranges_of, sweep
from rillnode.node.spark.landing import (
    FILE_STRUCT,
    Landing,
)
from table_readers import plain_rows


def sink_of(count: int) -> FakeSink:
    sink = FakeSink()
    sink.reset("s", created_at=1_600_000_000_000)
    for at in range(count):
        sink.append("s", [b"%d" % at, b"x"])
    return sink


def test_a_task_writes_its_range_and_names_the_file(tmp_path: Path) -> None:
    query = LandingQuery(tmp_path, sink_of(5))
    (task,) = query.reader.partitions({"s": {"0": 1}}, {"s": {"0": 7}})
    (batch,) = query.reader.read(task)
    (row,) = batch.to_pylist()
    assert (row["rows"], row["entries_lost"]) == (6, 0)
    assert (query.table / row["name"]).stat().st_size == row["size"]
    assert '"index": 6' in row["stats"]
    assert batch.schema.names == FILE_STRUCT.names


def test_batches_are_landed_once_however_often_they_come(tmp_path: Path) -> None:
    query = LandingQuery(tmp_path, sink_of(5))
    query.land(0, 0, 4)
    query.land(1, 4, 10)
    query.land(1, 4, 10)
    assert query.indexes() == list(range(10))
    assert DeltaTable(query.table).version() == 2
    assert len(list(query.table.glob("*.parquet"))) == 2


def test_what_was_trimmed_is_a_row_of_its_own(tmp_path: Path) -> None:
    sink = sink_of(5)
    sink.trim("s", 6)
    query = LandingQuery(tmp_path, sink)
    query.options["failOnDataLoss"] = "false"
    query.reader = Landing(query.options).streamReader(FILE_STRUCT)
    query.land(0, 0, 10)
    assert query.indexes() == [0, 6, 7, 8, 9]
    batch = DeltaTable(query.table).history(1)[0]["batch"]
    assert (batch["rows"], batch["entries_lost"]) == (5, 6)
    sink.append("s", [b"x"] * 20)
    sink.trim("s", 25)
    query.land(1, 10, 30)
    query.land(2, 30, 30)
    assert entries_lost(DeltaTable(query.table)) == 6 + 15


def test_a_batch_that_was_committed_before_it_failed_keeps_its_files(tmp_path: Path) -> None:
    """Spark aborts what it could not see committed; the table may hold it nevertheless."""
    query = LandingQuery(tmp_path, sink_of(2))
    query.plan(0, query.offset(4))
    (task,) = query.reader.partitions({"s": {"0": 0}}, {"s": {"0": 4}})
    writer = query.landing_writer()
    message = writer.write(query.reader.read(task))
    writer.commit([message], 0)
    writer.abort([message], 0)
    assert query.indexes() == [0, 1, 2, 3]


def test_an_aborted_batch_leaves_no_files(tmp_path: Path) -> None:
    query = LandingQuery(tmp_path, sink_of(4))
    query.land(0, 0, 4)
    (task,) = query.reader.partitions({"s": {"0": 4}}, {"s": {"0": 8}})
    writer = query.landing_writer()
    writer.abort([writer.write(query.reader.read(task)), None], 1)
    assert len(list(query.table.glob("*.parquet"))) == 1
    assert query.indexes() == [0, 1, 2, 3]


def test_options_and_rows_are_checked(tmp_path: Path) -> None:
    options = LandingQuery(tmp_path, sink_of(1)).options
    with pytest.raises(ConfigError, match="`path`"):
        Landing({**options, "path": ""}).streamReader(FILE_STRUCT)
    with pytest.raises(ConfigError, match="only appends"):
        Landing(options).streamWriter(FILE_STRUCT, overwrite=True)
    with pytest.raises(ConfigError, match="only writes what it has read"):
        Landing(options).streamWriter(StructType().add("name", "string"), overwrite=False)


def test_a_query_without_its_checkpoint_goes_on_where_the_table_ends(tmp_path: Path) -> None:
    sink = sink_of(5)
    query = LandingQuery(tmp_path, sink)
    assert query.reader.initialOffset() == query.offset(0)
    query.land(0, 0, 4)
    query.land(1, 4, 7)
    shutil.rmtree(query.checkpoint)
    again = LandingQuery(tmp_path, sink)
    assert again.reader.initialOffset() == again.offset(7)
    again.land(0, 7, 10)
    assert again.indexes() == list(range(10))


def test_a_stream_that_was_made_anew_is_landed_from_its_beginning(tmp_path: Path) -> None:
    sink = sink_of(5)
    query = LandingQuery(tmp_path, sink)
    query.land(0, 0, 10)
    shutil.rmtree(query.checkpoint)
    sink.reset("s", created_at=1_700_000_000_000)
    sink.append("s", [b"new"])
    again = LandingQuery(tmp_path, sink)
    assert again.reader.initialOffset() == again.offset(0)


def test_what_was_erased_does_not_come_back_from_the_log(tmp_path: Path) -> None:
    query = LandingQuery(tmp_path, sink_of(5))
    query.land(0, 0, 6)
    table = str(query.table)
    rows = plain_rows(table)
    rows = rows.filter(pc.equal(rows.column("index"), 3))
    erasures = Erasures(table)
    erasures.note(ranges_of(rows.select(PLACES.names).to_batches()), table="t", predicate="p")
    assert sweep(table, erasures.erased()) == 1
    assert query.indexes() == [0, 1, 2, 4, 5]
    # Bronze is removed, and lands again what the node still has.
    shutil.rmtree(table)
    shutil.rmtree(query.checkpoint)
    query = LandingQuery(tmp_path, query.sink)
    query.land(0, 0, 4)
    query.land(1, 4, 10)
    assert query.indexes() == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert query.reader.initialOffset() == query.offset(10)
