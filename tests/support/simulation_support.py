"""Helps tests of the simulation."""

from typing import Final, get_args

from rillnode.node.simulation.scenario import (
    LOG_KINDS,
    ClientsTable,
    FaultKind,
    NetworkTable,
    RandomFaults,
    Scenario,
)

KINDS: Final[list[FaultKind]] = [kind for kind in get_args(FaultKind) if kind not in LOG_KINDS]
"""Faults of nodes that have stores of their own."""

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
