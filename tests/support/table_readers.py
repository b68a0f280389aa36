"""Reads tables as people do: each reader filters by one column and says what it finds.

Every reader is given the table as its documentation says: those that know Delta its directory, the
others the files of its present version.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import cache
from typing import Any, Final, NamedTuple, cast

import duckdb
import pandas  # pyright: ignore[reportMissingTypeStubs]
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import Column, SparkSession, functions as f

from rillnode.node.spark.schema_upgrade import conform


class Filter(NamedTuple):
    """A condition on one column: `is null`, `is valid`, or `=` or `>=` a value."""

    column: str
    kind: pa.DataType
    operator: str
    value: Any = None

    def takes(self, value: Any) -> bool:
        """Whether a value meets it."""
        match self.operator:
            case "is null":
                return value is None
            case "is valid":
                return value is not None
            case "=":
                return bool(value == self.value)
            case _:
                return value is not None and bool(value >= self.value)

    def expression(self) -> pc.Expression:
        """For pyarrow, and for who takes its expressions."""
        field = pc.field(self.column)
        if self.value is None:
            return field.is_null() if self.operator == "is null" else field.is_valid()
        value = pa.scalar(self.value, self.kind)
        return field == value if self.operator == "=" else field >= value

    def sql(self, hexadecimal: str) -> str:
        """For DuckDB and DataFusion; `hexadecimal` is what stands before bytes."""
        if self.value is None:
            return f'"{self.column}" IS {"NULL" if self.operator == "is null" else "NOT NULL"}'
        return f'"{self.column}" {self.operator} {_literal(self.value, hexadecimal)}'


def filters_of(rows: pa.Table) -> Iterator[Filter]:
    """Conditions on each column, with the values that there are at its ends and in its middle."""
    for field in rows.schema:
        yield Filter(field.name, field.type, "is null")
        yield Filter(field.name, field.type, "is valid")
        if field.name == "headers":  # readers agree on no order of maps
            continue
        values = sorted({one for one in rows.column(field.name).to_pylist() if one is not None})
        for value in dict.fromkeys(values[at] for at in (0, len(values) // 2, -1) if values):
            yield Filter(field.name, field.type, "=", value)
            yield Filter(field.name, field.type, ">=", value)


def plain_rows(location: str) -> pa.Table:
    """All rows, without any filter and without statistics."""
    return rows_of(DeltaTable(location))


def rows_of(table: DeltaTable) -> pa.Table:
    """All rows of one version of a table."""
    schema = pa.schema(table.schema().to_arrow())
    batches = [batch for uri in table.file_uris() for batch in pq.ParquetFile(uri).iter_batches()]
    return pa.Table.from_batches([conform(batch, schema) for batch in batches], schema)


Reader = Callable[[Filter], int]
"""Counts the rows of a table that meet a condition."""


def _delta_rs_dataset(table: DeltaTable) -> Reader:
    dataset = cast("Any", table).to_pyarrow_dataset()
    return lambda wanted: int(dataset.count_rows(filter=wanted.expression()))


def _delta_rs_table(table: DeltaTable) -> Reader:
    reader: Any = table
    return lambda wanted: int(reader.to_pyarrow_table(filters=wanted.expression()).num_rows)


def _delta_rs_pandas(table: DeltaTable) -> Reader:
    reader: Any = table

    def count(wanted: Filter) -> int:
        filters: Any = wanted.expression()
        if wanted.value is not None:
            filters = [(wanted.column, wanted.operator, wanted.value)]
        return len(reader.to_pandas(filters=filters))

    return count


def _delta_rs_sql(table: DeltaTable) -> Reader:
    query = QueryBuilder().register("t", table)

    def count(wanted: Filter) -> int:
        found = query.execute(f"SELECT count(*) AS n FROM t WHERE {wanted.sql('X')}")
        return int(pa.table(found.read_all()).column("n").to_pylist()[0])

    return count


def _pyarrow(table: DeltaTable) -> Reader:
    files = ds.dataset(table.file_uris(), format="parquet")
    return lambda wanted: int(files.count_rows(filter=wanted.expression()))


def _pandas(table: DeltaTable) -> Reader:
    files = table.file_uris()
    read: Any = cast("Any", pandas).read_parquet
    return lambda wanted: sum(len(read(uri, filters=wanted.expression())) for uri in files)


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    """The database of all readers; to make one takes longer than to read a table of a test."""
    return duckdb.connect()


def _duckdb_over_delta_rs(table: DeltaTable) -> Reader:
    connection = _duckdb().cursor()
    connection.register("t", cast("Any", table).to_pyarrow_dataset())
    return lambda wanted: _count(connection, f"t WHERE {wanted.sql('from_hex')}")


def _duckdb_files(table: DeltaTable) -> Reader:
    connection = _duckdb().cursor()
    files = ", ".join(f"'{uri}'" for uri in table.file_uris())
    return lambda wanted: _count(
        connection, f"read_parquet([{files}]) WHERE {wanted.sql('from_hex')}"
    )


def _polars(table: DeltaTable) -> Reader:
    rows = pl.scan_delta(table)
    return lambda wanted: rows.filter(_polars_expression(wanted)).collect().height


def _polars_over_pyarrow(table: DeltaTable) -> Reader:
    rows = pl.scan_delta(table, use_pyarrow=True)
    return lambda wanted: rows.filter(_polars_expression(wanted)).collect().height


READERS: Final[dict[str, Callable[[DeltaTable], Reader]]] = {
    "delta-rs dataset": _delta_rs_dataset,
    "delta-rs table": _delta_rs_table,
    "delta-rs pandas": _delta_rs_pandas,
    "delta-rs SQL": _delta_rs_sql,
    "pyarrow files": _pyarrow,
    "pandas files": _pandas,
    "DuckDB over delta-rs": _duckdb_over_delta_rs,
    "DuckDB files": _duckdb_files,
    "Polars": _polars,
    "Polars over pyarrow": _polars_over_pyarrow,
}


BY_STATISTICS: Final = (
    "delta-rs dataset", "delta-rs pandas", "delta-rs SQL", "DuckDB over delta-rs", "Polars",
)  # fmt: skip
"""Those that skip files by what the table's log says of them, each in its own way."""


def wrong_answers(location: str, names: Iterable[str] = READERS) -> list[str]:
    """What readers answer otherwise than the rows themselves; each a line for people."""
    rows = plain_rows(location)
    readers = {name: READERS[name](DeltaTable(location)) for name in names}
    wrong: list[str] = []
    for wanted in filters_of(rows):
        right = sum(map(wanted.takes, rows.column(wanted.column).to_pylist()))
        for name, count in readers.items():
            if (found := count(wanted)) != right:
                what = f"{wanted.column} {wanted.operator} {wanted.value!r:.40}"
                wrong.append(f"{name}: {what}: {found} instead of {right}")
    return wrong


def wrong_answers_of_spark(spark: SparkSession, location: str) -> list[str]:
    """The same for Spark, which counts all conditions on a table in one job."""
    rows = plain_rows(location)
    frame = spark.read.parquet(*DeltaTable(location).file_uris())
    wanted = list(filters_of(rows))
    counts = frame.where(_spark_condition(wanted[0])).agg(f.lit(0).alias("at"), f.count("*"))
    for at, one in enumerate(wanted[1:], start=1):
        found = frame.where(_spark_condition(one)).agg(f.lit(at).alias("at"), f.count("*"))
        counts = counts.unionAll(found)
    wrong: list[str] = []
    for at, count in cast("list[tuple[int, int]]", counts.collect()):
        one = wanted[at]
        right = sum(map(one.takes, rows.column(one.column).to_pylist()))
        if count != right:
            wrong.append(f"Spark: {one.column} {one.operator}: {count} instead of {right}")
    return wrong


def _count(connection: duckdb.DuckDBPyConnection, what: str) -> int:
    found = connection.execute(f"SELECT count(*) FROM {what}").fetchone()
    assert found is not None
    return int(found[0])


def _polars_expression(wanted: Filter) -> pl.Expr:
    column = pl.col(wanted.column)
    if wanted.value is None:
        return column.is_null() if wanted.operator == "is null" else column.is_not_null()
    return column.eq(wanted.value) if wanted.operator == "=" else column.ge(wanted.value)


def _spark_condition(wanted: Filter) -> Column:
    column = f.col(wanted.column)
    if wanted.value is None:
        return column.isNull() if wanted.operator == "is null" else column.isNotNull()
    value = f.lit(wanted.value)
    return column == value if wanted.operator == "=" else column >= value


def _literal(value: object, hexadecimal: str) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, datetime):
        return f"TIMESTAMPTZ '{value.isoformat(sep=' ')}'"
    if isinstance(value, bytes):
        digits = f"'{value.hex()}'"
        return f"{hexadecimal}{digits}" if hexadecimal == "X" else f"{hexadecimal}({digits})"
    return repr(value)
