"""The Streamr examples run against a real node."""

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from doc_support import ROOT, running

EXAMPLES = ROOT / "examples"
DEADLINE_SECONDS = 120
_ADDRESS = re.compile(r"^this is (0x[0-9a-fA-F]{40})$", re.MULTILINE)


def start(*arguments: str | Path, output: Path) -> subprocess.Popen[bytes]:
    with output.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, EXAMPLES / "streamr_client.py", *arguments],
            stdout=file,
            stderr=subprocess.STDOUT,
        )


def address_in(output: Path) -> str:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        found = _ADDRESS.search(output.read_text())
        if found is not None:
            return found[1]
        time.sleep(0.05)
    raise AssertionError(output.read_text())


def test_reader_follows_what_is_published_encrypted(tmp_path: Path) -> None:
    with running(tmp_path) as node:
        node.command("rillnode init edge")
        grant = r"\n[[grant]]\nwho = \"eth:*\"\nstreams = \"sandbox/*\"\nmay = [\"create\"]\n"
        node.command(f'printf "{grant}" >> edge/node.toml')
        node.command(
            "rillnode run -c edge/node.toml --set streamr.listen=127.0.0.1:0"
            " --ports-file edge/ports.json"
        )
        url = f"ws://{json.loads((tmp_path / 'edge/ports.json').read_text())['streamr']}"
        followed, published = tmp_path / "follow.log", tmp_path / "publish.log"
        stream = ("sandbox/readings", "--count", "5")
        follow = start("follow", url, tmp_path / "bob.key", *stream, output=followed)
        publish: subprocess.Popen[bytes] | None = None
        try:
            reader = address_in(followed)
            options = ("--to", reader, "--encrypt", "--stay-seconds", str(DEADLINE_SECONDS))
            publish = start(
                "publish", url, tmp_path / "alice.key", *stream, *options, output=published
            )
            assert follow.wait(DEADLINE_SECONDS) == 0, followed.read_text() + published.read_text()
        finally:
            for process in (follow, publish):
                if process is not None:
                    process.kill()
                    process.wait()
    lines = [line for line in followed.read_text().splitlines() if "encrypted" in line]
    writer = address_in(published).lower()
    assert lines == [f'{writer} (encrypted): {{"device":{n},"value":{n / 2}}}' for n in range(5)]
    assert (tmp_path / "alice.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node to read JavaScript")
def test_javascript_example_is_javascript() -> None:
    checked = subprocess.run(
        ["node", "--check", EXAMPLES / "streamr_client.js"], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr
