"""Tests that the runner of documents ends whatever it has started, however it ends itself."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
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

SLOW_TEST = """
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent

@pytest.fixture
def server():
    yield
    (HERE / "ending").touch()
    while not (HERE / "again").exists():
        time.sleep(0.02)
    (HERE / "ended").touch()

def test_it(server):
    (HERE / "begun").touch()
    time.sleep(1000)
"""
OPTIONS = ("-p", "conftest", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"))


def run_of(test: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *OPTIONS, str(test)],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'tests/support'}{os.pathsep}{ROOT / 'src'}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def has_come(run: subprocess.Popen[bytes], sign: Path) -> bool:
    return run.poll() is not None or sign.exists()


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
    with run_of(test) as run:
        written = home / "child"
        until(lambda: run.poll() is not None or (written.exists() and written.read_text()))
        assert run.poll() is None, run.communicate()[0]
        child = int(written.read_text())
        assert not is_gone(child)
        run.send_signal(ending)
        printed, _ = run.communicate(timeout=SECONDS_MAX)
    assert b"KeyboardInterrupt" in printed
    until(lambda: is_gone(child))


@pytest.mark.long
def test_who_is_told_twice_to_end_ends_what_it_has_begun(tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(SLOW_TEST)
    with run_of(test) as run:
        for sign in (tmp_path / "begun", tmp_path / "ending"):
            until(partial(has_come, run, sign))
            assert run.poll() is None, run.communicate()[0]
            run.send_signal(signal.SIGTERM)
        (tmp_path / "again").touch()
        printed, _ = run.communicate(timeout=SECONDS_MAX)
    assert (tmp_path / "ended").exists(), printed
