"""The benchmark's side of a load generator's process."""

import subprocess
import sys
from pathlib import Path
from typing import Final, Self

import msgspec

from benchmarks.jobs import Job, Result

_ROOT: Final = Path(__file__).parent.parent
_STOP_SECONDS: Final = 30.0


class LoadGenerator:
    """A load generator at work; a context manager that ends it."""

    def __init__(self, job: Job) -> None:
        command = [sys.executable, "-m", "benchmarks.load", msgspec.json.encode(job).decode()]
        self._popen = subprocess.Popen(
            command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._began = False

    def __enter__(self) -> Self:
        """It is at work on its first phase."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let it end."""
        assert self._popen.stdin is not None
        self._popen.stdin.close()
        try:
            self._popen.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()

    def phase(self) -> Result:
        """Let it go on to the end of its next phase, and return what that phase measured.

        Raises:
            RuntimeError: the generator has failed; it has said why on standard error.
        """
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        if self._began:
            self._popen.stdin.write("\n")
            self._popen.stdin.flush()
        self._began = True
        line = self._popen.stdout.readline()
        if not line:
            raise RuntimeError("the load generator has failed")
        return msgspec.json.decode(line, type=Result)


def run(job: Job) -> Result:
    """Do a job of one phase."""
    with LoadGenerator(job) as generator:
        return generator.phase()
