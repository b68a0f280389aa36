"""Tells a job that a node has started to stop."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
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
