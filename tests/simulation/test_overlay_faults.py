"""Overlays whose nodes, disks, links and tracker fail: no rule is broken, whatever does."""

import pytest
from msgspec.structs import replace

from rillnode.node.overlay.simulation.table import SharedOverlay
from rillnode.node.simulation.results import Result
from rillnode.node.simulation.run import Run
from rillnode.node.simulation.scenario import (
    ClientsTable,
    FaultKind,
    FaultTable,
    LatencyTable,
    NetworkTable,
    RandomFaults,
    Scenario,
)
from simulation_support import each_kind

OVERLAY = Scenario(
    nodes=5,
    messages=60,
    seconds=12.0,
    partitions=2,
    latency=LatencyTable(model="lognormal", mean_ms=30.0),
    network=NetworkTable(jitter_ms=5.0, loss=0.02),
    clients=ClientsTable(producers=5, followers=5, callers=1),
    random_faults=RandomFaults(count=6),
    tables=(SharedOverlay(degree=3, storage_nodes=1),),
)


FURTHER = ("partition", "one_way", "pause")


def struck(result: Result) -> list[str]:
    """Whom faults have struck."""
    return [event.who for event in result.events if event.what == "fault"]


@each_kind("partition")
def test_each_kind_of_fault_happens_and_breaks_no_rule(kind: FaultKind) -> None:
    faults = tuple(FaultTable(kind=kind, at_seconds=at, seconds=2.0) for at in (1.0, 4.0, 7.0))
    scenario = replace(OVERLAY, partitions=1, random_faults=RandomFaults(), fault=faults)
    result = Run(scenario, 1).run()
    assert result.violations == []
    assert len(struck(result)) == 3


@pytest.mark.parametrize(
    "kind", ["kill", *(pytest.param(one, marks=pytest.mark.long) for one in FURTHER)]
)
def test_the_tracker_may_fail(kind: FaultKind) -> None:
    faults = (
        FaultTable(kind=kind, nodes=("tracker",), at_seconds=2.0, seconds=6.0),
        FaultTable(kind="kill", nodes=("n1",), at_seconds=3.0, seconds=2.0),
    )
    result = Run(replace(OVERLAY, random_faults=RandomFaults(), fault=faults), 1).run()
    assert result.violations == []
    assert struck(result) == ["tracker", "n1"]


def test_a_tracker_that_starts_anew_joins_the_pieces_that_it_hears_of() -> None:
    faults = (
        FaultTable(kind="kill", nodes=("tracker",), at_seconds=5.5, seconds=2.3),
        FaultTable(kind="kill", nodes=("n0",), at_seconds=7.2, seconds=7.7),
        FaultTable(kind="kill", nodes=("n2",), at_seconds=9.8, seconds=6.8),
    )
    scenario = replace(
        OVERLAY,
        nodes=9,
        seconds=10.0,
        partitions=1,
        network=NetworkTable(),
        clients=ClientsTable(producers=5, followers=1, consumers=0, readers=0, callers=0),
        random_faults=RandomFaults(),
        fault=faults,
        tables=(SharedOverlay(degree=2),),
    )
    result = Run(scenario, 0).run()
    assert result.violations == []
    assert struck(result) == ["tracker", "n0", "n2"]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_no_rule_is_broken(seed: int) -> None:
    run = Run(OVERLAY, seed)
    result = run.run()
    assert result.violations == []
    assert result.healed_seconds is not None
    # Each follower is at a node of its own, and has what was pushed at all of them.
    followers = dict[str, set[str]]()
    for who, seen in run.history.first_seen.items():
        for push in map(run.history.pushes.get, seen):
            if push is not None and push.producer.startswith("p"):
                names = followers.setdefault(push.producer.partition(".")[0], set())
                names.add(who.partition(".")[0])
    assert {len(names) for names in followers.values()} == {5}


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 200, 25))
def test_no_rule_is_broken_by_many_seeds(first: int) -> None:
    for seed in range(first, first + 25):
        assert Run(OVERLAY, seed).run().violations == [], f"seed {seed}"


@pytest.mark.long
def test_a_seed_gives_the_same_trace() -> None:
    assert Run(OVERLAY, 3).run().trace_hash == Run(OVERLAY, 3).run().trace_hash
