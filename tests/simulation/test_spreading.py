"""Overlays of real nodes: how messages spread, beside the least that it can take."""

import gc
from collections.abc import Iterable, Iterator
from itertools import islice
from random import Random
from statistics import fmean
from typing import Final

import pytest
from msgspec.structs import replace

from rillnode.actors.engine.timers import Timer
from rillnode.actors.overlay.topology import Topology
from rillnode.node.overlay.simulation.table import SharedOverlay
from rillnode.node.simulation.latency import Latency, make_latency
from rillnode.node.simulation.model import flood
from rillnode.node.simulation.scenario import DiskTable, LatencyTable, Scenario
from rillnode.node.simulation.spreading import Spreading


def batched(names: Iterable[str], size: int) -> Iterator[tuple[str, ...]]:
    """The names, so many at a time."""
    rest = iter(names)
    while batch := tuple(islice(rest, size)):
        yield batch


def scenario(nodes: int, *, degree: int = 4, messages: int = 5) -> Scenario:
    return Scenario(
        nodes=nodes,
        messages=messages,
        seconds=float(messages),
        processing_ms=1.0,
        disk=DiskTable(sync_ms=0.0),
        tables=(SharedOverlay(degree=degree),),
    )


def test_messages_take_the_fastest_way_and_as_many_copies_as_theory_says() -> None:
    spreading = Spreading(scenario(10), 1)
    found = spreading.run()
    assert spreading.problems == []
    assert found.copies == 5 * (10 * 3 + 1)
    assert len(found.arrivals_ms) == 5 * 9
    assert fmean(found.arrivals_ms) == pytest.approx(fmean(found.fastest_ms))


def test_how_long_a_sync_takes_is_no_part_of_it() -> None:
    one = replace(scenario(6, messages=3), disk=DiskTable(sync_ms=50.0))
    found = Spreading(one, 1).run()
    assert fmean(found.arrivals_ms) == pytest.approx(fmean(found.fastest_ms))


@pytest.mark.parametrize("seed", [2, pytest.param(3, marks=pytest.mark.long)])
def test_copies_that_are_under_way_when_all_have_everything_are_counted(seed: int) -> None:
    one = replace(scenario(24, messages=30), seconds=0.5)
    found = Spreading(one, seed, burst=10).run()
    assert found.copies == 30 * (24 * 3 + 1)


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
    ("nodes", "degree", "overlays", "mean_ms", "together"),
    [
        (32, 4, 150, 145.3, 1),
        (128, 4, 60, 212.1, 10),
        pytest.param(32, 4, 300, 145.3, 32, marks=pytest.mark.long),
        pytest.param(128, 8, 120, 117.7, 128, marks=pytest.mark.long),
    ],
)
def test_overlays_that_a_tracker_forms_spread_as_random_regular_graphs_do(
    nodes: int, degree: int, overlays: int, mean_ms: float, together: int
) -> None:
    """The curve: hundreds of random regular graphs over the same cities, 1 ms for each hop."""
    means: list[float] = []
    for seed in range(overlays):
        latency = make_latency(LatencyTable(), nodes, Random(f"{seed} places"))
        links = links_of(formed(nodes, degree, seed, together), latency)
        for source in Random(seed).choices(range(nodes), k=4):
            arrivals, _ = flood(links, source, 5.0)
            means.append(sum(arrivals) / (nodes - 1))
    assert fmean(means) == pytest.approx(mean_ms, rel=0.03)


def formed(nodes: int, degree: int, seed: int, together: int) -> Topology:
    """What a tracker forms of nodes that come so many at a time."""
    topology = Topology(degree, Random(seed))
    for names in batched(map(str, range(nodes)), together):
        for name in names:
            topology.update(name, ())
        topology.form(*names)
    return topology


def links_of(topology: Topology, latency: Latency) -> list[list[tuple[int, float]]]:
    """The links of each node, as `flood` takes them."""
    return [
        [
            (int(other), 1_000 * latency.seconds(int(node), int(other)) + 1.0)
            for other in topology.neighbours(node)
        ]
        for node in map(str, range(len(topology)))
    ]


@pytest.mark.long
@pytest.mark.parametrize(("nodes", "degree"), [(64, 4), (128, 8), (256, 4)])
def test_large_overlays_of_real_nodes_meet_theory(nodes: int, degree: int) -> None:
    spreading = Spreading(scenario(nodes, degree=degree, messages=20), 1)
    found = spreading.run()
    assert spreading.problems == []
    assert found.copies == 20 * (nodes * (degree - 1) + 1)
    assert fmean(found.arrivals_ms) == pytest.approx(fmean(found.fastest_ms))


GRAPHS: Final = 20
"""Random graphs that each overlay of real nodes is beside, which cost little."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("nodes", "degree", "overlays"), [(32, 4, 24), (128, 4, 8), (128, 8, 4), (512, 4, 2)]
)
def test_means_of_real_nodes_are_those_of_the_curve(nodes: int, degree: int, overlays: int) -> None:
    """Graphs have the cities and the sources of the overlay that they are beside."""
    means, curve = list[float](), list[float]()
    for seed in range(overlays):
        one = scenario(nodes, degree=degree, messages=20)
        means.append(fmean(Spreading(one, seed).run().arrivals_ms))
        latency = make_latency(one.latency, nodes + 1, Random(f"{seed} places"))
        drawn = Random(f"{seed} sources")
        sources = [drawn.randrange(nodes) for _ in range(one.messages)]
        for graph in range(GRAPHS):
            links = links_of(formed(nodes, degree, graph, 1), latency)
            found = (sum(flood(links, source, 5.0)[0]) for source in sources)
            curve.append(fmean(found) / (nodes - 1))
    assert fmean(means) == pytest.approx(fmean(curve), rel=0.03)


def test_timers_that_are_over_leave_no_garbage() -> None:
    """Simulations run without the garbage collector: what is left to it grows with time."""
    gc.collect()
    gc.disable()
    try:
        before = timers()
        spreading = Spreading(replace(scenario(8, messages=1), processing_ms=0.0), 1)
        spreading.run()
        assert not spreading.problems
        left = timers() - before
    finally:
        gc.enable()
    assert left < 8 * 10


def timers() -> int:
    """All that there are, of whatever else has been tested here."""
    return sum(isinstance(one, Timer) for one in gc.get_objects())
