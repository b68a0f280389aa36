"""Connections to the databases that a process has in memory."""

from collections.abc import Callable

import duckdb
import pyarrow as pa
import pytest

from rillnode.node.spark.querying import connect, connect_locked

BOTH = pytest.mark.parametrize("made", [connect, connect_locked])


@BOTH
def test_what_one_connection_registers_no_other_one_sees(
    made: Callable[[], duckdb.DuckDBPyConnection],
) -> None:
    first, second = made(), made()
    first.register("rows", pa.table({"a": [1]}))
    with pytest.raises(duckdb.CatalogException):
        second.execute("SELECT * FROM rows")
    second.register("rows", pa.table({"b": ["x"]}))
    assert first.execute("SELECT * FROM rows").fetchall() == [(1,)]
    assert second.execute("SELECT * FROM rows").fetchall() == [("x",)]


@BOTH
def test_times_are_in_utc_and_python_is_not_looked_into(
    made: Callable[[], duckdb.DuckDBPyConnection],
) -> None:
    own = pa.table({"a": [1]})
    asked = "SELECT date_trunc('day', TIMESTAMPTZ '2026-01-01 00:30:00')::VARCHAR"
    assert made().execute(asked).fetchall() == [("2026-01-01 00:00:00+00",)]
    with pytest.raises(duckdb.CatalogException):
        made().execute("SELECT * FROM own")
    assert own.num_rows == 1


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('/etc/hostname')",
        "SET enable_external_access = true",
        "SET GLOBAL enable_external_access = true",
        "RESET lock_configuration",
        "SET TimeZone = 'Asia/Tokyo'",
        "INSTALL httpfs",
        "ATTACH 'other.db'",
    ],
)
def test_peoples_sql_reaches_nothing_outside(sql: str) -> None:
    with pytest.raises(duckdb.Error):
        connect_locked().execute(sql)
