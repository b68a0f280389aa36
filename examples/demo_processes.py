"""The demo's child processes, and the log that its consumer writes."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from demo_events import DemoError

STOP_SECONDS = 60
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The demo's Java virtual machines live for seconds: optimising their code costs more than it
gives."""

Entry = tuple[int, int]
"""Where an entry stands: partition and index."""


class Processes:
    """Children in sessions of their own: Ctrl-C reaches only the demo, which ends them in order."""

    def __init__(self) -> None:
        self._started: list[asyncio.subprocess.Process] = []

    async def start(
        self, *arguments: str | Path, log: Path, show: bool = False
    ) -> asyncio.subprocess.Process:
        """Start Python with arguments; output goes to `log`, or is shown, except for errors."""
        with log.open("ab") as file:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=None if show else file,
                stderr=file,
                start_new_session=True,
                env={"JDK_JAVA_OPTIONS": JAVA_OPTIONS, **os.environ},
            )
        self._started.append(process)
        return process

    async def run(self, *arguments: str | Path, log: Path, show: bool = False) -> None:
        """Run Python to its end, which must be a good one."""
        process = await self.start(*arguments, log=log, show=show)
        if await process.wait():
            command = " ".join(map(str, arguments[:4]))
            raise DemoError(f"`{command}` ended with code {process.returncode}:\n{tail(log)}")

    async def stop(self, process: asyncio.subprocess.Process) -> None:
        """Ask a process to end and wait for it; what does not end is killed."""
        with suppress(ProcessLookupError):
            process.terminate()
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        # Also what it has left behind: Spark's Java virtual machine outlives Python by a moment.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()

    async def stop_all(self) -> None:
        """Stop whatever still runs, the last one first."""
        for process in reversed(self._started):
            if process.returncode is None:
                await self.stop(process)

    def kill_all(self) -> None:
        """End at once whatever still runs, with what it started."""
        for process in self._started:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


class Noted:
    """The notes of the consumer's processes, read as they grow.

    Attributes:
        entries: the entries noted.
        deliveries: lines noted: more than entries, where some were delivered again.
    """

    def __init__(self, log: Path) -> None:
        self.entries: set[Entry] = set()
        self.deliveries = 0
        log.touch()
        self._file = log.open("rb")

    def read(self) -> int:
        """Take in what is new; return the number of entries."""
        for line in self._file:
            partition, index = line.split()
            self.entries.add((int(partition), int(index)))
            self.deliveries += 1
        return len(self.entries)

    def close(self) -> None:
        """Close the log."""
        self._file.close()


def tail(log: Path, lines: int = 8) -> str:
    """The end of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
