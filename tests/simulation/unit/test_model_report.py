"""The report of a propagation study."""

import re

from rillnode.node.simulation.model import model_document, propagate
from rillnode.node.simulation.report import model_report
from rillnode.node.simulation.scenario import LatencyTable, Scenario


def report(latency: LatencyTable, seeds: int = 2) -> tuple[str, list[float]]:
    """The page about some seeds, and the mean of each."""
    scenario = Scenario(
        name="<study>", mode="model", nodes=80, degree=3, messages=2, latency=latency
    )
    found = [propagate(scenario, seed) for seed in range(seeds)]
    documents = [model_document(one) for one in found]
    means = [document["propagation"]["mean_ms"] for document in documents]
    return model_report(found[0], documents), means


def labels(page: str) -> set[str]:
    """The texts of all plots."""
    return {*re.findall(r"<text[^>]*>([^<]*)</text>", page)}


def test_simulation_and_theory_are_side_by_side_for_sizes_up_to_the_scenarios() -> None:
    page, _ = report(LatencyTable())
    assert all(f"<tr><th>{nodes}</th><td>" in page for nodes in (32, 64, 80))
    assert "<td>theory</td>" in page
    assert {"each node", "the last node", "model", "theory"} <= labels(page)
    assert "<study>" not in page


def test_where_theory_says_nothing_that_is_said() -> None:
    page, _ = report(LatencyTable(model="constant"))
    assert "Theory has no figures" in page
    assert "model" in labels(page)
    assert "theory" not in labels(page)


def test_figures_are_means_over_all_seeds() -> None:
    page, means = report(LatencyTable(), seeds=3)
    assert f"<th>propagation.mean_ms</th><td>{round(sum(means) / 3, 3):,}</td>" in page
    assert "<th>standard_error_ms</th>" in page
