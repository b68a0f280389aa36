from pathlib import Path

import pytest

from rillnode.codecs.errors import ConfigError
from rillnode.node.config import parse_config
from rillnode.node.spark.config import sinks_of

NAME = 'name = "a"\n'
SPARK = '[[sink.spark]]\nname = "bronze"\nstreams = ["*"]\ntable_dir = "tables"\n'
FILES = '[[sink.files]]\nname = "remote"\nstreams = ["s*"]\ndirectory = "out"\n'


def parse(text: str) -> None:
    parse_config(text, Path("/etc/rillnode/node.toml"))


def test_a_sink_into_files_has_its_defaults() -> None:
    config = parse_config(NAME + SPARK + FILES, Path("/etc/rillnode/node.toml"))
    (sink,) = sinks_of(config).files
    assert (sink.directory, sink.bytes_max) == (Path("/etc/rillnode/out"), 10_000_000_000)
    assert [sink.name for sink in sinks_of(config).all] == ["bronze", "remote"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
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
