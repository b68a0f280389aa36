from pathlib import Path

import pytest

from rillnode.codecs.errors import ConfigError
from rillnode.node.config import parse_config
from rillnode.node.spark.config import PythonSink, sinks_of
from rillnode.node.spark.configuring import job_config
from rillnode.node.spark.job_config import JobConfig, TableJobConfig

NAME = 'name = "a"\n'
SPARK = '[[sink.spark]]\nname = "bronze"\nstreams = ["*"]\ntable_dir = "tables"\n'
FILES = '[[sink.files]]\nname = "remote"\nstreams = ["s*"]\ndirectory = "out"\n'


PYTHON = '[[sink.python]]\nname = "small"\nstreams = ["*"]\ntable_dir = "t"\n'


def parse(text: str) -> None:
    parse_config(text, Path("/etc/rillnode/node.toml"))


def test_a_sink_into_files_has_its_defaults() -> None:
    config = parse_config(NAME + SPARK + FILES, Path("/etc/rillnode/node.toml"))
    (sink,) = sinks_of(config).files
    assert (sink.directory, sink.bytes_max) == (Path("/etc/rillnode/out"), 10_000_000_000)
    assert [sink.name for sink in sinks_of(config).all] == ["bronze", "remote"]


def test_a_sink_without_spark_has_what_makes_sense_without_it() -> None:
    config = parse_config(NAME + PYTHON + SPARK, Path("/etc/rillnode/node.toml"))
    (sink,) = sinks_of(config).python
    assert (sink.table_dir, sink.trigger_seconds) == ("/etc/rillnode/t", 5.0)
    assert [one.kind for one in sinks_of(config).all] == ["spark", "python"]
    assert [one.name for one in sinks_of(config).of_tables] == ["bronze", "small"]
    parse(NAME + PYTHON.replace('"t"', '"s3://bucket/t"'))


@pytest.mark.parametrize("key", PythonSink.unfit)
def test_keys_of_spark_are_refused_with_the_reason(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(NAME + PYTHON + f"{key} = 'x'\n")
    said = str(caught.value)
    assert f"sink.python[0].{key}: no key of such a table: {PythonSink.unfit[key]}" in said


@pytest.mark.needs("nextgraph", "streamr")
@pytest.mark.parametrize("sink", [SPARK + 'silver_dir = "silver"\n', PYTHON])
def test_a_job_is_told_where_keys_lie_and_never_what_they_are(sink: str) -> None:
    text = NAME + sink + 'decrypt = { streamr = "streamr.keys", nextgraph = "/k/nextgraph" }\n'
    table = '[[table]]\nstreams = ["*"]\ndir = "typed"\ncolumns = { id = "int" }\n'
    config = parse_config(text + table, Path("/etc/rillnode/node.toml"))
    (one,) = sinks_of(config).of_tables
    job = job_config(config, one, "", "127.0.0.1:1", Path("key"), Path("work"))
    assert isinstance(job, TableJobConfig)
    files = {"streamr": "/etc/rillnode/streamr.keys", "nextgraph": "/k/nextgraph"}
    assert job.typed[0].key_files == files
    if isinstance(job, JobConfig):
        assert job.derived is not None
        assert job.derived.key_files == files


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            PYTHON + 'decrypt = { mqtt = "k" }\n',
            "sink.python[0].decrypt.mqtt: no installed plug-in",
        ),
        pytest.param(
            PYTHON + 'decrypt = { bytes = "k" }\n',
            "there is nextgraph, streamr",
            marks=pytest.mark.needs("nextgraph", "streamr"),
        ),
        (PYTHON + "decrypt = { streamr = 1 }\n", "sink.python[0].decrypt: expected a table of"),
        (PYTHON + "mastr = 'x'\n", "unknown key; allowed: name, streams, table_dir"),
        (PYTHON + SPARK.replace("bronze", "small"), "sink.python[0].name: 'small' is the name"),
        (PYTHON + FILES.replace("remote", "small"), "sink.files[0].name: 'small' is the name"),
        (PYTHON.replace('"t"', '"tables/t"') + SPARK, "must lie apart from sink.python[0].table"),
        (PYTHON + SPARK + 'silver_dir = "t"\n', "must lie apart from sink.python[0].table_dir"),
        (PYTHON.replace('"t"', '"s3://u:p@b/t"'), "sink.python[0].table_dir: expected a URL"),
        (PYTHON.replace('"*"', '""'), "sink.python[0].streams"),
        (PYTHON.replace("small", "a/b"), "sink.python[0].name"),
        (FILES.replace("remote", "bronze") + SPARK, "sink.files[0].name: 'bronze' is the name"),
        (FILES + FILES, "sink.files[1].name: 'remote' is the name"),
        (FILES + FILES.replace("remote", "r2"), "sink.files[1].directory: /etc/rillnode/out is"),
        (FILES.replace("remote", "a/b"), "sink.files[0].name"),
        (FILES + "bytes_max = 0\n", "sink.files[0].bytes_max"),
        (FILES + "table_dir = 'x'\n", "sink.files[0]"),
        (FILES + "[noise]\nenabled = false\n", "noise.enabled"),
    ],
)
def test_wrong_sinks_are_named(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(NAME + text)
    assert said in str(caught.value)


@pytest.mark.parametrize("key", ["trigger_seconds", "duplicate_seconds"])
def test_a_time_without_end_is_refused_where_it_is_said(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"sink\.spark\[0\]\.{key}: inf: expected a number"):
        parse(NAME + SPARK + f"{key} = inf\n")
