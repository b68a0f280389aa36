"""What tests of the simulation share."""

from rillnode.node.simulation.scenario import ClientsTable, NetworkTable, RandomFaults, Scenario

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
