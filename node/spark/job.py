"""Runs the jobs of Spark sinks: bronze landed by Spark's tasks, and the tables made of it.

    python -m rillnode.node.spark.job CONFIG.json [--available-now] [--watch-stdin]
    python -m rillnode.node.spark.job APPLICATION.json --report-to FD

`jobs.py` says how a job is stopped and how it ends. The same file runs under `spark-submit` with
`"master": null`.

The second form is an application for the jobs of all sinks of a node with the same Spark settings:
one Java virtual machine is enough for them. The node tells on standard input, a JSON object a line,
what is to run, `{"start": NUMBER, "config": FILE}`, and what is to end after its batch, `{"stop":
NUMBER}`. It is told in the same way, over the file that it has opened, what has ended: `{"ended":
NUMBER, "code": CODE, "words": REASON}`, with the codes of a job of its own. Each job has a thread
and a pool of the scheduler; the failure of one ends no other. The end of standard input ends them
all, and so do SIGTERM and SIGINT. So does the end of Java: a new process makes another.
"""

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import msgspec
from pyspark.sql import SparkSession

from rillnode.actors.core.threads import SYSTEM_THREADS, Running
from rillnode.actors.spark.sink_job import CONFIGURATION_CODE
from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.derived import LAG_SECONDS, Derived
from rillnode.node.spark.explaining import check_places, check_stores, explain_end
from rillnode.node.spark.files import absolute, own_checkpoint
from rillnode.node.spark.function_query import function_tables
from rillnode.node.spark.job_config import (
    ApplicationConfig,
    Command,
    DerivedConfig,
    Ended,
    JobConfig,
    read_config,
)
from rillnode.node.spark.jobs import (
    DRAIN_SECONDS,
    add_bounds,
    quiet_stderr,
    run_job,
    say,
    stop_on_signals,
    watch_stdin,
)
from rillnode.node.spark.landing import LOCK_SECONDS, Landing, fetch, land
from rillnode.node.spark.parts import typed_views
from rillnode.node.spark.ranges import ask
from rillnode.node.spark.session import (
    SPARK_FAILURES,
    end_session,
    is_running,
    on_spark,
    open_session,
    use_here,
)
from rillnode.node.spark.silver import write_rows
from rillnode.node.spark.typed.tables import TypedTables
from rillnode.node.spark.typed.work import do

_END_SECONDS: Final = DRAIN_SECONDS + 5.0
"""How long jobs are waited for that are to end: a little longer than they wait for their batch."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job until it is told to stop; returns its exit code."""
    text = "Land a node's streams in Delta tables, with Spark."
    return run_job("rillnode.node.spark.job", text, _run_process, arguments, _add_options)


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_bounds(parser)
    text = "run the jobs that the node tells of, and tell there what has ended"
    parser.add_argument("--report-to", type=int, metavar="FD", help=text)


def _run_process(options: argparse.Namespace, stop: threading.Event) -> tuple[str, int]:
    with quiet_stderr(), ExitStack() as opened:
        if options.report_to is not None:
            return _run_application(options.config, options.report_to, stop)

        def spark(config: JobConfig) -> SparkSession:
            session = open_session(
                f"rillnode {config.sink}",
                master=config.master,
                work_dir=Path(config.work_dir),
                settings={"spark.driver.memory": config.driver_memory, **config.settings},
            )
            opened.callback(end_session, session)
            stop_on_signals(stop)  # Spark has put its own handler for SIGINT in place
            SYSTEM_THREADS.start(lambda: _drain(session, stop), "drain")
            return session

        return run(options.config, stop, spark, available_now=options.available_now)


def run(
    config_file: Path,
    stop: threading.Event,
    spark: Callable[[JobConfig], SparkSession],
    *,
    available_now: bool = False,
) -> tuple[str, int]:
    """Run a sink's job until it ends or `stop` is set.

    Args:
        config_file: the job's configuration.
        stop: set where the running batch is to be the last.
        spark: gives the session to run in, when all that needs none is well.
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
            for text in check_stores(config.locations):
                say(text)
            session = spark(config)
            if not stop.is_set():
                _land(session, config, stop, available_now=available_now)
    except SPARK_FAILURES as error:
        return explain_end(error, places)
    return "", 0


def _land(
    session: SparkSession, config: JobConfig, stop: threading.Event, *, available_now: bool
) -> None:
    """Land bronze, and make what is made of it.

    Raises:
        RillnodeError: the configuration is wrong, or the node refuses or is not reached.
        PySparkException: a task failed.
    """
    tasks_max = session.sparkContext.defaultParallelism
    landing = Landing(config, on_spark(session, fetch), tasks_max)
    typed = TypedTables(
        config.typed,
        absolute(config.table_dir),
        on_spark(session, do),
        tasks_max=tasks_max,
        trigger_seconds=config.trigger_seconds,
    )
    others = (typed_views(config.views, config.typed), function_tables(session, config))
    tables = config.derived
    if tables is None:
        land(landing, [typed, *others], stop, available_now)
        return
    derived = Derived(tables, on_spark(session, write_rows), tasks_max)
    lag_at = 0.0

    def step() -> None:
        nonlocal lag_at
        if time.monotonic() >= lag_at:
            lag_at = time.monotonic() + LAG_SECONDS
            _note_lag(config, tables, landing, derived)

    land(landing, [derived, typed, *others], stop, available_now, step)


def _drain(session: SparkSession, stop: threading.Event) -> None:
    """Give the running batch some time when all is to end."""
    stop.wait()
    time.sleep(DRAIN_SECONDS)
    with suppress(*SPARK_FAILURES):
        session.sparkContext.cancelAllJobs()


def _note_lag(config: JobConfig, tables: DerivedConfig, landing: Landing, derived: Derived) -> None:
    committed, ends = ask(config.client_options, lambda client: (client.consumers(), client.ends()))
    if landing.offset is not None:  # what was carried in files is not saved at the node
        committed = {**committed, tables.consumer: landing.offset.positions}
    derived.note_lag(committed, {key: until for key, (_, until) in ends.items()})


def _run_application(path: Path, report_to: int, stop: threading.Event) -> tuple[str, int]:
    try:
        config = read_config(path, ApplicationConfig)
    except ConfigError as error:
        return str(error), CONFIGURATION_CODE
    application = Application(config, report_to, stop)
    watch_stdin(stop, application.take)
    stop.wait()
    application.end()
    return application.failure, 1 if application.failure else 0


class Application:
    """The jobs that run, and the session that they have in common.

    Args:
        config: the application's.
        report_to: file descriptor that ends of jobs are written to.
        stop: set where all is to end.

    Attributes:
        failure: why it cannot go on, if that is so.
    """

    def __init__(self, config: ApplicationConfig, report_to: int, stop: threading.Event) -> None:
        self._config = config
        self._report_to = report_to
        self._stop = stop
        self._lock, self._telling = threading.Lock(), threading.Lock()
        self._session: SparkSession | None = None
        self._stops: dict[int, threading.Event] = {}
        self._threads: list[Running] = []
        self.failure = ""

    def take(self, line: bytes) -> None:
        """Do what the node tells."""
        command = msgspec.json.decode(line, type=Command)
        if command.stop:
            if (stop := self._stops.get(command.stop)) is not None:
                stop.set()
            return
        self._stops[command.start] = threading.Event()
        run = SYSTEM_THREADS.start(
            lambda: self._run(command.start, Path(command.config)), f"sink-{command.start}"
        )
        self._threads.append(run)

    def end(self) -> None:
        """Let all jobs end after their batches, and Spark with them."""
        for stop in list(self._stops.values()):
            stop.set()
        deadline = time.monotonic() + _END_SECONDS
        for thread in list(self._threads):
            thread.join(max(0.0, deadline - time.monotonic()))
        if self._session is not None:
            end_session(self._session)

    def _run(self, number: int, config: Path) -> None:
        text, code = "its thread has ended", 1
        try:
            text, code = run(config, self._stops[number], self._session_of)
        finally:
            del self._stops[number]
            if text:
                say(f"{config.parent.name}: {text}")
            if self._session is not None and not is_running(self._session):
                self.failure = self.failure or text
                self._stop.set()
            line = msgspec.json.encode(Ended(number, code, text)) + b"\n"
            with self._telling, suppress(OSError):  # the node is gone: nobody is to be told
                os.write(self._report_to, line)

    def _session_of(self, config: JobConfig) -> SparkSession:
        with self._lock:
            if self._session is None:
                self._session = open_session(
                    f"rillnode {self._config.name}",
                    master=self._config.master,
                    work_dir=Path(self._config.work_dir),
                    settings={
                        "spark.scheduler.mode": "FAIR",
                        "spark.driver.memory": self._config.driver_memory,
                    },
                )
        use_here(self._session, config.sink)
        return self._session


if __name__ == "__main__":
    sys.exit(main())
