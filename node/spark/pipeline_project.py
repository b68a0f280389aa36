"""Writes a declarative pipeline of Spark's over streams: its specification and its tables."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rillnode.codecs.errors import ConfigError

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
        raise ConfigError("pipeline.write", f"{directory}: {error}") from error


def _is_plain(options: Mapping[str, str]) -> bool:
    return not any(sign in value for value in options.values() for sign in "'\"\\")


def _quoted(text: str) -> str:
    """A text as YAML has it."""
    return "'" + text.replace("'", "''") + "'"
