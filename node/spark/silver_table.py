"""The silver table: every event once, its protocol's text decoded, in a fixed schema.

One list says the columns, as for bronze. The schema has a version and only ever grows.
"""

from typing import Final

import pyarrow as pa

from rillnode.node.spark.tables import Column, arrow_schema

SILVER_VERSION: Final = 1

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

SILVER_COLUMNS: Final = (
    Column("stream", pa.string(), "as in bronze"),
    Column("partition", pa.int32(), "as in bronze"),
    Column("index", pa.int64(), "as in bronze"),
    Column("received_at", _TIMESTAMP, "as in bronze"),
    Column(
        "landed_at",
        _TIMESTAMP,
        "when the entry's batch was committed to bronze, by which duplicates are looked for",
    ),
    Column("kind", pa.string(), "as in bronze"),
    Column(
        "event_id",
        pa.string(),
        "`publisher/chain/time/sequence` of a Streamr message, `topic/publisher/sequence` of "
        "a NextGraph event, else `#index`",
    ),
    Column("data_bytes", pa.int64(), "length of the entry's bytes"),
    Column("ts", _TIMESTAMP, "the publisher's time"),
    Column("publisher", pa.string(), "Ethereum address in lower case, or NextGraph peer key"),
    Column("chain", pa.string(), "message chain, or NextGraph topic"),
    Column("seq", pa.int64(), "sequence number"),
    Column("prev_ts", _TIMESTAMP, "time of the message before it in its chain"),
    Column("prev_seq", pa.int64(), "sequence number of the message before it"),
    Column("message_type", pa.int32(), "Streamr's message type; 27 is a message"),
    Column("encryption", pa.string(), "`none`, `rsa`, `aes`, `new_key_and_aes`"),
    Column("group_key_id", pa.string(), "names the key of an encrypted content"),
    Column(
        "signature",
        pa.string(),
        "`valid`, `unsigned`, `unknown signature type`, `not signed by its publisher`, "
        "`malformed signature or publisher`",
    ),
    Column("format", pa.string(), "what the content is: `json`, `text`, `encrypted`, `binary`"),
    Column("content", pa.string(), "the content as text; null for `binary`"),
    Column("data", pa.binary(), "the bytes of what is `binary` or could not be decoded"),
    Column("error", pa.string(), "why the row could not be decoded; null if nothing is wrong"),
    Column("gap_until", pa.int64(), "as in bronze"),
)

SILVER_SCHEMA: Final = arrow_schema(SILVER_COLUMNS)
