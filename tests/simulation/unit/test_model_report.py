"""The report of a propagation study."""

import re

from rillnode.node.simulation.model import model_document, propagate
from rillnode.node.simulation.report import model_report
from rillnode.node.simulation.scenario import LatencyTable, ModelTable, Scenario


def report(latency: LatencyTable, seeds: int = 2) -> tuple[str, list[float]]:
    """The page about some seeds, and the mean of each."""
    scenario = Scenario(
        name="<study>", model=ModelTable(degree=3), nodes=80, messages=2, latency=latency
    )
    found = [propagate(scenario, seed) for seed in range(seeds)]
    documents = [model_document(one) for one in found]
    means = [document["propagation"]["mean_ms"] for document in documents]
    return model_report(found[0], documents), means


def labels(page: str) -> set[str]:
    """The texts of all plots."""
    return {*re.findall(r"<text[^>]*>([^<]*)</text>", page)}


def test_theory_is_beside_what_was_measured() -> None:
    page, _ = report(LatencyTable())
    assert "<th>theory_mean_ms</th>" in page
    assert {"each node", "the last node"} <= labels(page)
    assert "<study>" not in page


def test_figures_are_means_over_all_seeds() -> None:
    page, means = report(LatencyTable(), seeds=3)
    assert f"<th>propagation.mean_ms</th><td>{round(sum(means) / 3, 3):,}</td>" in page
    assert "<th>standard_error_ms</th>" in page
