"""Overlays of real nodes: how messages spread, beside the least that it can take."""

from random import Random
from statistics import fmean

import pytest

from rillnode.actors.overlay.topology import Topology
from rillnode.node.simulation.latency import make_latency
from rillnode.node.simulation.model import flood
from rillnode.node.simulation.scenario import DiskTable, LatencyTable, Scenario
from rillnode.node.simulation.spreading import Spreading


def scenario(nodes: int, *, degree: int = 4, messages: int = 5) -> Scenario:
    return Scenario(
        nodes=nodes,
        degree=degree,
        overlay=True,
        messages=messages,
        seconds=float(messages),
        processing_ms=1.0,
        disk=DiskTable(sync_ms=0.0),
    )


def test_messages_take_the_fastest_way_and_as_many_copies_as_theory_says() -> None:
    spreading = Spreading(scenario(10), 1)
    found = spreading.run()
    assert spreading.problems == []
    assert found.copies == 5 * (10 * 3 + 1)
    assert len(found.arrivals_ms) == 5 * 9
    assert fmean(found.arrivals_ms) == pytest.approx(fmean(spreading.fastest_ms), rel=0.03)


def test_bursts_spread_whole_with_as_many_copies() -> None:
    spreading = Spreading(scenario(10, messages=7), 1, burst=3)
    found = spreading.run()
    assert spreading.problems == []
    assert found.copies == 7 * (10 * 3 + 1)
    assert set(spreading.cpu_seconds) == {"start", "form", "spread"}


def test_a_seed_decides_everything() -> None:
    runs = [Spreading(scenario(6, messages=2), 3).run() for _ in range(2)]
    assert runs[0].trace_hash == runs[1].trace_hash
    assert runs[0].arrivals_ms == runs[1].arrivals_ms


@pytest.mark.parametrize(
    ("nodes", "degree", "overlays", "mean_ms"),
    [(32, 4, 300, 145.3), (128, 4, 80, 212.1), (128, 8, 40, 117.7)],
)
def test_overlays_that_a_tracker_forms_spread_as_random_regular_graphs_do(
    nodes: int, degree: int, overlays: int, mean_ms: float
) -> None:
    """The curve: hundreds of random regular graphs over the same cities, 1 ms for each hop."""
    means: list[float] = []
    for seed in range(overlays):
        latency = make_latency(LatencyTable(), nodes, Random(f"{seed} places"))
        topology = Topology(degree, Random(seed))
        for number in range(nodes):
            topology.update(str(number), ())
            topology.form(str(number))
        links = [
            [
                (int(other), 1_000 * latency.seconds(node, int(other)) + 1.0)
                for other in topology.neighbours(str(node))
            ]
            for node in range(nodes)
        ]
        for source in Random(seed).choices(range(nodes), k=4):
            arrivals, _ = flood(links, source, 5.0)
            means.append(sum(arrivals) / (nodes - 1))
    assert fmean(means) == pytest.approx(mean_ms, rel=0.03)


@pytest.mark.long
@pytest.mark.parametrize(("nodes", "degree"), [(64, 4), (128, 8), (256, 4)])
def test_large_overlays_of_real_nodes_meet_theory(nodes: int, degree: int) -> None:
    spreading = Spreading(scenario(nodes, degree=degree, messages=20), 1)
    found = spreading.run()
    assert spreading.problems == []
    assert found.copies == 20 * (nodes * (degree - 1) + 1)
    assert fmean(found.arrivals_ms) == pytest.approx(fmean(spreading.fastest_ms), rel=0.03)
