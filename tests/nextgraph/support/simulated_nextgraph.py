"""A run with NextGraph's clients."""

from typing import Final

from rillnode.node.nextgraph.simulation.table import NextgraphClients
from rillnode.node.simulation.scenario import (
    ClientsTable,
    DiskTable,
    NetworkTable,
    RandomFaults,
    Scenario,
)

SCENARIO: Final = Scenario(
    nodes=2,
    messages=20,
    seconds=8.0,
    network=NetworkTable(jitter_ms=5.0, loss=0.02),
    disk=DiskTable(store="memory"),
    clients=ClientsTable(readers=0, examiners=0),
    random_faults=RandomFaults(count=5),
    tables=(NextgraphClients(users=5),),
)
