"""Backup, verify and restore of a node in a process of its own, while it is written to."""

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rillnode.actors.log.copying import copy_store
from rillnode.actors.log.rocks.copy import RocksCopy
from rillnode.actors.log.rocks.tables import Tables, Tuning

LIMIT_SECONDS = 300.0


def rillnode(*argv: str | Path) -> list[str]:
    return [sys.executable, "-m", "rillnode", *map(str, argv)]


def call(*argv: str | Path, code: int = 0) -> str:
    done = subprocess.run(rillnode(*argv), capture_output=True, timeout=LIMIT_SECONDS)
    assert done.returncode == code, done.stderr.decode()
    return done.stdout.decode() if code == 0 else done.stderr.decode()


class RunningNode:
    """A node whose directory is `home`; the first one there makes its keys."""

    def __init__(self, home: Path) -> None:
        self.home = home
        if not home.exists():
            call("init", home)
        ports = home.with_name(home.name + ".ports")
        ports.unlink(missing_ok=True)  # of one that was killed
        argv = rillnode(
            "run", "-c", home / "node.toml", "--ports-file", ports,
            "--set", "noise.listen=127.0.0.1:0", "--set", "http.enabled=false",
        )  # fmt: skip
        with home.with_name(home.name + ".log").open("wb") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log)
        end = time.monotonic() + LIMIT_SECONDS
        while not ports.exists():
            assert self.process.poll() is None, "the node ended early"
            assert time.monotonic() < end, "this took too long"
            time.sleep(0.05)
        self.options = ["-c", str(home / "node.toml"), "--node"]
        self.options.append(f"noise://{json.loads(ports.read_text())['noise']}")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(LIMIT_SECONDS) == 0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    running = RunningNode(tmp_path / "edge")
    yield running
    if running.process.poll() is None:
        running.process.kill()
        running.process.wait()


def pulled(node: RunningNode) -> list[str]:
    text = call("stream", "pull", "numbers", "--count", "1000000", *node.options, "--json")
    return [json.loads(line)["text"] for line in text.splitlines()]


def test_a_node_is_backed_up_while_it_is_written_to(node: RunningNode, tmp_path: Path) -> None:
    call("stream", "create", "numbers", *node.options)
    pushing = subprocess.Popen(
        rillnode("stream", "push", "numbers", *node.options, "-q"),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    assert pushing.stdin is not None
    pushing.stdin.write(b"".join(b"%d\n" % number for number in range(2_000)))
    pushing.stdin.flush()
    backup = json.loads(call("backup", tmp_path / "backup", *node.options))
    assert backup["node"] == "edge"
    pushing.stdin.write(b"".join(b"%d\n" % number for number in range(2_000, 4_000)))
    pushing.stdin.close()
    assert pushing.wait(LIMIT_SECONDS) == 0
    # The copy that the node has made is gone, and it goes on.
    assert not list((node.home / "data" / "checkpoints").iterdir())
    assert len(pulled(node)) == 4_000
    for options in (["-c", node.home / "node.toml", *node.options[2:]], [tmp_path / "backup"]):
        assert json.loads(call("verify", *options))["problem_count"] == 0
    node.stop()

    call("restore", tmp_path / "backup", tmp_path / "restored")
    assert json.loads(call("verify", "-c", tmp_path / "restored" / "node.toml"))["streams"] == 1
    restored = RunningNode(tmp_path / "restored")
    try:
        found = pulled(restored)
        # A backup is of one moment: what was confirmed first, without a gap.
        assert found == [str(number) for number in range(len(found))]
    finally:
        restored.stop()


@pytest.mark.long
def test_a_killed_node_is_backed_up_as_it_lies(node: RunningNode, tmp_path: Path) -> None:
    call("stream", "create", "numbers", *node.options)
    pushed = b"".join(b"%d\n" % number for number in range(500))
    subprocess.run(
        rillnode("stream", "push", "numbers", *node.options), input=pushed, check=True,
        stdout=subprocess.DEVNULL, timeout=LIMIT_SECONDS,
    )  # fmt: skip
    node.process.kill()
    node.process.wait()
    call("backup", tmp_path / "backup", "-c", node.home / "node.toml")
    call("restore", tmp_path / "backup", tmp_path / "restored")
    restored = RunningNode(tmp_path / "restored")
    try:
        assert pulled(restored) == [str(number) for number in range(500)]
    finally:
        restored.stop()


def test_errors_say_what_to_do_next(tmp_path: Path) -> None:
    call("init", tmp_path / "edge")
    config = tmp_path / "edge" / "node.toml"
    assert "rillnode run" in call("backup", tmp_path / "backup", "-c", config, code=1)
    assert "rillnode backup" in call("restore", tmp_path, tmp_path / "home", code=1)
    assert "rillnode init" in call("verify", "-c", tmp_path / "none.toml", code=2)


def test_a_copy_that_is_not_finished_is_not_judged(tmp_path: Path) -> None:
    call("init", tmp_path / "edge")
    source = Tables(tmp_path / "source", Tuning())
    target = RocksCopy.target(tmp_path / "edge" / "data" / "store")
    asyncio.run(copy_store(RocksCopy(source), target, final=False))
    target.close()
    source.close()
    refused = call("verify", "-c", tmp_path / "edge" / "node.toml", code=1)
    assert "rillnode store copy" in refused


@pytest.mark.long
@pytest.mark.parametrize("victim", ["command", "node"])
def test_a_kill_in_the_middle_leaves_a_node_that_can_be_backed_up(
    node: RunningNode, tmp_path: Path, victim: str
) -> None:
    call("stream", "create", "numbers", *node.options)
    pushed = b"".join(b"%d" % number + b"." * 1_000 + b"\n" for number in range(20_000))
    subprocess.run(
        rillnode("stream", "push", "numbers", *node.options), input=pushed, check=True,
        stdout=subprocess.DEVNULL, timeout=LIMIT_SECONDS,
    )  # fmt: skip
    checkpoints, partial = node.home / "data" / "checkpoints", tmp_path / ".backup.partial"
    for sign in (checkpoints, partial, partial / "data" / "store"):
        if node.process.poll() is not None:
            node = RunningNode(node.home)
        for leftover in (partial, *checkpoints.glob("*")):
            shutil.rmtree(leftover, ignore_errors=True)
        if checkpoints.exists():
            checkpoints.rmdir()
        command = subprocess.Popen(
            rillnode("backup", tmp_path / "backup", *node.options),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        while command.poll() is None and not sign.exists():
            time.sleep(0.001)
        if victim == "node":
            node.process.kill()
            node.process.wait(LIMIT_SECONDS)
        else:
            command.kill()
        command.wait(LIMIT_SECONDS)
        if (tmp_path / "backup").exists():  # it was done before, or needed the node no more
            json.loads(call("verify", tmp_path / "backup"))
            shutil.rmtree(tmp_path / "backup")
    if victim == "node":
        node = RunningNode(node.home)
    try:
        call("backup", tmp_path / "backup", *node.options)
        found = json.loads(call("verify", tmp_path / "backup"))
        assert (found["entries"], found["problem_count"]) == (20_000, 0)
        assert not list(checkpoints.iterdir())
        assert not list(tmp_path.glob(".*"))
    finally:
        node.stop()
