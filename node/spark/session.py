"""The Spark session of a job: its environment, its settings and what it logs."""

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import py4j
import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rillnode.node.spark.explaining import FAILURES
from rillnode.node.spark.installed import java_home
from rillnode.node.spark.typed.work import Engine

_LAUNCHER: Final = """\
#!/bin/sh
# Starts Python with PySpark as it is installed, not with Spark's archives of it.
set -f
IFS=:
path=
for entry in $PYTHONPATH; do
  case $entry in
    */python/lib/pyspark.zip|*/python/lib/py4j-*.zip) ;;
    *) path=$path${{path:+:}}$entry ;;
  esac
done
PYTHONPATH=$path exec {python} "$@"
"""


def worker_python(directory: Path) -> str:
    """The interpreter's path: a launcher in a directory, or Python itself where there can be none.

    There is none where PySpark or Py4J is only to be had from the archives, and where the
    directory's file system lets nothing be executed.
    """
    if not all(Path(package.__file__ or "").is_file() for package in (pyspark, py4j)):
        return sys.executable
    launcher = directory / "python"
    launcher.write_text(_LAUNCHER.format(python=shlex.quote(sys.executable)))
    launcher.chmod(0o755)
    return str(launcher) if os.access(launcher, os.X_OK) else sys.executable


SPARK_FAILURES: Final = (*FAILURES, PySparkException, Py4JError)
"""What may go wrong outside, as Spark and the libraries of tables raise it."""

SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # What functions are given is small: with Spark's 200 a shuffle of it would be as many tasks.
    "spark.sql.shuffle.partitions": "2",
    # Rows of up to 2 MiB: a batch between Spark and Python must not be 10,000 of them.
    "spark.sql.execution.arrow.maxBytesPerBatch": "33554432",
    # Between Spark and its Python workers; measured a fifth less processor time than over TCP.
    "spark.python.unix.domain.socket.enabled": "true",
}
LOCAL_SETTINGS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_LOG_SETTINGS: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS'Z'}{UTC} %p %c{1}: %m%n%ex
# Said at every start and harmless: no native Hadoop, a host name that means loopback, a trigger
# that took longer than its interval, a table directory that is made later, a query that had
# nothing running when it was stopped, plans that a query with a state cannot have, pools of sinks
# that no file describes.
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.utils.name = org.apache.spark.util.Utils
logger.utils.level = error
logger.trigger.name = org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor
logger.trigger.level = error
logger.batch.name = org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
logger.batch.level = error
logger.resolve.name = org.apache.spark.sql.execution.streaming.runtime.ResolveWriteToStream
logger.resolve.level = error
logger.pools.name = org.apache.spark.scheduler.FairSchedulableBuilder
logger.pools.level = error
logger.scheduler.name = org.apache.spark.scheduler.DAGScheduler
logger.scheduler.level = error
"""


def open_session(
    name: str, *, master: str | None, work_dir: Path, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark with the package's formats.

    Sets JAVA_HOME, PYSPARK_PYTHON and the like of this process, for Spark's processes to inherit:
    workers must run the interpreter that has this package. Takes some seconds.

    Args:
        name: the application's name.
        master: Spark's master, or None to take the one that `spark-submit` gave.
        work_dir: directory for Spark's temporary files and its log settings.
        settings: further Spark settings; they go before ours.

    Raises:
        ConfigError: there is no Java for Spark.
    """
    os.environ["JAVA_HOME"] = str(java_home(os.environ))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    work_dir = work_dir.absolute()
    work_dir.mkdir(parents=True, exist_ok=True)
    log_settings = work_dir / "log4j2.properties"
    log_settings.write_text(_LOG_SETTINGS)
    os.environ.setdefault("SPARK_LOCAL_DIRS", str(work_dir / "spark"))
    builder = SparkSession.builder.appName(name)
    chosen = {
        **SETTINGS,
        "spark.driver.defaultJavaOptions": f'"-Dlog4j2.configurationFile={log_settings.as_uri()}"',
        "spark.sql.warehouse.dir": str(work_dir / "warehouse"),
    }
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            os.environ["PYSPARK_PYTHON"] = worker_python(work_dir)
            chosen |= LOCAL_SETTINGS
    return builder.config(map={**chosen, **(settings or {})}).getOrCreate()


def use_here(session: SparkSession, pool: str) -> None:
    """Have a thread that has not opened a session start queries in it.

    Args:
        session: the session.
        pool: what the application's cores are shared out by.
    """
    session.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
    # Java looks formats up in the session of its thread, which PySpark sets where it is opened.
    java: Any = session._jvm  # pyright: ignore[reportPrivateUsage]
    opened: Any = session._jsparkSession  # pyright: ignore[reportPrivateUsage]
    java.org.apache.spark.sql.classic.SparkSession.setActiveSession(opened)


def is_running(session: SparkSession) -> bool:
    """Whether the application of a session goes on; once it does not, it never will."""
    try:
        # PySpark itself has no word for it.
        context: Any = session.sparkContext._jsc  # pyright: ignore[reportPrivateUsage]
        return context is not None and not context.sc().isStopped()
    except (Py4JError, OSError):
        return False


def end_session(session: SparkSession) -> None:
    """Stop Spark; where its Java has ended there is nothing to stop, and why is told elsewhere."""
    with suppress(Py4JError, OSError):
        session.stop()


def on_spark(session: SparkSession, do: Callable[[bytes], bytes]) -> Engine:
    """The engine that does work in Spark's tasks; what one task can do is done here."""

    def run(works: Sequence[bytes]) -> list[bytes]:
        if len(works) == 1:
            return [do(works[0])]
        return session.sparkContext.parallelize(list(works), len(works)).map(do).collect()

    return run
