"""Model mode: overlays, flooding and its figures."""

from math import inf
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from rillnode.node.simulation.graph import is_connected, random_regular
from rillnode.node.simulation.model import (
    flood,
    model_document,
    model_summary,
    propagate,
)
from rillnode.node.simulation.scenario import LatencyTable, ModelTable, Scenario


@settings(deadline=None)
@given(st.integers(4, 60), st.integers(3, 30), st.integers(0, 2**32))
def test_every_node_has_its_degree_and_no_neighbour_twice(
    nodes: int, degree: int, seed: int
) -> None:
    degree = min(degree, nodes - 1)
    graph = random_regular(nodes, degree, Random(seed))
    assert is_connected(graph)
    assert sum(map(len, graph)) == nodes * degree - nodes * degree % 2
    for node, neighbours in enumerate(graph):
        assert len(set(neighbours)) == len(neighbours) <= degree
        assert node not in neighbours
        assert all(node in graph[other] for other in neighbours)


@pytest.mark.parametrize(("nodes", "degree"), [(3, 3), (1, 1), (5, 0)])
def test_graphs_that_cannot_be(nodes: int, degree: int) -> None:
    with pytest.raises(ValueError, match="degree"):
        random_regular(nodes, degree, Random(1))


def test_two_neighbours_each_make_one_ring_however_many_nodes() -> None:
    graph = random_regular(2_000, 2, Random(1))
    assert is_connected(graph)
    assert all(len(set(neighbours)) == 2 for neighbours in graph)


def test_the_fastest_way_counts_not_the_shortest() -> None:
    links = [[(1, 10.0), (2, 1.0)], [(0, 10.0), (2, 2.0)], [(0, 1.0), (1, 2.0)]]
    arrivals, hops = flood(links, 0, 0.5)
    assert list(arrivals) == [0.0, 3.0, 1.0]
    assert hops == [0, 2, 1]


@settings(deadline=None)
@given(
    st.integers(3, 20),
    st.floats(0.01, 100),
    st.randoms(use_true_random=False),
    st.sampled_from([0.0, 1.0, 1000.0]),
)
def test_slices_of_any_length_give_the_shortest_times(
    nodes: int, slice_ms: float, random: Random, least: float
) -> None:
    links = [
        [(other, least * random.random() + random.choice([0.0, 3.0])) for other in row]
        for row in random_regular(nodes, 2, random)
    ]
    expected = [0.0] + [inf] * (nodes - 1)
    for _ in range(nodes):  # Bellman and Ford
        for node, row in enumerate(links):
            for other, delay in row:
                expected[other] = min(expected[other], expected[node] + delay)
    arrivals, _ = flood(links, 0, slice_ms)
    assert list(arrivals) == expected


def test_constant_delays_count_hops() -> None:
    scenario = Scenario(
        model=ModelTable(degree=3),
        nodes=50,
        messages=5,
        processing_ms=1.0,
        latency=LatencyTable(model="constant", mean_ms=9.0),
    )
    found = model_document(propagate(scenario, 1))
    assert found["propagation"]["mean_ms"] == pytest.approx(10 * found["hops"]["mean"], abs=0.02)
    assert found["propagation"]["last_node_ms"] <= 10 * found["hops"]["max"]
    assert sum(found["hops"]["first_copies"].values()) == 49 * 5


def test_a_seed_gives_the_same_figures_again() -> None:
    scenario = Scenario(model=ModelTable(), nodes=40, messages=3)
    one, again, other = (propagate(scenario, seed) for seed in (7, 7, 8))
    assert one.trace_hash == again.trace_hash != other.trace_hash


def test_every_first_copy_is_counted_once_and_every_other_too() -> None:
    scenario = Scenario(model=ModelTable(degree=5), nodes=60, messages=4)
    found = propagate(scenario, 3)
    document = model_document(found)
    assert len(found.arrivals_ms) == 59 * 4
    assert sum(found.hops.values()) == 59 * 4
    assert document["copies_per_message"] == 60 * 4 + 1
    assert document["propagation"]["last_node_ms"] <= max(found.arrivals_ms)


def test_delays_of_nothing_reach_all_at_once() -> None:
    scenario = Scenario(
        model=ModelTable(degree=3),
        nodes=20,
        latency=LatencyTable(model="constant", mean_ms=0.0),
    )
    assert set(propagate(scenario, 1).arrivals_ms) == {0.0}


def test_a_summary_is_the_mean_of_seeds() -> None:
    scenario = Scenario(model=ModelTable(), nodes=30, messages=3)
    documents = [model_document(propagate(scenario, seed)) for seed in (1, 2)]
    found = model_summary(documents)
    means = [one["propagation"]["mean_ms"] for one in documents]
    assert found["propagation"]["mean_ms"] == pytest.approx(sum(means) / 2, abs=0.001)
    assert [run["mean_ms"] for run in found["runs"]] == means
    assert found["trace_hash"] != documents[0]["trace_hash"]
