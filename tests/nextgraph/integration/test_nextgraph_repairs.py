"""A NextGraph broker whose store has kept what it refused, and was asked before it knew that."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import pytest

from coroutines import handed_by
from nextgraph_document import ACCESS, ALICE, BRANCH, INNER, REPO, TOPIC, commit
from nodes import node_config, store_with
from rillnode import nextgraph
from rillnode.actors.log.memory import Faults
from rillnode.actors.nextgraph.names import topic_stream
from rillnode.codecs.errors import RequestError
from rillnode.node.nextgraph.config import NextgraphListener
from rillnode.node.runtime import Node

SECONDS: Final = 60.0


def run(
    directory: Path, test: Callable[[Node, Faults, nextgraph.Client], Coroutine[Any, Any, None]]
) -> None:
    """Run a test with a node, its disk, and a client that has pinned the document."""
    config = node_config(directory).having(
        NextgraphListener(listen="127.0.0.1:0", registration="open")
    )

    async def bounded() -> None:
        faults = Faults(repair_seconds=1.0)
        async with (
            asyncio.timeout(SECONDS),
            Node(config, make_store=store_with(faults)) as node,
            await connect(node) as client,
        ):
            await client.pin(REPO, ACCESS, publish=[TOPIC])
            await test(node, faults, client)

    asyncio.run(bounded())


node = handed_by(run)
faults = handed_by(run, 1)
client = handed_by(run, 2)


async def connect(node: Node) -> nextgraph.Client:
    url, broker = f"ws://{node.addresses()['nextgraph']}", node.facts["nextgraph_peer_id"]
    return await nextgraph.connect(url, broker=bytes.fromhex(broker or ""), user=ALICE)


async def refused(asking: Coroutine[Any, Any, object], faults: Faults) -> None:
    """Ask for what the store refuses, and keeps all the same."""
    faults.failing_syncs = faults.surviving = 1
    with pytest.raises(RequestError, match="storage_error"):
        await asking


async def repaired(node: Node) -> None:
    while not all(check.ok for check in node.checks()):
        await asyncio.sleep(0.01)


async def test_an_event_is_found_and_forwarded_that_was_looked_for_too_early(
    node: Node, faults: Faults, client: nextgraph.Client
) -> None:
    made = commit(b"body")
    async with await connect(node) as other:
        subscription = await other.subscribe(INNER, REPO, TOPIC.public_key)
        await refused(client.publish(INNER, TOPIC, BRANCH, made), faults)
        with pytest.raises(RequestError, match="topic_not_found"):
            _ = [event async for event in client.sync(INNER, TOPIC.public_key)]
        await repaired(node)
        forwarded = await anext(subscription)
        assert forwarded.content.blocks == made.blocks
        await client.publish(INNER, TOPIC, BRANCH, made)
        assert [event async for event in client.sync(INNER, TOPIC.public_key)] == [forwarded]
        last = commit(b"last", after=[made.reference.id])
        await client.publish(INNER, TOPIC, BRANCH, last)
        assert (await anext(subscription)).content.blocks == last.blocks
    stream = await node.stream(topic_stream(INNER.id, TOPIC.public_key))
    assert len(await stream.pull()) == 2


async def test_a_pin_is_written_anew_whose_removal_has_happened_after_all(
    node: Node, faults: Faults, client: nextgraph.Client
) -> None:
    await refused(client.unpin(INNER, REPO), faults)
    status = await client.pin_status(INNER, REPO)
    assert status is not None
    await repaired(node)
    assert await client.pin_status(INNER, REPO) is None
    await client.pin(REPO, ACCESS, publish=[TOPIC])
    assert await client.pin_status(INNER, REPO) == status
