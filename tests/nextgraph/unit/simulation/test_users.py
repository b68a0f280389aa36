"""Runs with NextGraph's clients."""

from rillnode.node.nextgraph.simulation.table import NextgraphClients
from rillnode.node.nextgraph.simulation.things import Held
from rillnode.node.nextgraph.simulation.users import NextgraphUser
from rillnode.node.simulation.run import Run
from rillnode.node.simulation.scenario import DiskTable, FaultTable, Scenario
from simulated_nextgraph import SCENARIO


def test_nothing_is_promised_of_a_node_whose_disk_is_lost() -> None:
    scenario = Scenario(
        nodes=1,
        seconds=8.0,
        disk=DiskTable(store="memory"),
        tables=(NextgraphClients(users=3),),
        fault=(FaultTable(kind="lost_disk", at_seconds=4.0, seconds=1.0),),
    )
    assert Run(scenario, 1).run().violations == []


def test_they_publish_on_all_topics_follow_each_other_and_pin_and_delete_objects() -> None:
    run = Run(SCENARIO, 6, only=[])  # that one run shows all of it is chance
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
