"""Measures how far every consumer is behind, minute by minute, for gold's `lag`."""

import heapq
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa

from rillnode.node.spark.gold_tables import LAG
from rillnode.node.spark.offsets import Positions
from rillnode.node.spark.upsert import upsert

LAG_SECONDS: Final = 20.0
"""Time between two looks at the consumers."""
LAG_ROWS_MAX: Final = 10_000
"""Rows of one minute; beyond, those furthest behind. Own choice: a node may have 100,000 streams,
each with consumers of its own."""


class LagNotes:
    """Notes of one thread, the last of each minute, which another one writes down.

    Args:
        location: the table.
    """

    def __init__(self, location: str) -> None:
        self._location = location
        self._lock = threading.Lock()
        self._noted: dict[datetime, list[dict[str, Any]]] = {}

    def note(self, committed: Mapping[str, Positions], latest: Positions, now: datetime) -> None:
        """Note what each consumer has committed, and where the streams end."""
        minute = now.astimezone(UTC).replace(second=0, microsecond=0)
        rows = [
            {
                "consumer": consumer,
                "stream": stream,
                "partition": partition,
                "minute": minute,
                "next_index": latest[stream, partition],
                "committed_index": index,
                "rows_behind": max(0, latest[stream, partition] - index),
            }
            for consumer, positions in committed.items()
            for (stream, partition), index in positions.items()
            if (stream, partition) in latest
        ]
        if rows:
            with self._lock:
                self._noted[minute] = heapq.nlargest(LAG_ROWS_MAX, rows, itemgetter("rows_behind"))

    def write(self) -> None:
        """Write what is noted; a minute that goes on is written again.

        Raises:
            DeltaError: it could not be written; it stays noted.
        """
        with self._lock:
            noted = dict(self._noted)
        rows = [row for of_minute in noted.values() for row in of_minute]
        if not rows:
            return
        batches = [pa.RecordBatch.from_pylist(rows, schema=LAG.schema)]
        upsert(self._location, LAG, pa.Table.from_batches(batches))
        with self._lock:
            for minute, of_minute in noted.items():
                if self._noted[minute] is of_minute:
                    del self._noted[minute]
