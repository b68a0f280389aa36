"""A simulated machine's clock: virtual time, told wrongly where a fault says so."""

import asyncio
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Final

from rillnode.node.simulated.history import EPOCH_MS
from rillnode.node.simulation.loop import ProcessLoop

_now: Final = attrgetter("now")


class MachineClock:
    """The clock of one host; satisfies `Clock`.

    Attributes:
        loop: that of the process that runs now.
        ahead_ms: how much its wall time is ahead of true time.
        monotonic: tells virtual seconds; a clock that is set does not change them.
    """

    monotonic: Callable[[], float]

    def __init__(self, loop: ProcessLoop) -> None:
        self.loop = loop
        self.ahead_ms = 0
        self._scheduler = loop.scheduler
        # It is asked before and after each message of each actor: no function of Python's.
        self.monotonic = partial(_now, loop.scheduler)

    def now_ms(self) -> int:
        """Milliseconds since 1970, as this machine believes."""
        return EPOCH_MS + self.ahead_ms + int(self._scheduler.now * 1_000)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Call back in the process that runs now."""
        return self.loop.call_later(seconds, callback)
