from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

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


def test_a_table_with_other_columns_is_refused(tmp_path: Path) -> None:
    Query(tmp_path).run(0, rows(0, 1))
    other = Query(tmp_path, pa.schema([pa.field("index", pa.int64())]))
    with pytest.raises(ConfigError, match="other columns"):
        other.run(1, rows(1, 1))


def test_files_carry_statistics_that_readers_can_skip_by(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.run(0, rows(5, 20, stream="b"))
    (file,) = pa.table(DeltaTable(query.table).get_add_actions(flatten=True)).to_pylist()
    assert file["num_records"] == 20
    assert (file["min.index"], file["max.index"]) == (5, 24)
    assert (file["min.stream"], file["max.stream"]) == ("b", "b")
    assert file["max.received_at"].isoformat() == "2023-11-14T22:13:20.123000+00:00"
