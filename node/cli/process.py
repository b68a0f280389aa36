"""Fits the process of `rillnode run` to a node: its interpreter, its memory, its open files.

A node that is embedded leaves all of it to its host.
"""

import ctypes
import gc
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from rillnode.codecs.errors import ConfigError

if TYPE_CHECKING:
    import asyncio

_SWITCH_SECONDS: Final = 0.0005
"""Otherwise the store's writer thread waits up to 5 ms for the interpreter after each sync."""

_GC_THRESHOLDS: Final = (50_000, 20, 50)
"""Entries under way are many and short-lived; what lives long is frozen once, after the start."""

_MALLOC: Final = {-1: 8_388_608, -3: 1_000_000}
"""Options of glibc's `mallopt`. Blocks of a million bytes (M_MMAP_THRESHOLD), such as those of
RocksDB's memtables, go back to the system as soon as they are freed; by itself glibc would raise
this bound at the first of them, and keep all others. The end of its heap (M_TRIM_THRESHOLD) would
then be given back a few pages at a time, again and again."""

_REST_SECONDS: Final = 50.0
"""A node that has stored nothing for this long lets memory go."""


def prepare() -> None:
    """Set what is the process's, before there is a loop."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    with suppress(AttributeError, OSError, TypeError):  # not every C library has it
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in _MALLOC.items():
            mallopt(option, value)
    # Shells give 1,024 open files, which a few links use up.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # some systems have a limit that they do not tell
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def loop_factory(name: str | None) -> "Callable[[], asyncio.AbstractEventLoop] | None":
    """Makes the loop of that name, or else the quickest that is installed.

    Raises:
        ConfigError: that one is not installed.
    """
    if name == "asyncio":
        return None
    try:
        from uvloop import new_event_loop
    except ImportError:
        if name is None:
            return None
        text = "--loop uvloop: uvloop is not installed here; leave the option out"
        raise ConfigError("config.loop", text) from None
    return new_event_loop


def freeze() -> None:
    """Spare the collector what the node was started with, and look for garbage less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


async def rest_when_idle(
    stored: Callable[[], int], rest: Callable[[], None], seconds: float = _REST_SECONDS
) -> None:
    """Let memory go whenever nothing was stored for this long; `stored` counts what was."""
    import asyncio

    before = -1
    while True:
        now = stored()
        if now == before:
            rest()
        before = now
        await asyncio.sleep(seconds)
