"""Tests that the runner of documents ends whatever it has started, however it ends itself."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from doc_support import ROOT

SECONDS_MAX = 120.0
DEED = "sleep 1000 & echo $! > child; wait"
TEST = f"""
from pathlib import Path
from doc_support import running

def test_it():
    with running(Path(__file__).parent / "home") as runner:
        runner.command({DEED!r})
"""


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_gone(child: int) -> bool:
    """Whether a process has ended; one that is dead and not yet reaped has."""
    done = subprocess.run(
        ["ps", "-o", "stat=", "-p", f"{child}"], capture_output=True, text=True, check=False
    )
    return not done.stdout.strip() or done.stdout.strip().startswith("Z")


@pytest.mark.long
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_ended_leaves_no_process(tmp_path: Path, ending: signal.Signals) -> None:
    home, test = tmp_path / "home", tmp_path / "test_it.py"
    home.mkdir()
    test.write_text(TEST)
    options = ["-p", "conftest", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, str(test)],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'tests/support'}{os.pathsep}{ROOT / 'src'}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as run:
        written = home / "child"
        until(lambda: run.poll() is not None or (written.exists() and written.read_text()))
        assert run.poll() is None, run.communicate()[0]
        child = int(written.read_text())
        assert not is_gone(child)
        run.send_signal(ending)
        printed, _ = run.communicate(timeout=SECONDS_MAX)
    assert b"KeyboardInterrupt" in printed
    until(lambda: is_gone(child))
