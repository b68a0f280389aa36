"""Plots as SVG text, to stand inside a page: lines over time, and bars.

Nothing is loaded from anywhere, no script runs, and every text from outside is escaped. Colours
are classes, which the page's style sheet defines for light and dark screens.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from html import escape
from math import ceil, floor, log10
from typing import Final

WIDTH: Final = 900
HEIGHT: Final = 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 16, 12, 28
_TICKS: Final = 5
_BAR: Final = 24
_LABEL_CHARACTERS_MAX: Final = 44

Series = Sequence[tuple[datetime, float]]


def lines(series: Mapping[str, Series], *, unit: str) -> str:
    """One line per series over a common time; the largest value is the top of the plot."""
    points = [point for one in series.values() for point in one]
    if not points:
        return '<p class="none">nothing yet</p>'
    first, last = min(time for time, _ in points), max(time for time, _ in points)
    top = nice_ceiling(max(value for _, value in points))
    span = (last - first).total_seconds() or 1.0

    def place(time: datetime, value: float) -> str:
        x = _LEFT + (WIDTH - _LEFT - _RIGHT) * (time - first).total_seconds() / span
        y = HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * value / top
        return f"{x:.1f},{y:.1f}"

    parts = [_frame(HEIGHT, unit), *_grid(top), *_times(first, last)]
    for at, (name, one) in enumerate(series.items()):
        path = " ".join(place(time, value) for time, value in one)
        title = f"<title>{escape(name)}</title>"
        if len(one) == 1:
            x, y = path.split(",")
            parts.append(f'<circle class="c{at} dot" cx="{x}" cy="{y}" r="3">{title}</circle>')
        elif one:
            parts.append(f'<polyline class="c{at}" points="{path}">{title}</polyline>')
    legend = "".join(
        f'<span><i class="k{at}"></i>{escape(name)}</span>' for at, name in enumerate(series)
    )
    return f'{"".join(parts)}</svg><p class="legend">{legend}</p>'


def bars(values: Sequence[tuple[str, float]], *, unit: str) -> str:
    """One bar per label, in the order given."""
    if not values:
        return '<p class="none">nothing yet</p>'
    largest = max(value for _, value in values) or 1.0
    left = 330
    parts = [_frame(_BAR * len(values) + 4, unit)]
    for at, (label, value) in enumerate(values):
        y = at * _BAR + 4
        width = max(1.0, (WIDTH - left - 110) * value / largest)
        parts.append(
            f'<text class="end" x="{left - 8}" y="{y + 13}">{escape(shortened(label))}'
            f"<title>{escape(label)}</title></text>"
            f'<rect class="k0" x="{left}" y="{y}" width="{width:.1f}" height="{_BAR - 8}"/>'
            f'<text x="{left + width + 6:.1f}" y="{y + 13}">{short_number(value)}</text>'
        )
    return f"{''.join(parts)}</svg>"


def nice_ceiling(value: float) -> float:
    """The next number up of the kind 1, 2, 5 times a power of ten; 1 for what is not above 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


def short_number(value: float) -> str:
    """A number in at most some six characters, such as 12.3k."""
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{suffix}" if value < 1_000 * limit else f"{value:.2e}"
    return f"{value:.3g}"


def shortened(label: str) -> str:
    """A label that fits; the middle of a long one is left out, because keys differ at both ends."""
    if len(label) <= _LABEL_CHARACTERS_MAX:
        return label
    half = (_LABEL_CHARACTERS_MAX - 1) / 2
    return f"{label[: ceil(half)]}…{label[-floor(half) :]}"


def _frame(height: int, unit: str) -> str:
    label = escape(unit, quote=True)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">'


def _grid(top: float) -> list[str]:
    parts: list[str] = []
    for tick in range(_TICKS + 1):
        y = HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * tick / _TICKS
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="end" x="{_LEFT - 8}" y="{y + 4:.1f}">'
            f"{short_number(top * tick / _TICKS)}</text>"
        )
    return parts


def _times(first: datetime, last: datetime) -> list[str]:
    """Labels below the plot, at whole minutes; with dates where it spans more than a day."""
    form = "%d %b %H:%M" if last - first > timedelta(days=1) else "%H:%M"
    minutes = int((last - first).total_seconds()) // 60
    count = max(1, min(_TICKS, minutes))
    parts: list[str] = []
    for tick in range(count + 1 if minutes else 1):
        after = minutes * tick // count
        x = _LEFT + (WIDTH - _LEFT - _RIGHT) * after / max(1, minutes)
        anchor = "start" if tick == 0 else "end" if tick == count else "middle"
        text = (first + timedelta(minutes=after)).strftime(form)
        parts.append(
            f'<text x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{escape(text)}</text>'
        )
    return parts
