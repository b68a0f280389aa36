"""The last five minutes, second by second, for the tiles' lines."""

from collections import deque
from dataclasses import dataclass
from typing import Any, Final

PERIOD_SECONDS: Final = 1.0
POINTS_MAX: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """A node's counts since its start, and its links now.

    Attributes:
        entries: entries that became durable.
        entry_bytes: bytes of their blocks.
        undelivered: messages that reached nobody.
    """

    entries: int = 0
    entry_bytes: int = 0
    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    undelivered: int = 0
    links: int = 0


_RATES: Final = tuple(name for name in Totals.__slots__ if name != "links")


class History:
    """Rates per second between samples, the newest last."""

    def __init__(self) -> None:
        self._last: tuple[float, Totals] | None = None
        self._points: deque[dict[str, float]] = deque(maxlen=POINTS_MAX)

    def sample(self, now: float, totals: Totals) -> None:
        """Add what happened since the last sample; `now` in monotonic seconds."""
        if self._last is not None and now > self._last[0]:
            then, before = self._last
            seconds = now - then
            point: dict[str, float] = {
                f"{name}_per_second": round(
                    (getattr(totals, name) - getattr(before, name)) / seconds, 2
                )
                for name in _RATES
            }
            point["links"] = totals.links
            point["undelivered"] = totals.undelivered
            self._points.append(point)
        self._last = now, totals

    @property
    def latest(self) -> dict[str, float]:
        """The newest point; zeros before there is one."""
        if self._points:
            return self._points[-1]
        return {**{f"{name}_per_second": 0.0 for name in _RATES}, "links": 0, "undelivered": 0}

    def document(self) -> dict[str, Any]:
        """All points, by name."""
        series = {name: [point[name] for point in self._points] for name in self.latest}
        return {"period_seconds": PERIOD_SECONDS, "points_max": POINTS_MAX, "series": series}
