"""The bronze table: every entry of every stream as one row, unparsed, in a fixed schema.

One list says the columns; Arrow, Spark and Delta schemas derive from it, so that they cannot
differ. The schema has a version and only ever grows: what a reader finds once keeps its meaning.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

BRONZE_VERSION: Final = 2
KIND_NAMES: Final = ("bytes", "streamr", "nextgraph", "gap")
"""Names of `kind` by number of `EntryKind`; the last is no entry but a range that was lost."""
GAP_KIND: Final = 3

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


class Column(NamedTuple):
    """One column: its name, its type in Arrow and in Spark."""

    name: str
    arrow: pa.DataType
    spark: DataType


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """Columns as an Arrow schema."""
    return pa.schema([pa.field(column.name, column.arrow) for column in columns])


def spark_schema(columns: Iterable[Column]) -> StructType:
    """Columns as a Spark schema."""
    return StructType([StructField(column.name, column.spark) for column in columns])


BRONZE_COLUMNS: Final = (
    Column("stream", pa.string(), StringType()),
    Column("partition", pa.int32(), IntegerType()),
    Column("index", pa.int64(), LongType()),
    Column("received_at", _TIMESTAMP, TimestampType()),
    Column("kind", pa.string(), StringType()),
    Column("data", pa.binary(), BinaryType()),
    # Metadata of the publisher's protocol; null where an entry came without.
    Column("ts", _TIMESTAMP, TimestampType()),
    Column("publisher", pa.string(), StringType()),
    Column("chain", pa.string(), StringType()),
    Column("seq", pa.int64(), LongType()),
    Column("prev_ts", _TIMESTAMP, TimestampType()),
    Column("prev_seq", pa.int64(), LongType()),
    Column("sig", pa.binary(), BinaryType()),
    Column("enc", pa.string(), StringType()),
    Column("node_meta", pa.binary(), BinaryType()),
    # Only in rows of kind `gap`: entries from `index` to before `gap_until` were trimmed unread;
    # null where the stream was removed and made anew, so that nobody knows how many it still had.
    Column("gap_until", pa.int64(), LongType()),
    # What the entry is about, as its producer or its protocol says; null where neither does.
    Column("key", pa.binary(), BinaryType()),
    Column("headers", pa.map_(pa.string(), pa.binary()), MapType(StringType(), BinaryType())),
    # When the stream was created: of two streams that had one name, one after the other, it tells
    # which the entry was in.
    Column("created_at", _TIMESTAMP, TimestampType()),
)

BRONZE_SCHEMA: Final = arrow_schema(BRONZE_COLUMNS)
BRONZE_STRUCT: Final = spark_schema(BRONZE_COLUMNS)
