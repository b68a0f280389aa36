"""Chooses one of a configuration's typed tables that a verb is about."""

from typing import TYPE_CHECKING

from rillnode.codecs.errors import ConfigError

if TYPE_CHECKING:
    from rillnode.node.config import Config
    from rillnode.node.spark.config import TypedTable
    from rillnode.node.spark.job_config import TypedConfig


def choose_table(config: "Config", name: str, stream: str) -> "tuple[TypedTable, TypedConfig]":
    """A table of the configuration, as its sink's job has it.

    Raises:
        ConfigError: there is none of that name, or it needs a stream.
    """
    from rillnode.node.spark.cli.sink_choice import choose_sink
    from rillnode.node.spark.config import TypedTable

    tables = {one.called: one for one in config.each(TypedTable)}
    if name not in tables:
        there = f"there is {', '.join(tables)}" if tables else "node.toml has no [[table]]"
        raise ConfigError("table.unknown", f"no typed table is named {name!r}; {there}")
    table = tables[name]
    sink = choose_sink(config, table.sink)
    # Only these verbs need what the `spark` extra installs.
    from rillnode.node.spark.process import typed_config
    from rillnode.node.spark.typed.tables import of_stream

    typed = typed_config(table, sink)
    if not typed.of_each_stream:
        return table, typed
    if not stream:
        text = f"{name} is a table for each stream: name one with --stream"
        raise ConfigError("table.stream", text)
    return table, of_stream(typed, stream)
