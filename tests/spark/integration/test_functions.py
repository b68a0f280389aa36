"""Tables that an application's functions make: each row once, whatever is cut off."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

import rillnode
from rillnode.codecs.errors import ConfigError
from rillnode.node.spark import function_query
from rillnode.node.spark.function_query import FunctionQuery, function_tables
from rillnode.node.spark.functions import TableFunction
from rillnode.node.spark.job_config import JobConfig
from rillnode.node.spark.maintenance import compact
from table_readers import plain_rows
from typed_samples import Lake, run

pytestmark = pytest.mark.spark


def reading(number: int, temp: float) -> bytes:
    return b'{"id":%d,"at":"2026-01-01T12:00:00Z","temp":%f}' % (number, temp)


def query_of(
    lake: Lake, spark: SparkSession, function: Any, *, typed: bool = True
) -> FunctionQuery:
    declared: TableFunction = rillnode.table(
        streams="s/*", dir=str(lake.directory / "out"), name="out"
    )(function).__rillnode_table__
    source = str(lake.directory / "t") if typed else str(lake.bronze.table)
    return FunctionQuery(spark, declared, source, is_typed=typed, rows_max=100_000)


def run_query(query: FunctionQuery) -> None:
    while query.step():
        continue


def hot(rows: DataFrame) -> DataFrame:
    return rows.where("temp > 30").select("_stream", "_index", "temp")


def listed(rows: DataFrame) -> Any:
    return rows.collect()


def lengths(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("length(data) AS data")


@pytest.mark.long
def test_each_new_row_is_in_the_functions_table_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, out = Lake(tmp_path), tmp_path / "out"

    def ids() -> list[float]:
        return sorted(plain_rows(str(out)).column("temp").to_pylist())

    lake.push(*(reading(n, 28.0 + n) for n in range(5)), stream="s/1")
    lake.push(reading(9, 99.0), stream="other")
    run(lake.table())
    run_query(query_of(lake, spark, hot))
    assert ids() == [31.0, 32.0]

    # Cut off between files and transaction, then done by two processes at a time.
    lake.push(reading(6, 40.0), stream="s/2")
    run(lake.table())
    with monkeypatch.context() as patch:

        def dying(*_: Any) -> bool:
            raise KeyboardInterrupt

        patch.setattr(function_query, "commit_unless_changed", dying)
        with pytest.raises(KeyboardInterrupt):
            run_query(query_of(lake, spark, hot))

    def slow(rows: DataFrame) -> DataFrame:
        run_query(query_of(lake, spark, hot))
        return hot(rows)

    run_query(query_of(lake, spark, slow))
    assert ids() == [31.0, 32.0, 40.0]

    # What was deleted before it was taken in does not come; merged files are no new rows.
    lake.push(reading(7, 50.0), reading(8, 60.0), stream="s/2")
    run(lake.table())
    list(compact(str(tmp_path / "t")))
    DeltaTable(tmp_path / "t").delete("id = 8")
    run_query(query_of(lake, spark, hot))
    assert ids() == [31.0, 32.0, 40.0, 50.0]

    lake.push(reading(1, 70.0), stream="s/2")
    run(lake.table())
    with pytest.raises(ConfigError, match="returns list, and not a DataFrame"):
        query_of(lake, spark, listed).step()

    # Of bronze, where nothing is typed, with a column `data` that holds no bytes.
    with pytest.raises(ConfigError, match="was made anew"):
        query_of(lake, spark, hot, typed=False).step()
    other = Lake(tmp_path / "other")
    other.push(b"a", b"bc", stream="s/1")
    run_query(query_of(other, spark, lengths, typed=False))
    assert sorted(plain_rows(str(other.directory / "out")).column("data").to_pylist()) == [1, 2]


@pytest.mark.long
def test_a_module_that_cannot_be_loaded_holds_up_no_other(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in ("good_tables", "bad_tables"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "bad_tables.py").write_text("import nothing_like_it")
    (tmp_path / "good_tables.py").write_text(
        "import rillnode\n"
        f"@rillnode.table(streams='s*', dir={str(tmp_path / 'out')!r})\n"
        "def warm(rows):\n    return rows.where('temp > 10').select('id')\n"
        f"@rillnode.table(dir={str(tmp_path / 'none')!r}, of='none')\n"
        "def lost(rows):\n    return rows\n"
    )
    lake.push(reading(1, 5.0), reading(2, 20.0))
    run(lake.table(streams=("s*",)))
    config = JobConfig(
        sink="lake", url="noise://127.0.0.1:1", table_dir=str(lake.bronze.table),
        checkpoint_dir=str(tmp_path / "c"), work_dir=str(tmp_path / "w"), trigger_seconds=0.1,
        typed=(lake.config(streams=("s*",)),), modules=("bad_tables", "good_tables"),
    )  # fmt: skip
    duties = function_tables(spark, config)
    duties.start()
    deadline = time.monotonic() + 120.0
    while duties.report()["table/warm"].get("rows") != 1:
        assert time.monotonic() < deadline, duties.report()
        time.sleep(0.1)
    duties.finish(time.monotonic() + 30)
    report = duties.report()
    assert report["table/warm"]["state"] == "running"
    assert "No module named 'nothing_like_it'" in str(report["table/bad_tables"]["error"])
    assert "no typed table has that name" in str(report["table/lost"]["error"])
    assert plain_rows(str(tmp_path / "out")).column("id").to_pylist() == [2]
