"""Calibration: the simulated spreading of messages, beside a reference curve and theory.

The curve: first arrivals on random regular graphs whose nodes are in the 43 cities, 1 ms for each
hop; means over hundreds of graphs with 20 messages each, other figures over ten graphs.
"""

from typing import Any

import pytest

from planting import in_the_long_part
from rillnode.node.simulation.model import model_document, model_summary, propagate
from rillnode.node.simulation.scenario import LatencyTable, ModelTable, Scenario
from rillnode.node.simulation.theory import growth_of


def study(
    *, degree: int, nodes: int, overlays: int, latency: LatencyTable | None = None
) -> tuple[dict[str, Any], float]:
    """The figures of so many overlays, and the mean that theory gives."""
    scenario = Scenario(
        model=ModelTable(degree=degree),
        nodes=nodes,
        messages=20,
        processing_ms=1.0,
        latency=latency or LatencyTable(),
    )
    found = model_summary([model_document(propagate(scenario, seed)) for seed in range(overlays)])
    growth = growth_of(scenario)
    assert growth is not None
    return found, growth.mean_ms(nodes)


@pytest.mark.parametrize(
    ("degree", "nodes", "overlays", "mean_ms", "p99_ms", "last_ms"),
    [
        pytest.param(4, 32, 150, 145.3, 292, 247, marks=pytest.mark.long),
        (4, 128, 80, 212.1, 366, 356),
        pytest.param(4, 512, 20, 280.2, 432, 440, marks=pytest.mark.long),
        pytest.param(8, 128, 60, 117.7, 219, 210, marks=pytest.mark.long),
    ],
)
def test_the_reference_curve_is_met(
    degree: int, nodes: int, overlays: int, mean_ms: float, p99_ms: float, last_ms: float
) -> None:
    found, _ = study(degree=degree, nodes=nodes, overlays=overlays)
    assert found["propagation"]["mean_ms"] == pytest.approx(mean_ms, rel=0.03)
    assert found["propagation"]["p99_ms"] == pytest.approx(p99_ms, rel=0.08)
    assert found["propagation"]["last_node_ms"] == pytest.approx(last_ms, rel=0.08)
    assert found["copies_per_message"] == nodes * (degree - 1) + 1


@pytest.mark.parametrize(
    ("degree", "nodes", "overlays"),
    [(5, 256, 30), *in_the_long_part([(3, 128, 60), (4, 256, 30), (6, 512, 15)])],
)
def test_between_and_beyond_theory_is_met(degree: int, nodes: int, overlays: int) -> None:
    found, theory = study(degree=degree, nodes=nodes, overlays=overlays)
    assert found["propagation"]["mean_ms"] == pytest.approx(theory, rel=0.04)


def test_lognormal_delays_meet_theory() -> None:
    table = LatencyTable(model="lognormal", mean_ms=50.0, sigma=0.5)
    found, theory = study(degree=4, nodes=512, overlays=10, latency=table)
    assert found["propagation"]["mean_ms"] == pytest.approx(theory, rel=0.03)


@pytest.mark.long
@pytest.mark.parametrize(
    ("degree", "nodes", "overlays"), [(4, 2_048, 20), (8, 4_096, 10), (4, 100_000, 2)]
)
def test_large_overlays_meet_theory(degree: int, nodes: int, overlays: int) -> None:
    found, theory = study(degree=degree, nodes=nodes, overlays=overlays)
    assert found["propagation"]["mean_ms"] == pytest.approx(theory, rel=0.03)
