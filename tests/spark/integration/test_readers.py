"""Whatever reads a table, by whatever column, finds the rows that are there and no others."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from every_kind_of_row import TABLES, make_tables
from table_readers import wrong_answers, wrong_answers_of_spark

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tables")
    make_tables(directory)
    return directory


@pytest.mark.parametrize("table", TABLES)
def test_every_reader_finds_by_every_column_what_is_there(tables: Path, table: str) -> None:
    assert wrong_answers(str(tables / table)) == []


@pytest.mark.parametrize("table", TABLES)
def test_spark_finds_by_every_column_what_is_there(
    spark: SparkSession, tables: Path, table: str
) -> None:
    assert wrong_answers_of_spark(spark, str(tables / table)) == []
