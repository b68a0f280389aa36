"""Helps tests of the simulation."""

from typing import Final, get_args

import pytest

from rillnode.node.simulation.scenario import (
    LOG_KINDS,
    ClientsTable,
    FaultKind,
    NetworkTable,
    RandomFaults,
    Scenario,
)
from rooms import modules

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

BY_CLIENTS: Final = {
    "native": SMALL,
    **{one.__name__.partition("_")[2]: one.SCENARIO for one in modules("simulated")},
}
"""Runs with each protocol's clients."""
