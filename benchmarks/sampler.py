"""A node that samples where its processor time goes.

    python -m benchmarks.sampler FILE run ...

The command line of `rillnode` follows the file. A first SIGUSR2 begins, a second one ends and
writes the file. A sample is taken with each millisecond of the process's time and counts for what
the main thread has used of it, so that the other threads' time, which is told apart, does not
blur it.
"""

import json
import signal
import sys
import threading
import time
from collections import defaultdict
from operator import itemgetter
from pathlib import Path
from types import FrameType
from typing import Final

from benchmarks.processes import thread_cpu_seconds
from rillnode.node.cli import main

_SAMPLE_SECONDS: Final = 0.001
_KNOWN: Final = ("rillnode", "asyncio", "selectors")
"""Packages that a sample may count for; time in any other is its caller's."""


class Sampler:
    """Begins and ends with a signal."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._threads: dict[int, float] = {}
        self._last: float | None = None

    def toggle(self, _number: int, _frame: FrameType | None) -> None:
        """Begin, or end and write the file."""
        if self._last is None:
            self._threads = thread_cpu_seconds()
            self._last = time.thread_time()
            signal.setitimer(signal.ITIMER_PROF, _SAMPLE_SECONDS, _SAMPLE_SECONDS)
        else:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self._last = None
            self._write()

    def sample(self, _number: int, frame: FrameType | None) -> None:
        """Count the time since the last sample for the function where the main thread is."""
        now = time.thread_time()
        if self._last is None:
            return
        while frame is not None:
            module = str(frame.f_globals.get("__name__", ""))
            if module.partition(".")[0] in _KNOWN:
                self._seconds[module, frame.f_code.co_qualname] += now - self._last
                break
            frame = frame.f_back
        self._last = now

    def _write(self) -> None:
        names = {thread.native_id: thread.name for thread in threading.enumerate()}
        main_thread = threading.main_thread().native_id
        others: defaultdict[str, float] = defaultdict(float)
        for thread, seconds in thread_cpu_seconds().items():
            if thread != main_thread:
                name = names.get(thread, "RocksDB")
                others[name] += seconds - self._threads.get(thread, 0.0)
        functions = [(*key, seconds) for key, seconds in self._seconds.items()]
        functions.sort(key=itemgetter(2), reverse=True)
        self._file.write_text(json.dumps({"functions": functions, "threads": others}))


if __name__ == "__main__":
    sampler = Sampler(Path(sys.argv[1]))
    signal.signal(signal.SIGUSR2, sampler.toggle)
    signal.signal(signal.SIGPROF, sampler.sample)
    sys.exit(main(sys.argv[2:]))
