"""Pictures as SVG texts: what went from whom to whom, what happened when, who is linked to whom."""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from math import cos, degrees, pi, sin
from typing import Final

from rillnode.node.simulation.drawing import (
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    colour,
    figure,
    legend,
    level,
    short,
    stretched,
    text,
    ticks,
)

NODES_MAX: Final = 256
"""Nodes of an overlay that is drawn; of a larger one nothing could be seen."""

ROWS_MAX: Final = 64
"""Rows of a matrix or a time line that are drawn; what is left out is said."""

SQUARE_MAX: Final = 36.0
SQUARE_SPELLED_MIN: Final = 28.0
"""From which size on squares have room for a number."""

LANE: Final = 12

Span = tuple[str, str, float, float]
"""Row, what, from, to."""


def matrix(title: str, rows: Mapping[str, Mapping[str, float]]) -> str:
    """A square for each pair, the darker the more."""
    names = list(rows)[:ROWS_MAX]
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))[:ROWS_MAX]
    if not names or not columns:
        return ""
    top = max(value for row in rows.values() for value in row.values()) or 1.0
    size = min(SQUARE_MAX, (WIDTH - LEFT - RIGHT) / len(columns))
    parts = [
        text(LEFT + (at + 0.5) * size, TOP + 8, column, anchor="middle")
        for at, column in enumerate(columns)
    ]
    for line, name in enumerate(names):
        y = TOP + 14 + line * size
        parts.append(text(LEFT - 6, y + size / 2 + 4, name, anchor="end"))
        for at, column in enumerate(columns):
            value, x = rows[name].get(column, 0), LEFT + at * size
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{size - 1:.1f}" height="{size - 1:.1f}" '
                f'fill="{colour(0)}" fill-opacity="{0.06 + 0.74 * value / top:.3f}">'
                f"<title>{escape(name)} to {escape(column)}: {value:g}</title></rect>"
            )
            if value and size >= SQUARE_SPELLED_MIN:
                parts.append(text(x + size / 2, y + size / 2 + 4, short(value), "middle"))
    return figure(_cut(title, len(rows)), "".join(parts), TOP + 24 + len(names) * size)


def time_line(title: str, spans: Sequence[Span], *, seconds: float) -> str:
    """Spans over the time of a run; those of one row that overlap stand below each other."""
    rows = list(dict.fromkeys(row for row, _, _, _ in spans))
    if not rows:
        return ""
    kinds = list(dict.fromkeys(what for _, what, _, _ in spans))
    names, y = legend(kinds, LEFT, 0)
    times = ticks(seconds)
    x = stretched(LEFT, WIDTH - RIGHT, 0.0, times[-1])
    parts, top = [names], y + 4.0
    y = top
    for row in rows[:ROWS_MAX]:
        lanes = _lanes([span for span in spans if span[0] == row])
        parts.append(text(LEFT - 6, y + LANE * len(lanes) / 2 + 4, row, anchor="end"))
        for number, lane in enumerate(lanes):
            for _, what, begin, end in lane:
                parts.append(
                    f'<rect x="{x(begin):.1f}" y="{y + LANE * number + 1:.1f}" '
                    f'width="{max(2.0, x(end) - x(begin)):.1f}" height="{LANE - 2}" '
                    f'fill="{colour(kinds.index(what))}">'
                    f"<title>{escape(what)} {begin:.2f} s to {end:.2f} s</title></rect>"
                )
        y += LANE * len(lanes) + 4
    parts += [
        f'<path d="M{x(at):.1f},{top:.1f} V{y:.1f}" stroke="#888" stroke-opacity="0.2"/>'
        for at in times
    ]
    parts.append(level([(at, short(at)) for at in times], x, y=y, title="virtual seconds"))
    return figure(_cut(title, len(rows)), "".join(parts), y + 36)


def _lanes(spans: Sequence[Span]) -> list[list[Span]]:
    """Spans in as few lists as can be, so that in none of them two overlap."""
    found: list[list[Span]] = []
    for span in sorted(spans, key=lambda one: one[2]):
        free = next((lane for lane in found if lane[-1][3] <= span[2]), None)
        if free is None:
            found.append([span])
        else:
            free.append(span)
    return found


def topology(title: str, neighbours: Sequence[Sequence[int]], places: Sequence[str]) -> str:
    """Nodes on a circle, those at the same place side by side, and the links between them."""
    count = len(neighbours)
    if count > NODES_MAX:
        return ""
    order = sorted(range(count), key=lambda node: (places[node] if places else "", node))
    middle, radius = WIDTH / 2, WIDTH / 2 - (110 if places else 12)

    def spot(at: float, out: float = 0.0) -> tuple[float, float]:
        angle = 2 * pi * at / count
        return middle + (radius + out) * cos(angle), middle + (radius + out) * sin(angle)

    where = {node: spot(at) for at, node in enumerate(order)}
    parts = [
        f'<path d="M{where[one][0]:.1f},{where[one][1]:.1f} L{where[other][0]:.1f},'
        f'{where[other][1]:.1f}" stroke="{colour(0)}" stroke-opacity="0.35"/>'
        for one, row in enumerate(neighbours)
        for other in row
        if one < other
    ]
    for node, (x, y) in where.items():
        name = f"n{node} {places[node]}" if places else f"n{node}"
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour(1)}">'
            f"<title>{escape(name)}</title></circle>"
        )
    if places:
        for name, group in groupby(enumerate(order), lambda one: places[one[1]]):
            numbers = [at for at, _ in group]
            at = (numbers[0] + numbers[-1]) / 2
            x, y = spot(at, 8)
            turn = degrees(2 * pi * at / count)
            left = 90 < turn < 270
            anchor = "end" if left else "start"
            parts.append(text(x, y, name, anchor, turned=turn - 180 if left else turn))
    return figure(title, "".join(parts), WIDTH)


def _cut(title: str, rows: int) -> str:
    return title if rows <= ROWS_MAX else f"{title} (the first {ROWS_MAX} of {rows:,})"
