"""The bronze table: every entry of every stream as one row, unparsed, in a fixed schema.

One list says the columns; Arrow, Spark (`structs.py`) and Delta schemas derive from it, so that
they cannot differ. The schema has a version and only ever grows: what a reader finds once keeps its
meaning.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import pyarrow as pa

BRONZE_VERSION: Final = 2

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


class Column(NamedTuple):
    """One column: its name and its type."""

    name: str
    arrow: pa.DataType


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """Columns as an Arrow schema."""
    return pa.schema([pa.field(column.name, column.arrow) for column in columns])


BRONZE_COLUMNS: Final = (
    Column("stream", pa.string()),
    Column("partition", pa.int32()),
    Column("index", pa.int64()),
    Column("received_at", _TIMESTAMP),
    # The name of an entry's kind; `gap` is no entry but a range that was lost.
    Column("kind", pa.string()),
    Column("data", pa.binary()),
    # Metadata of the publisher's protocol; null where an entry came without.
    Column("ts", _TIMESTAMP),
    Column("publisher", pa.string()),
    Column("chain", pa.string()),
    Column("seq", pa.int64()),
    Column("prev_ts", _TIMESTAMP),
    Column("prev_seq", pa.int64()),
    Column("sig", pa.binary()),
    Column("enc", pa.string()),
    Column("node_meta", pa.binary()),
    # Only in rows of kind `gap`: entries from `index` to before `gap_until` were trimmed unread;
    # null where the stream was removed and made anew, so that nobody knows how many it still had.
    Column("gap_until", pa.int64()),
    # What the entry is about, as its producer or its protocol says; null where neither does.
    Column("key", pa.binary()),
    Column("headers", pa.map_(pa.string(), pa.binary())),
    # When the stream was created: of two streams that had one name, one after the other, it tells
    # which the entry was in.
    Column("created_at", _TIMESTAMP),
)

BRONZE_SCHEMA: Final = arrow_schema(BRONZE_COLUMNS)
