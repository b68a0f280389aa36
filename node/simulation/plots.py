"""Plots of reports, drawn by matplotlib as SVG texts: a report is one file that loads nothing."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib.util import find_spec
from io import StringIO
from itertools import groupby
from math import ceil, cos, degrees, pi, sin
from typing import Any, Final

from rillnode.codecs.errors import ConfigError
from rillnode.node.installed import install_command

POINTS_MAX: Final = 400
LABELS_LEVEL_MAX: Final = 14
"""Names below bars that have room side by side; more are turned, and at most 60 are there."""
LABELS_MAX: Final = 60

ROWS_MAX: Final = 64
"""Rows of a time line that are drawn; what is left out is said."""
NODES_MAX: Final = 256
"""Nodes of an overlay that is drawn; of a larger one nothing could be seen."""

COLOURS: Final = "tab20"
"""As many as there are kinds of faults."""

Series = Mapping[str, Sequence[tuple[float, float]]]

Span = tuple[str, str, float, float]
"""Row, what, from, to."""


def check_installed() -> None:
    """See that plots can be drawn.

    Raises:
        ConfigError: `sim.plots`, matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        command = install_command("plots")
        text = f"--html draws with matplotlib, which is not installed: `{command}`"
        raise ConfigError("sim.plots", text)


def _figure(title: str, draw: Callable[[Any], object], height: float = 2.8) -> str:
    """A drawing under its title."""
    # The plots extra; it takes a second to load, which only a report is worth.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    drawn = StringIO()
    settings = {"svg.fonttype": "none", "svg.hashsalt": title, "font.size": 8}
    with rc_context(settings):
        figure = Figure(figsize=(6.6, height), layout="constrained")
        draw(figure.add_subplot())
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    text = drawn.getvalue()
    svg = text[text.index("<svg") :]
    return f"<figure><figcaption>{escape(title)}</figcaption>{svg}</figure>\n"


def cumulative(values: Sequence[float]) -> list[tuple[float, float]]:
    """The points of a cumulative distribution: value, part of all that do not exceed it."""
    ordered = sorted(values)
    step = max(1, len(ordered) // POINTS_MAX)
    places = [*range(0, len(ordered), step), len(ordered) - 1] if ordered else []
    return [(ordered[at], (at + 1) / len(ordered)) for at in places]


def lines(title: str, series: Series, *, across: str, up: str) -> str:
    """Lines over common axes, which say `across` below and `up` on the left."""
    if not any(series.values()):
        return ""

    def draw(axes: Any) -> None:
        for name, line in series.items():
            axes.plot([x for x, _ in line], [y for _, y in line], label=name)
        axes.set_xlim(left=0.0)
        axes.set_ylim(bottom=0.0)
        axes.set(xlabel=across, ylabel=up)
        axes.legend()

    return _figure(title, draw)


def bars(title: str, values: Mapping[str, float], *, up: str, across: str = "") -> str:
    """One bar for each name."""
    if not values:
        return ""

    def draw(axes: Any) -> None:
        names = list(values)
        axes.bar(range(len(names)), list(values.values()))
        every = ceil(len(names) / LABELS_MAX)
        turned = 90 if len(names) > LABELS_LEVEL_MAX else 0
        axes.set_xticks(range(0, len(names), every), names[::every], rotation=turned)
        axes.set(xlabel=across, ylabel=up)

    return _figure(title, draw)


def time_line(title: str, spans: Sequence[Span], *, seconds: float) -> str:
    """Spans over the time of a run; those of one row that overlap stand below each other."""
    rows = list(dict.fromkeys(row for row, _, _, _ in spans))
    if not rows:
        return ""
    lanes = [
        (row, lane) for row in rows[:ROWS_MAX] for lane in _lanes([s for s in spans if s[0] == row])
    ]
    kinds = list(dict.fromkeys(what for _, what, _, _ in spans))

    def draw(axes: Any) -> None:
        from matplotlib import colormaps
        from matplotlib.patches import Patch

        colours = {kind: colormaps[COLOURS](number) for number, kind in enumerate(kinds)}
        for at, (_, lane) in enumerate(lanes):
            times = [(begin, end - begin) for _, _, begin, end in lane]
            axes.broken_barh(times, (at - 0.4, 0.8), color=[colours[one[1]] for one in lane])
        axes.set_yticks(range(len(lanes)), [row for row, _ in lanes])
        axes.set_xlim(0.0, seconds)
        axes.invert_yaxis()
        axes.set(xlabel="virtual seconds")
        shown = [Patch(color=colour, label=kind) for kind, colour in colours.items()]
        axes.legend(handles=shown, loc="upper left", bbox_to_anchor=(1.0, 1.0))

    if len(rows) > ROWS_MAX:
        title = f"{title} (the first {ROWS_MAX} of {len(rows):,})"
    return _figure(title, draw, 1.4 + 0.2 * len(lanes))


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

    def spot(at: float, out: float = 1.0) -> tuple[float, float]:
        return out * cos(2 * pi * at / count), out * sin(2 * pi * at / count)

    where = {node: spot(at) for at, node in enumerate(order)}

    def draw(axes: Any) -> None:
        for one, row in enumerate(neighbours):
            for other in (other for other in row if one < other):
                ends = zip(where[one], where[other], strict=True)
                axes.plot(*ends, color="tab:blue", alpha=0.35, linewidth=0.8)
        axes.plot(*zip(*where.values(), strict=True), "o", color="tab:red", markersize=4)
        groups = groupby(enumerate(order), lambda one: places[one[1]]) if places else ()
        for name, group in groups:
            numbers = [at for at, _ in group]
            at = (numbers[0] + numbers[-1]) / 2
            turn = degrees(2 * pi * at / count)
            left = 90 < turn < 270
            axes.text(
                *spot(at, 1.05), name, rotation=turn - 180 if left else turn,
                rotation_mode="anchor", va="center", ha="right" if left else "left",
            )  # fmt: skip
        axes.set_aspect("equal")
        axes.margins(0.25 if places else 0.05)
        axes.axis("off")

    return _figure(title, draw, 6.6)
