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
from math import inf
from random import Random
from statistics import fmean
from typing import Any, Final

from msgspec.structs import replace

from rillnode.node.simulation.graph import Neighbours, random_regular
from rillnode.node.simulation.latency import Latency, make_latency
from rillnode.node.simulation.scenario import Scenario

SLICES_PER_LINK: Final = 16
"""How many slices of time the mean delay is cut into."""
SLICE_MS_MIN: Final = 1e-6
"""Where there are no delays, one slice holds all."""

Links = Sequence[Sequence[tuple[int, float]]]
"""Of each node, its neighbours and the milliseconds until they have handled what it sends."""

STUDY_NODES_MIN: Final = 32
STUDY_NODES_MAX: Final = 4_096
STUDY_OVERLAYS_MIN: Final = 4
STUDY_MESSAGES: Final = 10
"""The sizes that are compared in a report: few enough that it takes a second or two."""


@dataclass(slots=True)
class Propagation:
    """What one seed gave.

    Attributes:
        arrivals_ms: when a message reached each node but its source, all messages together.
        last_ms: when each message had reached the last node.
        hops: first copies by the number of hops that they took.
        copies: copies sent in all.
        neighbours: the overlay.
    """

    scenario: Scenario
    seed: int
    places: Sequence[str]
    neighbours: Neighbours
    arrivals_ms: "array[float]" = field(default_factory=lambda: array("d"))
    last_ms: list[float] = field(default_factory=list[float])
    hops: Counter[int] = field(default_factory=Counter[int])
    copies: int = 0
    trace_hash: str = ""
    wall_seconds: float = 0.0


def propagate(scenario: Scenario, seed: int) -> Propagation:
    """Build an overlay and let each message flood it, from a source drawn at random.

    Raises:
        ConfigError: a file of the latency model cannot be used.
    """
    started = time.perf_counter()
    latency = make_latency(scenario.latency, scenario.nodes, Random(f"{seed} places"))
    neighbours = random_regular(scenario.nodes, scenario.degree, Random(f"{seed} overlay"))
    found = Propagation(scenario, seed, latency.places, neighbours)
    links = _delays(neighbours, latency, scenario.processing_ms)
    ends = sum(map(len, links))
    mean_ms = sum(delay for row in links for _, delay in row) / ends
    slice_ms = max(mean_ms / SLICES_PER_LINK, SLICE_MS_MIN)
    sources, trace = Random(f"{seed} sources"), blake2b(digest_size=16)
    for _ in range(scenario.messages):
        source = sources.randrange(scenario.nodes)
        arrivals, hops = flood(links, source, slice_ms)
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
            for other, delay in links[node]:
                when = at + delay
                if when < arrivals[other]:
                    arrivals[other] = when
                    hops[other] = further
                    place = int(when * per_ms)
                    while place >= len(slices):
                        slices.append([])
                    slices[place].append(other)
    return array("d", arrivals), hops


def _delays(neighbours: Neighbours, latency: Latency, processing_ms: float) -> Links:
    seconds = latency.seconds
    return [
        [(other, 1_000 * seconds(node, other) + processing_ms) for other in row]
        for node, row in enumerate(neighbours)
    ]


def means_by_nodes(scenario: Scenario, seed: int) -> dict[int, float]:
    """The mean time to a node, in milliseconds, in smaller overlays than a scenario's.

    Sizes are powers of two, below that of the scenario; a size's mean is one over several overlays.
    """
    found: dict[int, float] = {}
    nodes = STUDY_NODES_MIN
    while nodes < min(scenario.nodes, STUDY_NODES_MAX):
        if nodes > 2 * scenario.degree:
            messages = min(scenario.messages, STUDY_MESSAGES)
            one = replace(scenario, nodes=nodes, messages=messages)
            overlays = max(STUDY_OVERLAYS_MIN, STUDY_NODES_MAX // nodes)
            means = (fmean(propagate(one, seed + number).arrivals_ms) for number in range(overlays))
            found[nodes] = fmean(means)
        nodes *= 2
    return found


# Figures -----------------------------------------------------------------------------------------


def model_document(found: Propagation) -> dict[str, Any]:
    """One seed's figures, as `rillnode sim run` writes them."""
    scenario = found.scenario
    ordered = sorted(found.arrivals_ms)
    count = sum(found.hops.values())
    return {
        "name": scenario.name,
        "mode": scenario.mode,
        "seed": found.seed,
        "nodes": scenario.nodes,
        "degree": scenario.degree,
        "messages": scenario.messages,
        "propagation": {
            "mean_ms": round(fmean(ordered), 3),
            "p50_ms": round(_percentile(ordered, 50), 3),
            "p90_ms": round(_percentile(ordered, 90), 3),
            "p99_ms": round(_percentile(ordered, 99), 3),
            "last_node_ms": round(fmean(found.last_ms), 3),
        },
        "hops": {
            "mean": round(sum(hops * number for hops, number in found.hops.items()) / count, 3),
            "max": max(found.hops),
            "first_copies": {str(hops): found.hops[hops] for hops in sorted(found.hops)},
        },
        "copies": found.copies,
        "copies_per_message": found.copies / scenario.messages,
        "copies_per_second": round(found.copies / found.wall_seconds),
        "wall_seconds": round(found.wall_seconds, 6),
        "trace_hash": found.trace_hash,
    }


def model_summary(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Many seeds of one scenario: means of their figures."""
    first = documents[0]
    return {
        **{key: first[key] for key in ("name", "mode", "nodes", "degree", "messages")},
        "seeds": len(documents),
        "propagation": {
            key: round(fmean(one["propagation"][key] for one in documents), 3)
            for key in first["propagation"]
        },
        "hops": {
            "mean": round(fmean(one["hops"]["mean"] for one in documents), 3),
            "max": max(one["hops"]["max"] for one in documents),
        },
        "copies_per_message": fmean(one["copies_per_message"] for one in documents),
        "copies_per_second": round(fmean(one["copies_per_second"] for one in documents)),
        "wall_seconds": round(sum(one["wall_seconds"] for one in documents), 6),
        "trace_hash": blake2b(
            "".join(one["trace_hash"] for one in documents).encode(), digest_size=16
        ).hexdigest(),
        "runs": [{"seed": one["seed"], **one["propagation"]} for one in documents],
    }


def _percentile(ordered: Sequence[float], percent: int) -> float:
    """The value that so many percent of the ordered values do not exceed (nearest rank)."""
    return ordered[max(0, -(-percent * len(ordered) // 100) - 1)]
