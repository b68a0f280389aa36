"""Random regular graphs: who is whose neighbour in an overlay that a good tracker has built."""

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Final

TRIES_MAX: Final = 100
SWITCHES_PER_LINK: Final = 10
"""After which nothing is left of the order that a graph had."""

Neighbours = list[list[int]]
"""The neighbours of each node."""


def random_regular(nodes: int, degree: int, random: Random) -> Neighbours:
    """Draw a connected graph in which every node has `degree` neighbours.

    Where that is not possible, since both numbers are odd, one node has one less.

    Raises:
        ValueError: `degree` is not below `nodes`, or no connected graph was found.
    """
    if not 0 < degree < nodes:
        raise ValueError(f"no graph of {nodes} nodes has degree {degree}")
    if degree == 2:
        return _ring(nodes, random)
    draw = _paired if 2 * degree < nodes else _mixed
    for _ in range(TRIES_MAX):
        neighbours = draw(nodes, degree, random)
        if neighbours is not None and is_connected(neighbours):
            return neighbours
    raise ValueError(f"no connected graph of {nodes} nodes with degree {degree} was found")


def is_connected(neighbours: Sequence[Sequence[int]]) -> bool:
    """Whether every node is reached from the first."""
    seen = bytearray(len(neighbours))
    seen[0] = 1
    waiting, count = deque[int]((0,)), 1
    while waiting:
        for other in neighbours[waiting.popleft()]:
            if not seen[other]:
                seen[other] = 1
                count += 1
                waiting.append(other)
    return count == len(neighbours)


def _ring(nodes: int, random: Random) -> Neighbours:
    """The only connected graphs of degree 2 are rings; of loose ends, many rings would be made."""
    order = list(range(nodes))
    random.shuffle(order)
    return _neighbours(nodes, [(one, order[at - 1]) for at, one in enumerate(order)])


def _paired(nodes: int, degree: int, random: Random) -> Neighbours | None:
    """Join loose ends at random; pairs that cannot be swap an end with a pair that can.

    The configuration model with switches; None where no switch helps.
    """
    ends = [node for node in range(nodes) for _ in range(degree)]
    random.shuffle(ends)
    links: list[tuple[int, int]] = []
    bad: list[tuple[int, int]] = []
    known: set[tuple[int, int]] = set()
    for one, other in zip(ends[::2], ends[1::2], strict=False):
        pair = _pair(one, other)
        if one == other or pair in known:
            bad.append(pair)
        else:
            known.add(pair)
            links.append(pair)
    for one, other in bad:
        if not _switch(one, other, links, known, random):
            return None
    return _neighbours(nodes, links)


def _mixed(nodes: int, degree: int, random: Random) -> Neighbours:
    """Begin with a ring whose nodes know those nearest to them, and switch ends at random.

    In a dense graph few pairs are left for loose ends.
    """
    steps = [range(1, degree // 2 + 1), range(nodes // 2, nodes // 2 + degree % 2)]
    links = [_pair(node, (node + step) % nodes) for step in steps[0] for node in range(nodes)]
    links += [(node, node + step) for step in steps[1] for node in range(nodes // 2)]
    known = set(links)
    for _ in range(SWITCHES_PER_LINK * len(links)):
        at, by = random.randrange(len(links)), random.randrange(len(links))
        (one, other), (third, fourth) = links[at], links[by]
        if random.random() < 0.5:
            third, fourth = fourth, third
        new = _pair(one, third), _pair(other, fourth)
        if at != by and new[0] != new[1] and all(a != b and (a, b) not in known for a, b in new):
            known.difference_update((links[at], links[by]))
            known.update(new)
            links[at], links[by] = new
    return _neighbours(nodes, links)


def _pair(one: int, other: int) -> tuple[int, int]:
    return (one, other) if one < other else (other, one)


def _neighbours(nodes: int, links: Sequence[tuple[int, int]]) -> Neighbours:
    found: Neighbours = [[] for _ in range(nodes)]
    for one, other in links:
        found[one].append(other)
        found[other].append(one)
    return found


def _switch(
    one: int, other: int, links: list[tuple[int, int]], known: set[tuple[int, int]], random: Random
) -> bool:
    for _ in range(TRIES_MAX * 10):
        if not links:
            return False
        at = random.randrange(len(links))
        third, fourth = links[at]
        new = _pair(one, third), _pair(other, fourth)
        if new[0] != new[1] and all(a != b and (a, b) not in known for a, b in new):
            known.discard(links[at])
            known.update(new)
            links[at] = new[0]
            links.append(new[1])
            return True
    return False
