"""The overlay's graph: degree, symmetry, one piece, whatever comes and goes."""

from random import Random

import pytest
from hypothesis import given, strategies as st

from rillnode.actors.overlay.topology import Topology


def joined(count: int, degree: int = 4, seed: int = 1) -> Topology:
    """An overlay that so many nodes have joined, one after the other."""
    topology = Topology(degree, Random(seed))
    for number in range(count):
        topology.update(f"n{number}", ())
        topology.form(f"n{number}")
    return topology


def pieces(topology: Topology) -> int:
    """How many pieces the graph has."""
    left, found = dict.fromkeys(topology.nodes), 0
    while left:
        found += 1
        queue = [left.popitem()[0]]
        while queue:
            for other in topology.neighbours(queue.pop()):
                if left.pop(other, "") is None:
                    queue.append(other)
    return found


def check(topology: Topology, degree: int) -> None:
    """Links are in both directions, none leads to its own node, and no node has too many."""
    for node in topology.nodes:
        neighbours = topology.neighbours(node)
        assert node not in neighbours
        assert len(set(neighbours)) == len(neighbours) <= degree
        assert all(node in topology.neighbours(other) for other in neighbours)


@pytest.mark.parametrize("count", [1, 2, 5, 6, 7, 32, 64, 200])
@pytest.mark.parametrize("degree", [2, 3, 4, 8])
def test_joins_make_a_regular_graph_in_one_piece(count: int, degree: int) -> None:
    topology = joined(count, degree)
    check(topology, degree)
    assert pieces(topology) == 1
    wanted = min(degree, count - 1)
    short = [wanted - len(topology.neighbours(node)) for node in topology.nodes]
    # With an odd degree one slot may stay open for the next to come.
    assert sum(short) <= degree - 1 + count * (degree % 2)
    if degree % 2 == 0:
        assert not any(short)


def test_the_same_chance_makes_the_same_graph() -> None:
    graphs = [
        {node: list(joined(40, seed=seed).neighbours(node)) for node in joined(40).nodes}
        for seed in (7, 7, 8)
    ]
    assert graphs[0] == graphs[1] != graphs[2]


def test_a_join_changes_only_the_node_and_those_that_it_touches() -> None:
    topology = joined(30)
    before = {node: list(topology.neighbours(node)) for node in topology.nodes}
    topology.update("late", ())
    changed = topology.form("late")
    assert set(changed) == {"late"} | {
        node for node, links in before.items() if links != list(topology.neighbours(node))
    }


def test_what_a_node_says_counts_at_both_ends_and_unknown_ones_are_left_out() -> None:
    topology = Topology(4, Random(1))
    for node in "abc":
        topology.update(node, ())
    topology.update("a", ("b", "stranger", "a"))
    assert topology.neighbours("a") == ["b"]
    assert topology.neighbours("b") == ["a"]
    topology.update("b", ())
    assert topology.neighbours("a") == []


def test_too_many_links_are_cut() -> None:
    topology = Topology(2, Random(1))
    for number in range(6):
        topology.update(f"n{number}", ())
    topology.update("n0", [f"n{number}" for number in range(1, 6)])
    topology.form("n0")
    assert len(topology.neighbours("n0")) == 2


def test_who_leaves_is_replaced_when_its_neighbours_say_so() -> None:
    topology = joined(40)
    lost = topology.neighbours("n3")
    topology.leave("n3")
    assert "n3" not in topology
    for node in lost:
        topology.update(node, topology.neighbours(node))
        topology.form(node)
    check(topology, 4)
    assert pieces(topology) == 1
    assert sum(len(topology.neighbours(node)) for node in topology.nodes) >= 39 * 4 - 2


@pytest.mark.parametrize("degree", [2, 3, 4])
def test_pieces_that_nodes_tell_of_are_joined(degree: int) -> None:
    topology = Topology(degree, Random(1))
    circles = ("abc", "defg", "hijkl")
    for circle in circles:
        for at, node in enumerate(circle):
            topology.update(node, (circle[at - 1], circle[(at + 1) % len(circle)]))
    topology.form("a")
    check(topology, degree)
    assert pieces(topology) == 1


def test_nodes_that_join_one_after_the_other_become_one_piece() -> None:
    for seed in range(60):
        topology = Topology(2, Random(seed))
        names = [f"n{number}" for number in range(9)]
        for name in names:
            topology.update(name, ())
        for name in names:
            topology.form(name)
        check(topology, 2)
        assert pieces(topology) == 1


actions = st.lists(st.tuples(st.sampled_from(("join", "leave", "say", "hear")), st.integers(0, 25)))


@given(actions, st.integers(2, 6), st.integers(0, 100))
def test_it_stays_regular_and_in_one_piece_whatever_happens(
    steps: list[tuple[str, int]], degree: int, seed: int
) -> None:
    topology = Topology(degree, Random(seed))
    chance = Random(seed)
    for action, number in steps:
        node = f"n{number}"
        match action:
            case "leave":
                topology.leave(node)
            case "say":
                some = [f"n{chance.randrange(30)}" for _ in range(chance.randrange(2 * degree))]
                topology.update(node, some)
                topology.form(node)
            case "hear":
                topology.update(node, [f"n{chance.randrange(30)}" for _ in range(2)])
            case _:
                topology.update(node, topology.neighbours(node))
                topology.form(node)
    for node in topology.nodes:
        topology.update(node, topology.neighbours(node))
        topology.form(node)
    check(topology, degree)
    assert pieces(topology) == min(1, len(topology))


@pytest.mark.parametrize(("degree", "count"), [(2, 9), (3, 10), (4, 7), (4, 10), (4, 61), (5, 40)])
def test_nodes_that_join_together_become_one_regular_graph(degree: int, count: int) -> None:
    for seed in range(60):
        topology = Topology(degree, Random(seed))
        names = [f"n{number}" for number in range(count)]
        for name in names:
            topology.update(name, ())
        changed = topology.form(*names)
        assert set(changed) == set(names)
        assert all(len(topology.neighbours(name)) == degree for name in names)
        check(topology, degree)
        assert pieces(topology) == 1
