"""Helps tests of the simulation."""

from typing import Final, get_args

import pytest

from rillnode.node.simulation.scenario import (
    LOG_KINDS,
    ClientsTable,
    DiskTable,
    FaultKind,
    LatencyTable,
    NetworkTable,
    RandomFaults,
    Scenario,
)
from rooms import TESTS

KINDS: Final[list[FaultKind]] = [kind for kind in get_args(FaultKind) if kind not in LOG_KINDS]
"""Faults of nodes that have stores of their own."""


def each_kind(*quick: FaultKind) -> pytest.MarkDecorator:
    """Call a test with each `kind` of fault; the quick part has these."""
    return pytest.mark.parametrize(
        "kind",
        [pytest.param(one, marks=() if one in quick else pytest.mark.long) for one in KINDS],
    )


SMALL = Scenario(
    nodes=3,
    messages=60,
    seconds=10.0,
    partitions=2,
    network=NetworkTable(jitter_ms=5.0, loss=0.02, reorder=0.05, duplicate=0.02),
    clients=ClientsTable(callers=1),
    random_faults=RandomFaults(count=6),
)
"""Everything at once, in little time."""

OCKAM: Final = Scenario(
    nodes=2,
    messages=40,
    seconds=8.0,
    network=NetworkTable(jitter_ms=5.0, loss=0.02),
    disk=DiskTable(store="memory"),
    clients=ClientsTable(ockam_tcp_users=3, channel_users=3, readers=0, examiners=0),
    random_faults=RandomFaults(count=5),
)

STREAMR: Final = Scenario(
    nodes=2,
    messages=40,
    seconds=8.0,
    partitions=2,
    latency=LatencyTable(model="lognormal", mean_ms=10.0),
    network=NetworkTable(jitter_ms=2.0, loss=0.01),
    clients=ClientsTable(
        producers=1,
        followers=1,
        consumers=0,
        readers=0,
        ockam_users=0,
        examiners=0,
        streamr_users=3,
    ),
    random_faults=RandomFaults(count=5),
)

NEXTGRAPH: Final = Scenario(
    nodes=2,
    messages=20,
    seconds=8.0,
    network=NetworkTable(jitter_ms=5.0, loss=0.02),
    disk=DiskTable(store="memory"),
    clients=ClientsTable(readers=0, examiners=0, nextgraph_users=5),
    random_faults=RandomFaults(count=5),
)

_EACH: Final = {"native": SMALL, "ockam": OCKAM, "streamr": STREAMR, "nextgraph": NEXTGRAPH}
BY_CLIENTS: Final = {
    name: one for name, one in _EACH.items() if name == "native" or (TESTS / name).is_dir()
}
"""Runs with each protocol's clients."""
