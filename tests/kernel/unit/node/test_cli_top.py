import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from command_line import begun
from fake_client import Screen
from forked import DEVNULL, PIPE
from nodes import CLIENT, node_config
from rillnode.node.cli import main, top
from rillnode.node.keys.files import write_key
from rillnode.node.runtime import Node


def argv(node: Node, key: Path, *options: str) -> list[str]:
    url = f"noise://{node.addresses()['noise']}"
    return [
        "top", "--node", url, "--key", str(key), "--node-identity", node.identity,
        "--interval", "0.05", "--count", "2", *options,
    ]  # fmt: skip


def shown(tmp_path: Path, *options: str, tty: bool = False) -> str:
    """What `top` shows of a node with two streams."""
    write_key(tmp_path / "client.key", CLIENT)
    screen = Screen(tty=tty)

    async def run() -> None:
        async with Node(node_config(tmp_path / "data")) as node:
            await (await node.stream("busy")).push(b"1234")
            await node.stream("idle")
            argv_ = argv(node, tmp_path / "client.key", *options)
            assert await asyncio.to_thread(main, argv_, screen.terminal) == 0, screen.err

    asyncio.run(asyncio.wait_for(run(), 120.0))
    return screen.out


def test_each_look_is_one_line(tmp_path: Path) -> None:
    looks = [json.loads(line) for line in shown(tmp_path, "--json").splitlines()]
    assert len(looks) == 2
    streams: list[dict[str, Any]] = looks[1]["streams"]
    assert {row["stream"]: row["next_index"] for row in streams} == {"busy": 1, "idle": 0}
    assert streams[0]["bytes_kept"] + streams[1]["bytes_kept"] == 4
    assert (looks[1]["state"], looks[1]["sinks"]) == ("ready", [])
    assert "noise" in [row["listener"] for row in looks[1]["listeners"]]


def test_a_terminal_is_drawn_anew(tmp_path: Path) -> None:
    text = shown(tmp_path, "--streams", "1", tty=True)
    assert text.count("\x1b[H\x1b[J") == 2
    assert "busy" in text or "idle" in text


def test_rates_are_those_between_two_looks() -> None:
    status = {
        "name": "a", "state": "ready", "uptime_seconds": 9.0, "store": {"pending_bytes": 0},
        "listeners": {}, "peers": {}, "sinks": {},
    }  # fmt: skip
    look = top._Look  # pyright: ignore[reportPrivateUsage]
    before = look(10.0, {"slow": (5, 50), "fast": (0, 0)}, status)
    now = look(12.0, {"slow": (6, 60), "fast": (100, 1_000), "new": (7, 70)}, status)
    document = top._document(before, now, 2)  # pyright: ignore[reportPrivateUsage]
    rates = [(row["stream"], row["entries_per_second"]) for row in document["streams"]]
    assert rates == [("fast", 50.0), ("slow", 0.5)]
    assert document["entries_per_second"] == 50.5


def test_bench_needs_a_directory(tmp_path: Path) -> None:
    screen = Screen()
    assert main(["bench", "--dir", str(tmp_path / "none")], screen.terminal) == 2
    assert "no such directory" in screen.err


@pytest.mark.long
def test_bench_measures_and_leaves_nothing(tmp_path: Path) -> None:
    argv_ = [sys.executable, "-m", "rillnode", "bench", "--seconds", "0.2", "--dir", tmp_path.name]
    done = subprocess.run(
        [*argv_, "-q"], capture_output=True, timeout=300, check=True, cwd=tmp_path.parent
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["case"] for row in rows] == [
        "push, 1 unconfirmed", "push, 64 unconfirmed", "push, 1024 unconfirmed", "read",
    ]  # fmt: skip
    assert all(row["entries_per_second"] > 0 for row in rows)
    assert list(tmp_path.iterdir()) == []


def test_bench_that_is_stopped_ends_its_node_and_leaves_nothing(tmp_path: Path) -> None:
    bench = ("bench", "--seconds", "600", "--dir", tmp_path)
    with begun(*bench, stdout=DEVNULL, stderr=PIPE) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith(b"pushing")
        process.terminate()
        assert process.stderr.read() == b""  # which its node has, too
        assert process.wait(60) == 130
    assert list(tmp_path.iterdir()) == []
