"""Filters from a job's standard error what is printed every time and means nothing.

Java says that it uses an incubator module, which Spark asks it to. A Python worker that Spark no
longer needs finds its socket closed and prints a traceback about it. Neither goes through a logger
whose level one could set.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from rillnode.actors.core.threads import SYSTEM_THREADS

DRAIN_SECONDS: Final = 25.0
"""How long a stop waits for the running batch; below what a stopping node waits for its jobs."""


def stop_on_signals(stop: threading.Event) -> None:
    """Set `stop` at SIGTERM and SIGINT."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())


def watch_stdin(stop: threading.Event, take: Callable[[bytes], None] = lambda _: None) -> None:
    """Set `stop` when standard input ends, which the node holds, in a thread.

    Whatever hangs then must not outlive the node for long: all of the job's processes are killed.

    Args:
        stop: what to set.
        take: given each line that the node writes, on that thread.
    """
    SYSTEM_THREADS.start(lambda: _watch_stdin(stop, take), "stdin")


def _watch_stdin(stop: threading.Event, take: Callable[[bytes], None]) -> None:
    with suppress(OSError), os.fdopen(os.dup(sys.stdin.fileno()), "rb") as lines:
        for line in lines:
            take(line)
    # What cannot be read any more has ended too.
    stop.set()
    time.sleep(2 * DRAIN_SECONDS)
    os.killpg(0, signal.SIGKILL)


FAILURE_PREFIX: Final = "job failed: "
"""Begins the line that tells why a job has ended."""

_INCUBATOR: Final = b"WARNING: Using incubator modules"
_TRACEBACK: Final = b"Traceback (most recent call last):"
_LAST_LINES_SECONDS: Final = 1.0


@contextmanager
def quiet_stderr() -> Generator[None]:
    """Filter standard error of this process and of all that it starts meanwhile."""
    reader, writer = os.pipe()
    terminal = os.dup(2)
    os.dup2(writer, 2)
    os.close(writer)
    thread = SYSTEM_THREADS.start(lambda: _copy(reader, terminal), "stderr")
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        # The pipe ends when the last child does, which may be later than this process.
        thread.join(_LAST_LINES_SECONDS)


def without_noise(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines that say something; tracebacks are held back until it is known whose they are.

    Workers that end together print theirs among each other's lines.
    """
    held: list[bytes] = []
    unfinished = 0
    for line in lines:
        if line.startswith(_TRACEBACK):
            held.append(line)
            unfinished += 1
        elif not unfinished:
            if not line.startswith(_INCUBATOR):
                yield line
        else:
            held.append(line)
            if line.startswith(b" "):
                continue
            unfinished -= 1
            if not (line.startswith(b"BrokenPipeError") and _is_workers(held)):
                yield from held
                held, unfinished = [], 0
            elif not unfinished:
                held = []
    yield from held


def _is_workers(traceback: list[bytes]) -> bool:
    return any(b"daemon.py" in line for line in traceback)


def _copy(reader: int, terminal: int) -> None:
    with os.fdopen(reader, "rb") as lines:
        for line in without_noise(lines):
            # On a full disk lines are lost; a pipe that nobody reads would stop the whole job.
            with suppress(OSError):
                os.write(terminal, line)
