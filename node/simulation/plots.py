"""Plots as SVG texts, for reports that are one file: nothing is loaded, nothing runs."""

from collections.abc import Mapping, Sequence
from html import escape
from math import cos, pi, sin
from typing import Final

WIDTH: Final = 640
HEIGHT: Final = 260
LEFT: Final = 64
BOTTOM: Final = 36
TOP: Final = 12
RIGHT: Final = 16

_COLOURS: Final = ("#1f6f8b", "#d1495b", "#66a182", "#edae49", "#6f4e7c", "#8c564b")

POINTS_MAX: Final = 400
NODES_MAX: Final = 256
"""Nodes of an overlay that is drawn; of a larger one nothing could be seen."""

ROWS_MAX: Final = 64
"""Rows of a matrix or a time line that are drawn; what is left out is said."""

Series = Mapping[str, Sequence[tuple[float, float]]]


def cumulative(values: Sequence[float]) -> list[tuple[float, float]]:
    """The points of a cumulative distribution: value, part of all that do not exceed it."""
    ordered = sorted(values)
    step = max(1, len(ordered) // POINTS_MAX)
    places = [*range(0, len(ordered), step), len(ordered) - 1] if ordered else []
    return [(ordered[at], (at + 1) / len(ordered)) for at in places]


def lines(title: str, series: Series, *, across: str, up: str) -> str:
    """Lines over common axes from 0."""
    points = [point for line in series.values() for point in line]
    if not points:
        return ""
    right = max(x for x, _ in points) or 1.0
    top = max(y for _, y in points) or 1.0
    parts = [_axes(right, top, across, up)]
    for number, (name, line) in enumerate(series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(f"{_x(x / right):.1f},{_y(y / top):.1f}" for x, y in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(LEFT + 12, TOP + 14 * (number + 1), name, colour=colour))
    return _figure(title, "".join(parts), HEIGHT)


def bars(title: str, values: Mapping[str, float], *, up: str) -> str:
    """One bar for each name."""
    if not values:
        return ""
    top = max(values.values()) or 1.0
    room = (WIDTH - LEFT - RIGHT) / len(values)
    parts = [_axes(None, top, "", up)]
    for number, (name, value) in enumerate(values.items()):
        x, y = LEFT + number * room, _y(value / top)
        parts.append(
            f'<rect x="{x + room * 0.1:.1f}" y="{y:.1f}" width="{room * 0.8:.1f}" '
            f'height="{HEIGHT - BOTTOM - y:.1f}" fill="{_COLOURS[0]}"/>'
        )
        if len(values) <= ROWS_MAX // 2:
            parts.append(_text(x + room / 2, HEIGHT - BOTTOM + 14, name, anchor="middle"))
    return _figure(title, "".join(parts), HEIGHT)


def matrix(title: str, rows: Mapping[str, Mapping[str, float]]) -> str:
    """A square for each pair, the darker the more."""
    names = list(rows)[:ROWS_MAX]
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))[:ROWS_MAX]
    if not names or not columns:
        return ""
    top = max(value for row in rows.values() for value in row.values()) or 1.0
    size = min(36.0, (WIDTH - LEFT - RIGHT) / len(columns))
    parts = [
        _text(LEFT + (at + 0.5) * size, TOP + 8, column, anchor="middle")
        for at, column in enumerate(columns)
    ]
    for line, name in enumerate(names):
        y = TOP + 14 + line * size
        parts.append(_text(LEFT - 6, y + size / 2 + 4, name, anchor="end"))
        for at, column in enumerate(columns):
            value = rows[name].get(column, 0)
            parts.append(
                f'<rect x="{LEFT + at * size:.1f}" y="{y:.1f}" width="{size - 1:.1f}" '
                f'height="{size - 1:.1f}" fill="{_COLOURS[0]}" '
                f'fill-opacity="{0.06 + 0.94 * value / top:.3f}">'
                f"<title>{escape(name)} to {escape(column)}: {value:g}</title></rect>"
            )
    return _figure(_cut(title, len(rows)), "".join(parts), int(TOP + 24 + len(names) * size))


def time_line(title: str, spans: Sequence[tuple[str, str, float, float]], *, seconds: float) -> str:
    """Spans (row, what, from, to) over the time of a run."""
    rows = list(dict.fromkeys(row for row, _, _, _ in spans))
    if not rows:
        return ""
    kinds = list(dict.fromkeys(what for _, what, _, _ in spans))
    height = TOP + 18 * min(len(rows), ROWS_MAX) + BOTTOM + 14 * len(kinds)
    parts: list[str] = []
    for line, row in enumerate(rows[:ROWS_MAX]):
        parts.append(_text(LEFT - 6, TOP + 18 * line + 13, row, anchor="end"))
    for row, what, begin, end in spans:
        line = rows.index(row)
        if line < ROWS_MAX:
            x = _x(begin / seconds)
            parts.append(
                f'<rect x="{x:.1f}" y="{TOP + 18 * line + 2}" '
                f'width="{max(2.0, _x(end / seconds) - x):.1f}" height="14" '
                f'fill="{_COLOURS[kinds.index(what) % len(_COLOURS)]}" fill-opacity="0.7">'
                f"<title>{escape(what)} {begin:.2f} s to {end:.2f} s</title></rect>"
            )
    base = TOP + 18 * min(len(rows), ROWS_MAX) + 14
    parts.append(_text(LEFT, base, "0 s") + _text(WIDTH - RIGHT, base, f"{seconds:g} s", "end"))
    for number, kind in enumerate(kinds):
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(_text(LEFT, base + 14 * (number + 1), kind, colour=colour))
    return _figure(_cut(title, len(rows)), "".join(parts), height)


def topology(title: str, neighbours: Sequence[Sequence[int]], places: Sequence[str]) -> str:
    """Nodes on a circle, those at the same place side by side, and the links between them."""
    count = len(neighbours)
    if count > NODES_MAX:
        return ""
    order = sorted(range(count), key=lambda node: (places[node] if places else "", node))
    spot: dict[int, tuple[float, float]] = {}
    middle, radius = WIDTH / 2, WIDTH / 2 - 80
    for at, node in enumerate(order):
        angle = 2 * pi * at / count
        spot[node] = (middle + radius * cos(angle), middle + radius * sin(angle))
    parts = [
        f'<path d="M{spot[one][0]:.1f},{spot[one][1]:.1f} L{spot[other][0]:.1f},'
        f'{spot[other][1]:.1f}" stroke="{_COLOURS[0]}" stroke-opacity="0.25"/>'
        for one, row in enumerate(neighbours)
        for other in row
        if one < other
    ]
    for node, (x, y) in spot.items():
        name = f"n{node} {places[node]}" if places else f"n{node}"
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{_COLOURS[1]}">'
            f"<title>{escape(name)}</title></circle>"
        )
    return _figure(title, "".join(parts), WIDTH)


def _cut(title: str, rows: int) -> str:
    return title if rows <= ROWS_MAX else f"{title} (the first {ROWS_MAX} of {rows:,})"


def _figure(title: str, inside: str, height: int) -> str:
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">'
        f"{inside}</svg></figure>\n"
    )


def _axes(right: float | None, top: float, across: str, up: str) -> str:
    x0, y0 = LEFT, HEIGHT - BOTTOM
    parts = [f'<path d="M{x0},{TOP} V{y0} H{WIDTH - RIGHT}" fill="none" stroke="#888"/>']
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(_text(x0 - 6, _y(part) + 4, _short(part * top), anchor="end"))
        if right is not None:
            parts.append(_text(_x(part), y0 + 14, _short(part * right), anchor="middle"))
    parts.append(_text((x0 + WIDTH) / 2, HEIGHT - 4, across, anchor="middle"))
    middle = (TOP + y0) / 2
    parts.append(
        f'<g transform="rotate(-90 14 {middle:.0f})">{_text(14, middle, up, anchor="middle")}</g>'
    )
    return "".join(parts)


def _short(value: float) -> str:
    """A number as an axis has room for: four digits and a unit."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value:.4g}"


def _x(part: float) -> float:
    return LEFT + part * (WIDTH - LEFT - RIGHT)


def _y(part: float) -> float:
    return HEIGHT - BOTTOM - part * (HEIGHT - BOTTOM - TOP)


def _text(
    x: float, y: float, text: str, anchor: str = "start", *, colour: str = "currentColor"
) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"'
    return f"<text {place}>{escape(text)}</text>"
