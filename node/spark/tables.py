"""The columns of the tables that a sink makes of its streams: bronze, silver and gold.

One list says the columns of each table; its Arrow, Spark and Delta schemas derive from it, so that
they cannot differ. Schemas only ever grow: what a reader finds once keeps its meaning.
"""

from typing import Final, NamedTuple

import pyarrow as pa

_TYPES: Final[dict[str, pa.DataType]] = {
    "text": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "time": pa.timestamp("us", tz="UTC"),
    "bytes": pa.binary(),
    "headers": pa.map_(pa.string(), pa.binary()),
}


def schema_of(**types: str) -> pa.Schema:
    """Columns, by the names of their types."""
    return pa.schema([pa.field(name, _TYPES[kind]) for name, kind in types.items()])


BRONZE_SCHEMA: Final = schema_of(
    stream="text",
    partition="int",
    index="long",
    received_at="time",
    # The name of an entry's kind; `gap` is no entry but a range that was lost.
    kind="text",
    data="bytes",
    # Metadata of the publisher's protocol; null where an entry came without.
    ts="time",
    publisher="text",
    chain="text",
    seq="long",
    prev_ts="time",
    prev_seq="long",
    sig="bytes",
    enc="text",
    node_meta="bytes",
    # Only in rows of kind `gap`: entries from `index` to before `gap_until` were trimmed unread;
    # null where the stream was removed and made anew, so that nobody knows how many it still had.
    gap_until="long",
    # What the entry is about, as its producer or its protocol says; null where neither does.
    key="bytes",
    headers="headers",
    # When the stream was created: of two streams that had one name, one after the other, it tells
    # which the entry was in.
    created_at="time",
)
"""Every entry of every stream as one row, unparsed."""

SILVER_SCHEMA: Final = schema_of(
    stream="text",
    partition="int",
    index="long",
    received_at="time",
    # When the row's batch was committed to bronze; time as duplicates are looked for.
    landed_at="time",
    kind="text",
    # Unique within the stream's partition: `publisher/chain/time/sequence` of a Streamr message,
    # `topic/publisher/sequence` of a NextGraph event, else `#index`.
    event_id="text",
    data_bytes="long",
    # What the publisher says; null for entries of kind `bytes`.
    ts="time",
    publisher="text",
    chain="text",
    seq="long",
    prev_ts="time",
    prev_seq="long",
    message_type="int",
    encryption="text",
    group_key_id="text",
    # What the signature is worth, in words.
    signature="text",
    # The content as text and what it is: `json`, `text`, `encrypted`; of `binary` the text is
    # null and `data` holds the bytes.
    format="text",
    content="text",
    data="bytes",
    # Why the row could not be decoded as its kind; its bytes are in `data`.
    error="text",
    # Only in rows of kind `gap`, as in bronze.
    gap_until="long",
)
"""Every event once, its protocol's text decoded."""


class GoldTable(NamedTuple):
    """What happened per minute, of `received_at`, the node's clock, in UTC.

    Attributes:
        slot: columns whose rows are replaced together.
    """

    name: str
    slot: tuple[str, ...]
    schema: pa.Schema


MINUTES: Final = GoldTable(
    "minutes",
    ("stream", "minute"),
    schema_of(
        stream="text",
        minute="time",
        messages="long",
        bytes="long",
        publishers="long",
        # Rows of silver with an error; signed ones whose signature is not the publisher's.
        malformed="long",
        forged="long",
        # Messages that came again and are not in silver.
        duplicates="long",
        # From the publisher's time to the node; null where publishers tell no time.
        latency_p50_ms="double",
        latency_p95_ms="double",
        latency_p99_ms="double",
        # From the node to the bronze table.
        landing_p50_ms="double",
        landing_p95_ms="double",
        landing_p99_ms="double",
    ),
)

CHAINS: Final = GoldTable(
    "chains",
    ("stream", "partition", "minute"),
    schema_of(
        stream="text",
        partition="int",
        publisher="text",
        chain="text",
        minute="time",
        messages="long",
        # Messages that name one before them which had not come yet.
        gaps="long",
        # Messages that came after a newer one of their chain.
        late="long",
        duplicates="long",
        # The newest message until then; what the next minute's gaps are told by.
        last_ts="time",
        last_seq="long",
    ),
)

PUBLISHERS: Final = GoldTable(
    "publishers",
    ("stream", "minute"),
    schema_of(
        stream="text",
        publisher="text",
        minute="time",
        messages="long",
        bytes="long",
        first_at="time",
        last_at="time",
    ),
)

LAG: Final = GoldTable(
    "lag",
    ("consumer", "minute"),
    schema_of(
        consumer="text",
        stream="text",
        partition="int",
        minute="time",
        # As of the minute's last batch: the stream's end, and what the consumer had committed.
        next_index="long",
        committed_index="long",
        rows_behind="long",
    ),
)

DERIVED: Final = (MINUTES, CHAINS, PUBLISHERS)
"""The tables that are made of silver; the job itself tells its lag."""
GOLD: Final = (*DERIVED, LAG)
