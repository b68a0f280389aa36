"""The report as one page: figures, tables and plots, without any request to anywhere."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any, Final

from rillnode.node.spark import svg
from rillnode.node.spark.report_figures import Figures

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
        _totals(figures.totals),
    ]
    plots = [
        (heading, unit, {name: figures.series[name] for name in names})
        for heading, unit, names in _PLOTS
    ]
    lag = ("Consumer lag", "entries not committed yet; the furthest behind", figures.consumers)
    for heading, unit, series in (*plots, lag):
        parts.append(f'<h2>{escape(heading)}</h2><p class="about">{escape(unit)}</p>')
        parts.append(svg.lines(series, unit=f"{heading}, {unit}"))
    top = [(f"{row['publisher']} {row['stream']}", row["messages"]) for row in figures.publishers]
    parts.append("<h2>Top publishers</h2>" + svg.bars(top, unit="Top publishers, messages"))
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


def _totals(totals: Mapping[str, float]) -> str:
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
