"""Calculates the mean time of flooding without simulating any overlay.

Around a node, a random regular overlay looks like a tree: the copies that set out from it are the
individuals of a branching process, each with degree - 1 children, whose ages at birth are the
delays of links. It grows as W e^(t / growth), with a random W for every origin. The first copy
reaches a node when the tree that grew from the source meets the one that grew, backwards in time,
from the node; so that the time between two nodes is, for large overlays,

    growth (ln nodes - ln W - ln W' - ln meetings + G),    G: a Gumbel variable, of mean -0.5772.

Source: Bhamidi, van der Hofstad and Hooghiemstra, "Universality for first passage percolation on
sparse random graphs" (2017); here for trees whose nodes have places (Crump-Mode-Jagers processes
of several types).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, log
from random import Random
from statistics import NormalDist, fmean, pstdev
from typing import Final

from rillnode.node.simulation.latency import PlacedLatency, make_latency
from rillnode.node.simulation.scenario import LatencyTable, Scenario

EULER_GAMMA: Final = 0.5772156649015329
PLACES_MAX: Final = 100
"""Places that a tree's nodes may have; each step of the computation takes their square."""
QUANTILES: Final = 200
"""Equally likely delays that stand for a distribution of them."""
SPREAD_MIN: Final = 0.2
SPREAD_MAX: Final = 1.5
"""Between which delays' standard deviation must be, in parts of their mean. With less, arrivals
come in waves, hop by hop; with more, a few very fast links decide, which quantiles do not show."""
DELAY_MS_MIN: Final = 1e-6
NODES_PER_SQUARE_MIN: Final = 2
"""Nodes that make an overlay large, for each square of the degree."""

_ROUNDS: Final = 40
_STEP: Final = 0.04
_BEGIN: Final = -10.0
_END: Final = 7.0
"""The logarithms of arguments between which a Laplace transform is computed."""

Links = Sequence[Sequence[tuple[float, int]]]
"""Of each place, the equally likely links from there: the delay in ms, and the place beyond. The
links there and back are the same."""


@dataclass(frozen=True, slots=True)
class Growth:
    """The growth of the mean time to a node with the overlay.

    Attributes:
        growth_ms: what each e-fold of nodes adds.
        first_ms: what the line says of a single node, where it does not hold.
        nodes_min: from which size on simulations come within about 3 % of it.
    """

    growth_ms: float
    first_ms: float
    nodes_min: int

    def mean_ms(self, nodes: int) -> float:
        """The mean time to a node, over overlays, sources and nodes."""
        return self.first_ms + self.growth_ms * log(nodes)


def growth_of(scenario: Scenario) -> Growth | None:
    """What theory says of a scenario; None where it says nothing of such delays or overlays."""
    return _growth(scenario.latency, scenario.processing_ms, scenario.degree)


@lru_cache(maxsize=16)
def _growth(table: LatencyTable, processing_ms: float, degree: int) -> Growth | None:
    links = _links(table, processing_ms)
    if links is None or degree < 3:
        return None
    delays = [delay for row in links for delay, _ in row]
    mean = fmean(delays)
    if (
        not SPREAD_MIN * mean <= pstdev(delays, mean) <= SPREAD_MAX * mean
        or min(delays) < DELAY_MS_MIN
    ):
        return None
    children = degree - 1
    rate = _rate(links, children, mean)
    weights = _spectrum(links, rate)[1]
    age = fmean(
        weight * delay * exp(-rate * delay) * weights[place]
        for weight, row in zip(weights, links, strict=True)
        for delay, place in row
    )
    # A tree of W has W e^(rate t) / (rate children age) nodes at t, by the renewal theorem; and the
    # mean W of an origin, which has one child more than others, is degree / children.
    meetings = 1 / (rate * degree * age)
    logarithm = _mean_logarithm(links, rate, weights, children)
    first_ms = -(log(meetings) + 2 * logarithm + EULER_GAMMA) / rate
    return Growth(1 / rate, first_ms, NODES_PER_SQUARE_MIN * degree**2)


def _links(table: LatencyTable, more: float) -> Links | None:
    """The links of a tree; `more` is what nodes need beside the delay, in ms."""
    if table.model == "lognormal" and table.mean_ms:
        delays = NormalDist(log(table.mean_ms) - table.sigma**2 / 2, table.sigma or 1e-9)
        parts = [(part + 0.5) / QUANTILES for part in range(QUANTILES)]
        return [[(exp(delays.inv_cdf(part)) + more, 0) for part in parts]]
    latency = make_latency(table, 1, Random(0))
    if table.model != "cities" or not isinstance(latency, PlacedLatency):
        return None
    if len(latency.rows) > PLACES_MAX:
        return None
    return [
        [(1_000 * seconds + more, place) for place, seconds in enumerate(row)]
        for row in latency.rows
    ]


def _rate(links: Links, children: int, mean: float) -> float:
    """The Malthusian parameter: at which discounted children replace their parents exactly."""
    low, high = 0.0, 1 / mean
    while children * _spectrum(links, high)[0] > 1:
        low, high = high, 2 * high
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if children * _spectrum(links, middle)[0] > 1:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _spectrum(links: Links, rate: float) -> tuple[float, list[float]]:
    """The largest eigenvalue of the discounted links, and places' reproductive values, mean 1."""
    rows = [[(exp(-rate * delay), place) for delay, place in row] for row in links]
    values, norm = [1.0] * len(rows), 1.0
    for _ in range(_ROUNDS if len(rows) > 1 else 1):
        found = [sum(part * values[place] for part, place in row) / len(row) for row in rows]
        norm = fmean(found)
        values = [one / norm for one in found]
    return norm, values


def _mean_logarithm(links: Links, rate: float, weights: Sequence[float], children: int) -> float:
    """The mean of ln W over origins, from the Laplace transform of W.

    The transform of a place's W is, at s, a product over its children, each at s e^(-rate delay):
    a smaller argument, so that one sweep from small to large ones finds all.
    """
    back = [[max(1.0, rate * delay / _STEP) for delay, _ in row] for row in links]
    before = int(max(map(max, back))) + 1
    known = [
        [exp(-exp(_BEGIN + (step - before) * _STEP) * weight) for step in range(before)]
        for weight in weights
    ]
    lookups = [
        [(known[place], int(steps), steps % 1) for steps, (_, place) in zip(*both, strict=True)]
        for both in zip(back, links, strict=True)
    ]
    total = 0.0
    for step in range(before, before + int((_END - _BEGIN) / _STEP)):
        means = [
            sum(
                (1 - part) * row[step - steps] + part * row[step - steps - 1]
                for row, steps, part in lookup
            )
            / len(lookup)
            for lookup in lookups
        ]
        for row, mean in zip(known, means, strict=True):
            row.append(mean**children)
        total += exp(-exp(_BEGIN + (step - before) * _STEP))
        total -= fmean(mean ** (children + 1) for mean in means)
    return total * _STEP
