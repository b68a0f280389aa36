"""Keeps a gold table up with silver, minute by minute.

Every table has a query of its own. A step looks at what bronze got since the last one and silver
covers already, takes the minutes that this touches, and calculates these minutes anew from silver.
The query's checkpoint is in the table's log: the transaction of a step's rows says how far in
bronze's versions they reach. What a crash leaves undone is done again with the same outcome, and
there is no other state that could be lost. `docs/decisions/0005` says why it is no Spark query.
"""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, cast

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from rillnode.node.spark import gold
from rillnode.node.spark.delta_log import (
    PLACE,
    LogFile,
    Position,
    TableLog,
    live_files,
    open_table,
    saved_position,
)
from rillnode.node.spark.erasure import Erasures, applied
from rillnode.node.spark.frames import frame_of
from rillnode.node.spark.gold_tables import CHAINS, MINUTES, PUBLISHERS, GoldTable
from rillnode.node.spark.silver_table import SILVER_STRUCT
from rillnode.node.spark.tables import BRONZE_STRUCT
from rillnode.node.spark.upsert import upsert

STEP_ROWS_MAX: Final = 5_000_000
"""Rows of bronze whose minutes one step calculates, about."""
CHAIN_MEMORY: Final = timedelta(days=1)
"""A chain that was silent for longer begins anew: its first message opens no gap."""
_MINUTE: Final = timedelta(minutes=1)


class _Span(NamedTuple):
    """What a step works on: rows of bronze and silver around the touched minutes."""

    touched: DataFrame
    low: datetime
    high: datetime
    landed: DataFrame
    events: DataFrame


class GoldQuery:
    """Makes one gold table.

    Args:
        session: Spark.
        table: which.
        bronze: the bronze table.
        silver: the silver table.
        gold: the directory or URI of the gold tables.

    Attributes:
        position: how far in bronze the table has come, as the last step saw it.
    """

    def __init__(
        self, session: SparkSession, table: GoldTable, *, bronze: str, silver: str, gold: str
    ) -> None:
        self._session = session
        self._table = table
        self._bronze = TableLog(bronze)
        self._erasures = Erasures(bronze)
        self._silver = silver
        self._location = f"{gold.rstrip('/')}/{table.name}"
        self.position: Position | None = None

    def step(self) -> bool:
        """Take in the next part of what silver has; returns whether there was any.

        Raises:
            StoreError: bronze's log does not reach back to where the table has come.
            ConfigError: another table lies where this one is to be.
        """
        bronze, silver = self._bronze.open(), open_table(self._silver)
        if bronze is None or silver is None:
            return False
        source = str(bronze.metadata().id)
        covered = saved_position(silver, source)
        start = saved_position(open_table(self._location), source)
        if start.base < 0:
            start = start._replace(base=covered.base)
        self.position = start
        if self._count_anew(bronze, silver, covered):
            return True
        if start[1:4] == covered[1:4]:
            return False
        end = self._end(start, covered)
        if end == start:
            return False
        added = self._bronze.files_between(start, end)
        rows = gold.with_minute(frame_of(self._session, self._bronze.uris(added), BRONZE_STRUCT))
        touched = rows.select("stream", "partition", "minute").distinct()
        counted = self._counted(touched, covered, silver)
        upsert(self._location, self._table, counted, end.transactions())
        self.position = end
        return True

    def _count_anew(self, bronze: DeltaTable, silver: DeltaTable, covered: Position) -> bool:
        """Calculate minutes anew that entries were erased of; returns whether there were any."""
        present, erased = open_table(self._location), self._erasures.erased()
        known = applied(present)
        is_swept = min(applied(bronze), applied(silver)) >= erased.number
        if present is None or known >= erased.number or not is_swept:
            return False
        slots = erased.slots(known)
        touched = self._session.createDataFrame(slots)
        counted = self._counted(touched, covered, silver)
        upsert(self._location, self._table, counted, [erased.mark()], slots)
        return True

    def _counted(self, touched: DataFrame, covered: Position, silver: DeltaTable) -> pa.Table:
        """The rows of the touched minutes."""
        with self._span(touched, covered, live_files(silver)) as span:
            if span is None:
                return pa.Table.from_batches([], schema=self._table.schema)
            return self._rows(span).toArrow()

    def _end(self, start: Position, covered: Position) -> Position:
        """The end of the step from `start`, not beyond what silver covers."""
        if covered.version < 0:
            return start
        end = self._bronze.plan(start, STEP_ROWS_MAX, covered.version)
        if end.base == covered.base and end[2:4] > covered[2:4]:
            return covered
        return end

    def _rows(self, span: _Span) -> DataFrame:
        if self._table is PUBLISHERS:
            return gold.publishers(span.events)
        missing = gold.missing_rows(span.landed, span.events)
        if self._table is MINUTES:
            return gold.minutes(span.events, missing)
        # A partition that is behind others must not take their minutes for its own.
        events, again = (
            rows.join(f.broadcast(span.touched), list(CHAINS.slot), "left_semi")
            for rows in (span.events, missing)
        )
        return gold.chains(events, again, self._earlier_chains(span))

    @contextmanager
    def _span(
        self, touched: DataFrame, covered: Position, silver: list[LogFile]
    ) -> Generator[_Span | None]:
        """What the touched minutes hold; None if there are none."""
        touched = touched.persist()
        try:
            found = touched.agg(f.min("minute"), f.max("minute")).first()
            if found is None or found[0] is None:
                yield None
                return
            low, high = _utc(found[0]), _utc(found[1]) + _MINUTE
            landed = self._landed(
                [one for one in self._bronze.files_at(covered) if one.meets(low, high)]
            )
            known = [one for one in silver if one.meets(low, high)]
            uris = [f"{self._silver.rstrip('/')}/{file.path}" for file in known]
            yield _Span(
                touched,
                low,
                high,
                _within(landed, touched),
                _within(frame_of(self._session, uris, SILVER_STRUCT), touched),
            )
        finally:
            touched.unpersist()

    def _landed(self, files: list[LogFile]) -> DataFrame:
        """The rows of files of bronze that are in bronze now: silver takes in no deleted ones."""
        rows = frame_of(self._session, self._bronze.uris(files), BRONZE_STRUCT)
        gone, holders = self._bronze.files_left(files)
        if not gone:
            return rows
        present = list(dict.fromkeys([*(one for one in files if one not in gone), *holders]))
        left = frame_of(self._session, self._bronze.uris(present), BRONZE_STRUCT)
        return rows.join(left.select(*PLACE), list(PLACE), "left_semi")

    def _earlier_chains(self, span: _Span) -> DataFrame:
        log = open_table(self._location)
        files = [] if log is None else live_files(log, "minute")
        near = [file for file in files if file.meets(span.low - CHAIN_MEMORY, span.high)]
        rows = frame_of(
            self._session, [f"{self._location}/{file.path}" for file in near], CHAINS.struct
        )
        return rows.where(f.col("minute") >= f.lit(span.low - CHAIN_MEMORY))


def _within(rows: DataFrame, touched: DataFrame) -> DataFrame:
    """The rows of the touched minutes of their streams."""
    minutes = f.broadcast(touched.select("stream", "minute").distinct())
    return gold.with_minute(rows).join(minutes, ["stream", "minute"], "left_semi")


def _utc(time: Any) -> datetime:
    """A time as PySpark gives it, in the local zone and without saying so."""
    return cast("datetime", time).astimezone(UTC)
