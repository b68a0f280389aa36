"""What the command line says and refuses by `[store]` of a log on JetStream."""

from pathlib import Path

import pytest

from rillnode.node.cli import main
from rillnode.node.cli.run import _banner  # pyright: ignore[reportPrivateUsage]
from rillnode.node.config import Config, StoreTable
from rillnode.node.jetstream.config import JetStreamStore
from rillnode.node.runtime import Node

SERVER = ("nats://127.0.0.1:1",)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "node.toml"
    made.write_text('name = "n"\n[store]\nengine = "jetstream"\nservers = ["nats://127.0.0.1:1"]\n')
    return made


def said(file: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words, "-c", str(file)]) != 0
    return capsys.readouterr().err


def test_a_node_says_what_its_confirms_mean(tmp_path: Path) -> None:
    def banner(store: StoreTable) -> str:
        return _banner(Node(Config(name="n", data_dir=tmp_path, store=store)), dev=False)

    line = "  store     NATS JetStream: a confirm means that a majority of the servers has synced"
    assert line in banner(JetStreamStore(servers=SERVER))
    line = "  store     NATS JetStream: entries that were confirmed may be lost if all servers lose"
    assert line in banner(JetStreamStore(servers=SERVER, sync="interval"))
    assert "  store" not in banner(StoreTable())


def test_a_copy_is_made_on_servers_that_need_not_sync() -> None:
    table = JetStreamStore(servers=SERVER, prefix="p")
    assert table.copied() == JetStreamStore(servers=SERVER, prefix="p", sync="interval")


def test_a_store_is_copied_between_one_of_the_nodes_own_and_the_one_in_the_file(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = file.with_name("own.toml")
    own.write_text('name = "n"\n')
    for ends in (("rocksdb", "jetstream"), ("jetstream", "rocksdb")):
        text = said(own, capsys, "store", "copy", "--from", ends[0], "--to", ends[1])
        assert 'missing: -c takes a file with engine = "jetstream"' in text
        assert "config.missing" in text
    for name in ("rocksdb", "jetstream"):
        text = said(file, capsys, "store", "copy", "--from", name, "--to", name)
        assert f"--from and --to both name {name}" in text
    text = said(file, capsys, "store", "copy", "--from", "rocksdb", "--to", "tape")
    assert "jetstream" in text


def test_a_backup_of_what_is_elsewhere_is_made_there(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(file, capsys, "backup", str(tmp_path / "to"))
    assert "the store is not on this machine: `nats stream backup` copies it where it is" in text
