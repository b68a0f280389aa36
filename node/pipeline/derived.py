"""Runs what is made of bronze: the silver query and, beside it in a thread, the steps of gold.

Bronze must land whatever happens to them, because the node keeps entries for it only so long. So
their failures end nothing: they are told, and tried again after growing pauses.
"""

import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rillnode.node.pipeline.delta_log import TableLog
from rillnode.node.pipeline.explaining import FAILURES, explain
from rillnode.node.pipeline.files import absolute, local_path, locked
from rillnode.node.pipeline.gold_query import GoldQuery
from rillnode.node.pipeline.gold_tables import LAG
from rillnode.node.pipeline.job_config import DerivedConfig
from rillnode.node.pipeline.lag import LagNotes
from rillnode.node.pipeline.maintenance import Maintenance
from rillnode.node.pipeline.progress import Batch
from rillnode.node.pipeline.silver import start_silver

GOLD_SECONDS: Final = 20.0
"""Time between two steps of gold; each writes the last file of every table anew."""
BACKOFF_SECONDS: Final = (5.0, 15.0, 60.0)
STOP_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.05


class Part:
    """One of the two, as people are told of it: whether it works, and if not, why."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._failures = 0
        self._error: str | None = None

    def failed(self, error: Exception) -> float:
        """Note a failure; returns the seconds to wait before the next attempt."""
        self._error = explain(error)[0]
        delay = BACKOFF_SECONDS[min(self._failures, len(BACKOFF_SECONDS) - 1)]
        self._failures += 1
        text = f"{self.name} failed, next attempt in {delay:g} s: {self._error}"
        print(text, file=sys.stderr, flush=True)
        return delay

    def worked(self) -> None:
        """Note progress: the next failure is a first one again."""
        self._failures, self._error = 0, None

    def report(self) -> dict[str, object]:
        """The part's state, for the job's report."""
        if self._error is None:
            return {"state": "running"}
        return {"state": "failed", "failures": self._failures, "error": self._error}


class Derived:
    """The tables made of one bronze table.

    Args:
        session: Spark.
        config: which tables there are, and how they are made.
        drain_file: while this file exists, silver begins no batch.
    """

    def __init__(self, session: SparkSession, config: DerivedConfig, drain_file: Path) -> None:
        self._session = session
        self._config = config
        self._drain_file = drain_file
        self._bronze_dir = absolute(config.bronze_dir)
        self._silver_dir = absolute(config.silver_dir)
        self._silver_log = TableLog(self._silver_dir)
        self._maintenance = Maintenance(self._silver_dir, config.compact_commits)
        self._silver, self._gold = Part("silver"), Part("gold")
        self._query: StreamingQuery | None = None
        self._batch_id: int | None = None
        self._start_at = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._gold_query: GoldQuery | None = None
        self._lag: LagNotes | None = None
        self._owned = ExitStack()
        self._is_owner = False
        if config.gold_dir is not None:
            gold_dir = absolute(config.gold_dir)
            self._gold_query = GoldQuery(
                session, bronze=self._bronze_dir, silver=self._silver_dir, gold=gold_dir
            )
            self._lag = LagNotes(config.consumer, f"{gold_dir.rstrip('/')}/{LAG.name}")

    def run_once(self) -> None:
        """Take in what bronze has now, and return.

        Raises:
            RillnodeError: a table is another, or was changed.
            PySparkException: the query failed.
        """
        self._own()
        self._start_silver({"availableNow": True}).awaitTermination()
        if self._gold_query is not None:
            while self._gold_query.step():
                continue

    def start(self) -> None:
        """Begin to run; `step` keeps it running."""
        if self._gold_query is not None:
            self._thread = threading.Thread(target=self._run_gold, name="gold", daemon=True)
            self._thread.start()

    def step(self) -> None:
        """Start the query or start it again, and keep its table in order; takes little time."""
        try:
            if self._query is None:
                self._start_if_due()
            elif not self._query.isActive:
                query, self._query = self._query, None
                query.awaitTermination()  # raises what it failed with
            else:
                self._follow(self._query)
        except FAILURES as error:
            self._start_at = time.monotonic() + self._silver.failed(error)

    def finish(self, deadline: float | None = None) -> None:
        """Let batch and step end, and stop; the drain file must be there.

        Args:
            deadline: when to stop waiting for them, by the monotonic clock.
        """
        self._stop.set()
        if deadline is None:
            deadline = time.monotonic() + STOP_SECONDS
        query = self._query
        if query is not None:
            while query.isActive and query.status["isTriggerActive"]:
                if time.monotonic() >= deadline:
                    break
                time.sleep(_POLL_SECONDS)
            query.stop()
        if self._thread is not None:
            self._thread.join(max(0.0, deadline - time.monotonic()))
        self._owned.close()

    def report(self) -> dict[str, object]:
        """The state of both, for the job's report."""
        parts = [self._silver] if self._gold_query is None else [self._silver, self._gold]
        return {part.name: part.report() for part in parts}

    def note_lag(self, batch: Batch) -> None:
        """Note how far bronze is behind the node."""
        if self._lag is not None:
            self._lag.note(batch, datetime.now(UTC))

    def _start_if_due(self) -> None:
        # Without a first version of bronze there is nothing to follow.
        if time.monotonic() >= self._start_at and TableLog(self._bronze_dir).open() is not None:
            self._own()
            interval = f"{round(self._config.trigger_seconds * 1000)} milliseconds"
            self._query = self._start_silver({"processingTime": interval})

    def _own(self) -> None:
        if not self._is_owner:
            own_checkpoint(self._owned, self._config.checkpoint_dir)
            self._is_owner = True

    def _start_silver(self, trigger: Mapping[str, Any]) -> StreamingQuery:
        return start_silver(
            self._session,
            bronze=self._bronze_dir,
            table=self._silver_dir,
            checkpoint=absolute(self._config.checkpoint_dir),
            drain_file=self._drain_file,
            rows_max=self._config.batch_rows_max,
            duplicate_seconds=self._config.duplicate_seconds,
            trigger=trigger,
        )

    def _follow(self, query: StreamingQuery) -> None:
        progress = query.lastProgress
        if progress is not None and progress.batchId != self._batch_id:
            self._batch_id = progress.batchId
            self._silver.worked()
        table = self._silver_log.open()
        done = None if table is None else self._maintenance.step(table)
        if done:
            print(f"silver: {done}", file=sys.stderr, flush=True)

    def _run_gold(self) -> None:
        delay = GOLD_SECONDS
        while not self._stop.wait(delay):
            delay = self._attempt_gold()
        self._attempt_lag()

    def _attempt_gold(self) -> float:
        """Do what there is to do for gold; returns the seconds to wait before the next time."""
        self._attempt_lag()
        try:
            while self._gold_query is not None and self._is_owner and not self._stop.is_set():
                if not self._gold_query.step():
                    break
        except FAILURES as error:
            # A step fails when the session stops under it, which is no failure of gold's.
            return 0.0 if self._stop.is_set() else self._gold.failed(error)
        self._gold.worked()
        return GOLD_SECONDS

    def _attempt_lag(self) -> None:
        try:
            if self._lag is not None:
                self._lag.write()
        except FAILURES as error:
            self._gold.failed(error)


def own_checkpoint(owned: ExitStack, checkpoint: str) -> None:
    """Keep others from making the same tables until the stack is closed.

    Raises:
        StoreError: `file.locked`, somebody else makes them.
    """
    directory = local_path(checkpoint)
    if directory is not None:
        owned.enter_context(locked(directory / "job.lock", seconds=0))
