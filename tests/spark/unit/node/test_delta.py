from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import StructType

from pipeline_samples import Query, rows
from rillnode.codecs.errors import ConfigError


def test_a_batch_is_one_transaction(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.run(0, rows(0, 3), rows(3, 2))
    query.run(1, rows(5, 1))
    assert query.indexes() == list(range(6))
    table = DeltaTable(query.table)
    assert table.version() == 2
    batch = table.history(2)[1]["batch"]
    assert (batch["rows"], batch["files"], batch["data_bytes"]) == (5, 2, 5)


def test_a_repeated_batch_is_skipped_and_its_files_go(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.run(0, rows(0, 3))
    query.run(1, rows(3, 3))
    query.run(1, rows(3, 3))
    query.run(0, rows(0, 3))
    assert query.indexes() == list(range(6))
    assert DeltaTable(query.table).version() == 2
    assert len(list(query.table.glob("*.parquet"))) == 2


def test_a_new_checkpoint_skips_nothing(tmp_path: Path) -> None:
    Query(tmp_path).run(0, rows(0, 3))
    fresh = Query(tmp_path, "fresh")
    fresh.run(0, rows(3, 3))
    assert fresh.indexes() == list(range(6))


def test_an_aborted_batch_leaves_no_files(tmp_path: Path) -> None:
    query = Query(tmp_path)
    writer = query.writer()
    writer.abort([writer.write(iter([rows(0, 3)])), None], 0)
    assert list(query.table.glob("*.parquet")) == []


def test_an_aborted_batch_that_the_table_has_keeps_its_files(tmp_path: Path) -> None:
    """A commit may fail after its transaction; Spark then aborts with the same files."""
    query = Query(tmp_path)
    (query.checkpoint / "offsets" / "0").write_text("v1\n{}\n")
    writer = query.writer()
    message = writer.write(iter([rows(0, 3)]))
    writer.commit([message], 0)
    writer.abort([message], 0)
    assert query.indexes() == [0, 1, 2]


def test_a_batch_is_not_committed_before_its_offsets_are_written(tmp_path: Path) -> None:
    query = Query(tmp_path)
    writer = query.writer()
    with pytest.raises(FileNotFoundError):
        writer.commit([writer.write(iter([rows(0, 1)]))], 0)
    assert DeltaTable(query.table).file_uris() == []


def test_without_a_checkpoint_nothing_is_committed(tmp_path: Path) -> None:
    query = Query(tmp_path)
    (query.checkpoint / "metadata").unlink()
    writer = query.writer()
    with pytest.raises(ConfigError, match="does not hold a query's id"):
        writer.commit([writer.write(iter([rows(0, 1)]))], 0)


def test_a_table_with_other_columns_is_refused(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.run(0, rows(0, 1))
    writer = query.writer(StructType().add("index", "long"))
    with pytest.raises(ConfigError, match="other columns"):
        writer.commit([writer.write(iter([rows(1, 1)]))], 1)


def test_files_carry_statistics_that_readers_can_skip_by(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.run(0, rows(5, 20, stream="b"))
    (file,) = pa.table(DeltaTable(query.table).get_add_actions(flatten=True)).to_pylist()
    assert file["num_records"] == 20
    assert (file["min.index"], file["max.index"]) == (5, 24)
    assert (file["min.stream"], file["max.stream"]) == ("b", "b")
    assert file["max.received_at"].isoformat() == "2023-11-14T22:13:20.123000+00:00"
