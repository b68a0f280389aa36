"""Tests that the statistics in a table's log are true, and mislead no reader."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from every_kind_of_row import OLD_TABLES, TABLES
from pipeline_samples import Query, rows
from rillnode.node.spark import upsert as upserting
from rillnode.node.spark.delta import commit_unless_changed
from rillnode.node.spark.maintenance import compact
from rillnode.node.spark.parquet import (
    FileStatistics,
    ranged_columns,
    statistics_properties,
    write_files,
)
from rillnode.node.spark.tables import BRONZE_SCHEMA, GOLD, SILVER_SCHEMA
from rillnode.node.spark.upsert import upsert
from table_readers import BY_STATISTICS, plain_rows, wrong_answers

NOW = datetime(2026, 3, 1, 10, 0, 0, 123_456, tzinfo=UTC)


@pytest.fixture(scope="module")
def old_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("old")
    shutil.unpack_archive(OLD_TABLES, directory)
    return directory


@pytest.fixture
def old(old_tables: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(old_tables, tmp_path / "old"))


def each_table(*quick: str) -> pytest.MarkDecorator:
    """Call a test with each `table`; the quick part has these."""
    return pytest.mark.parametrize(
        "table",
        [pytest.param(one, marks=() if one in quick else pytest.mark.long) for one in TABLES],
    )


def sorted_rows(location: Path) -> list[str]:
    return sorted(map(repr, plain_rows(str(location)).to_pylist()))


@each_table("table")
def test_tables_that_are_written_now_answer_every_reader(
    old: Path, tmp_path: Path, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of the earlier tables, written by what writes tables, several files of each."""
    found = plain_rows(str(old / table))
    half = found.num_rows // 2
    parts = [part for part in (found.slice(0, half), found.slice(half)) if part.num_rows]
    if table.startswith("gold/"):
        location = tmp_path / table
        monkeypatch.setattr(upserting, "FILE_ROWS_MAX", 1)
        gold = next(one for one in GOLD if f"gold/{one.name}" == table)
        upsert(str(location), gold.slot, found)
    else:
        query = Query(tmp_path, SILVER_SCHEMA if table == "silver" else BRONZE_SCHEMA)
        location = query.table
        for batch, part in enumerate(parts):
            query.run(batch, *part.to_batches())
    assert len(DeltaTable(location).file_uris()) >= len(parts)
    assert wrong_answers(str(location), BY_STATISTICS) == []
    if table == "table":
        DeltaTable(location).delete("index = 7")
        list(compact(str(location)))
        assert wrong_answers(str(location), ["delta-rs dataset"]) == []


def test_a_table_without_any_ranged_column_says_so(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("index", pa.binary()), pa.field("partition", pa.float64())])
    assert ranged_columns(schema) == ()
    assert statistics_properties(()) == {"delta.dataSkippingNumIndexedCols": "0"}
    query = Query(tmp_path, schema)
    batch = pa.RecordBatch.from_pylist(
        [{"index": b"\xff", "partition": 2.5}, {"index": None, "partition": 1.0}], schema
    )
    query.run(0, batch)
    assert wrong_answers(str(query.table), BY_STATISTICS) == []


def test_a_column_that_a_table_gets_later_misleads_no_reader(tmp_path: Path) -> None:
    """Files from before say nothing of it, and rows of theirs have no value there."""
    first = pa.schema([pa.field("stream", pa.string())])
    later = first.append(pa.field("minute", pa.timestamp("us", tz="UTC")))
    Query(tmp_path, first).run(0, pa.RecordBatch.from_pylist([{"stream": "a"}], first))
    query = Query(tmp_path, later)
    more: list[dict[str, Any]] = [{"stream": "b", "minute": NOW}, {"stream": "b", "minute": None}]
    query.run(1, pa.RecordBatch.from_pylist(more, later))
    named = DeltaTable(query.table).metadata().configuration["delta.dataSkippingStatsColumns"]
    assert named == "stream"
    assert wrong_answers(str(query.table), BY_STATISTICS) == []


def test_statistics_hold_every_value_between_their_ends() -> None:
    """Texts are told whole, times that are no whole milliseconds are rounded outwards."""
    schema = pa.schema(
        [
            pa.field("stream", pa.string()),
            pa.field("index", pa.int64()),
            pa.field("received_at", pa.timestamp("us", tz="Europe/Paris")),
            pa.field("minute", pa.timestamp("us", tz="UTC")),
        ]
    )
    texts = ["\U0001f600" * 40, "\uffff" * 40, "", "z" * 10_000]
    times = [NOW, NOW + timedelta(microseconds=1), None, NOW - timedelta(hours=1)]
    found = FileStatistics(ranged_columns(schema))
    for text, time in zip(texts, times, strict=True):
        row = {"stream": text, "index": len(text), "received_at": time, "minute": None}
        found.add(pa.Table.from_pylist([row], schema))
    told = json.loads(found.to_json())
    assert told["numRecords"] == 4
    assert told["nullCount"] == {"stream": 0, "index": 0, "received_at": 1, "minute": 4}
    assert told["minValues"] == {
        "stream": "", "index": 0, "received_at": "2026-03-01T09:00:00.123Z",
    }  # fmt: skip
    assert told["maxValues"] == {
        "stream": "\U0001f600" * 40, "index": 10_000, "received_at": "2026-03-01T10:00:00.124Z",
    }  # fmt: skip


def test_a_commit_does_not_follow_one_that_it_does_not_know(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.run(0, rows(0, 3))
    table = DeltaTable(query.table)
    query.run(1, rows(3, 3))
    assert not commit_unless_changed(str(query.table), table, [])
    assert table.version() == 2
    assert commit_unless_changed(str(query.table), table, [])
    assert DeltaTable(query.table).version() == table.version() == 3


def test_columns_of_a_typed_table_have_dictionaries_where_their_values_repeat(
    tmp_path: Path,
) -> None:
    numbers = pa.list_(pa.field("element", pa.float64()))
    schema = pa.schema(
        [
            pa.field("_stream", pa.string()),
            pa.field("_index", pa.int64()),
            pa.field("few", pa.map_(pa.string(), numbers)),
            pa.field("many", pa.struct([pa.field("a", numbers), pa.field("b", pa.string())])),
        ]
    )
    rows = [
        {
            "_stream": "s",
            "_index": at,
            "few": {"x": [at % 3]},
            "many": {"a": [at / 7], "b": f"{at}"},
        }
        for at in range(2_000)
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    (file,) = write_files(str(tmp_path), [batch])
    with pq.ParquetFile(str(tmp_path / file.name)) as parquet:
        group = parquet.metadata.row_group(0)
        columns = [group.column(at) for at in range(group.num_columns)]
        found = {one.path_in_schema for one in columns if "RLE_DICTIONARY" in one.encodings}
        read = pa.Table.from_batches(list(parquet.iter_batches()))
    assert found == {"_stream", "few.key_value.key", "few.key_value.value.list.element"}
    assert read.to_pylist() == pa.Table.from_batches([batch]).to_pylist()
