"""Keeps the interpreter's own acts from changing a run."""

import asyncio
import gc
import logging
import sys
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import contextmanager
from typing import Any, TypeVar

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
    """
    outermost = gc.isenabled()
    if outermost:
        gc.freeze()
    try:
        with _uncollected():
            for seed in seeds:
                try:
                    yield seed
                finally:
                    gc.collect(1)
    finally:
        if outermost:
            gc.unfreeze()
