"""Disks that lose power: what was not synced to them is gone, as with a machine's.

A disk is a file system in a file. What its kernel has not written there yet, because nobody has
synced it, is not in a copy of the file; so a copy that is mounted in its place is what stands on
the disk after a power cut.
"""

import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

_OPTIONS: Final = "loop,commit=300"
"""The file system writes nothing by itself while the test is at work."""

_COPIES_MAX: Final = 20


class Disk:
    """A file system of its own at a directory.

    Args:
        directory: where it is mounted.
        mebibytes: its size; the file takes what is used.
    """

    def __init__(self, directory: Path, mebibytes: int) -> None:
        self._directory = directory
        self._file = directory.with_name(f"{directory.name}.disk")
        self._copy = directory.with_name(f"{directory.name}.copy")
        directory.mkdir(parents=True)
        with self._file.open("wb") as file:
            file.truncate(mebibytes << 20)
        _run("mkfs.ext4", "-q", "-F", str(self._file))

    def mount(self) -> None:
        """Have it in its place."""
        _run("mount", "-o", _OPTIONS, str(self._file), str(self._directory))

    def unmount(self) -> None:
        """Take it away; nobody may have a file of it open."""
        _run("umount", str(self._directory))

    def copy(self) -> None:
        """Keep what is on the disk at one moment. Whoever writes to it must be stopped.

        The kernel may write of itself; then it is copied again.
        """
        for _ in range(_COPIES_MAX):
            before = self._written()
            _run("cp", "--sparse=always", str(self._file), str(self._copy))
            if self._written() == before:
                return
            time.sleep(0.1)
        raise AssertionError("the disk does not come to rest")

    def lose_power(self) -> None:
        """Have in its place what was copied; nobody may have a file of it open."""
        self.unmount()
        self._copy.replace(self._file)
        self.mount()

    def _written(self) -> tuple[str, str, str]:
        """How many writes are complete, and how many requests are under way."""
        device = _run("findmnt", "-no", "SOURCE", str(self._directory)).strip()
        numbers = Path("/sys/class/block", Path(device).name, "stat").read_text().split()
        return numbers[4], numbers[6], numbers[8]


@contextmanager
def disks(directories: Sequence[Path], mebibytes: int) -> Generator[list[Disk]]:
    """A disk at each directory within the block; skips where this process may not mount any."""
    with ExitStack() as stack:
        made: list[Disk] = []
        for directory in directories:
            try:
                disk = Disk(directory, mebibytes)
                disk.mount()
            except (OSError, subprocess.CalledProcessError) as error:
                reason = error.stderr if isinstance(error, subprocess.CalledProcessError) else error
                pytest.skip(f"no file system can be mounted here: {reason}")
            stack.callback(disk.unmount)
            made.append(disk)
        yield made


def _run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout
