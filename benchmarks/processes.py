"""Processes that the benchmarks start: each is measured and ended by its own process id."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

_ROOT: Final = Path(__file__).parent.parent
_START_SECONDS: Final = 300.0
"""On a busy machine a start takes tens of seconds; what cannot start mostly ends by itself."""

_STOP_SECONDS: Final = 30.0
_TASKS: Final = Path("/proc/self/task")
_TICK_SECONDS: Final = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Process:
    """A child process whose output goes to a file.

    Args:
        command: program and arguments.
        log: file that takes its output and errors.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._name = " ".join(command)
        self._log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                command,
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.pid = self._popen.pid
        self._started = time.monotonic()

    def __enter__(self) -> Self:
        """It runs."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self.stop()

    def wait_for_port(self, port: int) -> None:
        """Wait until it accepts connections on a port of 127.0.0.1.

        Raises:
            RuntimeError: it has ended, or does not listen in time.
        """
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            self.check_starting(f"port {port}")

    def check_starting(self, what: str) -> None:
        """Sleep for a moment of its start.

        Raises:
            RuntimeError: it has ended, or its start takes too long.
        """
        if self._popen.poll() is not None:
            raise RuntimeError(f"{self._name} has ended:\n{self._log_tail()}")
        if time.monotonic() - self._started > _START_SECONDS:
            raise RuntimeError(f"{self._name}: no {what} in time:\n{self._log_tail()}")
        time.sleep(0.01)

    def rss_bytes(self) -> int:
        """Resident memory now."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * _PAGE_BYTES

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._popen.send_signal(number)

    def stop(self) -> None:
        """Ask it to end, and wait; end it at once where it does not."""
        if self._popen.poll() is None:
            self._popen.send_signal(signal.SIGTERM)
            try:
                self._popen.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """End it as a crash would, without a word."""
        self._popen.kill()
        self._popen.wait()

    def _log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-2_000:]


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used so far, all threads, in user and kernel mode."""
    return _cpu_seconds(Path(f"/proc/{pid}/stat"))


def thread_cpu_seconds() -> dict[int, float]:
    """Processor time that each thread of this process has used so far, by the thread's id."""
    return {int(task.name): _cpu_seconds(task / "stat") for task in _TASKS.iterdir()}


def _cpu_seconds(stat: Path) -> float:
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_SECONDS


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def disk_bytes(directory: Path) -> int:
    """Space that the files below a directory take on the disk."""
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())
