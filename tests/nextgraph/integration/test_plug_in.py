"""The plug-in `nextgraph` keeps the contract of plug-ins."""

import os
from collections.abc import Sequence
from pathlib import Path

from long_suites import leaves_long
from nextgraph_document import ACCESS, ALICE, BRANCH, INNER, REPO, TOPIC, commit
from rillnode import nextgraph
from rillnode.actors.nextgraph.connection import ConnectionActor
from rillnode.actors.nextgraph.overlay import OverlayActor
from rillnode.actors.nextgraph.reader import ReaderActor
from rillnode.actors.nextgraph.topic import TopicActor
from rillnode.actors.nextgraph.users import UsersActor
from rillnode.node.config import PlugInTable
from rillnode.node.nextgraph.config import NextgraphListener
from rillnode.testing.contract import PlugInContract, Used


# As `test_failing_once` and `test_nextgraph`, and as for Streamr's simulated clients.
@leaves_long(
    "test_an_actor_that_fails_loses_its_message_and_nothing_else",
    "test_what_was_stored_before_a_kill_is_there_after_it",
    "test_a_simulated_run_is_the_same_again",
)
class TestNextgraph(PlugInContract):
    name = "nextgraph"
    listeners = ("nextgraph",)
    actors = (ConnectionActor, OverlayActor, ReaderActor, TopicActor, UsersActor)
    scenario = """
        nodes = 1
        messages = 20
        seconds = 5.0
        nextgraph = { users = 1 }
    """
    wrong = (("[nextgraph]\nlisten = 'x'", "config.value"),)

    def tables(self, directory: Path) -> Sequence[PlugInTable]:
        return (NextgraphListener(listen="127.0.0.1:0", registration="open"),)

    async def use(self, used: Used) -> None:
        url = f"ws://{used.addresses['nextgraph']}"
        broker = bytes.fromhex(used.facts["nextgraph_peer_id"])
        async with await nextgraph.connect(url, user=ALICE, broker=broker) as client:
            await client.pin(REPO, ACCESS, publish=[TOPIC])
            made = await client.publish(INNER, TOPIC, BRANCH, commit(os.urandom(16)))
            assert made.event in [one async for one in client.sync(INNER, TOPIC.public_key)]
