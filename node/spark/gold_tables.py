"""The gold tables: what happened per minute. One list per table says its columns, as for bronze.

Minutes are of `received_at`, the node's clock, in UTC. Schemas have a version and only ever grow.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from rillnode.node.spark.tables import Column, arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

GOLD_VERSION: Final = 1

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_TYPES: Final[dict[str, pa.DataType]] = {
    "text": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "time": _TIMESTAMP,
}


class GoldTable(NamedTuple):
    """A table's columns, and the columns of a *slot*: rows of one slot are replaced together."""

    name: str
    slot: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pa.Schema:
        """The columns as an Arrow schema."""
        return arrow_schema(self.columns)

    @property
    def struct(self) -> "StructType":
        """The columns as a Spark schema."""
        # Jobs without Spark know of these tables, too.
        from rillnode.node.spark.structs import spark_schema

        return spark_schema(self.columns)


def _columns(**columns: tuple[str, str]) -> tuple[Column, ...]:
    """Columns by name, each with its type and what it holds."""
    return tuple(Column(name, _TYPES[kind], text) for name, (kind, text) in columns.items())


MINUTES: Final = GoldTable(
    "minutes",
    ("stream", "minute"),
    _columns(
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
    _columns(
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
    _columns(
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
    _columns(
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
