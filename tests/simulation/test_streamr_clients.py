"""Streamr's clients in simulations: the same for the same seed, and no rule broken."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from rillnode.node.installed import SCENARIOS, installed
from rillnode.node.simulation.run import Run
from rillnode.node.simulation.scenario import (
    DiskTable,
    FaultKind,
    FaultTable,
    LatencyTable,
    Scenario,
    load_scenario,
)
from rillnode.node.simulation.world import Machine, NodeMachine, World
from simulated_streamr import SCENARIO
from simulation_support import each_kind

EVERYBODY = Path(__file__).parents[2] / "configs" / "sim-clients.toml"


@each_kind("kill")
def test_each_kind_of_fault_breaks_no_rule(kind: FaultKind) -> None:
    scenario = Scenario(
        nodes=1,
        messages=20,
        seconds=8.0,
        latency=LatencyTable(model="constant", mean_ms=10.0),
        disk=DiskTable(store="memory"),
        clients=SCENARIO.clients,
        tables=SCENARIO.tables,
        fault=tuple(FaultTable(kind=kind, at_seconds=at, seconds=1.5) for at in (1.0, 3.0, 5.0)),
    )
    assert Run(scenario, 1).run().violations == []


def test_what_is_published_is_stored_followed_and_read_again() -> None:
    quiet = Scenario(
        nodes=1,
        messages=10,
        seconds=8.0,
        latency=LatencyTable(model="constant", mean_ms=10.0),
        clients=SCENARIO.clients,
        tables=SCENARIO.tables,
    )
    result = Run(quiet, 0).run()
    assert result.violations == []
    deeds = {event.what for event in result.events if event.who.startswith("w")}
    assert {"stored", "resent"} <= deeds
    assert not deeds & {"failed", "unsettled", "not resent", "not done", "follows no more"}


@pytest.mark.needs("nextgraph")
def test_nodes_have_every_kind_of_client_that_there_is() -> None:
    everybody = load_scenario(EVERYBODY)
    assert all(everybody.clients_by_kind().values()), everybody
    assert {one.table for one in everybody.tables} == {*installed(SCENARIOS)} - {"overlay"}
    few = replace(everybody, messages=20, seconds=5.0)
    assert Run(few, 0).run().violations == []


def test_a_node_that_cannot_read_its_disk_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario(
        nodes=1,
        messages=40,
        seconds=12.0,
        latency=LatencyTable(model="constant", mean_ms=10.0),
        clients=SCENARIO.clients,
        tables=SCENARIO.tables,
        fault=(
            FaultTable(kind="bit_flip", at_seconds=3.9, seconds=4.0, count=3),
            FaultTable(kind="kill", at_seconds=4.0, seconds=0.5),
        ),
    )
    starts = 0
    boot = World.boot

    def counting(self: World, machine: Machine) -> None:
        nonlocal starts
        starts += isinstance(machine, NodeMachine)
        boot(self, machine)

    monkeypatch.setattr(World, "boot", counting)
    for seed in range(2, 20):  # that it is the first to show it is chance
        starts = 0
        assert Run(scenario, seed).run().violations == []
        # Once after the kill, and once in the end, for who looks what a node has lost.
        if starts > 2:
            return
    pytest.fail("no node had to be started again")
