"""Finds out for `rillnode doctor` whether sinks have what they need: Java, and their keys."""

from collections.abc import Iterator, Mapping

from rillnode.codecs.errors import ConfigError
from rillnode.node.config import Config
from rillnode.node.doctor.finding import Finding
from rillnode.node.entries import Readers
from rillnode.node.installed import install_command
from rillnode.node.spark.config import sinks_of
from rillnode.node.spark.installed import java_home


def java(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    """A Java that Spark can start, where there is a sink for it; and whether keys can be read."""
    for sink in sinks_of(config).of_tables:
        for kind, path in sink.key_files.items():
            yield _keys(kind, path)
    for sink in sinks_of(config).python:
        yield Finding("sink", "ok", f"{sink.name} runs without Spark and Java")
    if not sinks_of(config).spark:
        return
    try:
        yield Finding("java", "ok", str(java_home(environ)))
    except ConfigError as error:
        advice = f"`{install_command('spark-jre')}`, or set JAVA_HOME"
        yield Finding("java", "fail", error.text.partition(" Install")[0], advice)


def _keys(kind: str, path: str) -> Finding:
    """Whether the user who asks could decrypt with a file of keys."""
    try:
        Readers({kind: path})
    except ConfigError as error:
        return Finding(f"keys of {kind}", "fail", error.text, "tables that decrypt wait for it")
    return Finding(f"keys of {kind}", "ok", path)
