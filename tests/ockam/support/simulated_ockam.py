"""A run with clients on plain Ockam TCP and in secure channels."""

from typing import Final

from rillnode.node.ockam.simulation.table import OckamClients
from rillnode.node.simulation.scenario import (
    ClientsTable,
    DiskTable,
    NetworkTable,
    RandomFaults,
    Scenario,
)

SCENARIO: Final = Scenario(
    nodes=2,
    messages=40,
    seconds=8.0,
    network=NetworkTable(jitter_ms=5.0, loss=0.02),
    disk=DiskTable(store="memory"),
    clients=ClientsTable(readers=0, examiners=0),
    random_faults=RandomFaults(count=5),
    tables=(OckamClients(tcp_users=3, channel_users=3),),
)
