"""Plots as SVG texts, for reports that are one file: nothing is loaded, nothing runs."""

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, log2
from typing import Final

from rillnode.node.simulation.drawing import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    breadth,
    colour,
    figure,
    legend,
    level,
    short,
    stretched,
    text,
    ticks,
    upright,
)

POINTS_MAX: Final = 400
DOTS_MAX: Final = 16
"""Points of a line that are each drawn as a dot."""

LABELS_LEVEL_MAX: Final = 14
"""Names below bars that have room side by side; more are turned."""
TURNED_ROOM: Final = 13.0
"""How far apart turned names stand at least; of more bars not each has its name below."""

Series = Mapping[str, Sequence[tuple[float, float]]]


def cumulative(values: Sequence[float]) -> list[tuple[float, float]]:
    """The points of a cumulative distribution: value, part of all that do not exceed it."""
    ordered = sorted(values)
    step = max(1, len(ordered) // POINTS_MAX)
    places = [*range(0, len(ordered), step), len(ordered) - 1] if ordered else []
    return [(ordered[at], (at + 1) / len(ordered)) for at in places]


def lines(title: str, series: Series, *, across: str, up: str, doubling: bool = False) -> str:
    """Lines over common axes.

    Args:
        title: above the plot.
        series: the points of each line, by name.
        across: what the axis below says.
        up: what the axis on the left says.
        doubling: that each doubling is as far across as the next; from 0 otherwise.
    """
    points = [point for line in series.values() for point in line]
    if not points:
        return ""
    names, room = legend(series, LEFT, 0)
    base, high = HEIGHT - BOTTOM, ticks(max(y for _, y in points))
    y = stretched(base, TOP + room, 0.0, high[-1])
    if doubling:
        values = sorted({x for x, _ in points})
        labels = [(log2(value), short(value)) for value in values]
        series = {name: [(log2(x), y) for x, y in line] for name, line in series.items()}
        x = stretched(LEFT + 24, WIDTH - RIGHT - 24, labels[0][0], labels[-1][0])
    else:
        right = ticks(max(x for x, _ in points))
        labels = [(value, short(value)) for value in right]
        x = stretched(LEFT, WIDTH - RIGHT, 0.0, right[-1])
    parts = [
        names,
        upright(high, y, right=WIDTH - RIGHT, title=up),
        level(labels, x, y=base, title=across),
    ]
    for number, line in enumerate(series.values()):
        path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in line)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour(number)}" stroke-width="2"/>'
        )
        if len(line) <= DOTS_MAX:
            parts += [
                f'<circle cx="{x(at):.1f}" cy="{y(value):.1f}" r="3.5" fill="{colour(number)}">'
                f"<title>{value:,.4g}</title></circle>"
                for at, value in line
            ]
    return figure(title, "".join(parts), HEIGHT)


def bars(title: str, values: Mapping[str, float], *, up: str, across: str = "") -> str:
    """One bar for each name."""
    if not values:
        return ""
    high, base = ticks(max(values.values())), HEIGHT - BOTTOM
    y = stretched(base, TOP, 0.0, high[-1])
    room = (WIDTH - LEFT - RIGHT) / len(values)
    turned = len(values) > LABELS_LEVEL_MAX
    every = ceil(TURNED_ROOM / room) if turned else 1
    deeper = max(0.0, max(map(breadth, values)) - 12) if turned else 0.0
    parts = [
        upright(high, y, right=WIDTH - RIGHT, title=up),
        level((), lambda value: value, y=base + deeper, title=across),
    ]
    for number, (name, value) in enumerate(values.items()):
        x = LEFT + number * room
        parts.append(
            f'<rect x="{x + room * 0.1:.1f}" y="{y(value):.1f}" width="{room * 0.8:.1f}" '
            f'height="{base - y(value):.1f}" fill="{colour(0)}">'
            f"<title>{escape(name)}: {value:,.6g}</title></rect>"
        )
        if turned and number % every == 0:
            parts.append(text(x + room / 2 + 4, base + 8, name, "end", turned=-90))
        elif not turned:
            parts.append(text(x + room / 2, base + 14, name, "middle"))
    return figure(title, "".join(parts), HEIGHT + deeper)
