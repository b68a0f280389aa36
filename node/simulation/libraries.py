"""Gives code a run's time and chance in place of the machine's.

Nodes and their native clients are given their clock and their entropy. An HTTP library asks the
operating system: for the masks and keys of WebSockets, the dates of answers, the age of
connections; and so do clients that are made as applications make them. While a world runs, those
who ask from within one of its processes get that process's time, and chance that the seed decides.
All others in this program, as the server of a page in a thread of its own, get what they always
get.

What an application must not do there, as it would leave the simulation, raises `NotSimulated`: to
connect a socket, to start a thread, to sleep.
"""

import asyncio
import os
import random
import socket
import threading
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
from rillnode.node.simulation.threads import ProcessThread
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

_TIME_NS: Final = time.time_ns
_MONOTONIC: Final = time.monotonic
_PERF_COUNTER: Final = time.perf_counter
"""The machine's own."""

_REFUSED: Final[tuple[tuple[Any, str, Callable[..., Any], str], ...]] = (
    (time, "sleep", time.sleep, "use asyncio.sleep(), or a timer of ctx.after()"),
    (socket.socket, "connect", socket.socket.connect, "use asyncio, or a client of rillnode"),
    (socket.socket, "bind", socket.socket.bind, "use asyncio, or an actor behind an address"),
    (
        threading.Thread,
        "start",
        threading.Thread.start,
        "use an actor with `blocking = True`, or asyncio.to_thread()",
    ),
)
"""What is refused to code of a simulated process, as it is, and what to use instead."""


class NotSimulated(RuntimeError):
    """Code of a simulated process does what no simulation has; the text says what it should do."""


Patch = tuple[object, str, Any]
"""An object, the name of an attribute, and what that is meanwhile."""


class Libraries:
    """The time and chance of one world, for its libraries.

    Args:
        seed: decides all chance.
        now_ms: what the clock of a process says: milliseconds since 1970.

    Attributes:
        refused: what raised `NotSimulated`, which an actor's failure would hide.
    """

    def __init__(self, seed: object, now_ms: Callable[[ProcessLoop], int]) -> None:
        self._bytes = Random(f"{seed} bytes of libraries")
        self._states = [Random(f"{seed} chance of libraries").getstate()] * len(_SOURCES)
        times = _Time(now_ms)
        self.refused: list[str] = []
        self._patches: tuple[Patch, ...] = (
            (os, "urandom", self._urandom),
            (random, "_urandom", self._urandom),
            (time, "time", times.time),
            (time, "time_ns", times.time_ns),
            (time, "monotonic", times.monotonic),
            (time, "perf_counter", times.perf_counter),
            *(
                (owner, name, self._guarded(f"{owner.__name__}.{name}", plain, instead))
                for owner, name, plain, instead in _REFUSED
            ),
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

    def _guarded(self, name: str, plain: Callable[..., Any], instead: str) -> Callable[..., Any]:
        """A function that refuses to work for a simulated process."""

        def guarded(*args: Any, **named: Any) -> Any:
            process = _process()
            if process is None or isinstance(args[0], ProcessThread):
                return plain(*args, **named)
            text = f"{name} on {process.name}, which is simulated: {instead}"
            self.refused.append(text)
            raise NotSimulated(text)

        return guarded


class _Time:
    """Stands for the module `time`."""

    def __init__(self, now_ms: Callable[[ProcessLoop], int]) -> None:
        self._now_ms = now_ms
        self.gmtime = time.gmtime

    def time(self) -> float:
        return self.time_ns() / 1_000_000_000

    def time_ns(self) -> int:
        process = _process()
        return _TIME_NS() if process is None else self._now_ms(process) * 1_000_000

    def monotonic(self) -> float:
        process = _process()
        return _MONOTONIC() if process is None else process.time()

    def perf_counter(self) -> float:
        process = _process()
        return _PERF_COUNTER() if process is None else process.time()


def _process() -> ProcessLoop | None:
    """The process whose code asks, if it is one of a simulation."""
    loop = asyncio._get_running_loop()
    if loop is None:
        thread = threading.current_thread()
        return thread.process if isinstance(thread, ProcessThread) else None
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
