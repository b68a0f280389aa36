"""Tests of how a node is found that nobody named."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

import rillnode
from fake_client import Screen
from rillnode.codecs.errors import ConfigError
from rillnode.codecs.keys import Identity
from rillnode.node.cli import main
from rillnode.node.contexts import (
    Context,
    Contexts,
    DevNode,
    contexts_file,
    dev_node_file,
    find,
    read_contexts,
    read_dev_node,
    remove_dev_node,
    write_contexts,
    write_dev_node,
)
from rillnode.node.keys.files import write_key

NODE, OTHER = "0a" * 32, "0b" * 32
HOME = Context(url="noise://home:4100", node_identity=NODE, key_file="/keys/home")
HUB = Context(url="noise://hub:4100", node_identity=OTHER)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Directories of a user who has nothing yet."""
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_RUNTIME_DIR": str(tmp_path / "run")}


def run(environ: dict[str, str], *argv: str) -> tuple[int, str, str]:
    screen = Screen(environ=environ)
    return main(argv, screen.terminal), screen.out, screen.err


def test_nothing_is_found_where_nothing_is_said(environ: dict[str, str]) -> None:
    assert find(environ) is None
    assert read_contexts(environ) == Contexts()


def test_the_first_place_that_names_a_node_counts(environ: dict[str, str]) -> None:
    write_dev_node(environ, DevNode(url="noise://dev:1", node_identity=NODE, pid=os.getpid()))

    def url(name: str | None = None) -> str | None:
        found = find(environ, name=name)
        return None if found is None else found.context.url

    assert url() == "noise://dev:1"
    write_contexts(environ, Contexts(contexts={"home": HOME, "hub": HUB}))
    assert url() == "noise://dev:1"
    write_contexts(environ, Contexts(current="home", contexts={"home": HOME, "hub": HUB}))
    assert url() == HOME.url
    environ |= {"RILLNODE_URL": "noise://env:1", "RILLNODE_IDENTITY": NODE, "RILLNODE_KEY": "k"}
    found = find(environ)
    assert found is not None
    assert found.context.key_file == "k"
    environ["RILLNODE_CONTEXT"] = "hub"
    assert url() == HUB.url
    assert url("home") == HOME.url


@pytest.mark.parametrize(
    ("extra", "code", "said"),
    [
        ({"RILLNODE_URL": "noise://a:1"}, "context.environment", "RILLNODE_IDENTITY is not set"),
        ({"RILLNODE_IDENTITY": NODE}, "context.environment", "RILLNODE_URL is not set"),
        ({"RILLNODE_CONTEXT": "hup"}, "context.unknown", "no context 'hup'; saved ones: hub"),
    ],
)
def test_half_a_name_is_refused(
    environ: dict[str, str], extra: dict[str, str], code: str, said: str
) -> None:
    write_contexts(environ, Contexts(contexts={"hub": HUB}))
    with pytest.raises(ConfigError, match=said) as caught:
        find(environ | extra)
    assert caught.value.code == code


def test_what_cannot_be_read_is_told_and_kept(environ: dict[str, str]) -> None:
    path = contexts_file(environ)
    path.parent.mkdir(parents=True)
    path.write_text('{"contexts": 5}')
    code, _, err = run(environ, "context", "ls")
    assert code == 2
    assert f"{path}: cannot be read" in err
    assert path.read_text() == '{"contexts": 5}'


def test_a_node_that_has_ended_or_that_another_may_have_named_is_not_found(
    environ: dict[str, str],
) -> None:
    node = DevNode(url="noise://dev:1", node_identity=NODE, pid=os.getpid())
    assert write_dev_node(environ, node)
    assert read_dev_node(environ) == node
    path = dev_node_file(environ, os.getpid())
    path.parent.chmod(0o777)
    assert read_dev_node(environ) is None
    assert not write_dev_node(environ, node)
    path.parent.chmod(0o700)
    for spoilt in ("", "{", '{"url": 1}', '{"url":"a","node_identity":"b","pid":99999999999}'):
        path.write_text(spoilt)
        assert read_dev_node(environ) is None
    write_dev_node(environ, node)
    later = DevNode(url="noise://dev:2", node_identity=NODE, pid=os.getppid())
    write_dev_node(environ, later)
    os.utime(path, (1, 1))
    assert read_dev_node(environ) == later
    os.utime(dev_node_file(environ, later.pid), (0, 0))
    assert read_dev_node(environ) == node
    remove_dev_node(environ)
    assert not path.exists()
    assert read_dev_node(environ) == later  # which still runs
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    write_dev_node(environ, DevNode(url="noise://dev:3", node_identity=NODE, pid=ended.pid))
    assert read_dev_node(environ) == later
    assert not dev_node_file(environ, ended.pid).exists()


def test_a_node_that_ends_while_others_are_looked_for_hides_none(environ: dict[str, str]) -> None:
    node = DevNode(url="noise://dev:1", node_identity=NODE, pid=os.getpid())
    assert write_dev_node(environ, node)
    # As a file that is removed between the listing and the look: there is nothing behind it.
    dev_node_file(environ, 1).symlink_to("nothing")
    assert read_dev_node(environ) == node


def test_contexts_are_added_selected_and_removed(environ: dict[str, str], tmp_path: Path) -> None:
    key = Identity.generate()
    write_key(tmp_path / "me.key", key)
    node = ("--node", "noise://h:4100", "--node-identity", NODE)
    code, out, err = run(environ, "context", "add", "a", *node, "--key", str(tmp_path / "me.key"))
    assert (code, err) == (0, "selected\n")
    assert key.public_hex in out
    assert run(environ, "context", "add", "b", *node)[2] == "`rillnode context use b` selects it\n"
    assert run(environ, "context", "use", "b")[0] == 0
    out = run(environ, "context", "ls")[1]
    assert '"name":"a","selected":false' in out
    assert '"name":"b","selected":true' in out
    assert contexts_file(environ).stat().st_mode & 0o777 == 0o600
    assert run(environ, "context", "rm", "b")[0] == 0
    assert read_contexts(environ).current is None
    assert run(environ, "context", "use", "b")[0] == 2
    assert run(environ, "context", "use")[0] == 2
    assert run(environ, "context", "use", "--none")[0] == 0


def test_a_context_without_a_readable_key_is_not_saved(environ: dict[str, str]) -> None:
    node = ("--node", "noise://h:4100", "--node-identity", NODE)
    code, _, err = run(environ, "context", "add", "a", *node, "--key", "/nowhere")
    assert code == 2
    assert "no such key file" in err
    assert read_contexts(environ) == Contexts()


def test_connecting_to_nowhere_says_what_to_name(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    for code, connecting in (
        ("client.nowhere", rillnode.connect()),
        ("client.identity", rillnode.connect("noise://127.0.0.1:1")),
        ("client.url", rillnode.connect("noise://127.0.0.1:1", context="home")),
        ("context.unknown", rillnode.connect(context="home")),
    ):
        with pytest.raises(ConfigError) as caught:
            asyncio.run(connecting)
        assert caught.value.code == code
