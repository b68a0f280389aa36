"""A node's key for secure channels, their configuration, and their options on the command line."""

import json
import stat
from pathlib import Path
from typing import Any, Self

import pytest

from fake_client import FakeClient, Screen
from rillnode.codecs.channel_key import ChannelKey
from rillnode.codecs.errors import ConfigError
from rillnode.codecs.keys import Identity
from rillnode.codecs.routing.routes import Route, local
from rillnode.node.cli import main
from rillnode.node.client import Answer
from rillnode.node.config import Config, load_config, parse_config
from rillnode.node.keys.files import read_channel_key, read_or_make_channel_key, write_key
from rillnode.node.ockam.channels import Channels
from rillnode.node.ockam.config import (
    KEY_FILE,
    ChannelTable,
    OckamListener,
    channel_key_file,
    channels_of,
)

KEY = ChannelKey(bytes(range(32)))
FILE = Path("node.toml")
NAME = 'name = "a"\n'


def run(*argv: str, stdin: bytes = b"", tty: bool = False) -> tuple[int, str, str]:
    screen = Screen(stdin, tty=tty)
    return main(argv, screen.terminal), screen.out, screen.err


def test_a_key_that_is_given_is_looked_for_in_no_file(tmp_path: Path) -> None:
    config = Config(name="a", data_dir=tmp_path / "data", tables=[OckamListener()])
    assert Channels(config, bytes, KEY).key == KEY.public_hex
    assert not config.data_dir.exists()
    assert Channels(config, lambda count: KEY.private, None).key == KEY.public_hex
    assert (config.data_dir / KEY_FILE).exists()


# Key files ---------------------------------------------------------------------------------------


def test_a_key_comes_back_as_written(tmp_path: Path) -> None:
    path = tmp_path / "ockam.key"
    write_key(path, KEY)
    assert read_channel_key(path).private == KEY.private
    assert path.read_text() == KEY.private_hex + "\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_key_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "ockam.key"
    assert read_or_make_channel_key(path, KEY.private).public == KEY.public
    assert read_or_make_channel_key(path, bytes(32)).public == KEY.public


@pytest.mark.parametrize("content", ["", "00", "zz" * 32, "00" * 33, "é" * 64])
def test_what_is_no_key_is_refused_and_not_repeated(tmp_path: Path, content: str) -> None:
    path = tmp_path / "ockam.key"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError) as caught:
        read_channel_key(path)
    assert caught.value.code == "key.hex"
    assert str(path) in caught.value.text
    assert not content or content not in caught.value.text


def test_a_missing_key_names_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rillnode key new --channel"):
        read_channel_key(tmp_path / "none.key")


def test_the_command_line_makes_and_shows_keys_without_their_secret(tmp_path: Path) -> None:
    path = tmp_path / "device.key"
    code, out, _ = run("key", "new", "--channel", str(path))
    assert code == 0
    key = read_channel_key(path)
    assert json.loads(out) == {
        "file": str(path),
        "channel_key": key.public_hex,
        "principal": f"ockam:{key.public_hex}",
    }
    assert run("key", "show", "--channel", str(path))[1] == out
    assert key.private_hex not in out


# Configuration -----------------------------------------------------------------------------------


def test_there_are_channels_where_there_is_an_ockam_table() -> None:
    assert channels_of(parse_config(NAME, FILE)) is None
    assert channels_of(parse_config(NAME + "[ockam]\n", FILE)) == ChannelTable()
    assert channels_of(parse_config(NAME + "[ockam.channel]\nenabled = false\n", FILE)) is None


def test_the_key_lies_in_the_data_directory_unless_another_is_named(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(NAME + '[ockam]\n[ockam.channel]\nkey_file = "keys/a.key"\n')
    assert channel_key_file(load_config(file)) == tmp_path / "keys" / "a.key"
    file.write_text(NAME + "[ockam]\n")
    assert channel_key_file(load_config(file)) == tmp_path / "data" / "ockam.key"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('allow = ["00"]', "ockam.channel.allow[0]: '00': expected 64 hexadecimal digits"),
        ("allow = 5", "ockam.channel.allow: 5: expected a list of keys"),
        ("idle_seconds = 0", "ockam.channel.idle_seconds: 0: expected"),
        ("channels_max = 0", "ockam.channel.channels_max: 0: expected"),
        ("level = 1", "ockam.channel.level: unknown key"),
    ],
)
def test_what_cannot_be_is_refused_with_its_key(line: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f"{NAME}[ockam.channel]\n{line}\n", FILE)
    assert said in caught.value.text


# route ask, route send -----------------------------------------------------------------------


class FakeChannel:
    """Answers with what it was sent."""

    def __init__(self, sent: list[tuple[Route, bytes]]) -> None:
        self.sent = sent

    async def send(self, route: Route, payload: bytes) -> None:
        self.sent.append((route, payload))

    async def ask(self, route: Route, payload: bytes, *, timeout_seconds: float) -> Answer:
        await self.send(route, payload)
        return Answer((local("echo"),), payload)


class ChannelClient(FakeClient):
    """A client that notes which channels it was asked for."""

    channels: list[tuple[Route, dict[str, Any]]]
    through: list[tuple[Route, bytes]]

    async def __aenter__(self) -> Self:
        return self


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ChannelClient:
    (tmp_path / "node.toml").write_text(NAME)
    write_key(tmp_path / "data" / "identity.key", Identity.from_seed(bytes(32)))
    write_key(tmp_path / "data" / "admin.key", Identity.from_seed(bytes(32)))
    write_key(tmp_path / "device.key", KEY)
    monkeypatch.chdir(tmp_path)
    fake = ChannelClient()
    fake.channels, fake.through = [], []

    async def opened(client: ChannelClient, route: Route, **options: Any) -> FakeChannel:
        client.channels.append((route, options))
        return FakeChannel(client.through)

    monkeypatch.setattr("rillnode.node.client.connect", fake.connect)
    monkeypatch.setattr("rillnode.node.ockam.client.channel.SecureChannel.open", opened)
    return fake


def test_a_message_goes_through_a_channel(client: ChannelClient) -> None:
    code, out, _ = run(
        "route", "ask", "echo", "hi", "--wait", "3",
        "--channel", "peer/core;api", "--channel-level", "elixir-2021",
        "--channel-key", "device.key", "--channel-remote-key", "AB" * 32,
    )  # fmt: skip
    assert code == 0
    assert json.loads(out) == {"return_route": "0#echo", "payload": b"hi".hex(), "text": "hi"}
    assert client.through == [((local("echo"),), b"hi")]
    ((route, options),) = client.channels
    assert route == (local("peer/core"), local("api"))
    assert options.pop("key").public == KEY.public
    assert options == {"level": "elixir-2021", "remote_key": "ab" * 32, "timeout_seconds": 3.0}


def test_without_a_key_of_one_s_own_a_channel_gets_a_new_one(client: ChannelClient) -> None:
    sent = ("route", "send", "echo", "hi")
    assert run(*sent, "--channel", "api")[0] == 0
    assert client.channels[0][1]["key"] is None
    assert client.through == [((local("echo"),), b"hi")]
    assert not client.sent


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--channel-key", "device.key"), "need --channel"),
        (("--channel-remote-key", "00" * 32), "need --channel"),
        (("--channel", "api", "--channel-remote-key", "00"), "64 hex digits"),
        (("--channel", "api", "--channel-level", "2023"), "invalid choice"),
        (("--channel", ""), "expected a route"),
    ],
)
def test_options_that_make_no_channel_are_refused(
    client: ChannelClient, options: tuple[str, ...], said: str
) -> None:
    code, _, err = run("route", "ask", "echo", "hi", *options)
    assert code == 2
    assert said in err
    assert not client.channels
