"""Renders a running query's progress, as the node shows it."""

from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from rillnode.node.spark.offsets import Offset, Positions

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

_HISTORY_MAX: Final = 10


class Batch(NamedTuple):
    """One trigger of a query.

    Attributes:
        batch_id: number of the batch.
        executed: False for a trigger that found nothing to do.
        seconds: how long it took.
        end: where it ended.
        latest: the ends of the streams when it was planned.
    """

    batch_id: int
    executed: bool
    seconds: float
    end: Offset
    latest: Positions

    @property
    def rows_behind(self) -> int:
        """Entries that were waiting behind this batch."""
        done = self.end.positions
        return sum(max(0, until - done.get(key, 0)) for key, until in self.latest.items())


def read_progress(progress: "StreamingQueryProgress") -> Batch:
    """What of Spark's progress document concerns us."""
    source = progress.sources[0]
    durations = progress.durationMs
    return Batch(
        batch_id=progress.batchId,
        executed="addBatch" in durations,
        seconds=durations.get("triggerExecution", 0) / 1000,
        end=_offset(source.endOffset),
        latest=_offset(source.latestOffset).positions,
    )


class Table:
    """The query's table, followed commit by commit."""

    def __init__(self, location: str, query_id: str) -> None:
        self._location = location
        self._query_id = query_id
        self._table: DeltaTable | None = None

    def batch(self, batch_id: int) -> dict[str, Any]:
        """What the table's history says of a batch; nothing for one without rows."""
        table = self.open()
        if table is None:
            return {}
        for commit in table.history(_HISTORY_MAX):
            found = cast("dict[str, Any]", commit.get("batch", {}))
            if found.get("id") == batch_id and found.get("query") == self._query_id:
                shown = {key: found[key] for key in found.keys() - {"id", "query"}}
                return {**shown, "table_version": commit["version"]}
        return {}

    def open(self) -> DeltaTable | None:
        """The table as of now; None before its first commit."""
        if self._table is None:
            try:
                self._table = DeltaTable(self._location)
            except TableNotFoundError:
                return None
        else:
            self._table.update_incremental()
        return self._table


def report_of(batch: Batch, written: dict[str, Any]) -> dict[str, object]:
    """The job's report on a batch, for the node's status."""
    report: dict[str, object] = {
        "batch": batch.batch_id,
        "state": "running" if batch.executed else "waiting",
        "rows_behind": batch.rows_behind,
    }
    if batch.executed:
        rows = int(written.get("rows", 0))
        speed = round(rows / batch.seconds) if batch.seconds else 0
        report |= {"seconds": batch.seconds, "rows_per_second": speed, **written}
    return report


def _offset(text: str | None) -> Offset:
    if not text or text == "null":
        return Offset({}, {})
    return Offset.from_json(msgspec.json.decode(text), "the query's progress")
