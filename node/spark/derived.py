"""Runs the silver query and, beside it in a thread, the queries of gold.

Bronze must land whatever happens to them, because the node keeps entries for it only so long. So
the failures of one end nothing, neither bronze nor another of them: they are told, and tried again
after growing pauses.
"""

import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rillnode.actors.core.threads import Running, SystemThreads
from rillnode.actors.spark.sink_job import PASSING_CODE
from rillnode.codecs.errors import StoreError
from rillnode.node.spark.behind import LOOK_SECONDS, Behind
from rillnode.node.spark.checkpoint import own_checkpoint
from rillnode.node.spark.delta import upgrade_statistics
from rillnode.node.spark.delta_log import TableLog, saved_position
from rillnode.node.spark.erasure import Erasures, sweep
from rillnode.node.spark.explaining import FAILURES, explain, first_line
from rillnode.node.spark.files import absolute
from rillnode.node.spark.gold_query import GoldQuery
from rillnode.node.spark.gold_tables import DERIVED, LAG
from rillnode.node.spark.job_config import DerivedConfig
from rillnode.node.spark.lag import LagNotes
from rillnode.node.spark.maintenance import Maintenance
from rillnode.node.spark.offsets import Positions
from rillnode.node.spark.places import explain_end
from rillnode.node.spark.silver import start_silver

GOLD_SECONDS: Final = 20.0
"""Time between two steps of a gold table; each writes the table's last file anew."""
BACKOFF_SECONDS: Final = (5.0, 15.0, 60.0)
STOP_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.05
_GOLD_POLL_SECONDS: Final = 0.25


class Part:
    """One table's query, as people are told of it: whether it works, and if not, why.

    Args:
        name: the table's.
        places: directories and URIs without which it cannot work.

    Attributes:
        behind: how far it is behind bronze, as far as that is known.
    """

    def __init__(self, name: str, places: Sequence[str]) -> None:
        self.name = name
        self.behind: dict[str, int] = {}
        self._places = places
        self._failures = 0
        self._error: str | None = None
        self._passes = False

    def failed(self, error: BaseException) -> float:
        """Note a failure; returns the seconds to wait before the next attempt."""
        self._error, code = explain_end(error, self._places)
        self._passes = code == PASSING_CODE
        delay = BACKOFF_SECONDS[min(self._failures, len(BACKOFF_SECONDS) - 1)]
        self._failures += 1
        text = f"{self.name} failed, next attempt in {delay:g} s: {self._error}"
        print(text, file=sys.stderr, flush=True)
        return delay

    def abandoned(self, error: BaseException) -> None:
        """Note that nobody makes the table any more before the job is started anew."""
        self._error = f"the thread that makes it has ended: {first_line(error)}"
        self._passes = False
        self._failures += 1

    def worked(self) -> None:
        """Note progress: the next failure is a first one again."""
        self._failures, self._error = 0, None

    def report(self) -> dict[str, object]:
        """The part's state, for the job's report."""
        if self._error is None:
            return {"state": "running", **self.behind}
        state = "waiting" if self._passes else "failed"
        return {"state": state, "failures": self._failures, "error": self._error, **self.behind}


def upgrade_tables(locations: Iterable[str]) -> None:
    """Make the tables that exist tell what their files' statistics are about, and say so.

    One that cannot be upgraded now stops none of the others: its own query tells why it fails.
    """
    for location in locations:
        try:
            done = upgrade_statistics(absolute(location))
        except FAILURES as error:
            done = f"{location} keeps its statistics: {explain(error)[0]}"
        if done:
            print(done, file=sys.stderr, flush=True)


@contextmanager
def own_tables(config: DerivedConfig) -> Generator[None]:
    """Keep others from making the same tables.

    Raises:
        StoreError: `pipeline.busy`, another process makes them; raised on entering.
    """
    with ExitStack() as owned:
        try:
            owned.enter_context(own_checkpoint(config.checkpoint_dir, seconds=0))
        except StoreError as error:
            text = f"another process, such as a sink's job, makes {config.silver_dir} already"
            raise StoreError("pipeline.busy", text) from error
        yield


@dataclass(slots=True)
class _Gold:
    """A gold table's query, and when it takes its next step, by the monotonic clock."""

    query: GoldQuery
    part: Part
    due_at: float


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
        self._bronze_log, self._silver_log = TableLog(self._bronze_dir), TableLog(self._silver_dir)
        self._maintenance = Maintenance(self._silver_dir, config.compact_commits)
        self._places = config.locations
        self._silver, self._lag_part = (Part(one, self._places) for one in ("silver", "gold/lag"))
        self._behind, self._look_at = Behind(self._bronze_log), 0.0
        self._query: StreamingQuery | None = None
        self._batch_id: int | None = None
        self._start_at = 0.0
        self._stop = threading.Event()
        self._thread: Running | None = None
        self._gold: list[_Gold] = []
        self._lag: LagNotes | None = None
        self._owned = ExitStack()
        self._is_owner = False
        if config.gold_dir is not None:
            gold_dir = absolute(config.gold_dir)
            for table in DERIVED:
                query = GoldQuery(
                    session,
                    table,
                    bronze=self._bronze_dir,
                    silver=self._silver_dir,
                    gold=gold_dir,
                )
                part = Part(f"gold/{table.name}", self._places)
                self._gold.append(_Gold(query, part, 0.0))
            self._lag = LagNotes(f"{gold_dir.rstrip('/')}/{LAG.name}")

    def run_once(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Take in what bronze has now, and return.

        Args:
            say: is told of every table that is done.

        Raises:
            RillnodeError: a table is another, or was changed.
            PySparkException: the query failed.
        """
        self._own()
        upgrade_tables(self._config.tables)
        self._start_silver({"availableNow": True}).awaitTermination()
        sweep(self._silver_dir, Erasures(self._bronze_dir).erased())
        silver = self._silver_log.open()
        say(f"silver has {0 if silver is None else silver.count():,} rows")
        for gold in self._gold:
            while gold.query.step():
                continue
            say(f"{gold.part.name} is made of them")

    def start(self) -> None:
        """Begin to run; `step` keeps it running."""
        upgrade_tables(self._config.tables)
        if self._gold:
            self._thread = SystemThreads(self._gold_ended).start(self._run_gold, "gold")

    def step(self) -> None:
        """Start the query or start it again, and keep its table in order; takes little time."""
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_SECONDS
            self._look()
        try:
            if self._query is None:
                self._start_if_due()
            elif not self._query.isActive:
                query, self._query = self._query, None
                query.awaitTermination()  # raises what it failed with
            else:
                self._follow(self._query)
        except FAILURES as error:
            # The first progress of the query that is started next tells that it works again.
            self._batch_id = None
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

    def report(self) -> dict[str, dict[str, object]]:
        """The state of every table, for the job's report."""
        parts = [self._silver, *(gold.part for gold in self._gold)]
        if self._lag is not None:
            parts.append(self._lag_part)
        return {part.name: part.report() for part in parts}

    def note_lag(self, committed: Mapping[str, Positions], latest: Positions) -> None:
        """Note what the consumers of the streams have committed, and where the streams end."""
        if self._lag is not None:
            self._lag.note(committed, latest, datetime.now(UTC))

    def _start_if_due(self) -> None:
        # Without a first version of bronze there is nothing to follow.
        if time.monotonic() >= self._start_at and self._bronze_log.open() is not None:
            self._own()
            interval = f"{round(self._config.trigger_seconds * 1000)} milliseconds"
            self._query = self._start_silver({"processingTime": interval})

    def _own(self) -> None:
        if not self._is_owner:
            self._owned.enter_context(own_tables(self._config))
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

    def _look(self) -> None:
        """Note how far the tables are behind bronze."""
        parts = (self._silver, *(gold.part for gold in self._gold))
        found: dict[str, dict[str, int]] = {}
        # Where nobody can know, the last figures stay; what is made of bronze says why.
        with suppress(*FAILURES):
            bronze = self._bronze_log.open()
            if bronze is not None:
                silver = saved_position(self._silver_log.open(), str(bronze.metadata().id))
                positions = {gold.part.name: gold.query.position for gold in self._gold}
                positions[self._silver.name] = silver
                found = self._behind.look(bronze, positions, datetime.now(UTC))
        for part in parts:
            part.behind = found.get(part.name, part.behind)

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
        lag_at = 0.0
        while not self._stop.wait(_GOLD_POLL_SECONDS):
            if time.monotonic() >= lag_at:
                lag_at = time.monotonic() + self._attempt_lag()
            for gold in self._gold:
                if self._is_owner and time.monotonic() >= gold.due_at:
                    gold.due_at = time.monotonic() + self._attempt_step(gold)
        self._attempt_lag()

    def _gold_ended(self, _name: str, error: BaseException) -> None:
        for part in (*(gold.part for gold in self._gold), self._lag_part):
            part.abandoned(error)

    def _attempt_step(self, gold: _Gold) -> float:
        """Take a step of a gold table; returns the seconds to wait before its next."""
        try:
            moved = not self._stop.is_set() and gold.query.step()
        except BaseException as error:
            # Whatever it is, a panic of native code too: without the thread all gold would stand
            # still. When the session stops under a step, that is no failure of the table's.
            return 0.0 if self._stop.is_set() else gold.part.failed(error)
        gold.part.worked()
        return 0.0 if moved else GOLD_SECONDS

    def _attempt_lag(self) -> float:
        """Write down the lag; returns the seconds to wait before the next time."""
        try:
            if self._lag is not None:
                self._lag.write()
        except BaseException as error:
            return self._lag_part.failed(error)
        self._lag_part.worked()
        return GOLD_SECONDS
