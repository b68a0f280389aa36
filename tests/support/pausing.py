"""Pausing other processes: nothing of them runs any more when `pause` returns."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

STOPPED_SECONDS = 10.0


def pause(pid: int) -> None:
    """Stop a process; its threads are stopped a moment after the signal, for which this waits."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + STOPPED_SECONDS
    while not all(state in "TtZX" for state in _states(pid)):
        assert time.monotonic() < deadline, f"process {pid} does not stop"
        time.sleep(0.001)


def _states(pid: int) -> list[str]:
    """What each thread does, as in proc(5)."""
    found: list[str] = []
    for task in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            found.append(task.read_text("utf-8").rpartition(")")[2].split()[0])
    return found
