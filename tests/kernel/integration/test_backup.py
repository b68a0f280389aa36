"""Backup, verify and restore of a node in a process of its own, while it is written to."""

import asyncio
import json
import shutil
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import LIMIT_SECONDS, RunningNode, begun, call, printed
from forked import DEVNULL, PIPE, finished
from rillnode.actors.log.copying import copy_store
from rillnode.actors.log.rocks.copy import RocksCopy
from rillnode.actors.log.rocks.tables import Tables, Tuning
from rillnode.node.cli.failures import Exit


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    running = RunningNode(tmp_path / "edge" / "node.toml")
    yield running
    running.kill()


def pulled(node: RunningNode) -> list[str]:
    text = printed("stream", "pull", "numbers", "--count", "1000000", *node.options, "--json")
    return [json.loads(line)["text"] for line in text.splitlines()]


def test_a_node_is_backed_up_while_it_is_written_to(node: RunningNode, tmp_path: Path) -> None:
    printed("stream", "create", "numbers", *node.options)
    pushing = begun("stream", "push", "numbers", *node.options, "-q", stdin=PIPE, stdout=DEVNULL)
    assert pushing.stdin is not None
    pushing.stdin.write(b"".join(b"%d\n" % number for number in range(2_000)))
    pushing.stdin.flush()
    backup = json.loads(printed("backup", tmp_path / "backup", *node.options))
    assert backup["node"] == "edge"
    pushing.stdin.write(b"".join(b"%d\n" % number for number in range(2_000, 4_000)))
    pushing.stdin.close()
    assert pushing.wait(LIMIT_SECONDS) == 0
    # The copy that the node has made is gone, and it goes on.
    assert not list((node.home / "data" / "checkpoints").iterdir())
    assert len(pulled(node)) == 4_000
    for options in (["-c", node.home / "node.toml", *node.options[2:]], [tmp_path / "backup"]):
        assert json.loads(printed("verify", *options))["problem_count"] == 0
    node.stop()

    printed("restore", tmp_path / "backup", tmp_path / "restored")
    assert json.loads(printed("verify", "-c", tmp_path / "restored" / "node.toml"))["streams"] == 1
    restored = RunningNode(tmp_path / "restored" / "node.toml")
    try:
        found = pulled(restored)
        # A backup is of one moment: what was confirmed first, without a gap.
        assert found == [str(number) for number in range(len(found))]
    finally:
        restored.stop()


@pytest.mark.long
def test_a_killed_node_is_backed_up_as_it_lies(node: RunningNode, tmp_path: Path) -> None:
    printed("stream", "create", "numbers", *node.options)
    pushed = b"".join(b"%d\n" % number for number in range(500))
    assert call("stream", "push", "numbers", *node.options, stdin=pushed).returncode == 0
    node.process.kill()
    node.process.wait()
    printed("backup", tmp_path / "backup", "-c", node.home / "node.toml")
    printed("restore", tmp_path / "backup", tmp_path / "restored")
    restored = RunningNode(tmp_path / "restored" / "node.toml")
    try:
        assert pulled(restored) == [str(number) for number in range(500)]
    finally:
        restored.stop()


def test_errors_say_what_to_do_next(tmp_path: Path) -> None:
    printed("init", tmp_path / "edge")
    config = tmp_path / "edge" / "node.toml"
    assert "rillnode run" in printed("backup", tmp_path / "backup", "-c", config, code=1)
    assert "rillnode backup" in printed("restore", tmp_path, tmp_path / "home", code=1)
    assert "rillnode init" in printed("verify", "-c", tmp_path / "none.toml", code=2)
    for within in ("store", "checkpoints"):  # the node removes what it finds in the second
        inside = tmp_path / "edge" / "data" / within / "backup"
        assert "lies in the" in printed("backup", inside, "-c", config, code=1)
        assert not inside.exists()


def test_no_backup_is_made_of_another_node_than_was_named(
    node: RunningNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of one that rests here, nor of the store of one with the keys of the other."""
    other = RunningNode(tmp_path / "other" / "node.toml")
    other.stop()
    monkeypatch.chdir(other.home)
    url = f"noise://{node.ports['noise']}"
    named = ["--node", url, "--node-identity", node.ports["identity"]]
    saved = tmp_path / "contexts"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(saved))
    printed("context", "add", "edge", *named)
    for options in (named, ["--node", url], ["--context", "edge"], ["-c", "node.toml", *named]):
        said = printed("backup", tmp_path / "backup", *options, code=2)
        assert f"{url} is another " in said, options
        assert "next: name the configuration of the one that you mean with -c" in said
    assert not (tmp_path / "backup").exists()
    assert json.loads(printed("backup", tmp_path / "backup"))["node"] == "other"


def test_a_copy_that_is_not_finished_is_not_judged(tmp_path: Path) -> None:
    printed("init", tmp_path / "edge")
    source = Tables(tmp_path / "source", Tuning())
    target = RocksCopy.target(tmp_path / "edge" / "data" / "store")
    asyncio.run(copy_store(RocksCopy(source), target, final=False))
    target.close()
    source.close()
    refused = printed("verify", "-c", tmp_path / "edge" / "node.toml", code=1)
    assert "rillnode store copy" in refused


@pytest.mark.long
@pytest.mark.parametrize("victim", ["command", "node"])
def test_a_kill_in_the_middle_leaves_a_node_that_can_be_backed_up(
    node: RunningNode, tmp_path: Path, victim: str
) -> None:
    printed("stream", "create", "numbers", *node.options)
    pushed = b"".join(b"%d" % number + b"." * 1_000 + b"\n" for number in range(20_000))
    assert call("stream", "push", "numbers", *node.options, stdin=pushed).returncode == 0
    checkpoints, partial = node.home / "data" / "checkpoints", tmp_path / ".backup.partial"
    for sign in (checkpoints, partial, partial / "data" / "store"):
        if node.process.poll() is not None:
            node = RunningNode(node.home / "node.toml")
        for leftover in (partial, *checkpoints.glob("*")):
            shutil.rmtree(leftover, ignore_errors=True)
        if checkpoints.exists():
            checkpoints.rmdir()
        command = begun(
            "backup", tmp_path / "backup", *node.options, stdout=DEVNULL, stderr=DEVNULL
        )
        while command.poll() is None and not sign.exists():
            time.sleep(0.001)
        if victim == "node":
            node.process.kill()
            node.process.wait(LIMIT_SECONDS)
        else:
            command.kill()
        command.wait(LIMIT_SECONDS)
        if (tmp_path / "backup").exists():  # it was done before, or needed the node no more
            json.loads(printed("verify", tmp_path / "backup"))
            shutil.rmtree(tmp_path / "backup")
    if victim == "node":
        node = RunningNode(node.home / "node.toml")
    try:
        printed("backup", tmp_path / "backup", *node.options)
        found = json.loads(printed("verify", tmp_path / "backup"))
        assert (found["entries"], found["problem_count"]) == (20_000, 0)
        assert not list(checkpoints.iterdir())
        assert not list(tmp_path.glob(".*"))
    finally:
        node.stop()


INTERRUPTED = """
    import os, signal, sys
    from contextlib import contextmanager
    from importlib import import_module
    from rillnode.node.cli import main

    verb, *rest = sys.argv[1:]
    module = import_module(f"rillnode.node.cli.{verb}")

    @contextmanager
    def progress(*_):
        def on_bytes(size):
            print("more")
            os.kill(os.getpid(), signal.SIGINT)

        yield on_bytes

    module.progress = progress
    sys.exit(main([verb, *rest]))
"""


@pytest.mark.parametrize("verb", ["backup", "restore", "verify", "verify a store"])
def test_the_first_interrupt_ends_it_and_leaves_nothing(tmp_path: Path, verb: str) -> None:
    """In the middle of the work, where a loop of asyncio does not run."""
    config, backup, home = tmp_path / "edge" / "node.toml", tmp_path / "backup", tmp_path / "home"
    RunningNode(config).stop()
    printed("backup", backup, "-c", config)
    before = sorted(tmp_path.rglob("*"))
    arguments: list[str | Path]
    match verb:
        case "backup":
            arguments = ["backup", home, "-c", config]
        case "restore":
            arguments = ["restore", backup, home]
        case "verify":
            arguments = ["verify", backup]
        case _:
            arguments = ["verify", "-c", config]
    run = finished("-c", textwrap.dedent(INTERRUPTED), *arguments, timeout=LIMIT_SECONDS)
    assert (run.returncode, run.stdout) == (Exit.INTERRUPTED, b"more\n"), run.stderr
    assert sorted(tmp_path.rglob("*")) == before
