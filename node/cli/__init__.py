"""The command line: `rillnode NOUN VERB`.

Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 no node in reach, 4 the node could not go
on, 130 interrupted.
"""

import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rillnode.node.cli.terminal import Terminal

_INTERRUPTED: Final = 130
_STREAMS: Final = {
    "stdin": (0, "r", os.O_RDONLY),
    "stdout": (1, "w", os.O_RDONLY),  # which refuses what is written: it would be lost
    "stderr": (2, "w", os.O_WRONLY),
}


def main(argv: Sequence[str] | None = None, terminal: "Terminal | None" = None) -> int:
    """Carry out one command and return its exit code.

    Args:
        argv: arguments; those of the process by default, which ends when this has returned.
        terminal: streams and environment; those of the process by default.
    """
    # Ctrl-C is no error, whatever is imported or closed just then: only a verb has more to say.
    is_process = argv is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_process:
        signal.signal(signal.SIGINT, _leave)
        _open_closed_streams()
    from rillnode.node.cli.command import carry_out

    if is_process:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code = carry_out(argv, terminal)
    except KeyboardInterrupt:
        code = _INTERRUPTED
    if is_process:
        signal.signal(signal.SIGINT, _leave)
    return code


def _open_closed_streams() -> None:
    """Give a process that was started without them an empty stdin, and a stdout that refuses.

    Else the first file or socket that it opens would take their place.
    """
    for name, (descriptor, mode, way) in _STREAMS.items():
        if getattr(sys, name) is None:
            os.open(os.devnull, way)  # gets the lowest that is free: those below are open
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


def _leave(*_: object) -> None:
    os._exit(_INTERRUPTED)
