"""Old tables and old files go on living under a newer schema."""

from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema
from pyspark.sql.types import StructField, StructType

from pipeline_samples import Query, make_block, rows
from rillnode.codecs.errors import ConfigError
from rillnode.codecs.keyed import encode_headers
from rillnode.node.spark.arrow import BatchBuilder
from rillnode.node.spark.frames import BRONZE_STRUCT
from rillnode.node.spark.maintenance import compact
from rillnode.node.spark.schema_upgrade import conform, upgrade_table
from rillnode.node.spark.tables import BRONZE_SCHEMA

OLD = StructType(BRONZE_STRUCT.fields[:6])


def old_rows(first: int, count: int) -> pa.RecordBatch:
    fresh = rows(first, count)
    return pa.RecordBatch.from_arrays(
        [fresh.column(name) for name in OLD.names],
        schema=pa.schema(fresh.schema.field(name) for name in OLD.names),
    )


def test_an_old_table_gets_the_new_columns_and_keeps_its_rows(tmp_path: Path) -> None:
    query = Query(tmp_path)
    old = query.writer(OLD)
    (query.checkpoint / "offsets" / "0").write_text("v1\n{}\n")
    old.commit([old.write(iter([old_rows(0, 3)]))], 0)
    query.run(1, rows(3, 3))
    table = DeltaTable(query.table)
    assert [field.name for field in table.schema().fields] == BRONZE_STRUCT.names
    assert query.indexes() == list(range(6))
    # What an older job still writes is taken, too.
    (query.checkpoint / "offsets" / "2").write_text("v1\n{}\n")
    old.commit([old.write(iter([old_rows(6, 1)]))], 2)
    assert query.indexes() == list(range(7))
    reader: Any = DeltaTable(query.table)
    read = pa.table(reader.to_pyarrow_table())
    assert read.column_names == BRONZE_STRUCT.names
    assert read.column("gap_until").null_count == 7
    # Old and new files become one.
    assert len(list(compact(str(query.table)))) == 1
    (file,) = DeltaTable(query.table).file_uris()
    assert pq.read_table(file).column_names == BRONZE_STRUCT.names
    assert query.indexes() == list(range(7))


def test_a_table_without_keys_and_headers_gets_them_in_place(tmp_path: Path) -> None:
    query, before = Query(tmp_path), StructType(BRONZE_STRUCT.fields[:16])
    assert before.names[-1] == "gap_until"
    (query.checkpoint / "offsets" / "0").write_text("v1\n{}\n")
    old = query.writer(before)
    fresh = rows(0, 2)
    without = pa.RecordBatch.from_arrays(
        fresh.columns[:16], schema=pa.schema(list(fresh.schema)[:16])
    )
    old.commit([old.write(iter([without]))], 0)
    builder = BatchBuilder()
    headers = encode_headers({"sender": b"hall"})
    builder.add_block("s", 0, make_block(2, [b"x"], keys=[b"lamp"], headers=[headers]), 2, 3)
    query.run(1, builder.finish())
    # Old and new files, apart and merged.
    found: list[dict[str, Any]] = []
    for _ in range(2):
        reader: Any = DeltaTable(query.table)
        found = sorted(pa.table(reader.to_pyarrow_table()).to_pylist(), key=itemgetter("index"))
        assert [row["key"] for row in found] == [None, None, b"lamp"]
        assert [row["headers"] for row in found] == [None, None, [("sender", b"hall")]]
        list(compact(str(query.table)))
    assert len(DeltaTable(query.table).file_uris()) == 1
    (file,) = DeltaTable(query.table).file_uris()
    (batch,) = pq.ParquetFile(file).iter_batches()
    assert conform(batch, BRONZE_SCHEMA).to_pylist() == found


def test_a_renamed_or_retyped_column_is_refused(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.run(0, rows(0, 1))
    table = DeltaTable(query.table)
    fields = [*BRONZE_STRUCT.fields]
    for changed in (
        [*fields[:-1], StructField("lost_until", fields[-1].dataType)],
        [*fields[:-1], StructField(fields[-1].name, fields[0].dataType)],
        fields[1:],
    ):
        with pytest.raises(ConfigError, match="other columns"):
            upgrade_table(table, Schema.from_json(StructType(changed).json()))
    assert not upgrade_table(table, Schema.from_json(BRONZE_STRUCT.json()))


def test_rows_get_exactly_the_columns_asked_for(tmp_path: Path) -> None:
    wanted = pa.schema([pa.field("index", pa.int64()), pa.field("later", pa.string())])
    assert conform(rows(5, 2), wanted).to_pylist() == [
        {"index": 5, "later": None},
        {"index": 6, "later": None},
    ]
    path = str(tmp_path / "old.parquet")
    pq.write_table(pa.Table.from_batches([old_rows(0, 1)]), path)
    with pq.ParquetFile(path) as file:
        (batch,) = file.iter_batches()
    assert conform(batch, rows(0, 1).schema).schema.equals(rows(0, 1).schema)
