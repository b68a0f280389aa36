"""Measures the cost of reading an input: memory and lines of Python, alike on every machine."""

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any


def memory_peak(run: Callable[[], object]) -> int:
    """Bytes allocated at one time while `run` ran. Other tests' garbage is not counted."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def lines_run(run: Callable[[], object]) -> int:
    """Lines of Python that `run` executed."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return lines
