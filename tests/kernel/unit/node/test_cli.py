"""The command line as a whole: help, usage errors, exit codes, the way to the node."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from deleted_rooms import there
from fake_client import FakeClient, Screen
from rillnode import __version__
from rillnode.codecs.errors import (
    ActorError,
    HandshakeError,
    RequestError,
    RillnodeError,
    StoreError,
    TransportError,
)
from rillnode.codecs.keys import Identity
from rillnode.codecs.next_steps import next_step
from rillnode.node.cli import main
from rillnode.node.cli.command import build_parser
from rillnode.node.keys.files import write_key

NODE, ADMIN, OTHER = (Identity.from_seed(bytes([number]) * 32) for number in (1, 2, 3))


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    fake = FakeClient()
    monkeypatch.setattr("rillnode.node.client.connect", fake.connect)
    return fake


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An initialised node's directory, which is the working directory."""
    (tmp_path / "node.toml").write_text('name = "a"\n')
    write_key(tmp_path / "data" / "identity.key", NODE)
    write_key(tmp_path / "data" / "admin.key", ADMIN)
    write_key(tmp_path / "other.key", OTHER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*argv: str, screen: Screen | None = None) -> tuple[int, str, str]:
    screen = screen or Screen()
    code = main(argv, screen.terminal)
    return code, screen.out, screen.err


# Help and usage --------------------------------------------------------------------------------


def test_every_command_has_examples_that_parse() -> None:
    parser = build_parser()
    for command in parser.walk():
        examples = (command.epilog or "").splitlines()[1:]
        if command.get_default("verb"):
            assert examples, command.prog
        for example in examples:
            tokens = shlex.shlex(example, posix=True, punctuation_chars=True)
            tokens.whitespace_split = True
            words = list(tokens)
            words = words[words.index("rillnode") + 1 :]
            end = next((at for at, word in enumerate(words) if word[0] in "|<>&"), None)
            args = parser.parse_args(words[:end])
            assert args.command == command.prog or command.prog == "rillnode init"


def test_the_parser_of_one_command_is_as_in_that_of_all_and_has_few_others() -> None:
    every = build_parser().commands
    for name, command in every.items():
        some = build_parser(name).commands
        assert len(some) <= 2, name
        found = {one.prog: one.format_help() for one in some[name].walk()}
        assert found == {one.prog: one.format_help() for one in command.walk()}
    assert build_parser("frobnicate").commands.keys() == every.keys()


def test_help_and_version_are_successes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == f"rillnode {__version__}"
    assert rest[-1].startswith("  plug-ins  ")
    assert main(["stream", "push", "--help"]) == 0
    assert "--key-field FIELD" in capsys.readouterr().out


@pytest.mark.needs("gateway", "nextgraph", "ockam", "overlay", "spark", "streamr", "telemetry")
def test_the_version_tells_which_plug_ins_lack_something(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def version(name: str) -> str | None:
        return None if name == "coincurve" else "1"

    monkeypatch.setattr("rillnode.node.cli.command.version_of", version)
    assert main(["--version"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[2] == "  plug-ins  gateway, nextgraph, ockam, spark, telemetry"
    assert [line.partition(": `pip install ")[0] for line in said[3:]] == [
        "  overlay needs coincurve",
        "  streamr needs coincurve",
    ]


def test_names_keep_their_capitals_in_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out.partition("commands:")[2]
    nouns = re.findall(r"^ {4}([a-z]+)\s+(\S.*)$", listed, re.MULTILINE)
    assert {"apikey", *there("nextgraph"), "stream"} <= {name for name, _ in nouns}
    for name, summary in nouns:
        assert main([name, "--help"]) == 0
        assert f"\n{summary[0].upper()}{summary[1:]}.\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "said", "help_of"),
    [
        ((), "required: COMMAND", "rillnode"),
        (("fly",), "invalid choice: 'fly'; choices: init, run, ", "rillnode"),
        (("strem", "ls"), "invalid choice: 'strem'; did you mean stream? choices: ", "rillnode"),
        (("stream",), "required: VERB", "rillnode stream"),
        (("stream", "push"), "required: NAME", "rillnode stream push"),
        (("--no-such", "stream", "ls"), "unrecognized arguments: --no-such", "rillnode"),
        (
            ("stream", "ls", "--no-such"),
            "unrecognized arguments: --no-such\n",
            "rillnode stream ls",
        ),
        (("key", "show", "a", "b"), "unrecognized arguments: b", "rillnode key show"),
        (
            ("stream", "ls", "--jso"),
            "unrecognized arguments: --jso; did you mean --json?",
            "rillnode stream ls",
        ),
        (("stream", "pull", "s", "--count", "0"), "from 1 on, not '0'", "rillnode stream pull"),
        (("stream", "pull", "s", "--from", "-1"), "--from", "rillnode stream pull"),
        (
            ("stream", "tail", "s", "--from", "x"),
            "start, end, an index or -N",
            "rillnode stream tail",
        ),
        (("stream", "tail", "s", "--timeout", "nan"), "seconds over 0", "rillnode stream tail"),
        (("stream", "push", "s", "--format", "xml"), "invalid choice", "rillnode stream push"),
        (
            ("stream", "push", "s", "--entry-key", "k", "--key-field", "a"),
            "not allowed with",
            "rillnode stream push",
        ),
    ],
)
def test_a_usage_error_names_the_help_to_ask(
    argv: tuple[str, ...], said: str, help_of: str
) -> None:
    code, out, err = run(*argv)
    assert (code, out) == (2, "")
    assert said in err
    assert err.endswith(f"\n  next: `{help_of} --help`\n")


# The way to the node ---------------------------------------------------------------------------


@pytest.mark.usefixtures("home")
def test_a_node_toml_here_says_everything(client: FakeClient) -> None:
    assert run("stream", "ls")[0] == 0
    assert client.connected_to == {
        "url": "noise://127.0.0.1:4100",
        "node_identity": NODE.public_hex,
        "identity": ADMIN,
        "reconnect": True,
    }


def test_while_a_node_changes_its_key_both_are_expected(client: FakeClient, home: Path) -> None:
    assert run("key", "rotate", "data/identity.key")[0] == 0
    assert run("stream", "ls")[0] == 0
    before = client.connected_to["node_identity"].split(",")
    assert before[0] == NODE.public_hex
    assert run("key", "rotate", "data/identity.key", "--finish")[0] == 0
    assert run("stream", "ls")[0] == 0
    assert client.connected_to["node_identity"].split(",") == before[::-1]
    assert run("key", "rotate", "data/identity.key", "--finish")[0] == 2


def test_a_node_toml_elsewhere_is_named(
    client: FakeClient, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    assert run("stream", "ls", "-c", str(home / "node.toml"))[0] == 0
    assert client.connected_to["identity"] == ADMIN


def test_options_stand_in_for_what_a_configuration_says(client: FakeClient, home: Path) -> None:
    (home / "node.toml").write_text('name = "a"\nnoise.listen = "127.0.0.1:0"\n')
    code, _, err = run("stream", "ls")
    assert code == 2
    assert "name the port that the node took with --node" in err
    argv = ("-c", "node.toml", "--node", "noise://127.0.0.1:5000", "--key", "other.key")
    assert run("stream", "ls", *argv)[0] == 0
    assert client.connected_to == {
        "url": "noise://127.0.0.1:5000",
        "node_identity": NODE.public_hex,
        "identity": OTHER,
        "reconnect": True,
    }


def test_without_a_key_the_client_makes_one(
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("stream", "ls", "--node", "noise://h:1", "--node-identity", "aa" * 32)[0] == 0
    assert client.connected_to["identity"] is None


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("0.0.0.0:5000", "127.0.0.1:5000"),
        ("[::]:5000", "[::1]:5000"),
        ("h.example:5", "h.example:5"),
    ],
)
def test_every_address_means_this_machine(
    client: FakeClient, home: Path, listen: str, url: str
) -> None:
    (home / "node.toml").write_text(f'name = "a"\nnoise.listen = "{listen}"\n')
    assert run("stream", "ls")[0] == 0
    assert client.connected_to["url"] == f"noise://{url}"


def test_the_environment_counts_for_the_address_too(client: FakeClient, home: Path) -> None:
    screen = Screen(environ={"RILLNODE__NOISE__LISTEN": "127.0.0.1:7000"})
    assert run("stream", "ls", "-c", str(home / "node.toml"), screen=screen)[0] == 0
    assert client.connected_to["url"] == "noise://127.0.0.1:7000"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ((), "no node named"),
        (("--node", "noise://h:1"), "needs --node-identity beside it"),
        (("--node", "noise://h:1", "--key", "other.key"), "needs --node-identity beside it"),
        (
            ("--node", "h:1", "--key", "other.key", "--node-identity", "aa" * 32),
            "noise://HOST:PORT",
        ),
        (("--node", "noise://h", "--key", "other.key", "--node-identity", "aa" * 32), "HOST:PORT"),
        (("--node", "noise://h:1", "--key", "other.key", "--node-identity", "aa"), "hex"),
        (("--node", "noise://h:1", "--key", "no.key", "--node-identity", "aa" * 32), "no such key"),
        (("-c", "no.toml"), "no such file"),
    ],
)
def test_a_node_that_is_not_named_whole_is_a_usage_error(
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    argv: tuple[str, ...], said: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    write_key(tmp_path / "other.key", OTHER)
    code, out, err = run("stream", "ls", *argv)
    assert (code, out, client.connected_to) == (2, "", {})
    assert said in err
    assert "\n  next: " in err


# Failures ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("failure", "code", "step"),
    [
        (TransportError("link.refused", "nothing listens"), 3, "`rillnode run` starts a node"),
        (HandshakeError("noise.unknown_identity", "unknown"), 3, "grant your key"),
        (HandshakeError("noise.wrong_node", "another node"), 3, "key show` on the node's"),
        (RequestError("stream.unknown", "no such stream"), 1, "`rillnode stream ls` lists"),
        (StoreError("store.full", "disk full"), 1, "`df` tells"),
        (StoreError("store.corrupt", "what?"), 1, "see the node's log"),
        (ActorError("actor.timeout", "no answer"), 1, "see the node's log"),
        (RequestError("x.busy", "busy", retryable=True), 1, "try again"),
        (KeyboardInterrupt(), 130, None),
        (ZeroDivisionError("oops"), 1, "`rillnode stream ls -v`"),
    ],
)
def test_every_failure_has_its_exit_code_and_a_next_step(
    client: FakeClient, failure: BaseException, code: int, step: str | None
) -> None:
    client.failure = failure
    got, out, err = run("stream", "ls")
    assert (got, out) == (code, "")
    assert "Traceback" not in err
    if step is None:
        assert err == ""
    else:
        assert err.startswith("rillnode: ")
        assert step in err.splitlines()[-1]


@pytest.mark.usefixtures("home")
def test_verbose_adds_the_traceback(client: FakeClient) -> None:
    client.failure = ZeroDivisionError("oops")
    assert "Traceback" in run("stream", "ls", "-v")[2]


@pytest.mark.usefixtures("home")
def test_a_reader_that_has_enough_is_no_failure(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.failure = BrokenPipeError()
    assert run("stream", "ls") == (0, "", "")


def test_no_error_is_without_a_next_step() -> None:
    for code in ("config.value", "key.mode", "link.x", "listen.in_use", "new.code", "x"):
        assert next_step(RillnodeError(code, "text"), "rillnode run")


@pytest.mark.usefixtures("home")
def test_a_node_cannot_write_to_the_screen_by_its_refusals(client: FakeClient) -> None:
    client.failure = RequestError("x.y", "a\x1b[2Jb")
    assert "a\\x1b[2Jb" in run("stream", "ls")[2]


# How fast it starts -----------------------------------------------------------------------------


def test_a_command_waits_for_no_import_that_it_does_not_need() -> None:
    slow = "'aiohttp', 'Crypto', 'deltalake', 'pyspark', 'thespian', 'rillnode.node.runtime'"
    code = f"import sys, rillnode.node.cli; print(sorted({{{slow}}} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout == "[]\n"
