"""Pauses before an address gets another actor where one was given up."""

from collections.abc import Callable
from typing import Final

from msgspec import Struct

PAUSE_SECONDS_MIN: Final = 0.1
PAUSE_SECONDS_MAX: Final = 30.0
"""A pause is twice as long as the one before it, within these bounds."""

WELL_SECONDS: Final = 60.0
"""An actor that has lived this long was well: the pause after it is the first one again."""

PAUSES_MAX: Final = 10_000
"""Addresses that are remembered; beyond that the one that was given up first is forgotten."""


class _Pause(Struct):
    """After the end of an actor, `lost`; times are on the monotonic clock.

    `made_at` is when another one was made, None before that.
    """

    lost: object
    seconds: float
    ends_at: float
    made_at: float | None = None


class Pauses:
    """The addresses of one router whose actors were given up.

    Args:
        monotonic: seconds that never go back.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._pauses: dict[bytes, _Pause] = {}

    def __len__(self) -> int:
        return len(self._pauses)

    def begin(self, address: bytes, lost: object) -> None:
        """The actor of an address was given up; harmless when repeated."""
        now = self._monotonic()
        before = self._pauses.get(address)
        if before is not None and before.lost is lost:
            return
        seconds = PAUSE_SECONDS_MIN
        if before is not None:
            del self._pauses[address]
            if not _was_well(before, now):
                seconds = min(2 * before.seconds, PAUSE_SECONDS_MAX)
        self._pauses[address] = _Pause(lost, seconds, now + seconds)
        self._prune(now)

    def left(self, address: bytes) -> float:
        """Seconds until an address may have another actor; 0.0: it may now, and is to be made."""
        pause = self._pauses.get(address)
        if pause is None:
            return 0.0
        now = self._monotonic()
        if now >= pause.ends_at:
            pause.made_at = now
        return max(0.0, pause.ends_at - now)

    def _prune(self, now: float) -> None:
        """Forget what was well since, and what is too much; the oldest stand first."""
        while self._pauses:
            address, oldest = next(iter(self._pauses.items()))
            if len(self._pauses) <= PAUSES_MAX and not _was_well(oldest, now):
                break
            del self._pauses[address]


def _was_well(pause: _Pause, now: float) -> bool:
    return pause.made_at is not None and now - pause.made_at >= WELL_SECONDS
