"""Runs with NextGraph's clients."""

import os
import subprocess
import sys

import pytest

from rillnode.node.nextgraph.simulation.things import Held
from rillnode.node.nextgraph.simulation.users import NextgraphUser
from rillnode.node.simulation.run import Run
from rillnode.node.simulation.scenario import (
    ClientsTable,
    DiskTable,
    FaultTable,
    NetworkTable,
    RandomFaults,
    Scenario,
)

USERS = Scenario(
    nodes=2,
    messages=20,
    seconds=8.0,
    network=NetworkTable(jitter_ms=5.0, loss=0.02),
    disk=DiskTable(store="memory"),
    clients=ClientsTable(readers=0, examiners=0, nextgraph_users=5),
    random_faults=RandomFaults(count=5),
)

HASH = """
from test_nextgraph_users import USERS
from rillnode.node.simulation.run import Run
print(Run(USERS, 5).run().trace_hash)
"""


def test_a_seed_gives_the_same_trace_in_every_process_and_for_every_hash_seed() -> None:
    here = Run(USERS, 5).run().trace_hash
    path = os.pathsep.join((os.path.dirname(__file__), *sys.path))
    for hash_seed in ("0", "4711"):
        done = subprocess.run(
            [sys.executable, "-c", HASH],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=600,
            check=True,
        )
        assert done.stdout.strip() == here


@pytest.mark.parametrize("seed", range(4))
def test_no_rule_is_broken(seed: int) -> None:
    assert Run(USERS, seed).run().violations == []


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 200, 50))
def test_no_rule_is_broken_by_many_seeds(first: int) -> None:
    for seed in range(first, first + 50):
        assert Run(USERS, seed).run().violations == [], f"seed {seed}"


def test_no_rule_is_broken_in_an_overlay() -> None:
    scenario = Scenario(
        nodes=3,
        degree=2,
        overlay=True,
        messages=20,
        seconds=8.0,
        disk=DiskTable(store="memory"),
        clients=ClientsTable(nextgraph_users=4),
        random_faults=RandomFaults(count=2),
    )
    assert Run(scenario, 1).run().violations == []


def test_nothing_is_promised_of_a_node_whose_disk_is_lost() -> None:
    scenario = Scenario(
        nodes=1,
        seconds=8.0,
        disk=DiskTable(store="memory"),
        clients=ClientsTable(nextgraph_users=3),
        fault=(FaultTable(kind="lost_disk", at_seconds=4.0, seconds=1.0),),
    )
    assert Run(scenario, 1).run().violations == []


def test_they_publish_on_all_topics_follow_each_other_and_pin_and_delete_objects() -> None:
    run = Run(USERS, 0, only=[])
    assert run.run().violations == []
    users = [one for one in run.programs.values() if isinstance(one, NextgraphUser)]
    documents = list(dict.fromkeys(one.document for one in users))
    assert [len(one.own) for one in documents] == [3, 2]
    for document in documents:
        assert all(one.confirmed for one in document.publications.values())
        assert document.confirmed(document.shared.public_key)
    made = [one for document in documents for one in document.publications.values()]
    assert len({one.topic.public_key for one in made}) > len(documents) + 1
    assert any(len(one.parents) > 1 for one in made)
    assert any(one.files for one in made)
    assert any(len(one.commit.blocks) > 2 for one in made)
    things = [thing for document in documents for thing in document.things]
    assert any(thing.deleted for thing in things)
    assert any(thing.stays for thing in things)
    pins = [pin for thing in things for pin in thing.pins.values()]
    assert {Held.CERTAIN, Held.GONE} <= set(pins)
    notes = {event.what for event in run.history.events if event.who in {u.name for u in users}}
    assert {"event", "published", "object", "sync by filter", "sync by heads"} <= notes
