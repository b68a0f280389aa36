"""The Spark job of a sink, a process of its own: streams of a node into a bronze Delta table.

    python -m rillnode.node.spark.job CONFIG.json [--available-now] [--watch-stdin]

`jobs.py` says how it is stopped and how it ends. The same file runs under `spark-submit` with
`"master": null`.
"""

import argparse
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Protocol

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rillnode.node.spark import bronze, landing
from rillnode.node.spark.delta_log import LiveTable
from rillnode.node.spark.derived import LAG_SECONDS, Derived
from rillnode.node.spark.erasing import Lake, Sweeps
from rillnode.node.spark.explaining import check_places, check_stores, explain_end
from rillnode.node.spark.files import absolute, own_checkpoint, sync_commits
from rillnode.node.spark.function_query import function_tables
from rillnode.node.spark.job_config import JobConfig, read_config
from rillnode.node.spark.jobs import (
    DRAIN_SECONDS,
    add_bounds,
    quiet_stderr,
    run_job,
    say,
    stop_on_signals,
)
from rillnode.node.spark.landing import leave_overtaken
from rillnode.node.spark.maintenance import Maintenance
from rillnode.node.spark.parts import (
    Batch,
    read_progress,
    report_of,
    typed_views,
    written_in,
)
from rillnode.node.spark.planning import save
from rillnode.node.spark.ranges import ask
from rillnode.node.spark.session import SPARK_FAILURES, end_session, on_spark, open_session
from rillnode.node.spark.typed.tables import TypedTables

LOCK_SECONDS: Final = 60.0
_POLL_SECONDS: Final = (0.25, 1.0)
"""Least and most time between two looks at a query and its table: a fifth of that of batches."""
_DRAIN_POLL_SECONDS: Final = 0.05
_PROGRESS_SECONDS: Final = 5.0
"""Time between two looks at what Spark tells of a query whose table has not changed. It is a long
text where there are many streams, most of which say nothing for most of the time."""


class _Made(Protocol):
    """Tables that the job makes of bronze."""

    def start(self) -> None: ...
    def run_once(self) -> None: ...
    def finish(self, deadline: float) -> None: ...
    def report(self) -> dict[str, dict[str, object]]: ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job until it is told to stop; returns its exit code."""
    text = "Land a node's streams in a Delta table."
    return run_job("rillnode.node.spark.job", text, _run_alone, arguments, add_bounds)


def _run_alone(options: argparse.Namespace, stop: threading.Event) -> tuple[str, int]:
    with quiet_stderr(), ExitStack() as opened:

        def spark(config: JobConfig) -> SparkSession:
            session = open_session(
                f"rillnode {config.sink}",
                master=config.master,
                work_dir=Path(config.work_dir),
                settings={"spark.driver.memory": config.driver_memory, **config.settings},
            )
            opened.callback(end_session, session)
            stop_on_signals(stop)  # Spark has put its own handler for SIGINT in place
            return session

        return run(options.config, stop, spark, available_now=options.available_now)


def run(
    config_file: Path,
    stop: threading.Event,
    spark: Callable[[JobConfig], SparkSession],
    *,
    available_now: bool = False,
) -> tuple[str, int]:
    """Run a sink's queries until they end or `stop` is set.

    Args:
        config_file: the job's configuration.
        stop: set where the running batch is to be the last.
        spark: gives the session to run them in, when all that needs none is well.
        available_now: end where the streams end now.

    Returns:
        Why it has ended, empty where nothing was wrong, and the exit code that says so.
    """
    places: tuple[str, ...] = ()
    try:
        config = read_config(config_file, JobConfig)
        places = config.places
        check_places(places)
        with own_checkpoint(config.checkpoint_dir, seconds=LOCK_SECONDS):
            _run(config, stop, spark, available_now=available_now)
    except SPARK_FAILURES as error:
        return explain_end(error, places)
    return "", 0


def _run(
    config: JobConfig,
    stop: threading.Event,
    spark: Callable[[JobConfig], SparkSession],
    *,
    available_now: bool,
) -> None:
    """Run the query from the node's sink to the table until it ends or `stop` is set.

    Raises:
        RillnodeError: the configuration is wrong, or the node refuses or is not reached.
        PySparkException: the query failed.
    """
    drain_file = Path(config.work_dir).absolute() / "drain"
    drain_file.parent.mkdir(parents=True, exist_ok=True)
    drain_file.unlink(missing_ok=True)
    for text in check_stores(config.locations):
        say(text)
    bronze_dir = absolute(config.table_dir)
    if done := leave_overtaken(bronze_dir, absolute(config.checkpoint_dir)):
        say(done)
    session = spark(config)
    try:
        if not stop.is_set():
            query = _start_query(session, config, drain_file, available_now=available_now)
            tables = config.derived
            derived = None if tables is None else Derived(session, tables, drain_file)
            typed = TypedTables(
                config.typed,
                bronze_dir,
                on_spark(session),
                tasks_max=session.sparkContext.defaultParallelism,
                trigger_seconds=config.trigger_seconds,
            )
            others = (typed_views(config.views, config.typed), function_tables(session, config))
            made: list[_Made] = [*([derived] if derived else []), typed, *others]
            if not available_now:
                _follow(query, config, stop, drain_file, made, derived, typed)
                return
            _follow(query, config, stop, drain_file, [], None, None)
            if not stop.is_set():
                drain_file.unlink(missing_ok=True)  # it has ended bronze's query
                for one in made:
                    one.run_once()
    finally:
        drain_file.unlink(missing_ok=True)


def _start_query(
    session: SparkSession, config: JobConfig, drain_file: Path, *, available_now: bool
) -> StreamingQuery:
    table_dir = absolute(config.table_dir)
    files = (
        session.readStream.format(landing.FORMAT)
        .options(
            **config.client_options.to_options(),
            maxOffsetsPerTrigger=config.batch_rows_max,
            minPartitions=session.sparkContext.defaultParallelism,
            failOnDataLoss=config.fail_on_data_loss,
            drainFile=str(drain_file),
        )
        .load(table_dir)
    )
    writer = files.writeStream.format(landing.FORMAT).queryName(config.sink)
    writer = writer.option("checkpointLocation", absolute(config.checkpoint_dir))
    if available_now:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(
            processingTime=f"{round(config.trigger_seconds * 1000)} milliseconds"
        )
    return writer.start(table_dir)


def _follow(
    query: StreamingQuery,
    config: JobConfig,
    stop: threading.Event,
    drain_file: Path,
    made: Sequence[_Made],
    derived: Derived | None,
    typed: TypedTables | None,
) -> None:
    """Report on the query until it ends; when told to stop, let it finish its batch."""
    reporter = _Reporter(query, config, made, derived)
    bronze_dir = absolute(config.table_dir)
    maintenance = Maintenance(bronze_dir, config.compact_commits)
    sweeps = Sweeps(Lake(bronze=bronze_dir, derived=config.derived, typed=config.typed))
    for one in made:
        one.start()
    least, most = _POLL_SECONDS
    poll = min(most, max(least, config.trigger_seconds / 5))
    while query.isActive and not stop.wait(poll):
        present = reporter.table.open()
        if reporter.look(present) and typed is not None:
            typed.tell()
        if present is not None and (done := maintenance.step(present)):
            say(done)
        sweeps.step(time.monotonic(), say)
        if derived is not None:
            derived.step()
    drain_file.touch()
    deadline = time.monotonic() + DRAIN_SECONDS
    if query.isActive:
        _drain(query, deadline)
    for one in made:
        one.finish(deadline)
    query.awaitTermination()  # raises what the query has failed with
    reporter.step()


def _drain(query: StreamingQuery, deadline: float) -> None:
    """Stop after the running batch; the drain file keeps another from beginning."""
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(_DRAIN_POLL_SECONDS)
    query.stop()


class _Reporter:
    """Saves and shows how far the query has come, when that has changed.

    Spark tells the source of a finished batch only when it plans the next one; without this an
    idle stream's last batch would never count as read.
    """

    def __init__(
        self,
        query: StreamingQuery,
        config: JobConfig,
        made: Sequence[_Made],
        derived: Derived | None,
    ) -> None:
        self.table = LiveTable(absolute(config.table_dir))
        self._query = query
        self._config = config
        self._made = made
        self._derived = derived
        self._batch: Batch | None = None
        self._lag_at = self._progress_at = self._news_until = 0.0
        self._version: int | None = None
        self._parts: dict[str, dict[str, object]] = {}

    def look(self, table: DeltaTable | None) -> bool:
        """Look at what may have changed; returns whether the table has.

        Args:
            table: bronze, as of now.
        """
        self._watch_lag()
        version, now = None if table is None else table.version(), time.monotonic()
        has_changed = version != self._version
        if has_changed:
            # Spark tells of a batch a little later than its table has it.
            self._version, self._news_until = version, now + _PROGRESS_SECONDS
        if now >= self._progress_at or now < self._news_until:
            self.step()
        elif self._batch is not None:
            self._report(self._batch)
        return has_changed

    def step(self) -> None:
        """Look at the query's last batch, and at the tables made of it."""
        self._progress_at = time.monotonic() + _PROGRESS_SECONDS
        progress = self._query.lastProgress
        if progress is not None:
            self._report(read_progress(progress))

    def _report(self, batch: Batch) -> None:
        parts = {name: part for one in self._made for name, part in one.report().items()}
        if (batch, parts) == (self._batch, self._parts):
            return
        if batch != self._batch:
            self._take(batch)
        present = self.table.open()
        written = written_in(present, str(self._query.id), batch.batch_id) if batch.executed else {}
        report = report_of(batch, written)
        report["entries_lost_total"] = 0 if present is None else bronze.entries_lost(present)
        if report.get("entries_lost") and batch != self._batch:
            say(f"entries lost before they were read: {report['entries_lost']}")
        ask(self._config.client_options, lambda client: client.report({**report, **parts}))
        self._batch, self._parts = batch, parts

    def _take(self, batch: Batch) -> None:
        if batch.executed:
            self._news_until = 0.0
            sync_commits(absolute(self._config.checkpoint_dir))
            save(self._config.client_options, batch.end)

    def _watch_lag(self) -> None:
        tables, derived = self._config.derived, self._derived
        if derived is None or tables is None or time.monotonic() < self._lag_at:
            return
        self._lag_at = time.monotonic() + LAG_SECONDS
        committed, ends = ask(
            self._config.client_options, lambda client: (client.consumers(), client.ends())
        )
        if self._batch is not None:  # what was carried in files is not saved at the node
            committed = {**committed, tables.consumer: self._batch.end.positions}
        derived.note_lag(committed, {key: until for key, (_, until) in ends.items()})


if __name__ == "__main__":
    sys.exit(main())
