"""The processes of sinks' jobs: their arguments, how they are stopped, and what they print.

SIGTERM and SIGINT let the running batch finish and end a job with exit code 0; so does the end of
standard input with `--watch-stdin`, which is how a job notices that its node is gone. Errors end it
with one line on standard error and exit code 2 (configuration), 3 (what passes: the node or the
store of the tables is not reached, or the machine is too busy to start Spark's processes) or 1.

Of what is printed every time and means nothing, standard error is rid: Java says that it uses an
incubator module, which Spark asks it to; a Python worker that Spark no longer needs finds its
socket closed and prints a traceback about it. Neither goes through a logger whose level one could
set.
"""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from rillnode.actors.core.threads import SYSTEM_THREADS

DRAIN_SECONDS: Final = 25.0
"""How long a stop waits for the running batch; below what a stopping node waits for its jobs."""


Run = Callable[[argparse.Namespace, threading.Event], tuple[str, int]]
"""Runs a job until it ends or is told to stop; gives why it has, if anything was wrong, and the
exit code that says so."""


def run_job(
    module: str,
    text: str,
    run: Run,
    arguments: Sequence[str] | None,
    add_options: Callable[[argparse.ArgumentParser], object],
) -> int:
    """Run the job that a module is; returns its exit code.

    Args:
        module: the module's name.
        text: what it does.
        run: does it.
        arguments: those of the command line; None for those of this process.
        add_options: adds others than the configuration.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=text)
    parser.add_argument("config", type=Path, help="the configuration, JSON")
    add_options(parser)
    stop = threading.Event()
    stop_on_signals(stop)
    options = parser.parse_args(arguments)
    if getattr(options, "watch_stdin", False):
        watch_stdin(stop)
    why, code = run(options, stop)
    if why:
        say(f"{FAILURE_PREFIX}{why}")
    return code


def add_stdin(parser: argparse.ArgumentParser) -> None:
    """Add the option of a job that its node starts."""
    parser.add_argument("--watch-stdin", action="store_true", help="stop when standard input ends")


def add_bounds(parser: argparse.ArgumentParser) -> None:
    """Add the options of a job that lands tables."""
    text = "run until the present ends and stop"
    parser.add_argument("--available-now", action="store_true", help=text)
    add_stdin(parser)


def say(text: str) -> None:
    """Print a line for the job's log."""
    print(text, file=sys.stderr, flush=True)


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
