"""Calculates gold from rows of silver, as Spark's data frames.

Every table's rows of a slot (a stream's minute, or that of one of its partitions) are calculated
from all of the slot's rows in silver, so that a slot may be calculated as often as one likes.

Frames of events have silver's columns and `minute`.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from rillnode.node.spark.gold_tables import CHAINS, MINUTES, PUBLISHERS, GoldTable

_CHAIN: Final = ("stream", "partition", "publisher", "chain")
_ROW: Final = ("stream", "partition", "index", "received_at")
_FORGED: Final = ("not signed by its publisher", "malformed signature or publisher")


def with_minute(rows: DataFrame) -> DataFrame:
    """Rows that were received, with the minute in which they were."""
    received = rows.where(f.col("received_at").isNotNull() & (f.col("kind") != "gap"))
    return received.withColumn("minute", f.date_trunc("minute", "received_at"))


def missing_rows(landed: DataFrame, events: DataFrame) -> DataFrame:
    """Streamr entries of bronze that silver has left out, because they had come before.

    Columns: stream, partition, index, received_at, publisher, chain, minute.
    """
    streamr = landed.where(f.col("kind") == "streamr")
    narrow = streamr.select(*_ROW, "publisher", "chain", "minute")
    return narrow.join(events.select(*_ROW), list(_ROW), "left_anti")


def minutes(events: DataFrame, missing: DataFrame) -> DataFrame:
    """Rows of `minutes`."""
    latency = f.unix_millis("received_at") - f.unix_millis("ts")
    landing = f.unix_millis("landed_at") - f.unix_millis("received_at")
    counted = events.groupBy("stream", "minute").agg(
        f.count("*").alias("messages"),
        f.sum("data_bytes").alias("bytes"),
        f.count_distinct("publisher").alias("publishers"),
        f.count("error").alias("malformed"),
        f.count_if(f.col("signature").isin(*_FORGED)).alias("forged"),
        _percentiles(latency).alias("latency"),
        _percentiles(landing).alias("landing"),
    )
    again = missing.groupBy("stream", "minute").agg(f.count("*").alias("duplicates"))
    joined = counted.join(again, ["stream", "minute"], "full_outer")
    for name in ("latency", "landing"):
        for at, share in enumerate(("p50", "p95", "p99")):
            joined = joined.withColumn(f"{name}_{share}_ms", f.col(name)[at].cast("double"))
    return _shaped(joined, MINUTES, zero=("messages", "bytes", "publishers", "malformed", "forged"))


def chains(events: DataFrame, missing: DataFrame, before: DataFrame) -> DataFrame:
    """Rows of `chains`.

    Within a chain, messages are looked at in the order in which the node took them. A message is
    late if a newer one of its chain was there; it opens a gap if it names a message before it that
    is newer than all that were there.

    Args:
        events: rows of silver.
        missing: what `missing_rows` gives.
        before: rows of `chains` of earlier minutes, whatever of them is still known.
    """
    messages = events.where(
        (f.col("kind") == "streamr") & f.col("chain").isNotNull() & f.col("ts").isNotNull()
    ).withColumn("ref", _ref("ts", "seq"))
    # What came before the first of these minutes; each chain has its own first.
    first = messages.groupBy(*_CHAIN).agg(f.min("minute").alias("first"))
    known = (
        before.where(f.col("last_ts").isNotNull())
        .join(first, list(_CHAIN))
        .where(f.col("minute") < f.col("first"))
        .groupBy(*_CHAIN)
        .agg(f.max(_ref("last_ts", "last_seq")).alias("known"))
    )
    arrivals = Window.partitionBy(*_CHAIN).orderBy("index")
    seen = f.max("ref").over(arrivals.rowsBetween(Window.unboundedPreceding, -1))
    judged = messages.join(known, list(_CHAIN), "left").withColumn(
        "newest", f.greatest(seen, f.col("known"))
    )
    named = f.when(f.col("prev_ts").isNotNull(), _ref("prev_ts", "prev_seq"))
    counted = judged.groupBy(*_CHAIN, "minute").agg(
        f.count("*").alias("messages"),
        f.count_if(named > f.col("newest")).alias("gaps"),
        f.count_if(f.col("ref") < f.col("newest")).alias("late"),
        f.max("ref").alias("last"),
    )
    again = missing.where(f.col("chain").isNotNull()).groupBy(*_CHAIN, "minute")
    duplicates = again.agg(f.count("*").alias("duplicates"))
    joined = counted.join(duplicates, [*_CHAIN, "minute"], "full_outer")
    joined = joined.withColumn("last_ts", f.col("last.ts")).withColumn(
        "last_seq", f.col("last.seq")
    )
    return _shaped(joined, CHAINS, zero=("messages", "gaps", "late"))


def publishers(events: DataFrame) -> DataFrame:
    """Rows of `publishers`."""
    known = events.where(f.col("publisher").isNotNull())
    counted = known.groupBy("stream", "publisher", "minute").agg(
        f.count("*").alias("messages"),
        f.sum("data_bytes").alias("bytes"),
        f.min("received_at").alias("first_at"),
        f.max("received_at").alias("last_at"),
    )
    return _shaped(counted, PUBLISHERS)


def _percentiles(value: Column) -> Column:
    shares = f.array(f.lit(0.5), f.lit(0.95), f.lit(0.99))
    return f.percentile(value, shares)


def _ref(ts: str, seq: str) -> Column:
    """A message's place in its chain; comparable."""
    return f.struct(f.col(ts).alias("ts"), f.coalesce(f.col(seq), f.lit(0)).alias("seq"))


def _shaped(rows: DataFrame, table: GoldTable, zero: tuple[str, ...] = ()) -> DataFrame:
    """Exactly the table's columns; counts that a join has left null are 0."""
    counts = [*zero, *(["duplicates"] if "duplicates" in rows.columns else [])]
    filled = rows.fillna(0, counts) if counts else rows
    return filled.select(*(f.col(one.name).cast(one.dataType) for one in table.struct))
