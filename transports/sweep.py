"""One timer for the deadlines of many links."""

from collections.abc import Collection
from typing import Final, Protocol

from rillnode.transports.clock import Clock

_STEPS: Final = 8
"""Timer calls in one round at least, so that links are not all looked at in one go."""

SHARE: Final = 32
"""So many are looked at in one go: fewer would cost more timer calls than they save, and more keep
others waiting, as a link that has to be pinged takes some 50 us."""


class Checked(Protocol):
    """Something with deadlines."""

    def check(self, now: float) -> None:
        """Act on deadlines that have passed at `now` (monotonic seconds)."""
        ...


class Sweep:
    """Calls `check` on each member once per round; costs nothing while there are none.

    A timer per link would cost each link a timer object and the loop's heap a move for every
    one of them; here an idle link costs one call per round.
    """

    __slots__ = (
        "_clock",
        "_members",
        "_round",
        "_round_seconds",
        "_running",
        "_step_seconds",
        "_steps_left",
    )

    def __init__(self, clock: Clock, members: Collection[Checked], round_seconds: float) -> None:
        self._clock = clock
        self._members = members
        self._round_seconds = round_seconds
        self._step_seconds = round_seconds / _STEPS
        self._round: list[Checked] = []
        self._steps_left = 0
        self._running = False

    def start(self) -> None:
        """Begin, if not running; called when a member was added."""
        if not self._running:
            self._running = True
            self._clock.call_later(self._step_seconds, self._step)

    def _step(self) -> None:
        if not self._round:
            self._round = list(self._members)
            count = len(self._round)
            self._steps_left = max(_STEPS, -(-count // SHARE))
            self._step_seconds = self._round_seconds / self._steps_left
        now = self._clock.monotonic()
        due = self._round[-SHARE:]
        del self._round[-SHARE:]
        for member in due:
            member.check(now)
        self._steps_left -= 1
        self._running = bool(self._members)
        if not self._running:
            self._round.clear()  # they are gone; the next member begins a round of its own
        else:
            # A round of few members is over early; the next one begins in its time.
            steps = 1 if self._round else self._steps_left + 1
            self._clock.call_later(steps * self._step_seconds, self._step)
