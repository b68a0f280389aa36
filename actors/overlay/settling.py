"""Tracks the time window that a node must fetch again after a link loss.

Pure: times are arguments. Trouble is a lost link, to a neighbour or to the tracker; it is over a
while after everything is quiet, as only then nobody is brought up to date by links any more.
"""

from typing import Final

MARGIN_MS: Final = 60_000
"""How long before it is noticed a link may have been dead, and clocks may differ. Own choice: twice
the time after which a silent link is closed."""

QUIET_SECONDS: Final = 30.0


class Settling:
    """The state of one stream partition.

    Args:
        since_ms: from when on something may be missing at the start; milliseconds since 1970.
        now: seconds of a clock that never goes back.
    """

    def __init__(self, since_ms: int, now: float) -> None:
        self._since_ms: int = since_ms
        self._quiet_at = now + QUIET_SECONDS
        self._tracked = False

    def disturbed(self, now_ms: int, now: float) -> None:
        """Something was lost, or is made anew."""
        if self.since_ms(now) is None:
            self._since_ms = now_ms - MARGIN_MS
        self._quiet_at = now + QUIET_SECONDS

    def tracked(self, heard: bool, now_ms: int, now: float) -> None:
        """The tracker is heard, or is heard no more."""
        if heard != self._tracked:
            self.disturbed(now_ms, now)
            self._tracked = heard

    def since_ms(self, now: float) -> int | None:
        """From when on something may be missing; None: nothing is."""
        return None if self._tracked and now >= self._quiet_at else self._since_ms
