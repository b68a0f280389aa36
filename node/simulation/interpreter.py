"""Keeps the interpreter's own acts from changing a run."""

import asyncio
import gc
import logging
import signal
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, TypeVar

T = TypeVar("T")


@contextmanager
def deterministic_interpreter() -> Generator[None]:
    """Keep the interpreter from running code at times of its own.

    The garbage collector would end dropped tasks and generators when it happens to run; what is
    dropped while a process runs is ended by that process, as on a loop of asyncio's own.
    """

    def finalize(generator: "AsyncGenerator[Any, Any]") -> None:
        loop = asyncio._get_running_loop()
        if loop is not None and not loop.is_closed():
            loop.create_task(generator.aclose())

    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(finalizer=finalize)
    try:
        with _uncollected():
            yield
    finally:
        sys.set_asyncgen_hooks(*hooks)


@contextmanager
def _uncollected() -> Generator[None]:
    """Leave the garbage collector off for a while."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def unheard() -> Generator[None]:
    """Let nobody hear what code complains of when processes that are dead are taken apart.

    What waits in a `finally` is told that it must end, and ends with an error.
    """
    before, hook = logging.root.manager.disable, sys.unraisablehook
    logging.disable()
    sys.unraisablehook = lambda _: None
    try:
        yield
    finally:
        logging.disable(before)
        sys.unraisablehook = hook


def one_by_one(seeds: Iterable[T]) -> Generator[T]:
    """Seeds, or what else runs differ in: each is over, and held by nobody, when the next begins.

    What a run has made is collected once, when it is all garbage. By itself the collector would
    go through it when the run is hardly over, and later through all that the process ever loaded.
    What the process has frozen stays so.
    """
    with _uncollected():
        for seed in seeds:
            try:
                yield seed
            finally:
                gc.collect(1)  # what a run made is young yet: nothing collected meanwhile


STUCK_SECONDS: Final = 60.0
"""Processor time without a step of virtual time. The callbacks of one moment take far less."""


class CallbackStuck(BaseException):
    """A callback does not end. No handler of failures in the code under test must catch it."""


@contextmanager
def watchdog(now: Callable[[], float], seconds: float = STUCK_SECONDS) -> Generator[None]:
    """Raise CallbackStuck in what runs when virtual time stands still for long.

    It works in the main thread only, as signals do; elsewhere, and where there are no such signals,
    it does nothing.

    Args:
        now: virtual time.
        seconds: of processor time; it may take twice as long.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(
        signal, "setitimer"
    ):
        yield
        return
    last = [-1.0]

    def look(_: int, frame: FrameType | None) -> None:
        if now() == last[0]:
            where = "" if frame is None else f" in {frame.f_code.co_name}"
            raise CallbackStuck(f"virtual time stands still: a callback does not end{where}")
        last[0] = now()

    before = signal.signal(signal.SIGVTALRM, look)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)
