"""A run with Streamr's clients."""

from typing import Final

from rillnode.node.simulation.scenario import (
    ClientsTable,
    LatencyTable,
    NetworkTable,
    RandomFaults,
    Scenario,
)
from rillnode.node.streamr.simulation.table import StreamrClients

SCENARIO: Final = Scenario(
    nodes=2,
    messages=40,
    seconds=8.0,
    partitions=2,
    latency=LatencyTable(model="lognormal", mean_ms=10.0),
    network=NetworkTable(jitter_ms=2.0, loss=0.01),
    clients=ClientsTable(producers=1, followers=1, consumers=0, readers=0, examiners=0),
    random_faults=RandomFaults(count=5),
    tables=(StreamrClients(users=3),),
)
