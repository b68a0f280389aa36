"""The small examples run against a real node."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from doc_support import ROOT, Runner, running

EXAMPLES = ROOT / "examples"


def run(script: str, *arguments: str | Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, EXAMPLES / script, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Runner]:
    with running(tmp_path) as runner:
        runner.command("rillnode init edge")
        runner.command("rillnode run -c edge/node.toml --ports-file edge/ports.json")
        yield runner


def test_embedded_node_keeps_entries_and_position(tmp_path: Path) -> None:
    first = run("embed.py", tmp_path / "data")
    second = run("embed.py", tmp_path / "data")

    assert first[0] == "stored 0 to 9"
    assert first[1:] == [f"{index}: reading {index}" for index in range(10)]
    assert second[0] == "stored 10 to 19"
    assert second[1:] == [f"{index}: reading {index - 10}" for index in range(10, 20)]


def test_published_readings_are_consumed_once(node: Runner, tmp_path: Path) -> None:
    reach = (tmp_path / "edge/ports.json", tmp_path / "edge/data/admin.key", "readings")

    published = run("publish.py", *reach, "--count", "2500")
    consumed = run("consume.py", *reach, "--idle-seconds", "1")
    again = run("consume.py", *reach, "--idle-seconds", "1")

    assert published == ["2500 readings are stored"]
    total = sum(number / 2 for number in range(3, 2500, 10))
    assert f"device 3: {total}" in consumed
    assert consumed[-1] == "2500 readings consumed"
    assert again == ["0 readings consumed"]
