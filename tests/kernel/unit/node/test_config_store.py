"""The `[store]` table: which settings go together, and what an error says."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from each_row import each_row
from rillnode.codecs.errors import ConfigError
from rillnode.node.config import Config, SharedStore, StoreTable, check_config, load, parse_config
from rillnode.node.config.describe import effective
from rillnode.node.jetstream.config import JetStreamStore

SHARED = 'engine = "jetstream"\nservers = ["tls://a:1"]\n'


@each_row(
    [
        ('engine = "jetstream"', "store.servers: missing"),
        ('servers = ["nats://127.0.0.1:4222"]', 'set store.engine = "jetstream"'),
        ('engine = "jetstream"\nservers = ["http://a:1"]', '"nats://host:port"'),
        ('engine = "jetstream"\nservers = ["nats://a:4222"]', "not loopback and not encrypted"),
        ('engine = "jetstream"\nservers = ["tls://a"]', "store.servers[0]"),
        ('engine = "jetstream"\nservers = ["tls://a:4222"]\nsync = "never"', "store.sync"),
        ('engine = "jetstream"\nservers = ["tls://a:1"]\nsync_required = true', "mean sync?"),
        ('engine = "jetstream"\nservers = ["tls://a:1"]\ntls_cert = "no.pem"', "no such file"),
        ('engine = "jetstream"\nservers = ["tls://a:1"]\nprefix = "a.b"', "letters, digits"),
        ('engine = "jetstream"\nservers = ["tls://a:1"]\nreplicas = 6', "store.replicas"),
        ('serve = ["a*"]', 'store.serve: conflicts with engine "rocksdb"'),
        (f'{SHARED}serve = "a*"', "store.serve"),
        (f'{SHARED}serve = ["a", "!"]', "store.serve[1]: '!': expected a pattern of streams"),
        (f'{SHARED}serve = ["!!a"]', '"shard:N" or "shard:N-M"; with "!" before it: never'),
        (f'{SHARED}serve = ["shard:x"]', "store.serve[0]: 'shard:x': expected a pattern"),
        (f'{SHARED}serve = ["shard:5-3"]', "with N not above M, 0 to 255"),
        (f'{SHARED}serve = ["shard:256"]', "with N not above M, 0 to 255"),
        (f'{SHARED}serve = ["a", "!shard:0-3"]', "store.serve[1]: '!shard:0-3': every node holds"),
    ]
)
def test_a_store_table_that_cannot_be_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f'name = "n"\n[store]\n{text}\n', Path("/etc/rillnode/node.toml"))
    assert said in str(caught.value)
    assert "store." in str(caught.value)


def test_what_a_node_serves_is_patterns_and_shards() -> None:
    serve = ("sensors*", "a b", "!shard:1", "shard:0", "shard:2-255", "!*", "shards", "é!")
    text = f'name = "n"\n[store]\n{SHARED}serve = {json.dumps(serve)}\n'
    table = parse_config(text, Path("/etc/node.toml")).store
    assert isinstance(table, SharedStore)
    assert table.serve == serve


def test_relative_files_of_the_store_are_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "node.creds").touch()
    text = (
        'name = "n"\n[store]\nengine = "jetstream"\nservers = ["tls://nats-1:4222"]\n'
        'credentials_file = "node.creds"\n'
    )
    table = parse_config(text, tmp_path / "node.toml").store
    assert isinstance(table, JetStreamStore)
    assert table.credentials_file == tmp_path / "node.creds"


def test_keys_of_another_engine_that_is_not_used_change_nothing(tmp_path: Path) -> None:
    """As in a file whose node has left it: what the engine has is there, and nothing else."""
    file = tmp_path / "node.toml"
    file.write_text('name = "n"\n[store]\nprefix = "x"\nreplicas = 1\n')
    loaded = load(file)
    assert loaded.config.store == StoreTable()
    assert [key for key, _, _ in effective(loaded) if key.startswith("store")] == ["store.engine"]


def test_the_engine_may_be_said_after_what_only_it_has(tmp_path: Path) -> None:
    given = ('store.servers=["tls://a:1"]', "store.replicas=1", "name=n")
    file = tmp_path / "node.creds"
    file.touch()
    said = {"CREDENTIALS_FILE": str(file), "ENGINE": "jetstream"}
    environ = {f"RILLNODE__STORE__{key}": value for key, value in said.items()}
    wanted = JetStreamStore(servers=("tls://a:1",), replicas=1)
    assert load(None, (*given, "store.engine=jetstream")).config.store == wanted
    wanted = replace(wanted, credentials_file=file)
    assert load(None, given, environ).config.store == wanted


def test_a_store_built_in_python_is_of_its_engines_type(tmp_path: Path) -> None:
    config = Config(name="n", data_dir=tmp_path, store=SharedStore(engine="jetstream"))
    with pytest.raises(ConfigError, match=r"store\.servers: missing"):
        check_config(config)
    with pytest.raises(TypeError, match="'rocksdb' takes a StoreTable, not a SharedStore"):
        check_config(replace(config, store=SharedStore()))
    check_config(replace(config, store=JetStreamStore(servers=("tls://a:1",))))
