"""A node that counts the steps of the interpreter.

    python -m benchmarks.stepping FILE run ...

The command line of `rillnode` follows the file. A first SIGUSR2 begins, a second one ends and
writes how many steps there were, and of which functions. To count makes a node slow, so its turns
take the time that they need, and all small commits are made on the loop, as on a quiet machine.
"""

import json
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from rillnode.actors.engine import turns
from rillnode.actors.log.rocks import writer
from rillnode.node.cli import main

_LONG_SECONDS: Final = 100.0

Trace = Callable[[FrameType, str, Any], Any]


class Stepper:
    """Counts between two signals, in all threads."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._counts = False
        self._steps: dict[CodeType, list[int]] = {}
        self._traces: dict[CodeType, Trace] = {}

    def toggle(self, _number: int, _frame: FrameType | None) -> None:
        """Begin, or end and write the file."""
        self._counts = not self._counts
        if not self._counts:
            found: Counter[str] = Counter()
            for code, steps in self._steps.items():  # codecs that are written have names alike
                found[f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname}"] += steps[0]
            part = self._file.with_suffix(".part")
            part.write_text(json.dumps(dict(found.most_common())))
            part.replace(self._file)

    def trace(self, frame: FrameType, _event: str, _argument: object) -> Trace | None:
        """Have the steps of a function that is called counted, as `sys.settrace` asks."""
        if not self._counts:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        code = frame.f_code
        trace = self._traces.get(code)
        if trace is None:
            steps = self._steps[code] = [0]

            def step(_frame: FrameType, event: str, _argument: object) -> Trace:
                steps[0] += event == "opcode"
                return step

            trace = self._traces[code] = step
        return trace


if __name__ == "__main__":
    turns.SLICE_SECONDS = _LONG_SECONDS  # type: ignore[misc]
    writer.HERE_SECONDS_MAX = writer.STALL_SECONDS = writer.BUSY_MAX = _LONG_SECONDS  # type: ignore[misc]
    writer.OVERLAPS = 0  # type: ignore[misc]
    stepper = Stepper(Path(sys.argv[1]))
    signal.signal(signal.SIGUSR2, stepper.toggle)
    threading.settrace(stepper.trace)
    sys.settrace(stepper.trace)
    sys.exit(main(sys.argv[2:]))
