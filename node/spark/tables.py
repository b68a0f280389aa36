"""The columns of the tables that a sink makes of its streams: bronze, silver and gold.

One list says the columns of each table; its Arrow, Spark and Delta schemas derive from it, so that
they cannot differ, and so does the reference. Schemas only ever grow: what a reader finds once
keeps its meaning.
"""

from collections.abc import Iterable
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


class Column(NamedTuple):
    """One column: its name, its type, and what it holds, for the reference."""

    name: str
    arrow: pa.DataType
    text: str


def columns_of(**columns: tuple[str, str]) -> tuple[Column, ...]:
    """Columns by name, each with the name of its type and what it holds."""
    return tuple(Column(name, _TYPES[kind], text) for name, (kind, text) in columns.items())


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """Columns as an Arrow schema."""
    return pa.schema([pa.field(column.name, column.arrow) for column in columns])


def schema_of(**types: str) -> pa.Schema:
    """Columns of what is no table of its own, by the names of their types."""
    return pa.schema([pa.field(name, _TYPES[kind]) for name, kind in types.items()])


BRONZE_COLUMNS: Final = columns_of(
    stream=("text", "the stream's name"),
    partition=("int", "the partition"),
    index=("long", "where the entry stands in the partition"),
    received_at=("time", "when the node took it; null in `gap` rows"),
    kind=(
        "text",
        "`bytes`, `streamr`, `nextgraph`; `gap` for entries that were trimmed, or removed "
        "with their stream, before they were landed",
    ),
    data=("bytes", "exactly the bytes that were stored"),
    ts=("time", "the publisher's time"),
    publisher=("text", "the publisher"),
    chain=("text", "the publisher's chain of messages"),
    seq=("long", "number among the chain's messages of the same time"),
    prev_ts=("time", "time of the message before it in its chain"),
    prev_seq=("long", "number of the message before it"),
    sig=("bytes", "the signature"),
    enc=("text", "how the content is encrypted"),
    node_meta=("bytes", "what the node noted"),
    gap_until=(
        "long",
        "in `gap` rows only: the first index after the lost entries; null if the stream was "
        "removed and made anew, so that nobody knows what it still had",
    ),
    key=(
        "bytes",
        "what the entry is about: the key that was pushed, `publisher/chain` of a Streamr "
        "message, the topic of a NextGraph event",
    ),
    headers=("headers", "the headers that were pushed, by their names"),
    created_at=(
        "time",
        "when the stream was created: it tells apart two streams that had one name, one "
        "after the other",
    ),
)
"""Every entry of every stream as one row, unparsed."""
BRONZE_SCHEMA: Final = arrow_schema(BRONZE_COLUMNS)

SILVER_COLUMNS: Final = columns_of(
    stream=("text", "as in bronze"),
    partition=("int", "as in bronze"),
    index=("long", "as in bronze"),
    received_at=("time", "as in bronze"),
    landed_at=(
        "time",
        "when the entry's batch was committed to bronze, by which duplicates are looked for",
    ),
    kind=("text", "as in bronze"),
    event_id=(
        "text",
        "`publisher/chain/time/sequence` of a Streamr message, `topic/publisher/sequence` "
        "of a NextGraph event, else `#index`",
    ),
    data_bytes=("long", "length of the entry's bytes"),
    ts=("time", "the publisher's time"),
    publisher=("text", "Ethereum address in lower case, or NextGraph peer key"),
    chain=("text", "message chain, or NextGraph topic"),
    seq=("long", "sequence number"),
    prev_ts=("time", "time of the message before it in its chain"),
    prev_seq=("long", "sequence number of the message before it"),
    message_type=("int", "Streamr's message type; 27 is a message"),
    encryption=("text", "`none`, `rsa`, `aes`, `new_key_and_aes`"),
    group_key_id=("text", "names the key of an encrypted content"),
    signature=(
        "text",
        "`valid`, `unsigned`, `unknown signature type`, `not signed by its publisher`, "
        "`malformed signature or publisher`",
    ),
    format=("text", "what the content is: `json`, `text`, `encrypted`, `binary`"),
    content=("text", "the content as text; null for `binary`"),
    data=("bytes", "the bytes of what is `binary` or could not be decoded"),
    error=("text", "why the row could not be decoded; null if nothing is wrong"),
    gap_until=("long", "as in bronze"),
)
"""Every event once, its protocol's text decoded."""
SILVER_SCHEMA: Final = arrow_schema(SILVER_COLUMNS)


class GoldTable(NamedTuple):
    """Events per minute, of `received_at`, the node's clock, in UTC.

    Attributes:
        slot: columns whose rows are replaced together.
    """

    name: str
    slot: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pa.Schema:
        """The columns as an Arrow schema."""
        return arrow_schema(self.columns)


MINUTES: Final = GoldTable(
    "minutes",
    ("stream", "minute"),
    columns_of(
        stream=("text", "the stream"),
        minute=("time", "the minute"),
        messages=("long", "rows of silver"),
        bytes=("long", "bytes of their entries"),
        publishers=("long", "number of publishers"),
        malformed=("long", "rows with an `error`"),
        forged=("long", "messages that say they are signed by their publisher and are not"),
        duplicates=("long", "Streamr messages that were left out because they had come before"),
        latency_p50_ms=("double", "from the publisher's time to the node, median"),
        latency_p95_ms=("double", "95th percentile"),
        latency_p99_ms=("double", "99th percentile"),
        landing_p50_ms=("double", "from the node to bronze, median"),
        landing_p95_ms=("double", "95th percentile"),
        landing_p99_ms=("double", "99th percentile"),
    ),
)

CHAINS: Final = GoldTable(
    "chains",
    ("stream", "partition", "minute"),
    columns_of(
        stream=("text", "the stream"),
        partition=("int", "the partition"),
        publisher=("text", "the publisher"),
        chain=("text", "the chain"),
        minute=("time", "the minute"),
        messages=("long", "messages of the chain"),
        gaps=("long", "messages that name one before them which had not come yet"),
        late=("long", "messages that came after a newer one of their chain"),
        duplicates=("long", "messages that had come before"),
        last_ts=(
            "time",
            "time of the newest message until then, by which the next minute's gaps are told",
        ),
        last_seq=("long", "its sequence number"),
    ),
)

PUBLISHERS: Final = GoldTable(
    "publishers",
    ("stream", "minute"),
    columns_of(
        stream=("text", "the stream"),
        publisher=("text", "the publisher"),
        minute=("time", "the minute"),
        messages=("long", "messages"),
        bytes=("long", "bytes of their entries"),
        first_at=("time", "when the first of the minute came"),
        last_at=("time", "when the last of the minute came"),
    ),
)

LAG: Final = GoldTable(
    "lag",
    ("consumer", "minute"),
    columns_of(
        consumer=("text", "the name under which it saves its position: `sink/<name>` for a sink"),
        stream=("text", "the stream"),
        partition=("int", "the partition"),
        minute=("time", "the minute"),
        next_index=("long", "where the partition ended at the last look in the minute"),
        committed_index=("long", "what the consumer had saved by then"),
        rows_behind=("long", "entries between the two"),
    ),
)

DERIVED: Final = (MINUTES, CHAINS, PUBLISHERS)
"""The tables that are made of silver; the job itself tells its lag."""
GOLD: Final = (*DERIVED, LAG)
