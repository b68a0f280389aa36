"""What newcomers get wrong: each answer says what is wrong and what to do, without a traceback."""

import asyncio
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import rillnode
from fake_client import Screen
from rillnode.codecs.keys import Identity
from rillnode.node.cli import main
from rillnode.node.config import Config, HttpListener, NoiseListener
from rillnode.node.keys.files import write_key
from rillnode.node.runtime import Node

ID = "aa" * 32
AT = ("--node", "noise://127.0.0.1:1", "--node-identity", ID)
NOISE, HTTP = NoiseListener(enabled=False), HttpListener(enabled=False)


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with what people mix up, and nothing that says where a node is."""
    write_key(tmp_path / "me.key", Identity.from_seed(bytes(32)))
    (tmp_path / "edge").mkdir()
    (tmp_path / "edge" / "node.toml").write_text('name = "edge"\n[noise]\nlisten = "0.0.0.0:1"\n')
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("not a key, not TOML\n")
    (tmp_path / "open.key").write_text("ab" * 32 + "\n")
    (tmp_path / "open.key").chmod(0o644)
    (tmp_path / "twice.toml").write_text('name = "x"\nname = "y"\n')
    (tmp_path / "units.toml").write_text(
        'name = "x"\n[[stream]]\nname = "s"\nretain_seconds="7d"\n'
    )
    (tmp_path / "typo.toml").write_text('name = "x"\n[noise]\nlisen = "127.0.0.1:1"\n')
    (tmp_path / "verb.toml").write_text('name = "x"\n[[grant]]\nwho = "*"\nmay = ["read"]\n')
    (tmp_path / "port.toml").write_text('name = "x"\n[noise]\nlisten = "127.0.0.1:70000"\n')
    (tmp_path / "same.toml").write_text('name = "x"\n[noise]\nlisten = "127.0.0.1:8080"\n')
    (tmp_path / "edge" / "free.toml").write_text('name = "x"\n[noise]\nlisten = "127.0.0.1:0"\n')
    (tmp_path / "marked.toml").write_text('nam = "x"\n', encoding="utf-8-sig")
    (tmp_path / "utf-16.toml").write_text('name = "x"\n', encoding="utf-16")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*argv: str, **environ: str) -> tuple[int, str]:
    nowhere = {"XDG_CONFIG_HOME": "nowhere", "XDG_RUNTIME_DIR": "nowhere"}
    screen = Screen(environ=nowhere | environ)
    code = main(argv, screen.terminal)
    assert not screen.out
    return code, screen.err


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        # Configurations.
        ("run", 2, "there is no node.toml here, and no -c FILE was given"),
        ("run -c nosuch.toml", 2, "nosuch.toml: no such file; `rillnode init` writes one"),
        ("run -c edge", 2, "edge is a directory; the configuration in it is edge/node.toml"),
        ("run -c empty", 2, "empty is a directory, and has no node.toml: `rillnode init empty`"),
        ("run -c notes.txt", 2, "notes.txt: not TOML"),
        ("config check -c twice.toml", 2, "not TOML: Cannot overwrite a value"),
        ("config check -c units.toml", 2, "'7d': expected a number of seconds over 0"),
        ("config check -c typo.toml", 2, "unknown key; did you mean listen?"),
        ("config check -c verb.toml", 2, "'read': expected one of \"admin\", \"create\""),
        ("config check -c port.toml", 2, "port 0 to 65535, not '127.0.0.1:70000'"),
        ("config check -c same.toml", 2, "127.0.0.1:8080 is taken by noise.listen"),
        ("run --dev --set noise.listen", 2, "expected --set key=value"),
        ("run --dev --set noise.lisen=x", 2, "did you mean listen?"),
        ("run --dev --data-dir notes.txt", 2, "notes.txt is a file, not a directory"),
        ("init edge", 2, "edge/node.toml exists; nothing was written"),
        # Where a node is, and as whom.
        ("stream ls", 2, "no node named"),
        ("stream ls --node noise://127.0.0.1:1", 2, ":1 needs --node-identity beside it, or -c"),
        (f"stream ls --node-identity {ID}", 2, "--node-identity needs --node beside it, or -c"),
        ("stream ls --node 127.0.0.1:1 --node-identity " + ID, 2, "expected noise://HOST:PORT"),
        ("stream ls --node noise://h:1 --node-identity me", 2, "--node-identity: an identity"),
        ("stream ls --node http://127.0.0.1:8080", 2, "--node http://127.0.0.1:8080: expected"),
        (("stream", "ls", *AT), 3, "nothing listens on 127.0.0.1:1: is the node running there?"),
        (("stream", "ls", *AT, "--key", "no.key"), 2, "`rillnode key new no.key` makes one"),
        (("stream", "ls", *AT, "--key", "edge"), 2, "edge: cannot be read: Is a directory"),
        (("stream", "ls", *AT, "--key", "notes.txt"), 2, "notes.txt: no key file"),
        (("stream", "ls", *AT, "--key", "open.key"), 2, "run `chmod 600 open.key`"),
        (("stream", "pull", "s", *AT, "--key", "m7"), 2, "--entry-key the key of an entry"),
        ("stream ls --context home", 2, "no context 'home'; saved ones: there are none"),
        ("key show notes.txt", 2, "notes.txt: no key file"),
        ("key new me.key", 2, "a key is never overwritten"),
        ("backup b", 2, "there is no node.toml here"),
        ("restore notes.txt b", 1, "is no backup"),
        ("verify -c edge/node.toml", 1, "there is no store yet"),
        ("stream ls -c edge/free.toml", 2, "port 0: name the port that the node took with --node"),
        ("config check -c marked.toml", 2, "marked.toml:1: nam: unknown key; did you mean name?"),
        ("config check -c utf-16.toml", 2, "utf-16.toml: not UTF-8 (byte 0): save it as UTF-8"),
        ("sim run utf-16.toml", 2, "utf-16.toml: not UTF-8 (byte 0): save it as UTF-8"),
        # Words and numbers.
        ("run edge/node.toml", 2, "unrecognized arguments: edge/node.toml; did you mean -c edge"),
        ("config check edge/node.toml", 2, "did you mean -c edge/node.toml?"),
        ("--node noise://h:1 stream ls", 2, "arguments: --node; options follow the command"),
        ("pub s hello", 2, "entries are read from stdin: `echo TEXT | rillnode pub NAME`"),
        ("stream push s hello", 2, "from stdin: `echo TEXT | rillnode stream push NAME`"),
        ("stream pull s --from -5", 2, "not '-5'; the last ones are --last 5"),
        ("pub x\udcffy", 2, r"argument name: 'x\udcffy' has no UTF-8 form"),
        ("index get s x\udcffy", 2, r"argument client: 'x\udcffy' has no UTF-8 form"),
        ("context add x\udcffy", 2, r"argument name: 'x\udcffy' has no UTF-8 form"),
        ("run --dev --set name=x\udcffy", 2, "has no UTF-8 form"),
        ("init x\udcffy", 2, r"'x\udcffy' has no UTF-8 form: name it with --name"),
        ("streams ls", 2, "did you mean stream?"),
        ("stream list", 2, "did you mean ls?"),
        ("pull s --last 3", 2, "did you mean stream pull?"),
        (("stream", "create", ""), 2, "expected the name of a stream, not an empty one"),
        (("pub", ""), 2, "expected the name of a stream, not an empty one"),
        ("index set s c 18446744073709551616", 2, "from 0 to 18446744073709551615, not 1844"),
        ("stream pull s --last " + "9" * 5_000, 2, "not one of 5,000 digits"),
        ("stream pull", 2, "the following arguments are required: NAME"),
        ("stream pull s --last -3", 2, "expected a whole number from 1 on, not '-3'"),
        ("stream pull s --since 5", 2, "expected how long ago, as 90s or 1h30m"),
        ("stream pull s --form raw", 2, "unrecognized arguments: --form raw; did you mean --form"),
        ("stream create s --partitions 0", 2, "expected a whole number from 1 on, not '0'"),
        ("stream push s --header a", 2, "expected NAME=VALUE, not 'a'"),
        ("stream rm s", 2, "repeat with --yes"),
        ("completion tcsh", 2, "invalid choice: 'tcsh'; choices: bash, zsh, fish"),
        ("sim run nosuch.toml", 2, "nosuch.toml: cannot be read: No such file or directory"),
        ("sim run nosuch.py:evening", 2, "nosuch.py: there is no such file"),
        ("sim run me.toml --seed x", 2, "argument --seed"),
    ],
)  # fmt: skip
def test_a_mistake_is_answered_with_what_to_do(
    argv: str | tuple[str, ...], code: int, said: str
) -> None:
    words = tuple(argv.split()) if isinstance(argv, str) else argv
    got, err = run(*words)
    assert said in err
    assert got == code
    assert "\n  next: " in err
    for alien in ("Traceback", "unexpected", "[Errno"):
        assert alien not in err


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"RILLNODE_URL": "noise://h:1"}, "RILLNODE_IDENTITY is not set, and has to be beside"),
        ({"RILLNODE_URL": "h:1", "RILLNODE_IDENTITY": ID}, "h:1: expected noise://HOST:PORT"),
        ({"RILLNODE_URL": "noise://h:1", "RILLNODE_IDENTITY": "a"}, "RILLNODE_IDENTITY: an"),
        ({"RILLNODE_CONTEXT": "home"}, "no context 'home'"),
    ],
)
def test_a_variable_that_cannot_be_is_named(environ: dict[str, str], said: str) -> None:
    code, err = run("stream", "ls", **environ)
    assert (code, said in err) == (2, True), err


def test_what_the_system_refuses_is_told_with_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refused)
    code, err = run("init", "shut")
    assert code == 1
    assert err.startswith("rillnode: shut/node.toml: Permission denied\n  next: check the path, ")


def test_what_to_do_next_can_be_copied() -> None:
    screen = Screen()
    assert main(["init", "my edge"], screen.terminal) == 0
    assert screen.err == "next: rillnode run -c 'my edge/node.toml'\n"


# In programs -----------------------------------------------------------------------------------


def test_a_node_says_what_it_takes(directory: Path) -> None:
    wrong: Any = {"name": "x"}
    with pytest.raises(TypeError, match=r"a node takes a rillnode\.node\.config\.Config, not dict"):
        Node(wrong)
    text: Any = "data"
    with pytest.raises(TypeError, match=r"data_dir is a pathlib\.Path, not str"):
        Node(Config(name="x", data_dir=text, noise=NOISE, http=HTTP))
    node = Node(Config(name="x", data_dir=directory / "data", noise=NOISE, http=HTTP))
    with pytest.raises(AttributeError, match="has not started: use it within `async with`"):
        asyncio.run(node.stream("s"))
    with pytest.raises(AttributeError, match="a node has no attribute 'strem'"):
        _ = node.strem  # type: ignore[attr-defined]  # pyright: ignore


async def test_a_stream_says_what_it_takes(directory: Path) -> None:
    wrong: Any = "text"
    async with Node(Config(name="x", data_dir=directory / "data", noise=NOISE, http=HTTP)) as node:
        stream = await node.stream("s")
        with pytest.raises(TypeError, match="an entry is bytes, not str: encode it"):
            await stream.push(wrong)
        with pytest.raises(TypeError, match="an entry is bytes, not str: encode it"):
            await stream.push_many([b"a", wrong])
        with pytest.raises(ValueError, match='"start", "end", an index or a time, not'):
            stream.consumer("c", start=wrong)
        with pytest.raises(ValueError, match='"start", "end", an index or a time, not'):
            stream.tail(start=wrong)
        empty: list[Any] = [[], (), iter(())]
        for some in empty:
            for read in (stream.tail, stream.batches, partial(stream.consumer, "c")):
                with pytest.raises(ValueError, match=r"^partitions has at least one, or is None"):
                    read(partitions=some)
        await stream.push(b"0")
        once: Any = iter([0])
        async with aclosing(stream.tail(start="start", partitions=once)) as entries:
            assert (await anext(entries)).data == b"0"
        for number in (0, -1, 1_025):
            with pytest.raises(rillnode.StreamError, match="has 1 to 1024 partitions, not"):
                await node.stream("t", partitions=number)
        with pytest.raises(TypeError, match=r"^payload is bytes, not str: encode it"):
            await node.client.ask("echo", wrong)
