"""Ends a command: at Ctrl-C where it waits for nothing, at a closed pipe where it waits."""

import fcntl
import os
import signal
import stat
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from threading import current_thread, main_thread

from rillnode.node.cli.terminal import Terminal


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


@asynccontextmanager
async def while_read(terminal: Terminal) -> AsyncGenerator[None]:
    """End a block as soon as nobody reads the pipe that stdout is, as in `rillnode sub X | head`.

    A write would tell, but the next entry may be long in coming.

    Raises:
        BrokenPipeError: as that write.
    """
    pipe = _pipe(terminal)
    if pipe is None:
        yield
        return
    import asyncio

    loop, task, is_closed = asyncio.get_running_loop(), asyncio.current_task(), False
    assert task is not None

    def closed() -> None:
        nonlocal is_closed
        is_closed = True
        loop.remove_reader(pipe)
        task.cancel()

    # Nothing can be read from this end: what its selector tells is that the other was closed.
    loop.add_reader(pipe, closed)
    try:
        yield
    except asyncio.CancelledError:
        if is_closed and task.uncancel() == 0:  # else by Ctrl-C
            raise BrokenPipeError from None
        raise
    finally:
        loop.remove_reader(pipe)


def _pipe(terminal: Terminal) -> int | None:
    """The descriptor of stdout, if it is the end of a pipe that can only be written to."""
    try:
        descriptor = terminal.out.fileno()
        is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
        mode = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
    except (OSError, ValueError):
        return None
    return descriptor if is_pipe and mode == os.O_WRONLY else None
