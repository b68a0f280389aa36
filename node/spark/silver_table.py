"""The silver table: every event once, its protocol's text decoded, in a fixed schema.

One list says the columns, as for bronze. The schema has a version and only ever grows.
"""

from typing import Final

import pyarrow as pa

from rillnode.node.spark.tables import Column, arrow_schema

SILVER_VERSION: Final = 1

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

SILVER_COLUMNS: Final = (
    Column("stream", pa.string()),
    Column("partition", pa.int32()),
    Column("index", pa.int64()),
    Column("received_at", _TIMESTAMP),
    # When the row's batch was committed to bronze; time as duplicates are looked for.
    Column("landed_at", _TIMESTAMP),
    Column("kind", pa.string()),
    # Unique within the stream's partition: `publisher/chain/time/sequence` of a Streamr message,
    # `topic/publisher/sequence` of a NextGraph event, else `#index`.
    Column("event_id", pa.string()),
    Column("data_bytes", pa.int64()),
    # What the publisher says; null for entries of kind `bytes`.
    Column("ts", _TIMESTAMP),
    Column("publisher", pa.string()),
    Column("chain", pa.string()),
    Column("seq", pa.int64()),
    Column("prev_ts", _TIMESTAMP),
    Column("prev_seq", pa.int64()),
    Column("message_type", pa.int32()),
    Column("encryption", pa.string()),
    Column("group_key_id", pa.string()),
    # What the signature is worth, as `codecs.streamr.signing.Verdict` has it.
    Column("signature", pa.string()),
    # The content as text and what it is: `json`, `text`, `encrypted`; of `binary` the text is
    # null and `data` holds the bytes.
    Column("format", pa.string()),
    Column("content", pa.string()),
    Column("data", pa.binary()),
    # Why the row could not be decoded as its kind; its bytes are in `data`.
    Column("error", pa.string()),
    # Only in rows of kind `gap`, as in bronze.
    Column("gap_until", pa.int64()),
)

SILVER_SCHEMA: Final = arrow_schema(SILVER_COLUMNS)
