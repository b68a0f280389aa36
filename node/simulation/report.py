"""Reports: one HTML page about a run or a study that needs nothing else, with plots."""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

import msgspec

from rillnode.node.simulation import plots
from rillnode.node.simulation.faults import Fault
from rillnode.node.simulation.invariants import RULES
from rillnode.node.simulation.model import Propagation, model_summary
from rillnode.node.simulation.results import Result, flat
from rillnode.node.simulation.scenario import Scenario, ScenarioKeys

_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>
:root {{ color-scheme: light dark }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto;
  padding: 0 1rem }}
table {{ border-collapse: collapse; margin: 1rem 0 }}
td, th {{ text-align: left; padding: .15rem 1.2rem .15rem 0; vertical-align: top }}
th {{ font-weight: 600 }}
figure {{ margin: 1.5rem 0 }} figcaption {{ font-weight: 600; margin-bottom: .4rem }}
svg {{ width: 100%; height: auto; background: white }}
code, pre {{ font-size: 13px; overflow-wrap: anywhere }} pre {{ overflow-x: auto }}
summary {{ cursor: pointer }} .broken {{ color: #d1495b }} .kept {{ color: #2e8b57 }}
</style></head><body>
{body}</body></html>
"""

_HOSTS: Final = (
    "Hosts are called by what runs there: n nodes; p producers, f followers, s slow readers, "
    "c consumers, m members of groups, k workers, r readers, a callers, e examiners, which try "
    "what they may not, and other letters clients in plug-ins' protocols. Each uses the node that "
    "its number, counted around, names. The checker reads all logs at the end."
)


def html_report(
    name: str,
    result: Result,
    documents: Sequence[Mapping[str, Any]],
    scenario: Scenario | None = None,
) -> str:
    """The page about one run, which was alone or one of several.

    Args:
        name: of the scenario.
        result: what the run gave that is shown.
        documents: what `results.document` has made of every run.
        scenario: what was simulated; None: one of the user's own.
    """
    document = next(one for one in documents if one["seed"] == result.seed)
    about = (
        f"Real code ran on a virtual clock and network for {result.virtual_seconds:.1f} virtual "
        f"seconds. Seed {result.seed} decided everything: every run with it has the trace hash "
        f"{result.trace_hash}."
    )
    parts = [
        _paragraph(about),
        _verdict(documents),
        _violations(document),
        _faults(result.faults, result.virtual_seconds),
    ]
    if scenario is None:
        happened = [(f"{one.at:.3f} s", one.who, f"{one.what} {one.text}") for one in result.events]
        parts.append(_section("What was done to hosts", _table(happened)) if happened else "")
        return _page(name, parts)
    broken = {violation.rule for violation in result.violations}
    rules = [
        (rule, "broken" if rule in broken else "kept", text)
        for rule, text in RULES.items()
        if scenario.sharing is not None or not rule.startswith("overlay-")
    ]
    parts += [
        _section("Figures", _figures(document)),
        plots.lines(
            "How long it took until entries were confirmed, and until followers had them",
            {
                "confirmed": plots.cumulative(result.latencies_ms),
                "delivered": plots.cumulative(result.deliveries_ms),
            },
            across="milliseconds since the push",
            up="part of the entries",
        ),
        _section("Hosts", _paragraph(_HOSTS)),
        plots.bars("Bytes that each host sent", _by_name(result.bytes_sent), up="bytes"),
        _section("Rules", _table(rules)),
        _scenario(scenario),
    ]
    return _page(name, parts)


def model_report(
    found: Propagation, documents: Sequence[Mapping[str, Any]], problems: Sequence[str] = ()
) -> str:
    """The page about how messages spread, by the model or through real nodes.

    Args:
        found: what the first seed gave; it is drawn.
        documents: what `model_document` has made of each seed; figures are means over them.
        problems: what went wrong, of all seeds.
    """
    scenario, figures = found.scenario, model_summary(documents)
    if scenario.model is not None:
        how = (
            "Every node handed on the first copy that reached it to all but the one it came from. "
            "There was no protocol, and nothing queued; the overlay is a random regular graph."
        )
    else:
        how = (
            "Real nodes ran on a virtual clock and network; a tracker formed the overlay. Time "
            "runs from when a message is durable where it was published, until a node hands it to "
            "its log."
        )
    about = (
        f"{how} Figures are means over {len(documents):,} seeds; plots of messages, hops and links "
        f"show seed {found.seed}, of which every run has the trace hash {found.trace_hash}."
    )
    hops = {str(count): float(found.hops[count]) for count in sorted(found.hops)}
    nodes = {name: sent for name, sent in found.bytes_sent.items() if re.fullmatch("n[0-9]+", name)}
    wrong = [_paragraph(one, kind="broken") for one in problems]
    parts = [
        _paragraph(about),
        _section("What went wrong", *wrong) if wrong else "",
        _section("Figures", _figures(figures)),
        plots.lines(
            "When messages reached nodes",
            {
                "each node": plots.cumulative(found.arrivals_ms),
                "the last node": plots.cumulative(found.last_ms),
            },
            across="milliseconds since publishing",
            up="part of the arrivals",
        ),
        plots.bars("Hops that first copies took", hops, up="copies", across="hops"),
        plots.bars("Bytes that each node sent", _by_name(nodes), up="bytes"),
        plots.topology("The overlay", found.neighbours, found.places),
        _scenario(scenario),
    ]
    return _page(scenario.name, parts)


# Parts of both -----------------------------------------------------------------------------------


def _verdict(documents: Sequence[Mapping[str, Any]]) -> str:
    failed = [one for one in documents if one["violations"]]
    if not failed:
        return _paragraph(f"All rules were kept, in {len(documents):,} runs.", kind="kept")
    said = f"Rules were broken, in {len(failed):,} of {len(documents):,} runs."
    again = _table([(f"seed {one['seed']}", one["repeat"]) for one in failed])
    return _paragraph(said, kind="broken") + again


def _violations(document: Mapping[str, Any]) -> str:
    rows = [(f"{one['at']:.3f} s", one["rule"], one["text"]) for one in document["violations"]]
    return _section("What was broken", _table(rows)) if rows else ""


def _faults(faults: Sequence[Fault], virtual_seconds: float) -> str:
    if not faults:
        return ""
    order = list(_by_name({fault.host: 0 for fault in faults}))
    spans = [
        (fault.host, fault.kind, fault.at, fault.at + fault.seconds)
        for fault in sorted(faults, key=lambda one: order.index(one.host))
    ]
    seconds = max([virtual_seconds, *(end for _, _, _, end in spans)])
    listed = _table([text.split(": ", 1) for text in map(str, faults)])
    return plots.time_line("Faults", spans, seconds=seconds) + _folded("Faults by number", listed)


def _figures(document: Mapping[str, Any]) -> str:
    """The figures of a document, under the names that it and the CSV have for them."""
    rows: list[tuple[str, str]] = []
    for name, value in flat(document).items():
        rows.append((name, f"{value:,}" if isinstance(value, int | float) else str(value)))
    return _table(rows)


def _scenario(scenario: Scenario) -> str:
    shown = {name: getattr(scenario, name) for name in ScenarioKeys.__struct_fields__}
    shown |= {one.table: one for one in scenario.tables}
    text = msgspec.json.format(msgspec.json.encode(shown, enc_hook=str)).decode()
    return _section("Scenario", _folded("With all defaults", f"<pre>{escape(text)}</pre>"))


def _by_name(values: Mapping[str, Any]) -> dict[str, Any]:
    """In the order of names, nodes first: n0, n1, ..., n10."""

    def place(name: str) -> tuple[bool, str, int]:
        letters = name.rstrip("0123456789")
        return letters != "n", letters, int(name[len(letters) :] or 0)

    return {name: values[name] for name in sorted(values, key=place)}


def _page(title: str, parts: Iterable[str]) -> str:
    body = "\n".join(part for part in (f"<h1>{escape(title)}</h1>", *parts) if part)
    return _PAGE.format(title=escape(title), body=body)


def _section(title: str, *parts: str) -> str:
    return "\n".join((f"<h2>{escape(title)}</h2>", *parts))


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary>{text}</details>"


def _paragraph(text: str, *, kind: str = "") -> str:
    return f'<p class="{kind}">{escape(text)}</p>'


def _table(rows: Iterable[Sequence[str]]) -> str:
    """A table of texts; the first of each row names it."""
    lines = [
        f"<tr><th>{escape(first)}</th>{''.join(f'<td>{escape(one)}</td>' for one in rest)}</tr>"
        for first, *rest in rows
    ]
    return f"<table>{''.join(lines)}</table>"
