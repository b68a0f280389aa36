"""Tests which faults a seed draws."""

import asyncio
from random import Random
from typing import get_args

import pytest
from thespian.actors import Actor

from rillnode.actors.core.streams.stream import StreamActor
from rillnode.actors.engine.faults import FAULTS, fail_at
from rillnode.node.simulation.failing_actors import classes_named, plant
from rillnode.node.simulation.faults import SECONDS_MAX, draw_faults
from rillnode.node.simulation.results import Result
from rillnode.node.simulation.run import Run
from rillnode.node.simulation.scenario import FaultKind, FaultTable, RandomFaults, Scenario
from rillnode.node.testing.failing import PlantedFailure

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


def test_which_actor_fails_is_kept() -> None:
    table = FaultTable(kind="actor", actor="StreamActor", when="after", times=2)
    (fault,) = draw_faults(Scenario(fault=(table,)), 1, NODES, CLIENTS)
    assert (fault.actor, fault.when, fault.times) == ("StreamActor", "after", 2)


def test_an_actor_fails_as_often_as_was_said_and_in_a_seed_s_way() -> None:
    def run(seed: int) -> Result:
        scenario = Scenario(
            nodes=2,
            messages=20,
            seconds=3.0,
            fault=(FaultTable(kind="actor", actor="streams.stream.StreamActor", at_seconds=0.5),),
        )
        result = Run(scenario, seed).run()
        assert not FAULTS
        return result

    first = run(3)
    assert not first.violations
    assert [event for event in first.events if "actor" in str(event)]
    assert run(3).trace_hash == first.trace_hash


@pytest.mark.needs("nextgraph")
def test_a_class_is_found_by_the_end_of_its_name() -> None:
    assert classes_named("StreamActor") == classes_named("streams.stream.StreamActor")
    assert len(classes_named("ConnectionActor")) == 2
    assert not classes_named("Actor")


def test_only_one_host_is_struck_and_what_was_planted_can_be_ended() -> None:
    struck: list[None] = []
    living = [StreamActor, None, Actor]
    end = plant("n0", living, Random(1), lambda: struck.append(None), when="before", times=2)
    (fault,) = FAULTS
    assert (fault.actor_class, fault.when, fault.times) == (StreamActor, "before", 2)
    assert isinstance(fault.error(), PlantedFailure)
    assert len(struck) == 1

    async def strike() -> None:
        fail_at(StreamActor, object(), "before")

    asyncio.run(strike())  # elsewhere
    assert fault.hits == 0
    end()
    end()
    assert not FAULTS


def test_a_clock_is_right_when_jumps_that_overlap_are_over() -> None:
    tables = tuple(
        FaultTable(kind="clock_jump", nodes=("n0",), at_seconds=at, seconds=seconds)
        for at, seconds in ((0.2, 0.4), (0.4, 0.4), (0.6, 9.0))
    )
    run = Run(Scenario(nodes=1, messages=1, seconds=1.0, fault=tables), 1)
    assert run.run().violations == []
    assert run.history.clocks_wrong
    assert run.world.nodes["n0"].clock.ahead_ms == 0
