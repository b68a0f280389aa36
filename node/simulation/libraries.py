"""Gives libraries a run's time and chance in place of the machine's.

Nodes and their native clients are given their clock and their entropy. An HTTP library asks the
operating system: for the masks and keys of WebSockets, the dates of answers, the age of
connections; and so do clients that are made as applications make them. While a world runs, those
who ask from within one of its processes get that process's time, and chance that the seed decides.
All others in this program, as the server of a page in a thread of its own, get what they always
get.
"""

import asyncio
import os
import random
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from inspect import signature
from random import Random
from typing import Any, Final

import aiohttp.connector
import aiohttp.helpers
from aiohttp.http import WebSocketWriter

from rillnode.node.simulation.loop import ProcessLoop
from rillnode.transports import clock

_MASKS: Final = [
    one.default
    for one in signature(WebSocketWriter.__init__).parameters.values()
    if isinstance(one.default, Random)
]
"""Where the masks of all WebSockets come from; else they come from `random`."""

_SOURCES: Final = (
    (random.getstate, random.setstate),
    *((masks.getstate, masks.setstate) for masks in _MASKS),
)
"""Sources of chance that all share: how to get the state of each, and to set it."""

_OF_THE_SYSTEM: Final = os.urandom

Patch = tuple[object, str, Any]
"""An object, the name of an attribute, and what that is meanwhile."""


class Libraries:
    """The time and chance of one world, for its libraries.

    Args:
        seed: decides all chance.
        now_ms: what the clock of a process says: milliseconds since 1970.
    """

    def __init__(self, seed: object, now_ms: Callable[[ProcessLoop], int]) -> None:
        self._bytes = Random(f"{seed} bytes of libraries")
        self._states = [Random(f"{seed} chance of libraries").getstate()] * len(_SOURCES)
        times = _Time(now_ms)
        self._patches: tuple[Patch, ...] = (
            (os, "urandom", self._urandom),
            (aiohttp.helpers, "time", times),
            (aiohttp.connector, "monotonic", times.monotonic),
            # Another one would ask real name servers.
            (aiohttp.connector, "DefaultResolver", aiohttp.ThreadedResolver),
            (clock, "time", times),
        )

    @contextmanager
    def in_place(self) -> Generator[None]:
        """Have all libraries use them, until the block ends; goes on where it has left off."""
        before = [(owner, name, getattr(owner, name)) for owner, name, _ in self._patches]
        states = _exchange(self._states)
        _set(self._patches)
        try:
            yield
        finally:
            _set(before)
            self._states = _exchange(states)

    def _urandom(self, size: int, /) -> bytes:
        return _OF_THE_SYSTEM(size) if _process() is None else self._bytes.randbytes(size)


class _Time:
    """Stands for the module `time`."""

    def __init__(self, now_ms: Callable[[ProcessLoop], int]) -> None:
        self._now_ms = now_ms
        self.gmtime = time.gmtime

    def time(self) -> float:
        return self.time_ns() / 1_000_000_000

    def time_ns(self) -> int:
        process = _process()
        return time.time_ns() if process is None else self._now_ms(process) * 1_000_000

    def monotonic(self) -> float:
        process = _process()
        return time.monotonic() if process is None else process.time()


def _process() -> ProcessLoop | None:
    """The process whose code asks, if it is one of a simulation."""
    loop = asyncio._get_running_loop()
    return loop if isinstance(loop, ProcessLoop) else None


def _set(patches: Iterable[Patch]) -> None:
    for owner, name, value in patches:
        setattr(owner, name, value)


def _exchange(states: Sequence[Any]) -> list[Any]:
    """Give the sources of chance other states; return those that they had."""
    before = [get_state() for get_state, _ in _SOURCES]
    for (_, set_state), state in zip(_SOURCES, states, strict=True):
        set_state(state)
    return before
