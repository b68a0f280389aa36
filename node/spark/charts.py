"""Answers of reports as bars on a terminal."""

from collections.abc import Sequence
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
