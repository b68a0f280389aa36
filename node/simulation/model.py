"""Model mode: how messages spread through an overlay by flooding, without any protocol.

Every node hands the first copy of a message that reaches it to all its neighbours but the one it
came from. Nothing queues, so the first copy takes the fastest way, and each later one is counted
where it is sent.
"""

import time
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from math import inf, sqrt
from random import Random
from statistics import fmean, stdev
from typing import Any, Final

from rillnode.node.simulation.graph import Neighbours, random_regular
from rillnode.node.simulation.interpreter import deterministic_interpreter
from rillnode.node.simulation.latency import Latency, make_latency
from rillnode.node.simulation.results import distribution, mean
from rillnode.node.simulation.scenario import Scenario
from rillnode.node.simulation.theory import growth_of

SLICES_PER_LINK: Final = 16
"""How many slices of time the mean delay is cut into."""
SLICE_MS_MIN: Final = 1e-6
"""Where there are no delays, one slice holds all."""

Links = Sequence[Sequence[tuple[int, float]]]
"""Of each node, its neighbours and the milliseconds until they have handled what it sends."""

_Flat = Sequence[Sequence[Any]]
"""The same with neighbours and milliseconds in turn: of a large overlay most of the time goes into
waiting for memory, and this is one object for each node."""


@dataclass(slots=True)
class Propagation:
    """The outcome of one seed.

    Attributes:
        arrivals_ms: when a message reached each node but its source, all messages together.
        last_ms: when each message had reached the last node.
        hops: first copies by the number of hops that they took.
        copies: copies sent in all.
        neighbours: the overlay.
        fastest_ms: of real nodes, what delays along the fastest ways through their overlay come to,
            for each arrival: the least that arrivals can take.
        bytes_sent: of real nodes, what each has sent, the forming of the overlay included.
    """

    scenario: Scenario
    seed: int
    places: Sequence[str]
    neighbours: Neighbours
    arrivals_ms: "array[float]" = field(default_factory=lambda: array("d"))
    last_ms: list[float] = field(default_factory=list[float])
    hops: Counter[int] = field(default_factory=Counter[int])
    copies: int = 0
    fastest_ms: "array[float]" = field(default_factory=lambda: array("d"))
    bytes_sent: Mapping[str, int] = field(default_factory=dict[str, int])
    trace_hash: str = ""
    wall_seconds: float = 0.0


def propagate(scenario: Scenario, seed: int) -> Propagation:
    """Build an overlay and let each message flood it, from a source drawn at random.

    Raises:
        ConfigError: a file of the latency model cannot be used.
    """
    with deterministic_interpreter():  # there is no garbage, and looking for it takes long
        return _propagate(scenario, seed)


def _propagate(scenario: Scenario, seed: int) -> Propagation:
    started = time.perf_counter()
    latency = make_latency(scenario.latency, scenario.nodes, Random(f"{seed} places"))
    neighbours = random_regular(scenario.nodes, scenario.degree, Random(f"{seed} overlay"))
    found = Propagation(scenario, seed, latency.places, neighbours)
    links = _delays(neighbours, latency, scenario.processing_ms)
    ends = sum(map(len, links)) // 2
    mean_ms = sum(sum(row[1::2]) for row in links) / ends
    slice_ms = max(mean_ms / SLICES_PER_LINK, SLICE_MS_MIN)
    sources, trace = Random(f"{seed} sources"), blake2b(digest_size=16)
    for _ in range(scenario.messages):
        source = sources.randrange(scenario.nodes)
        arrivals, hops = _flood(links, source, slice_ms)
        # Over each link in each direction, but for where each node got its first copy from.
        found.copies += ends - (scenario.nodes - 1)
        trace.update(source.to_bytes(4, "big") + arrivals.tobytes())
        found.last_ms.append(max(arrivals))
        found.hops.update(hops)
        del arrivals[source]
        found.arrivals_ms.extend(arrivals)
    found.hops[0] -= scenario.messages
    found.hops += Counter[int]()
    found.trace_hash = trace.hexdigest()
    found.wall_seconds = time.perf_counter() - started
    return found


def flood(links: Links, source: int, slice_ms: float) -> "tuple[array[float], list[int]]":
    """When the first copy of a message reaches each node, and over how many hops.

    Time is cut into slices, and a slice's nodes are looked at in any order; one that is reached
    again earlier in the same slice is looked at again. That is right for slices of any length, and
    a list for each is twice as fast as one heap.

    Args:
        links: of each node, its neighbours and the milliseconds to them.
        source: where the message begins, at 0.
        slice_ms: best where it is a small part of a delay; above 0.
    """
    return _flood(_flat(links), source, slice_ms)


def _flat(links: Links) -> _Flat:
    return [tuple(chain.from_iterable(row)) for row in links]


def _flood(links: _Flat, source: int, slice_ms: float) -> "tuple[array[float], list[int]]":
    arrivals = [inf] * len(links)
    hops = [0] * len(links)
    arrivals[source] = 0.0
    slices = [[source]]
    per_ms = 1 / slice_ms
    for number, nodes in enumerate(slices):
        for node in nodes:
            at = arrivals[node]
            if int(at * per_ms) < number:
                continue  # a faster copy came in an earlier slice
            further = hops[node] + 1
            in_turn = iter(links[node])
            for other, delay in zip(in_turn, in_turn, strict=False):
                when = at + delay
                if when < arrivals[other]:
                    arrivals[other] = when
                    hops[other] = further
                    place = int(when * per_ms)
                    while place >= len(slices):
                        slices.append([])
                    slices[place].append(other)
    return array("d", arrivals), hops


def _delays(neighbours: Neighbours, latency: Latency, processing_ms: float) -> _Flat:
    # Equal delays are one object: a large overlay's fit into the processor's cache then.
    known: dict[float, float] = {}
    links: list[tuple[int | float, ...]] = []
    for node, row in enumerate(neighbours):
        delays = [1_000 * one + processing_ms for one in latency.seconds_to(node, row)]
        shared = map(known.setdefault, delays, delays)
        links.append(tuple(chain.from_iterable(zip(row, shared, strict=True))))
    return links


# Figures -----------------------------------------------------------------------------------------


def model_document(found: Propagation) -> dict[str, Any]:
    """One seed's figures, as `rillnode sim run` writes them."""
    scenario = found.scenario
    times = distribution(found.arrivals_ms)
    del times["max_ms"]
    count = sum(found.hops.values())
    of_real_nodes: dict[str, Any] = {}
    if found.fastest_ms:
        of_real_nodes["fastest_mean_ms"] = round(fmean(found.fastest_ms), 3)
        of_real_nodes["bytes_sent"] = dict(found.bytes_sent)
    return {
        "name": scenario.name,
        "mode": scenario.mode,
        "seed": found.seed,
        "nodes": scenario.nodes,
        "degree": scenario.degree,
        "messages": scenario.messages,
        "propagation": {
            **times,
            "last_node_ms": round(fmean(found.last_ms), 3),
        },
        "theory_mean_ms": _theory_mean_ms(scenario),
        "hops": {
            "mean": round(sum(hops * number for hops, number in found.hops.items()) / count, 3),
            "max": max(found.hops),
            "first_copies": {str(hops): found.hops[hops] for hops in sorted(found.hops)},
        },
        "copies": found.copies,
        "copies_per_message": found.copies / scenario.messages,
        "copies_per_second": round(found.copies / found.wall_seconds),
        **of_real_nodes,
        "wall_seconds": round(found.wall_seconds, 6),
        "trace_hash": found.trace_hash,
    }


def model_summary(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Many seeds of one scenario: means of their figures.

    `standard_error_ms` is that of the mean time to a node: how far the mean over so many overlays
    is likely to be from the mean over all.
    """
    first = documents[0]
    means = [one["propagation"]["mean_ms"] for one in documents]
    error = round(stdev(means) / sqrt(len(means)), 3) if len(means) > 1 else None
    of_real_nodes: dict[str, Any] = {}
    if "fastest_mean_ms" in first:
        fastest = round(fmean(one["fastest_mean_ms"] for one in documents), 3)
        of_real_nodes["fastest_mean_ms"] = fastest
    return {
        **{key: first[key] for key in ("name", "mode", "nodes", "degree", "messages")},
        "seeds": len(documents),
        "propagation": mean(documents, "propagation"),
        "standard_error_ms": error,
        "theory_mean_ms": first["theory_mean_ms"],
        "hops": {
            "mean": round(fmean(one["hops"]["mean"] for one in documents), 3),
            "max": max(one["hops"]["max"] for one in documents),
        },
        "copies_per_message": fmean(one["copies_per_message"] for one in documents),
        "copies_per_second": round(fmean(one["copies_per_second"] for one in documents)),
        **of_real_nodes,
        "wall_seconds": round(sum(one["wall_seconds"] for one in documents), 6),
        "trace_hash": blake2b(
            "".join(one["trace_hash"] for one in documents).encode(), digest_size=16
        ).hexdigest(),
        "runs": [{"seed": one["seed"], **one["propagation"]} for one in documents],
    }


def _theory_mean_ms(scenario: Scenario) -> float | None:
    """The mean time to a node in a large overlay; None where theory has no figure."""
    growth, nodes = growth_of(scenario), scenario.nodes
    return None if growth is None or nodes < growth.nodes_min else round(growth.mean_ms(nodes), 3)
