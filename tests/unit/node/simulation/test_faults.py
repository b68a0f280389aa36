"""Which faults a seed draws."""

from typing import get_args

import pytest

from rillnode.node.simulation.faults import SECONDS_MAX, draw_faults
from rillnode.node.simulation.scenario import FaultKind, FaultTable, RandomFaults, Scenario

NODES = ["n0", "n1", "n2"]
CLIENTS = [("p0", "n0"), ("f0", "n1")]
KINDS: tuple[FaultKind, ...] = get_args(FaultKind)


def test_a_seed_decides_everything_that_is_left_open() -> None:
    scenario = Scenario(random_faults=RandomFaults(count=50))
    faults = draw_faults(scenario, 1, NODES, CLIENTS)
    assert faults == draw_faults(scenario, 1, NODES, CLIENTS)
    assert faults != draw_faults(scenario, 2, NODES, CLIENTS)
    assert [fault.number for fault in faults] == list(range(50))
    assert len({fault.kind for fault in faults}) > 5
    assert all(0 <= fault.at <= scenario.seconds for fault in faults)
    assert all(0 < fault.seconds <= SECONDS_MAX for fault in faults)


def test_what_is_said_is_kept() -> None:
    table = FaultTable(kind="pause", at_seconds=3.0, seconds=4.0, nodes=("n2",), count=2)
    for fault in draw_faults(Scenario(fault=(table,)), 1, NODES, CLIENTS):
        assert (fault.kind, fault.at, fault.seconds, fault.host) == ("pause", 3.0, 4.0, "n2")


def test_faults_named_for_a_node_strike_its_clients_where_they_strike_clients() -> None:
    for seed in range(10):
        for kind in ("kill_client", "clog", "corrupt_record"):
            table = FaultTable(kind=kind, nodes=("n1",))
            (fault,) = draw_faults(Scenario(fault=(table,)), seed, NODES, CLIENTS)
            assert fault.host in ("f0", "n1")
            if kind == "kill_client":
                assert fault.host == "f0"
            else:
                assert {fault.host, fault.other} == {"f0", "n1"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_can_be_drawn_without_any_client(kind: FaultKind) -> None:
    (fault,) = draw_faults(Scenario(fault=(FaultTable(kind=kind),)), 1, NODES, [])
    assert fault.host in NODES
    assert kind in str(fault)
