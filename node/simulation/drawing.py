"""Draws plots as pieces of SVG: sizes, colours, texts, axes and legends."""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from math import ceil, floor, log10
from typing import Final

WIDTH: Final = 640
HEIGHT: Final = 260
LEFT: Final = 64
BOTTOM: Final = 36
TOP: Final = 12
RIGHT: Final = 16

COLOURS: Final = (
    "#1f6f8b", "#d1495b", "#66a182", "#edae49", "#6f4e7c", "#8c564b", "#3b8ee2", "#e377c2",
    "#7f7f7f", "#9aa83a", "#17becf", "#e8743b", "#4b5fa5", "#c49c94", "#2ca02c", "#b5179e",
    "#a0522d", "#5f9ea0", "#808000", "#000080",
)  # fmt: skip
"""As many as there are kinds of faults."""

LEGEND_ROW: Final = 16
TICKS_MIN: Final = 4

_LETTER: Final = 6.2
_SWATCH: Final = 14

Scale = Callable[[float], float]
"""Where a value is drawn."""


def colour(number: int) -> str:
    """The colour of the first, second, ... of several things."""
    return COLOURS[number % len(COLOURS)]


def ticks(top: float) -> list[float]:
    """Round numbers from 0 to one that is not below `top`."""
    if not top > 0:
        return [0.0, 1.0]
    power = 10.0 ** floor(log10(top / TICKS_MIN))
    step = next(one * power for one in (5.0, 2.5, 2.0, 1.0) if one * power * TICKS_MIN <= top)
    return [step * number for number in range(ceil(top / step - 1e-9) + 1)]


def short(value: float) -> str:
    """A number as an axis has room for: four digits and a unit."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value:.4g}"


def text(
    x: float, y: float, words: str, anchor: str = "start", *, turned: float | None = None
) -> str:
    """A line of text; turned by so many degrees around its place."""
    turn = "" if turned is None else f' transform="rotate({turned:.1f} {x:.1f} {y:.1f})"'
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{turn} fill="currentColor"'
    return f"<text {place}>{escape(words)}</text>"


def breadth(words: str) -> float:
    """About how much room a line of text takes."""
    return _LETTER * len(words)


def figure(title: str, inside: str, height: float) -> str:
    """A drawing under its title."""
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">'
        f"{inside}</svg></figure>\n"
    )


def legend(names: Iterable[str], x: float, y: float) -> tuple[str, float]:
    """Names beside their colours, in as many lines as they need; and the height of those."""
    parts: list[str] = []
    at, line = x, 0
    for number, name in enumerate(names):
        width = _SWATCH + breadth(name) + 12
        if at > x and at + width > WIDTH - RIGHT:
            at, line = x, line + 1
        top = y + LEGEND_ROW * line
        parts.append(
            f'<rect x="{at:.1f}" y="{top:.1f}" width="10" height="10" fill="{colour(number)}"/>'
        )
        parts.append(text(at + _SWATCH, top + 9, name))
        at += width
    return "".join(parts), LEGEND_ROW * (line + 1) if parts else 0.0


def upright(labels: Sequence[float], y: Scale, *, right: float, title: str) -> str:
    """The axis of heights: round numbers, and a thin line across for each."""
    parts: list[str] = []
    for label in labels:
        parts.append(text(LEFT - 6, y(label) + 4, short(label), anchor="end"))
        parts.append(
            f'<path d="M{LEFT},{y(label):.1f} H{right:.1f}" stroke="#888" '
            f'stroke-opacity="{0.9 if label == labels[0] else 0.2}"/>'
        )
    middle = (y(labels[0]) + y(labels[-1])) / 2
    return "".join(parts) + text(14, middle, title, "middle", turned=-90)


def level(labels: Sequence[tuple[float, str]], x: Scale, *, y: float, title: str) -> str:
    """The axis below: labels at their places, and what they say."""
    parts = [text(x(value), y + 14, label, "middle") for value, label in labels]
    return "".join(parts) + text((LEFT + WIDTH - RIGHT) / 2, y + 30, title, "middle")


def stretched(begin: float, end: float, low: float, high: float) -> Scale:
    """The scale that draws `low` at `begin` and `high` at `end`."""
    per = (end - begin) / ((high - low) or 1.0)
    return lambda value: begin + (value - low) * per
