"""Answers of reports as bars on a terminal, or as a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.bar import Bar
from rich.table import Table
from rich.text import Text

BAR_WIDTH: Final = 40

Point = tuple[str, float]
"""A label and its value."""


def bar_table(title: str, points: Sequence[Point], *, unit: str = "events") -> Table:
    """Bars for a terminal, one line per point, scaled to the largest value.

    Labels are shown as they are, without any markup that they might hold.
    """
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    table.add_column(unit, justify="right")
    table.add_column("", width=BAR_WIDTH)
    largest = max((value for _, value in points), default=0) or 1
    for label, value in points:
        bar = Bar(largest, 0, max(value, 0), width=BAR_WIDTH, color="cyan")
        table.add_row(Text(label), f"{value:,.6g}" if value % 1 else f"{value:,.0f}", bar)
    return table


def save_bars(title: str, points: Sequence[Point], path: Path, *, unit: str = "events") -> None:
    """Save the same bars as a picture; its format follows the file's suffix."""
    # The plots extra; it takes a second to load, which only a picture is worth.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(6.0, min(24.0, len(points) * 0.25)), 4.0), layout="constrained")
    axes = figure.add_subplot()
    axes.bar(range(len(points)), [value for _, value in points], color="#1f77b4")
    # At most some twenty labels are readable beside each other.
    step = max(1, len(points) // 20)
    shown = range(0, len(points), step)
    axes.set_xticks(list(shown), [points[at][0] for at in shown], rotation=45, ha="right")
    axes.set_title(title)
    axes.set_ylabel(unit)
    figure.savefig(path, dpi=120)
