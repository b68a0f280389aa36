"""Chooses which of a configuration's Spark sinks a verb is about."""

from typing import TYPE_CHECKING

from rillnode.codecs.errors import ConfigError

if TYPE_CHECKING:
    from rillnode.node.config import Config
    from rillnode.node.spark.config import SparkSink


def choose_sink(config: "Config", name: str | None) -> "SparkSink":
    """The sink of this name, or the only one.

    Raises:
        ConfigError: there is none, or a name is needed; or what Spark needs is not installed.
    """
    from rillnode.node.spark.config import sinks_of
    from rillnode.node.spark.installed import require_spark

    require_spark()
    sinks = {sink.name: sink for sink in sinks_of(config).spark}
    if not sinks:
        raise ConfigError("sink.none", "the configuration has no [[sink.spark]]")
    if name is None:
        if len(sinks) > 1:
            raise ConfigError("sink.name", f"name one of the sinks: {', '.join(sinks)}")
        return next(iter(sinks.values()))
    if name not in sinks:
        raise ConfigError("sink.name", f"no sink is named {name!r}; there is: {', '.join(sinks)}")
    return sinks[name]
