"""Old tables and old files go on living under a newer schema."""

from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema

from pipeline_samples import Query, make_block, rows
from rillnode.codecs.errors import ConfigError
from rillnode.codecs.keyed import encode_headers
from rillnode.node.spark.arrow import BatchBuilder
from rillnode.node.spark.maintenance import compact
from rillnode.node.spark.schema_upgrade import conform, upgrade_table
from rillnode.node.spark.tables import BRONZE_SCHEMA


def older(directory: Path, columns: int) -> Query:
    """The table as it was with fewer columns."""
    return Query(directory, pa.schema(list(BRONZE_SCHEMA)[:columns]))


def old_rows(first: int, count: int, columns: int = 6) -> pa.RecordBatch:
    return rows(first, count).select(BRONZE_SCHEMA.names[:columns])


def test_an_old_table_gets_the_new_columns_and_keeps_its_rows(tmp_path: Path) -> None:
    query = Query(tmp_path)
    older(tmp_path, 6).run(0, old_rows(0, 3))
    query.run(1, rows(3, 3))
    table = DeltaTable(query.table)
    assert [field.name for field in table.schema().fields] == BRONZE_SCHEMA.names
    assert query.indexes() == list(range(6))
    # What an older job still writes is taken, too.
    older(tmp_path, 6).run(2, old_rows(6, 1))
    assert query.indexes() == list(range(7))
    reader: Any = DeltaTable(query.table)
    read = pa.table(reader.to_pyarrow_table())
    assert read.column_names == BRONZE_SCHEMA.names
    assert read.column("gap_until").null_count == 7
    # Old and new files become one.
    assert len(list(compact(str(query.table)))) == 1
    (file,) = DeltaTable(query.table).file_uris()
    assert pq.read_table(file).column_names == BRONZE_SCHEMA.names
    assert query.indexes() == list(range(7))


def test_a_table_without_keys_and_headers_gets_them_in_place(tmp_path: Path) -> None:
    query = Query(tmp_path)
    assert BRONZE_SCHEMA.names[15] == "gap_until"
    older(tmp_path, 16).run(0, old_rows(0, 2, 16))
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
    *others, last = BRONZE_SCHEMA
    for changed in (
        [*others, last.with_name("lost_until")],
        [*others, pa.field(last.name, pa.string())],
        [*others[1:], last],
    ):
        with pytest.raises(ConfigError, match="other columns"):
            upgrade_table(table, Schema.from_arrow(pa.schema(changed)))
    assert not upgrade_table(table, Schema.from_arrow(BRONZE_SCHEMA))


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
