"""Files of a table as Spark's rows, wherever they lie.

Spark reads directories by itself. For an object store it would need Hadoop's connector, which is
no part of PySpark; there its tasks read with pyarrow, as all our formats do.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Final, cast

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from rillnode.node.spark.delta_log import open_table
from rillnode.node.spark.files import local_path
from rillnode.node.spark.parquet import file_rows
from rillnode.node.spark.schema_upgrade import conform
from rillnode.node.spark.tables import BRONZE_SCHEMA

BRONZE_STRUCT: Final = from_arrow_schema(BRONZE_SCHEMA)


def frame_of(session: SparkSession, uris: Sequence[str], schema: StructType) -> DataFrame:
    """Rows of Parquet files; columns that an older file does not have are null."""
    if not uris:
        return session.createDataFrame([], schema)
    if all(local_path(uri) is not None for uri in uris):
        return session.read.schema(schema).parquet(*uris)
    names = session.createDataFrame([(uri,) for uri in uris], "uri string")
    # One file a row: they are shared out among tasks as rows are.
    return names.repartition(len(uris)).mapInArrow(
        _reader(to_arrow_schema(schema, timezone="UTC")), schema
    )


def _reader(
    schema: pa.Schema,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(names: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in names:
            for uri in cast("list[str]", batch.column("uri").to_pylist()):
                for rows in file_rows(uri):
                    yield conform(rows, schema)

    return read


def read_delta(spark: SparkSession, table: str) -> DataFrame:
    """The rows of a Delta table's present version, for a Spark without Delta's own jar.

    Spark reads the Parquet files that the table's log names, and no others: what failed tasks or
    merges have left in the directory is not part of the table.

    Raises:
        ConfigError: the table needs more of its reader than a list of files.
    """
    # One that is not there fails as `deltalake` has it.
    present = open_table(table) or DeltaTable(table)
    schema = StructType.fromJson(json.loads(present.schema().to_json()))
    return frame_of(spark, present.file_uris(), schema)
