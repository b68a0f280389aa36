"""The silver table: every event once, its protocol's text decoded, in a fixed schema.

One list says the columns, as for bronze. The schema has a version and only ever grows.
"""

from typing import Final

import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, TimestampType

from rillnode.node.spark.tables import Column, arrow_schema, spark_schema

SILVER_VERSION: Final = 1

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

SILVER_COLUMNS: Final = (
    Column("stream", pa.string(), StringType()),
    Column("partition", pa.int32(), IntegerType()),
    Column("index", pa.int64(), LongType()),
    Column("received_at", _TIMESTAMP, TimestampType()),
    # When the row's batch was committed to bronze; time as duplicates are looked for.
    Column("landed_at", _TIMESTAMP, TimestampType()),
    Column("kind", pa.string(), StringType()),
    # Unique within the stream's partition: `publisher/chain/time/sequence` of a Streamr message,
    # `topic/publisher/sequence` of a NextGraph event, else `#index`.
    Column("event_id", pa.string(), StringType()),
    Column("data_bytes", pa.int64(), LongType()),
    # What the publisher says; null for entries of kind `bytes`.
    Column("ts", _TIMESTAMP, TimestampType()),
    Column("publisher", pa.string(), StringType()),
    Column("chain", pa.string(), StringType()),
    Column("seq", pa.int64(), LongType()),
    Column("prev_ts", _TIMESTAMP, TimestampType()),
    Column("prev_seq", pa.int64(), LongType()),
    Column("message_type", pa.int32(), IntegerType()),
    Column("encryption", pa.string(), StringType()),
    Column("group_key_id", pa.string(), StringType()),
    # What the signature is worth, as `codecs.streamr.signing.Verdict` has it.
    Column("signature", pa.string(), StringType()),
    # The content as text and what it is: `json`, `text`, `encrypted`; of `binary` the text is
    # null and `data` holds the bytes.
    Column("format", pa.string(), StringType()),
    Column("content", pa.string(), StringType()),
    Column("data", pa.binary(), BinaryType()),
    # Why the row could not be decoded as its kind; its bytes are in `data`.
    Column("error", pa.string(), StringType()),
    # Only in rows of kind `gap`, as in bronze.
    Column("gap_until", pa.int64(), LongType()),
)

SILVER_SCHEMA: Final = arrow_schema(SILVER_COLUMNS)
SILVER_STRUCT: Final = spark_schema(SILVER_COLUMNS)
