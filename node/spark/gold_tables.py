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
        from rillnode.node.spark.frames import spark_schema

        return spark_schema(self.columns)


def _columns(**types: str) -> tuple[Column, ...]:
    return tuple(Column(name, _TYPES[kind]) for name, kind in types.items())


MINUTES: Final = GoldTable(
    "minutes",
    ("stream", "minute"),
    _columns(
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
    _columns(
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
    _columns(
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
    _columns(
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
