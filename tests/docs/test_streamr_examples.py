"""The Streamr examples run against a real node."""

import json
import re
import subprocess
import time
from pathlib import Path

import pytest

from doc_support import ROOT, running
from forked import Forked

pytestmark = pytest.mark.needs("streamr")

EXAMPLES = ROOT / "examples"
DEADLINE_SECONDS = 120
_ADDRESS = re.compile(r"^this is (0x[0-9a-fA-F]{40})$", re.MULTILINE)


def start(*arguments: str | Path, output: Path) -> Forked:
    with output.open("wb") as file:
        return Forked(EXAMPLES / "streamr_client.py", *arguments, stdout=file, stderr=file)


def address_in(output: Path) -> str:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        found = _ADDRESS.search(output.read_text())
        if found is not None:
            return found[1]
        time.sleep(0.05)
    raise AssertionError(output.read_text())


def read_what_is_published(url: str, directory: Path, count: int) -> None:
    followed, published = directory / "follow.log", directory / "publish.log"
    stream = "sandbox/readings"
    follow = start(
        "follow", url, directory / "bob.key", stream, "--count", str(count), output=followed
    )
    publish: Forked | None = None
    try:
        reader = address_in(followed)
        options = ("--count", "5", "--to", reader, "--encrypt")
        stay = ("--stay-seconds", str(DEADLINE_SECONDS))
        publish = start(
            "publish", url, directory / "alice.key", stream, *options, *stay, output=published
        )
        assert follow.wait(DEADLINE_SECONDS) == 0, followed.read_text() + published.read_text()
    finally:
        for process in (follow, publish):
            if process is not None:
                process.kill()
                process.wait()
    lines = [line for line in followed.read_text().splitlines() if "encrypted" in line]
    writer = address_in(published).lower()
    readings = [f'{{"device":{n % 5},"value":{n % 5 / 2}}}' for n in range(count)]
    assert lines == [f"{writer} (encrypted): {reading}" for reading in readings]


@pytest.mark.parametrize("runs", [1, pytest.param(2, marks=pytest.mark.long)])
def test_reader_follows_what_is_published_encrypted(tmp_path: Path, runs: int) -> None:
    with running(tmp_path) as node:
        node.command("rillnode init edge")
        grant = r"\n[[grant]]\nwho = \"eth:*\"\nstreams = \"sandbox/*\"\nmay = [\"create\"]\n"
        node.command(f'printf "{grant}" >> edge/node.toml')
        node.command(
            "rillnode run -c edge/node.toml --set streamr.listen=127.0.0.1:0"
            " --ports-file edge/ports.json"
        )
        url = f"ws://{json.loads((tmp_path / 'edge/ports.json').read_text())['streamr']}"
        for run in range(runs):  # who follows begins with the first, of whichever run it is
            read_what_is_published(url, tmp_path, 5 * run + 5)
    assert (tmp_path / "alice.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.needs("node")
def test_javascript_example_is_javascript() -> None:
    checked = subprocess.run(
        ["node", "--check", EXAMPLES / "streamr_client.js"], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr
