"""Chooses which of a configuration's sinks and typed tables a verb is about."""

import argparse
from typing import TYPE_CHECKING

from rillnode.codecs.errors import ConfigError
from rillnode.node.cli.connection import CONFIG_FILE
from rillnode.node.cli.parsing import Parser
from rillnode.node.cli.terminal import Terminal

if TYPE_CHECKING:
    from rillnode.node.config import Config
    from rillnode.node.spark.config import PythonSink, SparkSink
    from rillnode.node.spark.erasing import Lake
    from rillnode.node.spark.job_config import TypedConfig
    from rillnode.node.spark.table_config import TypedTable


def configuration(args: argparse.Namespace, terminal: Terminal) -> "Config":
    """The configuration that a verb's options name."""
    from rillnode.node.config import load_config

    return load_config(args.config or CONFIG_FILE, args.overrides, terminal.environ)


def add_table_options(parser: Parser, *, stream: bool = True) -> None:
    """Let a verb take the name of a table, and of a stream where there is a table for each."""
    parser.add_argument("name", metavar="NAME", help="name of the table")
    if stream:
        text = "the stream, where the table's `dir` has {stream}"
        parser.add_argument("--stream", default="", metavar="STREAM", help=text)


def choose_table(config: "Config", name: str, stream: str) -> "tuple[TypedTable, TypedConfig]":
    """A table of the configuration, as its sink's job has it.

    Raises:
        ConfigError: there is none of that name, or it needs a stream.
    """
    from rillnode.node.spark.table_config import TypedTable

    tables = {one.called: one for one in config.each(TypedTable)}
    if name not in tables:
        there = f"there is {', '.join(tables)}" if tables else "node.toml has no [[table]]"
        raise ConfigError("table.unknown", f"no typed table is named {name!r}; {there}")
    table = tables[name]
    sink = choose_sink(config, table.sink)
    # Only these verbs need what the `spark` extra installs.
    from rillnode.node.spark.configuring import typed_config
    from rillnode.node.spark.typed.tables import of_stream

    typed = typed_config(table, sink)
    if not typed.of_each_stream:
        return table, typed
    if not stream:
        text = f"{name} is a table for each stream: name one with --stream"
        raise ConfigError("table.stream", text)
    return table, of_stream(typed, stream)


def choose_sink(config: "Config", name: str | None) -> "SparkSink | PythonSink":
    """The sink of this name, or the only one.

    Raises:
        ConfigError: there is none, or a name is needed; or what reads tables is not installed.
    """
    from rillnode.node.spark.config import sinks_of
    from rillnode.node.spark.installed import require_tables

    require_tables()
    sinks = {sink.name: sink for sink in sinks_of(config).of_tables}
    if not sinks:
        text = "the configuration has neither a [[sink.spark]] nor a [[sink.python]]"
        raise ConfigError("sink.none", text)
    if name is None:
        if len(sinks) > 1:
            raise ConfigError("sink.name", f"name one of the sinks: {', '.join(sinks)}")
        return next(iter(sinks.values()))
    if name not in sinks:
        raise ConfigError("sink.name", f"no sink is named {name!r}; there is: {', '.join(sinks)}")
    return sinks[name]


def choose_spark_sink(config: "Config", name: str | None) -> "SparkSink":
    """The same, of those whose jobs are Spark's.

    Raises:
        ConfigError: as `choose_sink`, or the sink is none of these, or Spark is not installed.
    """
    from rillnode.node.spark.config import SparkSink
    from rillnode.node.spark.installed import require_spark

    sink = choose_sink(config, name)
    if not isinstance(sink, SparkSink):
        text = f"sink {sink.name} is a [[sink.python]]: silver and gold are made by Spark alone"
        raise ConfigError("sink.silver", text)
    require_spark()
    return sink


def lake_of(config: "Config", sink: "SparkSink | PythonSink") -> "Lake":
    """All tables that a sink makes."""
    # Only these verbs need what the `tables` extra installs.
    from rillnode.node.spark.configuring import derived_config, typed_configs, view_configs
    from rillnode.node.spark.erasing import Lake
    from rillnode.node.spark.files import absolute

    return Lake(
        bronze=absolute(sink.table_dir),
        derived=derived_config(config, sink),
        typed=typed_configs(config, sink),
        views=view_configs(config, sink),
    )
