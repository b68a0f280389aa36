"""The verbs that need no node: init, key, config, and what run refuses."""

import asyncio
import json
import signal
import stat
from pathlib import Path

import pytest

from fake_client import Screen
from rillnode.node.cli import main
from rillnode.node.cli.run import on_signal
from rillnode.node.config import load_config, parse_config
from rillnode.node.config.file_type import table_type
from rillnode.node.installed import TABLES, installed
from rillnode.node.keys.files import read_key


def run(
    *argv: str, tty: bool = False, environ: dict[str, str] | None = None
) -> tuple[int, str, str]:
    screen = Screen(tty=tty, environ=environ)
    return main(argv, screen.terminal), screen.out, screen.err


# init ------------------------------------------------------------------------------------------


def test_init_makes_what_run_needs(tmp_path: Path) -> None:
    code, out, err = run("init", str(tmp_path / "edge"))
    assert code == 0
    assert err == f"next: rillnode run -c {tmp_path}/edge/node.toml\n"
    made = json.loads(out)
    config = load_config(tmp_path / "edge" / "node.toml")
    assert config.name == "edge"
    assert read_key(config.key_file).public_hex == made["identity"]
    assert read_key(config.admin_key_file).public_hex == made["admin"]
    assert [(one.who, one.streams, one.may) for one in config.grants] == [
        (f"noise:{made['admin']}", "*", ("admin",))
    ]
    assert stat.S_IMODE(config.data_dir.stat().st_mode) == 0o700
    assert read_key(config.key_file).seed_hex not in out


def test_init_here_takes_the_name_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("init", "--name", 'my "node"')[0] == 0
    assert load_config(Path("node.toml")).name == 'my "node"'


def test_init_makes_the_keys_of_the_plug_ins_that_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_type(next(iter(installed(TABLES))))
    monkeypatch.setattr(table, "made_keys", {"hub.key": "hub_id"})
    code, out, _ = run("init", str(tmp_path))
    assert code == 0
    made = json.loads(out)
    assert made["hub_key"] == str(tmp_path / "data" / "hub.key")
    assert read_key(tmp_path / "data" / "hub.key").public_hex == made["hub_id"]


@pytest.mark.parametrize("existing", ["node.toml", "data/identity.key", "data/admin.key"])
def test_init_overwrites_nothing(tmp_path: Path, existing: str) -> None:
    path = tmp_path / existing
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    code, out, err = run("init", str(tmp_path))
    assert (code, out) == (2, "")
    assert f"{path} exists" in err
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path]
    assert path.read_text() == "mine"


# key -------------------------------------------------------------------------------------------


def test_keys_are_made_and_shown_without_their_secret(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    code, out, _ = run("key", "new", str(path))
    assert code == 0
    identity = read_key(path)
    assert json.loads(out) == {
        "file": str(path),
        "identity": identity.public_hex,
        "principal": f"noise:{identity.public_hex}",
    }
    assert run("key", "show", str(path))[1] == out
    assert identity.seed_hex not in out + run("key", "show", str(path), "-v", tty=True)[1]


def test_a_grant_is_printed_as_a_file_takes_it(tmp_path: Path) -> None:
    file = tmp_path / "p.key"
    run("key", "new", str(file))
    principal = json.loads(run("key", "show", str(file))[1])["principal"]
    code, out, _ = run("key", "grant", str(file), "--streams", 'a"*', "--may", "create", "push")
    assert code == 0
    config = parse_config(f'name = "x"\n{out}', tmp_path / "node.toml")
    (grant,) = config.grants
    assert (grant.who, grant.streams, grant.may) == (principal, 'a"*', ("create", "push"))
    serving = ("--addresses", "greeter", "--may", "send")
    keys = json.loads(run("key", "grant", str(file), *serving, "--json")[1])
    assert keys == {"who": principal, "addresses": "greeter", "may": ["send"]}
    channel = tmp_path / "c.key"
    run("key", "new", "--channel", str(channel))
    assert 'who = "ockam:' in run("key", "grant", "--channel", str(channel), *serving)[1]
    for wrong, said in (
        (("--streams", "s", "--may", "pusch"), "--may[0]: 'pusch': expected one of"),
        (("--addresses", "s", "--may", "push"), "--addresses: nothing in may is for addresses"),
        (("--streams", "s[a]", "--may", "push"), "--streams: 's[a]': a pattern has *"),
    ):
        code, out, err = run("key", "grant", str(file), *wrong)
        assert (code, out) == (2, "")
        assert f"rillnode: {said}" in err.replace("\n--", "\nrillnode: --")


def test_a_key_is_not_made_twice(tmp_path: Path) -> None:
    path = str(tmp_path / "a.key")
    assert run("key", "new", path)[0] == 0
    code, _, err = run("key", "new", path)
    assert code == 2
    assert "never overwritten" in err
    assert "\n  next: " in err


# config ----------------------------------------------------------------------------------------


def test_check_says_valid_or_why_not(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('name = "a"\n')
    assert run("config", "check", "-c", str(file)) == (0, "", f"{file}: valid\n")
    code, _, err = run("config", "check", "-c", str(file), "--set", "noise.listen=x")
    assert code == 2
    assert "--set: noise.listen: 'x'" in err


def test_show_tells_values_and_sources(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('name = "a"\n')
    environ = {"RILLNODE__NOISE__LISTEN": "127.0.0.1:0"}
    code, out, _ = run("config", "show", "-c", str(file), environ=environ)
    rows = {row["key"]: row for row in map(json.loads, out.splitlines())}
    assert code == 0
    assert rows["name"] == {"key": "name", "value": "a", "source": f"{file}:1"}
    assert rows["noise.listen"]["source"] == "RILLNODE__NOISE__LISTEN"
    assert "noise.listen" in run("config", "show", "-c", str(file), tty=True)[1]


def test_schema_is_json() -> None:
    code, out, _ = run("config", "schema")
    assert code == 0
    assert json.loads(out)["$defs"]["Config"]["required"] == ["name"]


# run -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ((), "there is no node.toml here"),
        (("-c", "no.toml"), "no such file"),
        (("--dev", "--data-dir", "d", "--set", "noise.listen=0.0.0.0:0"), "as --dev demands"),
        (("--dev", "--data-dir", "d", "--ports-file", "."), "cannot be removed"),
    ],
)
def test_run_refuses_what_it_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run("run", *argv)
    assert (code, out) == (2, "")
    assert said in err
    assert list(tmp_path.iterdir()) == []


class _Ended(Exception):
    """Stands for the end of the process."""


def test_the_second_signal_ends_the_node_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []

    def end(code: int) -> None:
        codes.append(code)
        raise _Ended

    monkeypatch.setattr("os._exit", end)
    stopping = asyncio.Event()
    on_signal(signal.SIGTERM, stopping)
    assert stopping.is_set()
    assert codes == []
    with pytest.raises(_Ended):
        on_signal(signal.SIGINT, stopping)
    assert codes == [130]
