"""Ctrl-C in what a command does without waiting."""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from threading import current_thread, main_thread


@contextmanager
def interrupted_at_once() -> Generator[None]:
    """Let the first Ctrl-C end a block that awaits nothing, by a KeyboardInterrupt.

    What asyncio has set cancels the command's task, which is at its next `await` only.
    """
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or current_thread() is not main_thread():  # ignored, or another's
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
