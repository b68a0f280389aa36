"""A node with a Spark sink does not start where Spark is missing, and says what to install."""

import asyncio
from importlib.util import find_spec
from pathlib import Path

import pytest

from rillnode import Node
from rillnode.codecs.errors import ConfigError
from rillnode.node.config import Config, parse_config
from rillnode.node.spark import installed
from rillnode.node.spark.config import sinks_of

CONFIG = """
name = "a"
[noise]
listen = "127.0.0.1:0"
[http]
enabled = false
"""
SINK = '[[sink.spark]]\nname = "bronze"\nstreams = ["*"]\ntable_dir = "tables"\n'
PYTHON = SINK.replace("sink.spark", "sink.python")


def without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    def find(name: str) -> object:
        return None if name in missing else find_spec(name)

    monkeypatch.setattr(installed, "find_spec", find)


async def start_and_stop(config: Config) -> None:
    async with Node(config):
        pass


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    installed.require_spark()
    without(monkeypatch, "pyspark", "deltalake")
    with pytest.raises(ConfigError, match=r"needs pyspark, deltalake: `pip install") as caught:
        installed.require_spark()
    assert caught.value.code == "sink.install"


def test_a_sink_without_spark_needs_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sinks = sinks_of(parse_config(CONFIG + PYTHON, tmp_path / "node.toml"))
    without(monkeypatch, "pyspark")
    installed.require_libraries(sinks)
    without(monkeypatch, "deltalake")
    with pytest.raises(ConfigError, match=r"needs deltalake: `pip install .*\[tables\]"):
        installed.require_libraries(sinks)


def test_a_node_refuses_to_start_and_leaves_its_store_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "pyspark")
    with pytest.raises(ConfigError, match="pip install"):
        asyncio.run(start_and_stop(parse_config(CONFIG + SINK, tmp_path / "node.toml")))
    asyncio.run(start_and_stop(parse_config(CONFIG, tmp_path / "node.toml")))
