"""The report on the gold tables: figures calculated without Spark, and a page of them.

Times of series are the beginnings of *steps*: as many minutes as keep a series short. The page
loads nothing from anywhere, no script runs, and every text from outside is escaped. Colours of
plots are classes, which its style sheet defines for light and dark screens.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape
from math import ceil, floor, log10
from typing import Any, Final

from rillnode.node.spark.tables import CHAINS, GOLD, LAG, MINUTES, PUBLISHERS, GoldTable
from rillnode.node.spark.upsert import read_rows

WIDTH: Final = 900
HEIGHT: Final = 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 16, 12, 28
_TICKS: Final = 5
_BAR: Final = 24
_LABEL_CHARACTERS_MAX: Final = 44

Line = Sequence[tuple[datetime, float]]


def lines(series: Mapping[str, Line], *, unit: str) -> str:
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


STEPS_MAX: Final = 240
"""Points of a series: more than a line on a screen shows."""
TOP_MAX: Final = 15
LINES_MAX: Final = 4
"""Consumers in the plot of the lag: as many as lines have colours."""
_MINUTE: Final = timedelta(minutes=1)

Row = Mapping[str, Any]
Series = list[tuple[datetime, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """A report's contents.

    Attributes:
        first: first minute that anything is known of, None if nothing is.
        last: last minute that anything is known of.
        step: length of a step of the series.
        totals: sums over all minutes, by name.
        series: values per step, by name; a step without events has no value.
        streams: one row per stream, the busiest first.
        publishers: one row per stream and publisher, the busiest first.
        chains: one row per chain with gaps, late messages or duplicates, the worst first.
        lag: one row per consumer, stream and partition, as of the last minute.
        consumers: entries behind per step, by consumer, the furthest behind first.
    """

    first: datetime | None
    last: datetime | None
    step: timedelta
    totals: dict[str, float]
    series: dict[str, Series]
    streams: list[dict[str, Any]]
    publishers: list[dict[str, Any]]
    chains: list[dict[str, Any]]
    lag: list[dict[str, Any]]
    consumers: dict[str, Series]


def collect(gold: str, since: datetime | None = None) -> Figures:
    """Read the gold tables and work out what there is to tell.

    Args:
        gold: the tables' directory or URI.
        since: the first minute, None for all.
    """
    rows = {table.name: _rows(gold, table, since) for table in GOLD}
    minutes, chains = rows[MINUTES.name], rows[CHAINS.name]
    publishers, lag = rows[PUBLISHERS.name], rows[LAG.name]
    times = [row["minute"] for group in rows.values() for row in group]
    first, last = min(times, default=None), max(times, default=None)
    step = _step(first, last)

    def per_step(
        group: Iterable[Row], name: str, combine: Callable[[list[float]], float] = sum
    ) -> Series:
        found: dict[datetime, list[float]] = defaultdict(list)
        for row in group:
            if row[name] is not None and first is not None:
                found[first + (row["minute"] - first) // step * step].append(row[name])
        return [(time, combine(values)) for time, values in sorted(found.items())]

    seconds = step.total_seconds()
    return Figures(
        first=first,
        last=last,
        step=step,
        totals=_totals(minutes, chains, publishers),
        series={
            "messages/s": [(at, count / seconds) for at, count in per_step(minutes, "messages")],
            "bytes/s": [(at, size / seconds) for at, size in per_step(minutes, "bytes")],
            "latency p50": per_step(minutes, "latency_p50_ms", _middle),
            "latency p95": per_step(minutes, "latency_p95_ms", max),
            "landing p50": per_step(minutes, "landing_p50_ms", _middle),
            "landing p95": per_step(minutes, "landing_p95_ms", max),
            "gaps": per_step(chains, "gaps"),
            "late": per_step(chains, "late"),
            "duplicates": per_step(minutes, "duplicates"),
            "malformed": per_step(minutes, "malformed"),
        },
        streams=_grouped(
            minutes, ("stream",), ("messages", "bytes", "malformed", "forged", "duplicates")
        ),
        publishers=_grouped(publishers, ("stream", "publisher"), ("messages", "bytes")),
        chains=_troubled(chains),
        lag=_latest(lag),
        consumers=_lag_series(lag, first, step),
    )


def _rows(gold: str, table: GoldTable, since: datetime | None) -> list[dict[str, Any]]:
    return read_rows(f"{gold.rstrip('/')}/{table.name}", table, since).to_pylist()


def _step(first: datetime | None, last: datetime | None) -> timedelta:
    if first is None or last is None:
        return _MINUTE
    minutes = (last - first) // _MINUTE + 1
    return _MINUTE * -(-minutes // STEPS_MAX)


def _totals(
    minutes: Sequence[Row], chains: Sequence[Row], publishers: Sequence[Row]
) -> dict[str, float]:
    names = ("messages", "bytes", "malformed", "forged", "duplicates")
    totals: dict[str, float] = {name: sum(row[name] for row in minutes) for name in names}
    totals |= {name: sum(row[name] for row in chains) for name in ("gaps", "late")}
    totals["streams"] = len({row["stream"] for row in minutes})
    totals["publishers"] = len({row["publisher"] for row in publishers})
    return totals


def _grouped(
    rows: Iterable[Row], keys: tuple[str, ...], sums: tuple[str, ...]
) -> list[dict[str, Any]]:
    """The groups with the largest first sums."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for row in rows:
        found = groups.setdefault(tuple(row[key] for key in keys), [0] * len(sums))
        for at, name in enumerate(sums):
            found[at] += row[name]
    largest = sorted(groups.items(), key=lambda item: (-item[1][0], item[0]))[:TOP_MAX]
    return [
        {**dict(zip(keys, key, strict=True)), **dict(zip(sums, values, strict=True))}
        for key, values in largest
    ]


def _troubled(chains: Sequence[Row]) -> list[dict[str, Any]]:
    faults = ("gaps", "late", "duplicates")
    keys = ("stream", "partition", "publisher", "chain")
    wrong = [{**row, "faults": sum(row[name] for name in faults)} for row in chains]
    found = _grouped([row for row in wrong if row["faults"]], keys, ("faults", *faults))
    return [{name: row[name] for name in (*keys, *faults)} for row in found]


def _latest(lag: Sequence[Row]) -> list[dict[str, Any]]:
    keys = ("consumer", "stream", "partition")
    # Rows come in order, so that the last one stays.
    latest = {tuple(row[key] for key in keys): row for row in lag}
    names = (*keys, "next_index", "committed_index", "rows_behind")
    return [{name: row[name] for name in names} for _, row in sorted(latest.items())]


def _lag_series(lag: Sequence[Row], first: datetime | None, step: timedelta) -> dict[str, Series]:
    """The largest lag of each consumer in each step, all of its partitions together."""
    per_minute: dict[tuple[str, datetime], float] = defaultdict(float)
    for row in lag:
        per_minute[row["consumer"], row["minute"]] += row["rows_behind"]
    largest: dict[str, dict[datetime, float]] = defaultdict(dict)
    for (consumer, minute), behind in per_minute.items():
        at = minute if first is None else first + (minute - first) // step * step
        largest[consumer][at] = max(behind, largest[consumer].get(at, 0.0))
    worst = sorted(largest, key=lambda consumer: (-max(largest[consumer].values()), consumer))
    return {consumer: sorted(largest[consumer].items()) for consumer in worst[:LINES_MAX]}


def _middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #667; --line: #d8dce2; --page: #fff;
  --c0: #1f77b4; --c1: #d9710b; --c2: #2a9050; --c3: #b03060; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #9aa3af; --line: #343a42;
  --page: #15181c; --c0: #6cb2eb; --c1: #f2a65a; --c2: #6fcf97; --c3: #eb7aa5; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 960px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .4rem; }
p.about, p.none, .legend { color: var(--soft); margin: .2rem 0 1rem; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(8rem, 1fr)); gap: .8rem; }
dt { color: var(--soft); font-size: .85rem; } dd { margin: 0; font-size: 1.35rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 500; } .number { text-align: right; white-space: nowrap; }
svg { width: 100%; height: auto; } svg text { font-size: 12px; fill: var(--soft); }
svg .end { text-anchor: end; } .grid { stroke: var(--line); }
polyline { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); }
.c3 { stroke: var(--c3); } .dot { fill: currentColor; }
.k0 { fill: var(--c0); background: var(--c0); } .k1 { fill: var(--c1); background: var(--c1); }
.k2 { fill: var(--c2); background: var(--c2); } .k3 { fill: var(--c3); background: var(--c3); }
.legend span { margin-right: 1.2rem; } .legend i { display: inline-block; width: .8rem;
  height: .8rem; border-radius: .2rem; margin-right: .35rem; vertical-align: -.1rem; }
"""
_PLOTS: Final = (
    ("Throughput", "messages per second", ("messages/s",)),
    ("Volume", "bytes per second", ("bytes/s",)),
    (
        "From the publisher to the node",
        "milliseconds; the worst minute's 95th percentile",
        ("latency p50", "latency p95"),
    ),
    (
        "From the node to the bronze table",
        "milliseconds; the worst minute's 95th percentile",
        ("landing p50", "landing p95"),
    ),
    (
        "Gaps, late messages, duplicates, malformed rows",
        "events per step",
        ("gaps", "late", "duplicates", "malformed"),
    ),
)


def page(figures: Figures, *, title: str, made_at: datetime) -> str:
    """The page as HTML."""
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        '<meta name="viewport" content="width=device-width">',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        f'<p class="about">{escape(_span(figures))} Made {_time(made_at)}.</p>',
        _totals_list(figures.totals),
    ]
    plots = [
        (heading, unit, {name: figures.series[name] for name in names})
        for heading, unit, names in _PLOTS
    ]
    lag = ("Consumer lag", "entries not committed yet; the furthest behind", figures.consumers)
    for heading, unit, series in (*plots, lag):
        parts.append(f'<h2>{escape(heading)}</h2><p class="about">{escape(unit)}</p>')
        parts.append(lines(series, unit=f"{heading}, {unit}"))
    top = [(f"{row['publisher']} {row['stream']}", row["messages"]) for row in figures.publishers]
    parts.append("<h2>Top publishers</h2>" + bars(top, unit="Top publishers, messages"))
    for heading, rows in (
        ("Streams", figures.streams),
        ("Publishers", figures.publishers),
        ("Chains with gaps, late messages or duplicates", figures.chains),
        ("Lag by partition", figures.lag),
    ):
        parts.append(f"<h2>{escape(heading)}</h2>{table(rows)}")
    parts.append("</body></html>\n")
    return "\n".join(parts)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows with the same keys as an HTML table; numbers stand right."""
    if not rows:
        return '<p class="none">none</p>'
    head = "".join(
        f"<th{_class(rows[0][name])}>{escape(name.replace('_', ' '))}</th>" for name in rows[0]
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{_class(value)}>{_shown(value)}</td>" for value in row.values())
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _totals_list(totals: Mapping[str, float]) -> str:
    parts = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{value:,.0f}</dd></div>" for name, value in totals.items()
    )
    return f"<dl>{parts}</dl>"


def _span(figures: Figures) -> str:
    if figures.first is None or figures.last is None:
        return "The gold tables hold nothing yet."
    minutes = round(figures.step.total_seconds() / 60)
    step = "1 minute" if minutes == 1 else f"{minutes} minutes"
    return f"{_time(figures.first)} to {_time(figures.last)}, in steps of {step}."


def _time(time: datetime) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC")


def _class(value: object) -> str:
    return ' class="number"' if isinstance(value, int | float) else ""


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else escape(str(value))
