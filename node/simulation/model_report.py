"""The report of how messages spread, by the model or through real nodes: one HTML page."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from math import log
from typing import Any

from rillnode.node.simulation import plots
from rillnode.node.simulation.model import Propagation, means_by_nodes, model_summary
from rillnode.node.simulation.page import page, paragraph, scenario_section, section, table
from rillnode.node.simulation.scenario import Scenario
from rillnode.node.simulation.theory import growth_of


def model_report(
    found: Propagation, documents: Sequence[Mapping[str, Any]], problems: Sequence[str] = ()
) -> str:
    """The page about one seed or many.

    Args:
        found: what the first seed gave; it is drawn.
        documents: what `model_document` has made of each seed; figures are means over them.
        problems: what went wrong, of all seeds.
    """
    scenario, figures = found.scenario, model_summary(documents)
    hops = {str(count): float(found.hops[count]) for count in sorted(found.hops)}
    parts = [
        *(paragraph(text) for text in _about(scenario, len(documents))),
        f"<p>Plots of messages, hops and links show the overlay of seed {found.seed}. The seed "
        "decided everything in it: every run with it has the trace hash "
        f"<code>{escape(found.trace_hash)}</code>.</p>",
        section("What went wrong", *(paragraph(one, kind="broken") for one in problems))
        if problems
        else "",
        section("Figures", table(_figures(scenario, figures))),
        plots.lines(
            "When messages reached nodes",
            {
                "each node": plots.cumulative(found.arrivals_ms),
                "the last node": plots.cumulative(found.last_ms),
            },
            across="milliseconds since publishing",
            up="part of the arrivals",
        ),
        _calibration(scenario, found.seed, figures),
        plots.bars("Hops that first copies took", hops, up="copies", across="hops"),
        plots.bars("Bytes that each node sent", _of_nodes(found.bytes_sent), up="bytes"),
        plots.topology("The overlay", found.neighbours, found.places),
        scenario_section(scenario),
    ]
    return page(scenario.name, parts)


def _about(scenario: Scenario, seeds: int) -> list[str]:
    what = (
        f"{scenario.messages:,} messages, each from a node drawn at random, spread through an "
        f"overlay of {scenario.nodes:,} nodes with {scenario.degree} neighbours each. "
    )
    if scenario.mode == "model":
        how = (
            "Every node handed on the first copy that reached it to all but the one it came from, "
            f"after {scenario.processing_ms:g} ms; there was no protocol, and nothing queued. The "
            "overlay is a random regular graph."
        )
    else:
        how = (
            "The nodes ran the code that nodes run everywhere, on a virtual clock and network; a "
            "tracker formed the overlay. Time runs from when a message is durable where it was "
            "published, until a node hands it to its log; each hop costs "
            f"{scenario.processing_ms:g} ms of processing."
        )
    many = f"Figures are means over {seeds:,} overlays." if seeds > 1 else "One overlay was made."
    return [what + how, many]


def _figures(scenario: Scenario, figures: Mapping[str, Any]) -> list[tuple[str, str]]:
    times, expected = figures["propagation"], scenario.nodes * (scenario.degree - 1) + 1
    error = figures["standard_error_ms"]
    likely = "" if error is None else f", standard error {error:,.1f} ms"
    rows = [
        ("mean time to a node", f"{times['mean_ms']:,.1f} ms{likely}"),
        ("median", f"{times['p50_ms']:,.1f} ms"),
        ("90th percentile", f"{times['p90_ms']:,.1f} ms"),
        ("99th percentile", f"{times['p99_ms']:,.1f} ms"),
        ("the last node, mean", f"{times['last_node_ms']:,.1f} ms"),
        ("hops, mean", f"{figures['hops']['mean']:,.2f}"),
        ("hops, most", f"{figures['hops']['max']:,}"),
        (
            "copies for each message",
            f"{figures['copies_per_message']:,.0f}; nodes x (degree - 1) + 1 = {expected:,}",
        ),
        ("copies per second of this computer", f"{figures['copies_per_second']:,}"),
    ]
    if "fastest_mean_ms" in figures:
        fastest = figures["fastest_mean_ms"]
        more = times["mean_ms"] / fastest - 1 if fastest else 0.0
        least = f"{fastest:,.1f} ms; messages took {more:.1%} more"
        rows.insert(1, ("the least these overlays allow", least))
    return rows


def _calibration(scenario: Scenario, seed: int, figures: Mapping[str, Any]) -> str:
    """The means of overlays of several sizes, beside what theory says of them."""
    model, growth = means_by_nodes(scenario, seed), growth_of(scenario)
    mean_ms, real = figures["propagation"]["mean_ms"], scenario.mode == "protocol"
    if not real:
        model[scenario.nodes] = mean_ms
    series = {"model": list(model.items())}
    if real:
        series["real nodes"] = [(scenario.nodes, mean_ms)]
    said = "Theory has no figures for such delays and overlays."
    if growth is not None:
        said = (
            f"Theory is of large overlays; here that is from about {growth.nodes_min:,} nodes on. "
            f"It says that each doubling of the nodes adds {growth.growth_ms * log(2):.1f} ms."
        )
        large = [nodes for nodes in model if nodes >= growth.nodes_min]
        if large:
            series["theory"] = [(nodes, growth.mean_ms(nodes)) for nodes in large]
    heads = ("nodes", "model", *(("real nodes",) if real else ()), "theory")
    rows: list[list[str]] = []
    for nodes, modelled in model.items():
        row = [f"{nodes:,}", f"{modelled:,.1f} ms"]
        if real:
            row.append(f"{mean_ms:,.1f} ms" if nodes == scenario.nodes else "")
        theory = dict(series.get("theory", ())).get(nodes)
        row.append("" if theory is None else f"{theory:,.1f} ms")
        rows.append(row)
    drawn = plots.lines(
        "Mean time to a node against the number of nodes",
        series,
        across="nodes",
        up="milliseconds",
        doubling=True,
    )
    note = f"{said} One overlay's mean differs from another's by about a tenth: use many seeds."
    return section("Simulation and theory", paragraph(note), table(rows, heads), drawn)


def _of_nodes(values: Mapping[str, int]) -> dict[str, float]:
    """Those of nodes, in their order; others are the tracker's."""
    nodes = [name for name in values if re.fullmatch("n[0-9]+", name)]
    return {name: float(values[name]) for name in sorted(nodes, key=lambda name: int(name[1:]))}
