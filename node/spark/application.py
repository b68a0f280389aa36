"""A Spark application that runs the jobs of all sinks of a node with the same Spark settings.

    python -m rillnode.node.spark.application CONFIG.json --report-to FD

One Java virtual machine is enough for them. The node tells on standard input, a JSON object a line,
what is to run, `{"start": NUMBER, "config": FILE}`, and what is to end after its batch, `{"stop":
NUMBER}`. It is told in the same way, over the file that it has opened, what has ended: `{"ended":
NUMBER, "code": CODE, "words": REASON}`, with the codes of a Spark job of its own. Each job has a
thread and a pool of the scheduler; the failure of one ends no other.

The end of standard input ends them all, and so do SIGTERM and SIGINT. So does the end of Java: a
new process makes another.
"""

import argparse
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from pyspark.sql import SparkSession

from rillnode.actors.core.threads import SYSTEM_THREADS, Running
from rillnode.actors.spark.sink_job import CONFIGURATION_CODE
from rillnode.codecs.errors import ConfigError
from rillnode.node.spark import job
from rillnode.node.spark.job_config import (
    ApplicationConfig,
    Command,
    Ended,
    JobConfig,
    read_config,
)
from rillnode.node.spark.jobs import (
    DRAIN_SECONDS,
    quiet_stderr,
    run_job,
    say,
    watch_stdin,
)
from rillnode.node.spark.session import end_session, is_running, open_session, use_here

_END_SECONDS: Final = DRAIN_SECONDS + 5.0
"""How long jobs are waited for that are to end: a little longer than they wait for their batch."""
_SETTINGS: Final = {"spark.scheduler.mode": "FAIR"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run jobs until standard input ends; returns the exit code."""
    text = "Run the jobs of several sinks in one Spark application."
    return run_job("rillnode.node.spark.application", text, _run, arguments, _add_options)


def _add_options(parser: argparse.ArgumentParser) -> None:
    text = "where ends of jobs are told"
    parser.add_argument("--report-to", type=int, required=True, metavar="FD", help=text)


def _run(options: argparse.Namespace, stop: threading.Event) -> tuple[str, int]:
    try:
        config = read_config(options.config, ApplicationConfig)
    except ConfigError as error:
        return str(error), CONFIGURATION_CODE
    with quiet_stderr():
        application = Application(config, options.report_to, stop)
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
            text, code = job.run(config, self._stops[number], self._session_of)
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
                    settings={**_SETTINGS, "spark.driver.memory": self._config.driver_memory},
                )
        use_here(self._session, config.sink)
        return self._session


if __name__ == "__main__":
    sys.exit(main())
