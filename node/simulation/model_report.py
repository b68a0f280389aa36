"""The report of a propagation study: one HTML page that needs nothing else."""

from collections.abc import Mapping, Sequence
from html import escape
from math import log, log2
from typing import Any

from rillnode.node.simulation import plots
from rillnode.node.simulation.model import Propagation, means_by_nodes, model_summary
from rillnode.node.simulation.report import page, scenario_text, section, table
from rillnode.node.simulation.scenario import Scenario
from rillnode.node.simulation.theory import growth_of


def model_report(found: Propagation, documents: Sequence[Mapping[str, Any]]) -> str:
    """The page about one seed or many.

    Args:
        found: what the first seed gave; it is drawn.
        documents: what `model_document` has made of each seed; figures are means over them.
    """
    scenario, figures = found.scenario, model_summary(documents)
    expected = scenario.nodes * (scenario.degree - 1) + 1
    about = (
        f"{scenario.messages:,} messages flooded a random overlay of {scenario.nodes:,} nodes with "
        f"{scenario.degree} neighbours each. Every node handed on the first copy that reached it, "
        f"after {scenario.processing_ms:g} ms; nothing queued. In theory a message takes "
        f"N(d-1)+1 = {expected:,} copies; here it took {figures['copies_per_message']:,.0f}. "
        f"Figures are means over {len(documents):,} overlays; the plots of messages, hops and "
        f"links show that of seed {found.seed}, which decided everything in it: every run with "
        f"this seed has the trace hash "
    )
    rows = [
        *((name, f"{value:,}") for name, value in figures["propagation"].items()),
        ("hops, mean", f"{figures['hops']['mean']:,}"),
        ("hops, most", f"{figures['hops']['max']:,}"),
        ("copies per second of this computer", f"{figures['copies_per_second']:,}"),
    ]
    hops = {str(count): float(found.hops[count]) for count in sorted(found.hops)}
    parts = [
        f"<h1>{escape(scenario.name)}</h1>",
        f"<p>{escape(about)}<code>{found.trace_hash}</code>.</p>",
        section("Figures", table(rows)),
        plots.lines(
            "When messages reached nodes",
            {
                "each node": plots.cumulative(found.arrivals_ms),
                "the last node": plots.cumulative(found.last_ms),
            },
            across="milliseconds since publishing",
            up="part of the arrivals",
        ),
        _calibration(scenario, found.seed, figures["propagation"]["mean_ms"]),
        plots.bars("Hops that first copies took", hops, up="copies"),
        plots.topology("The overlay", found.neighbours, found.places),
        section("Scenario", f"<pre>{escape(scenario_text(scenario))}</pre>"),
    ]
    return page(scenario.name, parts)


def _calibration(scenario: Scenario, seed: int, mean_ms: float) -> str:
    """The simulated mean of overlays of several sizes, beside what theory says of them."""
    simulated = {**means_by_nodes(scenario, seed), scenario.nodes: mean_ms}
    growth = growth_of(scenario)
    series = {"simulated": [(log2(nodes), mean) for nodes, mean in simulated.items()]}
    if growth is None:
        said = "Theory has no figures for such delays and overlays."
        rows = [(f"{nodes:,} nodes", f"{mean:,.1f} ms") for nodes, mean in simulated.items()]
    else:
        said = (
            f"What theory says of such delays and overlays, from about {scenario.degree**3:,} "
            f"nodes on: each doubling of the nodes adds {growth.growth_ms * log(2):.1f} ms."
        )
        series["theory"] = [(log2(nodes), growth.mean_ms(nodes)) for nodes in simulated]
        rows = [
            (
                f"{nodes:,} nodes",
                f"{mean:,.1f} ms; theory {growth.mean_ms(nodes):,.1f} ms; "
                f"{mean / growth.mean_ms(nodes) - 1:+.1%}",
            )
            for nodes, mean in simulated.items()
        ]
    drawn = plots.lines(
        "Mean time to a node against the number of nodes",
        series if len(simulated) > 1 else {},
        across="nodes, as a power of two",
        up="milliseconds",
    )
    return section("Simulation and theory", f"<p>{escape(said)}</p>{table(rows)}{drawn}")
