"""The report of a run: one HTML page that needs nothing else."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final, cast

import msgspec

from rillnode.node.simulation import plots
from rillnode.node.simulation.invariants import RULES
from rillnode.node.simulation.run import Result
from rillnode.node.simulation.scenario import Scenario

_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>
:root {{ color-scheme: light dark }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto }}
table {{ border-collapse: collapse; margin: 1rem 0 }}
td, th {{ text-align: left; padding: .15rem .8rem .15rem 0; vertical-align: top }}
figure {{ margin: 1.5rem 0 }} figcaption {{ font-weight: 600 }}
svg {{ width: 100%; font: 11px system-ui, sans-serif }}
code {{ font-size: 13px }} .broken {{ color: #c0392b }} .kept {{ color: #2e8b57 }}
</style></head><body>
{body}</body></html>
"""


def html_report(scenario: Scenario, result: Result, document: Mapping[str, Any]) -> str:
    """The page about one run; `document` is what `figures.document` has made of it."""
    broken = {violation.rule for violation in result.violations}
    verdict = (
        '<p class="broken">Rules were broken.</p>'
        if broken
        else '<p class="kept">All rules were kept.</p>'
    )
    parts = [
        f"<h1>{escape(scenario.name)}</h1>",
        f"<p>{_about(scenario, result)}</p>",
        verdict,
        _violations(document),
        section("Figures", table(_figures(document))),
        plots.lines(
            "How long it took until entries were confirmed, and until followers had them",
            {
                "confirmed": plots.cumulative(result.latencies_ms),
                "delivered": plots.cumulative(result.deliveries_ms),
            },
            across="milliseconds since the push",
            up="part of the entries",
        ),
        _faults(result),
        plots.matrix("Entries that each follower got from each producer", result.matrix),
        plots.bars(
            "Bytes that each host sent",
            {name: float(count) for name, count in result.bytes_sent.items()},
            up="bytes",
        ),
        section("Rules", table([(_mark(rule, broken), text) for rule, text in RULES.items()])),
        section("Scenario", f"<pre>{escape(scenario_text(scenario))}</pre>"),
    ]
    return page(scenario.name, parts)


def page(title: str, parts: Sequence[str]) -> str:
    """A whole page; parts that are empty are left out."""
    return _PAGE.format(title=escape(title), body="\n".join(part for part in parts if part))


def _about(scenario: Scenario, result: Result) -> str:
    return (
        f"{scenario.nodes} nodes and their clients ran the code that nodes and clients run "
        f"everywhere, on a virtual clock and "
        f"network, for {result.virtual_seconds:.1f} virtual seconds, which took "
        f"{result.wall_seconds:.2f} seconds. Seed {result.seed} decided everything: every run with "
        f"it has the trace hash <code>{result.trace_hash}</code>."
    )


def _violations(document: Mapping[str, Any]) -> str:
    if not document["violations"]:
        return ""
    rows = [
        (f"{one['at']:.3f} s", f"{one['rule']}: {one['text']}") for one in document["violations"]
    ]
    again = f"<p>Repeat it: <code>{escape(document['repeat'])}</code></p>"
    return section("What was broken", again + table(rows))


def _faults(result: Result) -> str:
    spans = [
        (fault.host, fault.kind, fault.at, fault.at + fault.seconds) for fault in result.faults
    ]
    seconds = max([result.virtual_seconds, *(end for _, _, _, end in spans)])
    return plots.time_line("Faults", sorted(spans), seconds=seconds)


def _figures(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in document.items():
        if isinstance(value, dict):
            inner = cast(Mapping[str, float], value)
            rows.append((key, ", ".join(f"{name} {one:,}" for name, one in inner.items())))
        elif not isinstance(value, list):
            rows.append((key, "-" if value is None else str(value)))
    return rows


def _mark(rule: str, broken: set[str]) -> str:
    return f"{'broken' if rule in broken else 'kept'}: {rule}"


def section(title: str, inside: str) -> str:
    """A part of a page under a heading."""
    return f"<h2>{escape(title)}</h2>\n{inside}"


def table(rows: Sequence[tuple[str, str]]) -> str:
    """A table of names and texts."""
    lines = "".join(f"<tr><th>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in rows)
    return f"<table>{lines}</table>"


def scenario_text(scenario: Scenario) -> str:
    """A scenario with all its defaults, as JSON."""
    tree = msgspec.to_builtins(scenario, enc_hook=str)
    return msgspec.json.format(msgspec.json.encode(tree), indent=2).decode()
