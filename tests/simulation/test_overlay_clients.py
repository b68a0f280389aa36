"""Overlays with clients of other plug-ins."""

import pytest

from rillnode.node.nextgraph.simulation.table import NextgraphClients
from rillnode.node.ockam.simulation.table import OckamClients
from rillnode.node.overlay.simulation.table import SharedOverlay
from rillnode.node.simulated.tables import SimulatedTable
from rillnode.node.simulation.run import Run
from rillnode.node.simulation.scenario import DiskTable, RandomFaults, Scenario

CLIENTS = (OckamClients(tcp_users=2, channel_users=2), NextgraphClients(users=4))


@pytest.mark.parametrize("clients", CLIENTS, ids=lambda clients: clients.table)
def test_no_rule_is_broken(clients: SimulatedTable) -> None:
    scenario = Scenario(
        nodes=3,
        messages=20,
        seconds=8.0,
        disk=DiskTable(store="memory"),
        random_faults=RandomFaults(count=2),
        tables=(clients, SharedOverlay(degree=2)),
    )
    assert Run(scenario, 1).run().violations == []
