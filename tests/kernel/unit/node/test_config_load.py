"""Tests where values come from: `--set`, the environment, the file, a program."""

from pathlib import Path

import pytest

from each_row import each_row
from rillnode.codecs.errors import ConfigError
from rillnode.node.config import (
    Config,
    GrantTable,
    HttpListener,
    Location,
    NoiseListener,
    StreamTable,
    check_config,
    load,
    load_config,
)
from rillnode.node.ockam.config import OckamListener
from rillnode.node.spark.config import SinkTables, SparkSink

NAME = 'name = "a"\n'


def test_set_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(NAME + "noise.connections_max = 1\nhttp.listen = '127.0.0.1:1'\n")
    environ = {
        "RILLNODE__NOISE__CONNECTIONS_MAX": "2",
        "RILLNODE__NOISE__LISTEN": "127.0.0.1:2",
        "PATH": "/bin",
    }
    loaded = load(file, ["noise.connections_max=3"], environ)
    noise = loaded.config.noise
    assert (noise.connections_max, noise.listen) == (3, "127.0.0.1:2")
    assert loaded.config.http.listen == "127.0.0.1:1"
    assert loaded.origin(("noise", "connections_max")) == "--set"
    assert loaded.origin(("noise", "listen")) == "RILLNODE__NOISE__LISTEN"
    assert loaded.origin(("http", "listen")) == f"{file}:3"
    assert loaded.origin(("store", "engine")) == "default"


def test_the_environment_is_not_looked_at_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RILLNODE__NOISE__LISTEN", "127.0.0.1:2")
    assert load_config(None, ["name=a"]).noise.listen == "127.0.0.1:4100"


def test_overrides_reach_every_kind_of_value() -> None:
    config = load_config(
        None,
        [
            "name=5",
            "data_dir=/tmp/a b",
            "http.enabled=false",
            "log.levels.actors=debug",
            "ockam={}",
            "stream[0].name=s",
            "stream[0].retain_seconds=60",
            "stream[1]={name = 't', partitions = 2}",
        ],
        {
            "RILLNODE__GRANT__0__WHO": "anonymous",
            "RILLNODE__GRANT__0__STREAMS": "s",
            "RILLNODE__GRANT__0__MAY": '["push"]',
        },
    )
    assert config.name == "5"
    assert config.data_dir == Path("/tmp/a b")
    assert list(config.listeners()) == ["noise", "ockam"]
    assert config.log.levels == {"actors": "debug"}
    assert [(one.name, one.partitions) for one in config.streams] == [("s", 1), ("t", 2)]
    assert config.streams[0].retain_seconds == 60.0
    assert config.grants[0].may == ("push",)


def test_an_override_changes_one_key_of_an_item_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(NAME + '[[stream]]\nname = "s"\npartitions = 2\n[[stream]]\nname = "t"\n')
    config = load_config(file, ["stream[0].partitions=3"])
    assert [(one.name, one.partitions) for one in config.streams] == [("s", 3), ("t", 1)]


@each_row(
    [
        ("noise", "--set noise: expected --set key=value"),
        ("=5", "--set: expected a key such as"),
        ("a b=5", "--set: expected a key such as"),
        ("noise.lissen=5", "--set: noise.lissen: unknown key; did you mean listen?"),
        ("noise.listen.port=5", "--set: noise.listen.port: unknown key"),
        ("noise.connections_max=x", "--set: noise.connections_max: 'x': expected a whole number"),
        ("noise.connections_max=1\nx=1", "expected a whole number"),
        ("noise.connections_max=0", "--set: noise.connections_max: 0: expected a whole number"),
        ("stream[1].name=s", "items are numbered from 0"),
        ("stream.name=s", "--set: stream.name: unknown key"),
        ("noise.listen=0.0.0.0:99999", "--set: noise.listen"),
    ]
)
def test_an_override_that_cannot_be_is_refused(override: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, ["name=a", override])
    assert said in caught.value.text


def test_an_environment_variable_that_cannot_be_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"^RILLNODE__NOISE__PORT: noise\.port: unknown key"):
        load_config(None, ["name=a"], {"RILLNODE__NOISE__PORT": "1"})
    with pytest.raises(ConfigError, match=r"^RILLNODE__NOIS__LISTEN: nois: unknown key"):
        load_config(None, ["name=a"], {"RILLNODE__NOIS__LISTEN": "1"})


def test_a_file_that_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file; `rillnode init` writes one"):
        load_config(tmp_path / "node.toml")
    (tmp_path / "node.toml").write_bytes(b"name = '\xff'")
    with pytest.raises(ConfigError, match=r"not UTF-8 \(byte 8\): save it as UTF-8"):
        load_config(tmp_path / "node.toml")


def test_a_configuration_built_in_python_is_checked_too(tmp_path: Path) -> None:
    check_config(Config(name="a", data_dir=tmp_path, noise=NoiseListener(listen="127.0.0.1:0")))
    wrong = [
        (Config(name=""), "name"),
        (Config(name="a", http=HttpListener(listen="0.0.0.0:80")), "http.listen"),
        (Config(name="a", tables=[OckamListener(listen="here")]), "ockam.listen"),
        (Config(name="a", streams=(StreamTable(name="s", partitions=0),)), "stream[0].partitions"),
        (
            Config(name="a", grants=(GrantTable(who="bob", streams="*", may=("push",)),)),
            "grant[0].who",
        ),
        (
            Config(
                name="a",
                tables=[
                    SinkTables(
                        spark=(
                            SparkSink(
                                name="b",
                                streams=("*",),
                                table_dir=Location(tmp_path),
                                batch_rows_max=0,
                            ),
                        )
                    )
                ],
            ),
            "sink.spark[0].batch_rows_max",
        ),
    ]
    for config, key in wrong:
        with pytest.raises(ConfigError) as caught:
            check_config(config)
        assert caught.value.context["key"] == key
