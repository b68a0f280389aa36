"""The bronze table: every entry of every stream as one row, unparsed, in a fixed schema.

One list says the columns; Arrow, Spark (`structs.py`) and Delta schemas derive from it, so that
they cannot differ. The schema has a version and only ever grows: what a reader finds once keeps its
meaning.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import pyarrow as pa

BRONZE_VERSION: Final = 2
KIND_NAMES: Final = ("bytes", "streamr", "nextgraph", "gap")
"""Names of `kind` by number of `EntryKind`; the last is no entry but a range that was lost."""
GAP_KIND: Final = 3

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


class Column(NamedTuple):
    """One column: its name, its type, and what it holds, for the reference."""

    name: str
    arrow: pa.DataType
    text: str = ""


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """Columns as an Arrow schema."""
    return pa.schema([pa.field(column.name, column.arrow) for column in columns])


BRONZE_COLUMNS: Final = (
    Column("stream", pa.string(), "the stream's name"),
    Column("partition", pa.int32(), "the partition"),
    Column("index", pa.int64(), "where the entry stands in the partition"),
    Column("received_at", _TIMESTAMP, "when the node took it; null in `gap` rows"),
    Column(
        "kind",
        pa.string(),
        "`bytes`, `streamr`, `nextgraph`; `gap` for entries that were trimmed, or removed "
        "with their stream, before they were landed",
    ),
    Column("data", pa.binary(), "exactly the bytes that were stored"),
    Column("ts", _TIMESTAMP, "the publisher's time"),
    Column("publisher", pa.string(), "the publisher"),
    Column("chain", pa.string(), "the publisher's chain of messages"),
    Column("seq", pa.int64(), "number among the chain's messages of the same time"),
    Column("prev_ts", _TIMESTAMP, "time of the message before it in its chain"),
    Column("prev_seq", pa.int64(), "number of the message before it"),
    Column("sig", pa.binary(), "the signature"),
    Column("enc", pa.string(), "how the content is encrypted"),
    Column("node_meta", pa.binary(), "what the node noted"),
    Column(
        "gap_until",
        pa.int64(),
        "in `gap` rows only: the first index after the lost entries; null if the stream was "
        "removed and made anew, so that nobody knows what it still had",
    ),
    Column(
        "key",
        pa.binary(),
        "what the entry is about: the key that was pushed, `publisher/chain` of a Streamr "
        "message, the topic of a NextGraph event",
    ),
    Column(
        "headers",
        pa.map_(pa.string(), pa.binary()),
        "the headers that were pushed, by their names",
    ),
    Column(
        "created_at",
        _TIMESTAMP,
        "when the stream was created: it tells apart two streams that had one name, one after "
        "the other",
    ),
)

BRONZE_SCHEMA: Final = arrow_schema(BRONZE_COLUMNS)
