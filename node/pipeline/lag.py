"""How far the job that lands bronze is behind, minute by minute, for gold's `lag`."""

import threading
from datetime import UTC, datetime

import pyarrow as pa

from rillnode.node.pipeline.gold_tables import LAG
from rillnode.node.pipeline.progress import Batch
from rillnode.node.pipeline.upsert import upsert


class LagNotes:
    """Notes of one thread, the last of each minute, which another one writes down.

    Args:
        consumer: who is behind, as the node's saved indexes name it.
        location: the table.
    """

    def __init__(self, consumer: str, location: str) -> None:
        self._consumer = consumer
        self._location = location
        self._lock = threading.Lock()
        self._noted: dict[datetime, Batch] = {}

    def note(self, batch: Batch, now: datetime) -> None:
        """Note where a batch has ended, and where the streams ended when it was planned."""
        if batch.latest:
            with self._lock:
                self._noted[now.astimezone(UTC).replace(second=0, microsecond=0)] = batch

    def write(self) -> None:
        """Write what is noted; a minute that goes on is written again.

        Raises:
            DeltaError: it could not be written; it stays noted.
        """
        with self._lock:
            noted = dict(self._noted)
        rows = [row for minute, batch in noted.items() for row in self._rows(minute, batch)]
        if not rows:
            return
        batches = [pa.RecordBatch.from_pylist(rows, schema=LAG.schema)]
        upsert(self._location, LAG, pa.Table.from_batches(batches))
        with self._lock:
            for minute, batch in noted.items():
                if self._noted[minute] is batch:
                    del self._noted[minute]

    def _rows(self, minute: datetime, batch: Batch) -> list[dict[str, object]]:
        return [
            {
                "consumer": self._consumer,
                "stream": stream,
                "partition": partition,
                "minute": minute,
                "next_index": until,
                "committed_index": batch.end.get((stream, partition), 0),
                "rows_behind": max(0, until - batch.end.get((stream, partition), 0)),
            }
            for (stream, partition), until in batch.latest.items()
        ]
