"""Schemas of tables as Spark has them, made of the lists that say their columns."""

from collections.abc import Iterable
from typing import Final

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from rillnode.node.spark.silver_table import SILVER_COLUMNS
from rillnode.node.spark.tables import BRONZE_COLUMNS, Column, arrow_schema


def spark_schema(columns: Iterable[Column]) -> StructType:
    """Columns as a Spark schema."""
    return from_arrow_schema(arrow_schema(columns))


BRONZE_STRUCT: Final = spark_schema(BRONZE_COLUMNS)
SILVER_STRUCT: Final = spark_schema(SILVER_COLUMNS)
