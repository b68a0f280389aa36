"""The Spark job of a sink, a process of its own: streams of a node into a bronze Delta table.

    python -m rillnode.node.pipeline.job CONFIG.json [--available-now] [--watch-stdin]

SIGTERM and SIGINT let the running batch finish and end the job with exit code 0; so does the end
of standard input with `--watch-stdin`, which is how the job notices that its node is gone.
Errors end it with one line on standard error and exit code 2 (configuration), 3 (the node is not
reached) or 1. The same file runs under `spark-submit` with `"master": null`.
"""

import argparse
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rillnode.codecs.errors import RillnodeError
from rillnode.node.pipeline import delta, source
from rillnode.node.pipeline.checkpoint import sync_commits
from rillnode.node.pipeline.files import local_path, locked
from rillnode.node.pipeline.job_config import JobConfig, load_job_config
from rillnode.node.pipeline.job_log import quiet_stderr
from rillnode.node.pipeline.maintenance import Maintenance
from rillnode.node.pipeline.progress import Batch, Table, read_progress, report_of
from rillnode.node.pipeline.ranges import ask
from rillnode.node.pipeline.session import open_session

DRAIN_SECONDS: Final = 25.0
"""How long a stop waits for the running batch; below what a stopping node waits for its jobs."""
LOCK_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.25
_OUR_ERROR: Final = re.compile(r"^rillnode\.codecs\.errors\.(\w+): (.*)$", re.MULTILINE)
_EXIT_CODES: Final = {"ConfigError": 2, "TransportError": 3, "HandshakeError": 3}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job until it is told to stop; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m rillnode.node.pipeline.job",
        description="Land a node's streams in a Delta table.",
    )
    parser.add_argument("config", type=Path, help="the job's configuration, JSON")
    parser.add_argument(
        "--available-now", action="store_true", help="run until the present ends and stop"
    )
    parser.add_argument("--watch-stdin", action="store_true", help="stop when standard input ends")
    options = parser.parse_args(arguments)
    stop = threading.Event()
    if options.watch_stdin:
        threading.Thread(target=_watch_stdin, args=(stop,), daemon=True).start()
    _stop_on_signals(stop)
    try:
        config = load_job_config(options.config)
        with _only_job(config.checkpoint_dir), quiet_stderr():
            run(config, stop, available_now=options.available_now)
    except (RillnodeError, PySparkException, Py4JError, OSError) as error:
        text, code = explain(error)
        print(f"job failed: {text}", file=sys.stderr, flush=True)
        return code
    return 0


def run(config: JobConfig, stop: threading.Event, *, available_now: bool) -> None:
    """Run the query from the node's sink to the table until it ends or `stop` is set.

    Raises:
        RillnodeError: the configuration is wrong, or the node refuses or is not reached.
        PySparkException: the query failed.
    """
    work_dir = Path(config.work_dir).absolute()
    drain_file = work_dir / "drain"
    drain_file.unlink(missing_ok=True)
    session = open_session(
        f"rillnode {config.sink}",
        master=config.master,
        work_dir=work_dir,
        settings={"spark.driver.memory": config.driver_memory, **config.settings},
    )
    _stop_on_signals(stop)  # Spark has put its own handler for SIGINT in place
    try:
        if not stop.is_set():
            query = _start_query(session, config, drain_file, available_now=available_now)
            _follow(query, config, stop, drain_file)
    finally:
        session.stop()
        drain_file.unlink(missing_ok=True)


def explain(error: Exception) -> tuple[str, int]:
    """One line and an exit code for whatever ended the job.

    Spark wraps an error of its Python processes in its own and in their stack traces; ours is the
    one that says what to do.
    """
    if isinstance(error, RillnodeError):
        return str(error), _EXIT_CODES.get(type(error).__name__, 1)
    ours = _OUR_ERROR.findall(str(error))
    if ours:
        name, text = ours[-1]
        return text, _EXIT_CODES.get(name, 1)
    if isinstance(error, Py4JError):
        return "the Java virtual machine has ended [job.java]", 1
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{lines[0] if lines else type(error).__name__} [job.spark]", 1


def _start_query(
    session: SparkSession, config: JobConfig, drain_file: Path, *, available_now: bool
) -> StreamingQuery:
    rows = (
        session.readStream.format(source.FORMAT)
        .options(
            **config.client_options.to_options(),
            maxOffsetsPerTrigger=config.batch_rows_max,
            minPartitions=session.sparkContext.defaultParallelism,
            failOnDataLoss=config.fail_on_data_loss,
            drainFile=str(drain_file),
        )
        .load()
    )
    writer = rows.writeStream.format(delta.FORMAT).queryName(config.sink)
    writer = writer.option("checkpointLocation", _absolute(config.checkpoint_dir))
    if available_now:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(
            processingTime=f"{round(config.trigger_seconds * 1000)} milliseconds"
        )
    return writer.start(_absolute(config.table_dir))


def _follow(
    query: StreamingQuery, config: JobConfig, stop: threading.Event, drain_file: Path
) -> None:
    """Report on the query until it ends; when told to stop, let it finish its batch."""
    table = Table(_absolute(config.table_dir), query.id)
    maintenance = Maintenance(_absolute(config.table_dir), config.compact_commits)
    shown: Batch | None = None
    while query.isActive and not stop.wait(_POLL_SECONDS):
        shown = _report(query, config, table, shown)
        present = table.open()
        done = maintenance.step(present) if present is not None else None
        if done:
            print(done, file=sys.stderr, flush=True)
    if query.isActive:
        _drain(query, drain_file)
    query.awaitTermination()  # raises what the query has failed with
    _report(query, config, table, shown)


def _drain(query: StreamingQuery, drain_file: Path) -> None:
    drain_file.touch()
    deadline = time.monotonic() + DRAIN_SECONDS
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS / 5)
    query.stop()


def _report(
    query: StreamingQuery, config: JobConfig, table: Table, shown: Batch | None
) -> Batch | None:
    """Save and show how far the query has come, if that has changed.

    Spark tells the source of a finished batch only when it plans the next one; without this an
    idle stream's last batch would never count as read.
    """
    progress = query.lastProgress
    if progress is None:
        return shown
    batch = read_progress(progress)
    if batch == shown:
        return shown
    if batch.executed:
        sync_commits(_absolute(config.checkpoint_dir))
        ask(config.client_options, lambda client: client.commit(batch.end))
    report = report_of(batch, table.batch(batch.batch_id) if batch.executed else {})
    if report.get("entries_lost"):
        print(f"entries lost before they were read: {report['entries_lost']}", file=sys.stderr)
    ask(config.client_options, lambda client: client.report(report))
    return batch


def _stop_on_signals(stop: threading.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())


def _watch_stdin(stop: threading.Event) -> None:
    """Stop when standard input ends; whatever hangs then must not outlive the node for long."""
    while os.read(sys.stdin.fileno(), 4096):
        continue
    stop.set()
    time.sleep(2 * DRAIN_SECONDS)
    os.killpg(0, signal.SIGKILL)


def _only_job(checkpoint: str) -> AbstractContextManager[None]:
    """Keep a second job off a local checkpoint; one that is just ending is waited for."""
    directory = local_path(checkpoint)
    if directory is None:
        return nullcontext()
    return locked(directory / "job.lock", seconds=LOCK_SECONDS)


def _absolute(location: str) -> str:
    local = local_path(location)
    return location if local is None else str(local)


if __name__ == "__main__":
    sys.exit(main())
