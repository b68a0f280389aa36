"""The report of runs that are held to rules: one HTML page about one of them."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from rillnode.node.simulation import plots
from rillnode.node.simulation.faults import Fault
from rillnode.node.simulation.invariants import RULES
from rillnode.node.simulation.page import page, paragraph, scenario_section, section, table
from rillnode.node.simulation.run import Result
from rillnode.node.simulation.scenario import Scenario
from rillnode.node.simulation.trials import Trial

_HOSTS: Final = (
    "Hosts are called by what runs there: n nodes; p producers, f followers, s slow readers, "
    "c consumers, m members of groups, k workers, r readers, a callers, o users of Ockam's "
    "protocols and e examiners, which try what they may not, each the client of the node that its "
    "number, counted around, names. The checker reads all logs at the end."
)


def html_report(scenario: Scenario, result: Result, documents: Sequence[Mapping[str, Any]]) -> str:
    """The page about one run, which was alone or one of several.

    Args:
        scenario: what was simulated.
        result: what the run gave that is shown.
        documents: what `figures.document` has made of every run.
    """
    document = next(one for one in documents if one["seed"] == result.seed)
    broken = {violation.rule for violation in result.violations}
    parts = [
        f"<p>{_about(scenario, result)}</p>",
        _verdict(documents),
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
        section("Hosts", paragraph(_HOSTS)),
        _faults(result.faults, result.virtual_seconds),
        plots.matrix(
            "Entries that each follower (across) got from each producer",
            _by_name({name: _by_name(row) for name, row in result.matrix.items()}),
        ),
        plots.bars("Bytes that each host sent", _by_name(result.bytes_sent), up="bytes"),
        section("Rules", table(_rules(scenario, broken))),
        scenario_section(scenario),
    ]
    return page(scenario.name, parts)


def application_report(name: str, trial: Trial, documents: Sequence[Mapping[str, Any]]) -> str:
    """The page about one run of a scenario of the user's; see `html_report`."""
    document = next(one for one in documents if one["seed"] == trial.seed)
    about = (
        f"The application ran on nodes with a virtual clock and network for "
        f"{trial.virtual_seconds:.1f} virtual seconds. Seed {trial.seed} decided everything: every "
        f"run with it has the trace hash <code>{trial.trace_hash}</code>."
    )
    happened = [(f"{one.at:.3f} s", one.who, f"{one.what} {one.text}") for one in trial.events]
    parts = [
        f"<p>{about}</p>",
        _verdict(documents),
        _violations(document),
        _faults(trial.faults, trial.virtual_seconds),
        section("What was done to hosts", table(happened)) if happened else "",
    ]
    return page(name, parts)


def _about(scenario: Scenario, result: Result) -> str:
    who = "One node and its" if scenario.nodes == 1 else f"{scenario.nodes} nodes and their"
    return (
        f"{who} clients ran the code that nodes and clients run "
        f"everywhere, on a virtual clock and network, for {result.virtual_seconds:.1f} virtual "
        f"seconds, which took {result.wall_seconds:.2f} seconds. Seed {result.seed} decided "
        f"everything: every run with it has the trace hash <code>{result.trace_hash}</code>."
    )


def _verdict(documents: Sequence[Mapping[str, Any]]) -> str:
    failed = [one for one in documents if one["violations"]]
    if len(documents) == 1:
        said = "Rules were broken." if failed else "All rules were kept."
        return paragraph(said, kind="broken" if failed else "kept")
    runs = f"{len(documents):,} seeds were run, from {documents[0]['seed']} on."
    if not failed:
        return paragraph(f"{runs} All rules were kept in each.", kind="kept")
    said = paragraph(f"{runs} Rules were broken by {len(failed):,}.", kind="broken")
    return said + table([(f"seed {one['seed']}", one["repeat"]) for one in failed])


def _violations(document: Mapping[str, Any]) -> str:
    if not document["violations"]:
        return ""
    rows = [
        (f"{one['at']:.3f} s", f"{one['rule']}: {one['text']}") for one in document["violations"]
    ]
    again = f"<p>Repeat it: <code>{escape(document['repeat'])}</code></p>"
    return section("What was broken", again, table(rows))


def _faults(faults: Sequence[Fault], virtual_seconds: float) -> str:
    if not faults:
        return ""
    spans = [(fault.host, fault.kind, fault.at, fault.at + fault.seconds) for fault in faults]
    seconds = max([virtual_seconds, *(end for _, _, _, end in spans)])
    order = list(_by_name({host: 0 for host, *_ in spans}))
    spans.sort(key=lambda span: order.index(span[0]))
    listed = table([tuple(text.split(": ", 1)) for text in map(str, faults)])
    return plots.time_line("Faults", spans, seconds=seconds) + (
        f"<details><summary>The list of faults, by number</summary>{listed}</details>"
    )


def _figures(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    healed = document["healed_seconds"]
    rows = [
        ("entries pushed", f"{document['pushed']:,}"),
        ("entries confirmed", f"{document['confirmed']:,}"),
        ("entries that followers got", f"{document['delivered']:,}"),
        (
            "after the last fault, all clients had everything",
            "never" if healed is None else f"within {healed:g} s",
        ),
    ]
    for key, what in (("confirm", "from push to confirm"), ("delivery", "from push to follower")):
        rows += [
            (f"{what}, {name}", _milliseconds(document[key][figure]))
            for figure, name in (
                ("mean_ms", "mean"),
                ("p50_ms", "median"),
                ("p99_ms", "99th percentile"),
                ("max_ms", "most"),
            )
        ]
    rows += [(f"segments {name}", f"{count:,}") for name, count in _network(document["network"])]
    return [*rows, ("events", f"{document['events']:,}")]


def _network(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return [("sent" if name == "segments" else name, count) for name, count in counts.items()]


def _milliseconds(value: float) -> str:
    return f"{value:,.1f} ms" if value < 10_000 else f"{value / 1_000:,.1f} s"


def _rules(scenario: Scenario, broken: set[str]) -> list[tuple[str, str, str]]:
    return [
        (rule, "broken" if rule in broken else "kept", text)
        for rule, text in RULES.items()
        if scenario.overlay or not rule.startswith("overlay-")
    ]


def _by_name(values: Mapping[str, Any]) -> dict[str, Any]:
    """In the order of names, nodes first: n0, n1, ..., n10."""

    def place(name: str) -> tuple[bool, str, int]:
        letters = name.rstrip("0123456789")
        return letters != "n", letters, int(name[len(letters) :] or 0)

    return {name: values[name] for name in sorted(values, key=place)}
