"""The demo's page: what was measured while it ran, to be watched in a minute, with a map."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from demo_events import Event, field_of

HERE = Path(__file__).parent
LAND: Final = HERE / "data" / "land.json"
SERIES: Final = ("published", "consumed", "table")
EVENTS_SHOWN: Final = 20_000
"""More are drawn no better, and make a page that is slow to open."""


class Recording:
    """What happened when, in seconds since it was made."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._series: dict[str, list[tuple[float, int]]] = {name: [] for name in SERIES}
        self._killed: float | None = None
        self._resumed = 0.0
        self._fate = ""

    @property
    def seconds(self) -> float:
        """The time that has passed."""
        return round(time.monotonic() - self._began, 3)

    def noting(self, name: str, advance: Callable[[int], None]) -> Callable[[int], None]:
        """A function that notes a series' count, and calls another one with it."""
        series = self._series[name]

        def note(count: int) -> None:
            if not series or series[-1][1] != count:
                series.append((self.seconds, count))
            advance(count)

        return note

    def killed(self) -> None:
        """The consumer is killed now."""
        self._killed = self.seconds

    def resumed(self) -> None:
        """Its successor has begun."""
        self._resumed = self.seconds

    def ended(self, fate: str) -> None:
        """Tell in a few words what became of the consumer."""
        self._fate = fate

    def document(self) -> dict[str, Any]:
        """All of it, for the page."""
        ends = [series[-1][0] for series in self._series.values() if series]
        return {
            "series": self._series,
            "seconds": max(ends, default=0.0),
            "killed": self._killed,
            "resumed": self._resumed,
            "fate": self._fate,
        }


def write_page(
    path: Path, recording: Recording, events: Sequence[Event], size_field: str, verdict: str
) -> None:
    """Write the page: one file, which asks nothing of the network.

    Args:
        path: the file.
        recording: what happened.
        events: in the order in which they were published.
        size_field: the number in each that says how strong it is.
        verdict: the demo's last line.
    """
    step = -(-len(events) // EVENTS_SHOWN) or 1
    run = {
        **recording.document(),
        "total": len(events),
        "events": [_shown(event, size_field) for event in events[::step]],
        "land": json.loads(LAND.read_bytes()),
        "verdict": verdict,
    }
    # Nothing that an event says can end the script that holds it.
    text = json.dumps(run, separators=(",", ":")).replace("<", "\\u003c")
    template = (HERE / "demo_page.html").read_text(encoding="utf-8")
    path.write_text(template.replace("{run}", text), encoding="utf-8")


def _shown(event: Event, size_field: str) -> list[float | None]:
    """Its time, its size, and its longitude and latitude where it has them."""
    decoded = msgspec.json.decode(event.data, type=dict[str, Any])
    shown = [event.time, _number(field_of(decoded, size_field))]
    place = field_of(decoded, "geometry.coordinates")
    if isinstance(place, list):
        longitude, latitude = [*map(_number, cast(list[object], place)), None, None][:2]
        if longitude is not None and latitude is not None:
            shown += [longitude, latitude]
    return shown


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and value == value else None
