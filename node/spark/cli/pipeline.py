"""`rillnode pipeline`: what is made of a sink's bronze table, and what it tells."""

import argparse
import signal
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rillnode.codecs.errors import ConfigError, RillnodeError
from rillnode.node.cli.config import add_config_options
from rillnode.node.cli.connection import add_connection_options, find_target
from rillnode.node.cli.failures import Exit
from rillnode.node.cli.parsing import Commands, Parser, add_noun, add_verb, positive_number
from rillnode.node.cli.terminal import Terminal
from rillnode.node.spark.cli.choosing import configuration

if TYPE_CHECKING:
    from rillnode.node.config import Config
    from rillnode.node.spark.config import SparkSink
    from rillnode.node.spark.job_config import DerivedConfig
    from rillnode.node.spark.report import Figures
    from rillnode.node.spark.typed.work import Engine


_SPECIFICATION: Final = """\
# `spark-pipelines run` in this directory makes the tables in transformations/. They lie in
# spark-warehouse/, and what has been read of the streams is kept in storage/. For a next run to
# know the tables, Spark needs a catalog that stays: `spark-pipelines run --conf
# spark.sql.catalogImplementation=hive`, from the first run on, keeps one in metastore_db/.
name: {name}
storage: {storage}
configuration:
  spark.sql.session.timeZone: UTC
libraries:
  - glob:
      include: transformations/**
"""
_TABLES: Final = '''\
"""Tables over streams of a node."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()

# Spark finds the format by itself where rillnode is installed. The key stays in its file.
NODE = {{
{options}}}


@dp.table
def events() -> DataFrame:
    """Every entry of the streams, once; a run takes in what has come since the last one."""
    rows = spark.readStream.format("rillnode").options(**NODE).load()
    return rows.select(
        "stream", "partition", "index", "received_at", f.col("data").cast("string").alias("content")
    )


@dp.materialized_view
def per_minute() -> DataFrame:
    """How much came in each stream's minute."""
    minute = f.date_trunc("minute", "received_at").alias("minute")
    rows = spark.read.table("events").groupBy("stream", minute)
    return rows.agg(f.count("*").alias("messages"), f.sum(f.length("content")).alias("characters"))
'''


def write_project(directory: Path, options: Mapping[str, str]) -> None:
    """Write a pipeline into a directory, which is made.

    Args:
        directory: where to.
        options: those of the format `rillnode` for its streams.

    Raises:
        ConfigError: `pipeline.exists`, something is there; `pipeline.write`, it cannot be made.
    """
    place = directory.absolute()
    specification = _SPECIFICATION.format(
        name=_quoted(place.name), storage=_quoted((place / "storage").as_uri())
    )
    lines = "".join(f"    {name!r}: {value!r},\n" for name, value in options.items())
    tables = _TABLES.format(options=lines.replace("'", '"') if _is_plain(options) else lines)
    try:
        if directory.exists() and any(directory.iterdir()):
            raise ConfigError(
                "pipeline.exists", f"{directory} is not empty; name another directory"
            )
        (directory / "transformations").mkdir(parents=True, exist_ok=True)
        (directory / "storage").mkdir(exist_ok=True)
        (directory / "spark-pipeline.yml").write_text(specification, encoding="utf-8")
        (directory / "transformations" / "tables.py").write_text(tables, encoding="utf-8")
    except OSError as error:
        raise ConfigError("pipeline.write", f"{directory}: {error.strerror}") from error


def _is_plain(options: Mapping[str, str]) -> bool:
    return not any(sign in value for value in options.values() for sign in "'\"\\")


def _quoted(text: str) -> str:
    """A text as YAML has it."""
    return "'" + text.replace("'", "''") + "'"


_HOURS: Final = 24


def add(commands: Commands) -> None:
    """Add the noun and its verbs."""
    verbs = add_noun(commands, "pipeline", "tables made from streams: run, report, replay, new")
    parser = add_verb(
        verbs, "run", run,
        summary="make silver and gold from a bronze table, without a node",
        text="A sink with a silver_dir does so by itself; this is for a copy of its bronze table,\n"
        "or on another machine. Ctrl-C lets the running batch finish.",
        examples=["rillnode pipeline run --once", "rillnode pipeline run bronze -c node.toml"],
    )  # fmt: skip
    _add_options(parser)
    parser.add_argument(
        "--once", action="store_true", help="process what bronze has now, then exit"
    )
    parser = add_verb(
        verbs, "report", report,
        summary="report on the gold tables, as tables and as an HTML page with plots",
        text="It needs neither the node nor Java. The page loads nothing from anywhere.",
        examples=[
            "rillnode pipeline report",
            "rillnode pipeline report --hours 168 --html week.html",
        ],
    )  # fmt: skip
    _add_options(parser)
    parser.add_argument(
        "--hours", type=positive_number, default=_HOURS, metavar="N",
        help=f"how far to look back (default: {_HOURS})",
    )  # fmt: skip
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the page to this file")
    parser = add_verb(
        verbs, "replay", replay,
        summary="make silver and gold anew from bronze",
        text="For damaged tables, or when an error tells you to. Readers see the old\n"
        "tables until the new ones are complete. No job may be writing them: stop the node, or\n"
        "pause the sink.",
        examples=["rillnode pipeline replay bronze"],
    )  # fmt: skip
    _add_options(parser)
    parser = add_verb(
        verbs, "new", new,
        summary="write a declarative pipeline over streams, for `spark-pipelines run`",
        text="DIR gets a specification and a module with a streaming table and a materialized\n"
        "view, which run as they are: change them as you like. They read with your\n"
        "key, which must be granted `pull`, and keep their own position.",
        examples=["rillnode pipeline new lake --streams 'sensors/*'"],
    )  # fmt: skip
    parser.add_argument("directory", type=Path, metavar="DIR", help="directory to create")
    parser.add_argument(
        "--streams", default="*", metavar="PATTERN", help="streams to read (default: all)"
    )
    add_connection_options(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Make silver and gold."""
    loaded = configuration(args, terminal)
    sink, config = _tables(loaded, args.name)
    from rillnode.node.spark.derived import Derived
    from rillnode.node.spark.explaining import check_stores

    stop = threading.Event()
    with _tasks(sink, loaded.data_dir, terminal) as (engine, tasks_max):
        for text in check_stores(config.locations):
            terminal.message(text)
        derived = Derived(config, engine, tasks_max)
        if args.once:
            derived.run_once(terminal.message)
            derived.finish()
            terminal.message(f"silver and gold have what {config.bronze_dir} has")
            return Exit.OK
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: stop.set())
        derived.start()
        stop.wait()
        derived.finish()
    return Exit.OK


def report(args: argparse.Namespace, terminal: Terminal) -> int:
    """Print the report's tables and write its page."""
    loaded = configuration(args, terminal)
    sink, config = _tables(loaded, args.name)
    if config.gold_dir is None:
        raise ConfigError("sink.gold", f"sink {sink.name} has no gold_dir, so there is no gold")
    from rillnode.node.spark.report import collect, page

    now = datetime.now(UTC)
    figures = collect(config.gold_dir, now - timedelta(hours=args.hours))
    if args.html is not None:
        title = f"Events of sink {sink.name}"
        args.html.write_text(page(figures, title=title, made_at=now), encoding="utf-8")
        terminal.message(f"written: {args.html}")
    terminal.record(_document(figures))
    return Exit.OK


def replay(args: argparse.Namespace, terminal: Terminal) -> int:
    """Make silver and gold anew."""
    loaded = configuration(args, terminal)
    sink, config = _tables(loaded, args.name)
    from rillnode.node.spark.derived import replay as make_anew

    with _tasks(sink, loaded.data_dir, terminal) as (engine, tasks_max):
        make_anew(config, engine, terminal.message, tasks_max)
    return Exit.OK


def new(args: argparse.Namespace, terminal: Terminal) -> int:
    """Write a declarative pipeline."""
    target = find_target(args, terminal)
    if target.key is None:
        text = "a pipeline reads with a key of its own: name its file with --key"
        raise ConfigError("config.connection", text)
    write_project(
        args.directory,
        {
            "url": target.url,
            "node_identity": target.node_identity,
            "key_file": str(target.key.absolute()),
            "streams": args.streams,
        },
    )
    terminal.message(f"written: {args.directory}. Run it:")
    terminal.write_text(f"{_command(args.directory, terminal.environ)}\n")
    return Exit.OK


def _command(directory: Path, environ: Mapping[str, str]) -> str:
    """What runs a pipeline, with what a shell's environment lacks for it."""
    import shlex
    import sys

    from rillnode.node.spark.installed import java_home

    needed = {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(java_home(environ))}
    shown = [f"{name}={shlex.quote(one)}" for name, one in needed.items() if name not in environ]
    program = shlex.quote(str(Path(sys.executable).with_name("spark-pipelines")))
    catalog = "--conf spark.sql.catalogImplementation=hive"
    return " ".join(["cd", shlex.quote(str(directory)), "&&", *shown, program, "run", catalog])


def _add_options(parser: Parser) -> None:
    parser.add_argument("name", nargs="?", metavar="SINK", help="name of the sink")
    add_config_options(parser)


def _tables(loaded: "Config", name: str | None) -> "tuple[SparkSink, DerivedConfig]":
    from rillnode.node.spark.cli.choosing import choose_spark_sink

    sink = choose_spark_sink(loaded, name)
    # Only these verbs need what the `spark` extra installs.
    from rillnode.node.spark.configuring import derived_config

    config = derived_config(loaded, sink)
    if config is None:
        raise ConfigError("sink.silver", f"sink {sink.name} has no silver_dir")
    return sink, config


@contextmanager
def _tasks(
    sink: "SparkSink", data_dir: Path, terminal: Terminal
) -> "Generator[tuple[Engine, int]]":
    """Spark for the time of the block, as what does the work of silver, and of how many tasks.

    What it fails with comes out as one line.

    Raises:
        RillnodeError: `pipeline.failed`, or what our own code in Spark's processes has raised.
    """
    from rillnode.node.spark.explaining import explain
    from rillnode.node.spark.jobs import quiet_stderr
    from rillnode.node.spark.session import SPARK_FAILURES, end_session, on_spark, open_session
    from rillnode.node.spark.silver import write_rows

    terminal.message("starting Spark")
    try:
        with quiet_stderr():
            session = open_session(
                f"rillnode {sink.name} tables",
                master=sink.master,
                work_dir=data_dir.absolute() / "sinks" / f"{sink.name}-pipeline",
                settings={"spark.driver.memory": sink.driver_memory},
            )
            try:
                yield on_spark(session, write_rows), session.sparkContext.defaultParallelism
            finally:
                end_session(session)
    except RillnodeError:
        raise
    except SPARK_FAILURES as error:
        raise RillnodeError("pipeline.failed", explain(error)[0]) from error


def _document(figures: "Figures") -> dict[str, Any]:
    return {
        "first": figures.first,
        "last": figures.last,
        "totals": {name: round(value) for name, value in figures.totals.items()},
        "streams": figures.streams,
        "publishers": figures.publishers,
        "chains": figures.chains,
        "lag": figures.lag,
    }
